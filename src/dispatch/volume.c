/* Layers with depth: their parts as plans of two axes, what these need, and their calls. */
#include "volume.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/operation.h"
#include "../core/post.h"
#include "../core/status.h"
#include "../cpu/cpu_backend.h"
#include "../cpu/cpu_target.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/cuda_target.h"
#include "choose.h"
#include "impl_list.h"
#include "resolve.h"
#include "volume_plan.h"

/* Bytes of planes that are copied side by side at a time: what the second-level cache of a GPU holds beside the outputs. It is
 * chosen, not measured. */
static const int64_t MOST_COPIED_CUDA = (int64_t)32 << 20;

/* The most depth taps whose borders are parts of their own on the CPU (tconv_volume_parts_create). */
static const int64_t MOST_EXACT_TAPS = 32;

/* The most calls whose gradients of the weights are added up in f32 one after another; beyond that, planes are copied. */
static const int64_t MOST_ADDED = 16;

static bool is_cuda(const tconv_plan *plan)
{
    return plan->layer.target.backend == TCONV_BACKEND_CUDA;
}

static size_t aligned(size_t bytes)
{
    return tconv_align_up(bytes, TCONV_CUDA_ALIGNMENT);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------------------------------------- layers of two axes */

static void release_layer(tconv_plan *layer, const tconv_allocator *allocator)
{
    if (layer == NULL)
        return;
    tconv_release(allocator, layer->made);
    tconv_layer_release_phases(&layer->layer, allocator);
    tconv_release(allocator, layer);
}

/* Plans a layer of two axes by the implementation that the plan names, or by whichever is best. */
static tconv_status plan_layer(const tconv_plan *plan, const tconv_desc *desc, bool packed_before, tconv_plan *layer,
                               tconv_issue *issue)
{
    tconv_status status;
    *layer = *plan;
    layer->made = NULL;
    layer->volume = NULL;
    memset(&layer->layer.rows, 0, sizeof layer->layer.rows);
    memset(&layer->layer.columns, 0, sizeof layer->layer.columns);
    layer->layer.packed_before = packed_before;
    if ((status = tconv_problem_derive(&layer->layer.problem, desc, issue)) ||
        (status = tconv_layer_create_phases(&layer->layer, &plan->allocator, issue)))
        return status;
    status = tconv_plan_choose(layer, issue);
    if (status != TCONV_ERROR_UNSUPPORTED || plan->named == NULL)
        return status;
    tconv_release(&plan->allocator, layer->made);
    tconv_issue_clear(issue);
    layer->made = NULL;
    layer->named = NULL;
    return tconv_plan_choose(layer, issue);
}

/* Makes room for one more layer. */
static tconv_status grow(tconv_volume_plan *volume, const tconv_allocator *allocator, tconv_issue *issue)
{
    void *memory;
    if (volume->layer_count < volume->layer_room)
        return TCONV_SUCCESS;
    const int64_t room = volume->layer_room * 2 + 8;
    const tconv_status status =
        tconv_allocate_for(allocator, (size_t)room * sizeof *volume->layers, "layers", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (volume->layer_count > 0)
        memcpy(memory, volume->layers, (size_t)volume->layer_count * sizeof *volume->layers);
    tconv_release(allocator, volume->layers);
    volume->layers = memory;
    volume->layer_room = room;
    return TCONV_SUCCESS;
}

/* Finds the plan of a layer of two axes, or makes it. */
static tconv_status find_layer(const tconv_plan *plan, const tconv_desc *desc, bool packed_before, int64_t *index,
                               tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    void *memory;
    tconv_status status;
    for (*index = 0; *index < volume->layer_count; ++*index) {
        const tconv_layer *layer = &volume->layers[*index]->layer;
        if (layer->packed_before == packed_before && memcmp(&layer->problem.desc, desc, sizeof *desc) == 0)
            return TCONV_SUCCESS;
    }
    if ((status = grow(volume, &plan->allocator, issue)) ||
        (status = tconv_allocate_for(&plan->allocator, sizeof *plan, "plan", &memory, issue)))
        return status;
    volume->layers[volume->layer_count++] = memory;
    return plan_layer(plan, desc, packed_before, memory, issue);
}

/* ------------------------------------------------------------------------------------------------ descriptions of parts */

static tconv_desc begin_desc(const tconv_problem *problem)
{
    tconv_desc desc = problem->desc;
    desc.in_d = desc.kernel_d = desc.stride_d = desc.dilation_d = 1;
    desc.pad_front = desc.pad_back = desc.output_padding_d = 0;
    desc.src_stride_d = desc.dst_stride_d = desc.addend_stride_d = 0;
    memset(desc.src_strides, 0, sizeof desc.src_strides);
    memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    memset(desc.addend_strides, 0, sizeof desc.addend_strides);
    return desc;
}

/* Sets strides of planes as they lie, which are `image` apart. */
static void lie(int64_t strides[4], const tconv_strides *from, int64_t image)
{
    strides[0] = image;
    strides[1] = from->c;
    strides[2] = from->h;
    strides[3] = from->w;
}

/* The distance of images that a call takes: of planes where it has several, else of volumes. */
static int64_t distance(const tconv_strides *strides, const tconv_plane_walk *walk, int64_t planes)
{
    return planes > 1 ? walk->step * strides->d : strides->n;
}

/* Whether all planes of all volumes are equally far apart. */
static bool merges(const tconv_problem *problem, const tconv_strides *strides, const tconv_plane_walk *walk,
                   int64_t planes)
{
    return problem->batch <= 1 || planes == 1 || strides->n == planes * walk->step * strides->d;
}

/* Makes an axis one of outputs without a tap: of two inputs, one falls before the first and one behind the last. */
static void remove_taps(int64_t outputs, int64_t *in, int64_t *kernel, int64_t *stride, int64_t *dilation,
                        int64_t *begin, int64_t *end, int64_t *output_padding)
{
    *in = 2;
    *kernel = *dilation = 1;
    *stride = outputs + 1;
    *begin = *end = 1;
    *output_padding = 0;
}

/* Describes planes of outputs that are the bias. Neighbours are rows of one image. */
static tconv_desc describe_bias(const tconv_problem *problem, const tconv_volume_part *part, int64_t volumes,
                                int64_t planes)
{
    const bool rows = part->dst.step == 1;
    tconv_desc desc = begin_desc(problem);
    desc.batch = rows ? volumes : volumes * planes;
    desc.in_channels = problem->groups;
    remove_taps((rows ? planes : 1) * problem->h.out, &desc.in_h, &desc.kernel_h, &desc.stride_h, &desc.dilation_h,
                &desc.pad_top, &desc.pad_bottom, &desc.output_padding_h);
    remove_taps(problem->w.out, &desc.in_w, &desc.kernel_w, &desc.stride_w, &desc.dilation_w, &desc.pad_left,
                &desc.pad_right, &desc.output_padding_w);
    lie(desc.dst_strides, &problem->dst, rows ? problem->dst.n : distance(&problem->dst, &part->dst, planes));
    if (problem->addend_extent > 0)
        lie(desc.addend_strides, &problem->addend,
            rows ? problem->addend.n : distance(&problem->addend, &part->dst, planes));
    return desc;
}

/* Describes a call of a part. */
static tconv_desc describe(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made,
                           int64_t volumes, int64_t planes, bool again)
{
    if (made->kind == BIAS)
        return describe_bias(problem, part, volumes, planes);
    tconv_desc desc = begin_desc(problem);
    desc.batch = volumes * planes;
    if (made->copies_src)
        desc.in_channels *= part->taps;
    else
        lie(desc.src_strides, &problem->src, distance(&problem->src, &part->src, planes));
    if (made->copies_dst)
        desc.out_channels *= part->taps;
    else
        lie(desc.dst_strides, &problem->dst, distance(&problem->dst, &part->dst, planes));
    if (problem->addend_extent > 0)
        lie(desc.addend_strides, &problem->addend, distance(&problem->addend, &part->dst, planes));
    desc.accumulate = desc.accumulate || again;
    return desc;
}

/* Describes the layer whose gradient of the bias is the layer's: planes are rows. */
static tconv_desc describe_bias_gradient(const tconv_problem *problem)
{
    tconv_desc desc = begin_desc(problem);
    desc.in_channels = problem->groups;
    desc.in_h = problem->d.out * problem->h.out;
    desc.in_w = problem->w.out;
    desc.kernel_h = desc.kernel_w = desc.stride_h = desc.stride_w = desc.dilation_h = desc.dilation_w = 1;
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = 0;
    desc.output_padding_h = desc.output_padding_w = 0;
    lie(desc.dst_strides, &problem->dst, problem->dst.n);
    return desc;
}

/* ------------------------------------------------------------------------------------------------------- cutting parts */

/* Elements of src, or of dst, that one plane has. */
static int64_t plane_elements(const tconv_problem *problem, bool src)
{
    return src ? problem->in_channels * problem->h.in * problem->w.in
               : problem->out_channels * problem->h.out * problem->w.out;
}

/* How many of `have` a call takes, at most `limit`: as even as they come, all alike where they can be. */
static int64_t share(int64_t have, int64_t limit)
{
    if (have <= limit)
        return have;
    const int64_t least = tconv_ceil_div(have, tconv_max(limit, 1));
    for (int64_t calls = least; calls <= 2 * least; calls++)
        if (have % calls == 0)
            return have / calls;
    return tconv_ceil_div(have, least);
}

/* Bytes of copied planes that a call may have. */
static int64_t most_copied(const tconv_plan *plan)
{
    if (is_cuda(plan))
        return MOST_COPIED_CUDA;
    const tconv_cpu_target cpu = tconv_cpu_target_of(&plan->layer.target);
    return tconv_max((int64_t)cpu.l2_bytes, (int64_t)1 << 20) * cpu.threads;
}

/* Decides what is copied, and how many planes and volumes a call takes. */
static void cut_calls(const tconv_plan *plan, const tconv_volume_part *part, part_plan *made)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t volumes = problem->batch, size = (int64_t)problem->element_size;
    const bool weights = made->kind == KERNEL;
    made->copies_src = made->kind == SUM && part->taps > 1 && problem->desc.op == TCONV_FORWARD;
    made->copies_dst = made->kind == SUM && part->taps > 1 && problem->desc.op == TCONV_BACKWARD_DATA;
    const bool src_merges = merges(problem, &problem->src, &part->src, part->images);
    const bool dst_merges = merges(problem, &problem->dst, &part->dst, part->images);
    bool all = (made->copies_src || made->kind == BIAS || src_merges) && (made->copies_dst || dst_merges) &&
               (problem->addend_extent == 0 || merges(problem, &problem->addend, &part->dst, part->images));
    if (made->kind == BIAS && part->dst.step == 1)
        all = true;
    if (weights && !all && (size == 2 || tconv_min(volumes, part->images) > MOST_ADDED)) {
        made->copies_src = !src_merges;
        made->copies_dst = !dst_merges;
        all = true;
    }
    int64_t limit = INT64_MAX;
    if (!weights && (made->copies_src || made->copies_dst))
        limit = tconv_max(1, most_copied(plan) / size / part->taps / plane_elements(problem, made->copies_src));
    made->volumes = made->planes = 1;
    if (all && part->images <= limit) {
        made->planes = part->images;
        made->volumes = share(volumes, limit / part->images);
    } else if (all || volumes <= part->images) {
        made->planes = share(part->images, limit);
    } else {
        made->volumes = share(volumes, limit);
    }
}

static int64_t calls_of(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made)
{
    if (made->kind == FLAT)
        return 1;
    if (made->kind == ZERO || problem->batch == 0)
        return 0;
    return tconv_ceil_div(problem->batch, made->volumes) * tconv_ceil_div(part->images, made->planes);
}

/* Whether the weights of a part are no layer's where they lie. */
static bool copies_weights(const tconv_problem *problem, const tconv_volume_part *part)
{
    if (problem->d.kernel == 1)
        return false;
    return part->taps > 1 || problem->desc.weight_layout != TCONV_WEIGHT_HWOI;
}

/* Products of all calls of a part, as far as layers are compared by them. */
static double work_of(const tconv_problem *problem, const tconv_volume_part *part)
{
    return (double)part->images * (double)tconv_max(part->taps, 0) * (double)tconv_max(problem->batch, 1);
}

/* Plans the layer of a slot; counts what it needs in `packed`, where weights that are packed for the part end, and `scratch`. */
static tconv_status plan_slot(tconv_plan *plan, part_plan *made, int slot, const tconv_desc *desc, bool packed_before,
                              size_t *packed, size_t *scratch, tconv_issue *issue)
{
    tconv_status status = find_layer(plan, desc, packed_before, &made->layers[slot], issue);
    if (status != TCONV_SUCCESS)
        return status;
    const tconv_plan *layer = plan->volume->layers[made->layers[slot]];
    made->packed_at[slot] = *packed;
    if (packed_before || !layer->sizes.reads_unpacked)
        *packed += aligned(layer->sizes.packed);
    *scratch = most(*scratch, layer->sizes.scratch);
    return TCONV_SUCCESS;
}

/* Plans the calls of a part. Returns through *packed and *scratch what they need. */
static tconv_status plan_calls(tconv_plan *plan, const tconv_volume_part *part, part_plan *made, size_t *packed,
                               size_t *scratch, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t calls = calls_of(problem, part, made), last_volumes = problem->batch % tconv_max(made->volumes, 1);
    const int64_t last_planes = part->images % made->planes;
    const bool packed_before = plan->layer.packed_before || (calls > 1 && made->kind != KERNEL);
    for (int slot = 0; slot < SLOTS; slot++) {
        const bool fewer_volumes = (slot & FEWER_VOLUMES) != 0, fewer_planes = (slot & FEWER_PLANES) != 0;
        const bool again = (slot & AGAIN) != 0, only = problem->batch < made->volumes;
        made->layers[slot] = -1;
        if ((fewer_volumes && last_volumes == 0) || (fewer_planes && last_planes == 0) ||
            (again && (made->kind != KERNEL || calls == 1)) || (!fewer_volumes && only))
            continue;
        const tconv_desc desc = describe(problem, part, made, fewer_volumes ? last_volumes : made->volumes,
                                         fewer_planes ? last_planes : made->planes, again);
        const tconv_status status = plan_slot(plan, made, slot, &desc, packed_before, packed, scratch, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

/* Counts the part's layers among those of the plan. */
static void count_work(tconv_plan *plan, const tconv_volume_part *part, const part_plan *made)
{
    tconv_volume_plan *volume = plan->volume;
    const double work = work_of(&plan->layer.problem, part);
    if (made->layers[0] < 0)
        return;
    plan->seconds += volume->layers[made->layers[0]]->seconds * (double)calls_of(&plan->layer.problem, part, made);
    if (volume->main < 0 || work > volume->main_work) {
        volume->main = made->layers[0];
        volume->main_work = work;
    }
}

/* Bytes of the weights that a part has as a layer's. */
static int64_t weight_bytes(const tconv_problem *problem, const tconv_volume_part *part)
{
    return part->taps * problem->in_channels * problem->group_out * problem->h.kernel * problem->w.kernel *
           (int64_t)problem->element_size;
}

static tconv_status plan_part(tconv_plan *plan, const tconv_volume_part *part, part_plan *made, size_t *packed_all,
                              tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    tconv_volume_plan *volume = plan->volume;
    const int64_t size = (int64_t)problem->element_size;
    size_t packed = 0, scratch = 0;
    const tconv_op op = problem->desc.op;
    for (int slot = 0; slot < SLOTS; slot++)
        made->layers[slot] = -1;
    made->kind = op == TCONV_BACKWARD_WEIGHTS ? (part->taps > 0 && problem->batch > 0 ? KERNEL : ZERO)
                 : part->taps > 0             ? SUM
                 : op == TCONV_FORWARD        ? BIAS
                                              : ZERO;
    if (made->kind == ZERO)
        return TCONV_SUCCESS;
    made->copies_weights = made->kind != BIAS && copies_weights(problem, part);
    cut_calls(plan, part, made);
    const tconv_status status = plan_calls(plan, part, made, &packed, &scratch, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t images = made->volumes * made->planes * part->taps;
    const size_t src = made->copies_src ? aligned((size_t)(images * plane_elements(problem, true) * size)) : 0;
    const size_t dst = made->copies_dst ? aligned((size_t)(images * plane_elements(problem, false) * size)) : 0;
    volume->src_bytes = most(volume->src_bytes, src);
    volume->dst_bytes = most(volume->dst_bytes, dst);
    if (made->copies_weights) {
        size_t *const bytes =
            plan->layer.packed_before && made->kind == SUM ? &volume->packing_bytes : &volume->weights_bytes;
        *bytes = most(*bytes, aligned((size_t)weight_bytes(problem, part)));
    }
    made->packed_bytes = plan->layer.packed_before ? 0 : packed;
    volume->inner_bytes = most(volume->inner_bytes, made->packed_bytes + scratch);
    if (plan->layer.packed_before)
        for (int slot = 0; slot < SLOTS; slot++)
            made->packed_at[slot] += *packed_all;
    *packed_all += packed;
    count_work(plan, part, made);
    return TCONV_SUCCESS;
}

/* Plans the gradient of the bias, which no part has. */
static tconv_status plan_bias(tconv_plan *plan, tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    if (plan->layer.problem.desc.op != TCONV_BACKWARD_WEIGHTS)
        return TCONV_SUCCESS;
    const tconv_desc desc = describe_bias_gradient(&plan->layer.problem);
    const tconv_status status = find_layer(plan, &desc, plan->layer.packed_before, &volume->bias, issue);
    if (status == TCONV_SUCCESS)
        volume->inner_bytes = most(volume->inner_bytes, volume->layers[volume->bias]->sizes.scratch);
    return status;
}

static tconv_status plan_flat(tconv_plan *plan, const tconv_desc *flat, size_t *packed, tconv_issue *issue)
{
    const tconv_volume_part all = {.images = 1, .taps = 1, .whole = true};
    tconv_volume_plan *volume = plan->volume;
    part_plan *made = volume->plans;
    size_t scratch = 0;
    tconv_status status;
    for (int slot = 0; slot < SLOTS; slot++)
        made->layers[slot] = -1;
    made->kind = FLAT;
    if ((status = plan_slot(plan, made, 0, flat, plan->layer.packed_before, packed, &scratch, issue)))
        return status;
    made->packed_bytes = plan->layer.packed_before ? 0 : *packed;
    volume->inner_bytes = made->packed_bytes + scratch;
    count_work(plan, &all, made);
    return TCONV_SUCCESS;
}

/* Whether the implementation that the plan names computes a part, or the plan names none. */
static bool has_named(const tconv_plan *plan)
{
    bool any = plan->named == NULL;
    for (int64_t i = 0; i < plan->volume->layer_count; i++)
        any |= plan->volume->layers[i]->implementation == plan->named;
    return any;
}

/* The last implementation of the plan's operation and backend: it stands for a plan that has nothing to compute. */
static const tconv_implementation *last_implementation(const tconv_plan *plan)
{
    const tconv_implementation *at, *last = NULL;
    for (size_t i = 0; (at = tconv_implementation_at(plan->layer.problem.desc.op, i)) != NULL; i++)
        if (at->backend == plan->layer.target.backend)
            last = at;
    return plan->named != NULL ? plan->named : last;
}

static tconv_status plan_parts(tconv_plan *plan, size_t *packed, tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    const bool exact = !is_cuda(plan) && plan->layer.problem.d.kernel <= MOST_EXACT_TAPS;
    tconv_desc flat;
    void *memory;
    tconv_status status;
    const bool is_flat = tconv_volume_flatten(&plan->layer.problem, &flat);
    if (!is_flat &&
        (status = tconv_volume_parts_create(&plan->layer.problem, exact, &plan->allocator, &volume->parts, issue)))
        return status;
    volume->plan_count = is_flat ? 1 : volume->parts.count;
    const size_t bytes = (size_t)volume->plan_count * sizeof *volume->plans;
    if ((status = tconv_allocate_for(&plan->allocator, bytes, "parts", &memory, issue)))
        return status;
    volume->plans = memset(memory, 0, bytes);
    if (is_flat)
        return plan_flat(plan, &flat, packed, issue);
    for (int64_t i = 0; i < volume->plan_count; i++)
        if ((status = plan_part(plan, &volume->parts.parts[i], &volume->plans[i], packed, issue)))
            return status;
    return plan_bias(plan, issue);
}

tconv_status tconv_volume_choose(tconv_plan *plan, tconv_issue *issue)
{
    size_t packed = 0;
    void *memory;
    tconv_status status = tconv_allocate_for(&plan->allocator, sizeof *plan->volume, "plan", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    plan->volume = memset(memory, 0, sizeof *plan->volume);
    plan->volume->main = plan->volume->bias = -1;
    plan->seconds = 0;
    if ((status = plan_parts(plan, &packed, issue)))
        return status;
    if (plan->volume->layer_count > 0 && !has_named(plan))
        return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation",
                          "implementation = %.40s: takes no part of this layer with depth", plan->named->name);
    const tconv_plan *main = tconv_volume_main(plan->volume);
    plan->implementation = main != NULL ? main->implementation : last_implementation(plan);
    plan->sizes = (tconv_memory_sizes){.packed = plan->layer.packed_before ? packed : 0,
                                       .scratch = plan->volume->weights_bytes + plan->volume->src_bytes +
                                                  plan->volume->dst_bytes + plan->volume->inner_bytes,
                                       .execute_packs = true,
                                       .reads_unpacked = true};
    return TCONV_SUCCESS;
}

void tconv_volume_release(tconv_volume_plan *volume, const tconv_allocator *allocator)
{
    if (volume == NULL)
        return;
    for (int64_t i = 0; i < volume->layer_count; i++)
        release_layer(volume->layers[i], allocator);
    tconv_release(allocator, volume->layers);
    tconv_release(allocator, volume->plans);
    tconv_volume_parts_release(&volume->parts, allocator);
    tconv_release(allocator, volume);
}

bool tconv_volume_is_batch_invariant(const tconv_volume_plan *volume)
{
    for (int64_t i = 0; i < volume->layer_count; i++) {
        const tconv_plan *layer = volume->layers[i];
        if (!tconv_is_batch_invariant(layer->implementation, &layer->layer, layer->made))
            return false;
    }
    return true;
}

int64_t tconv_volume_calls(const tconv_plan *plan)
{
    const tconv_volume_plan *volume = plan->volume;
    int64_t calls = 0;
    for (int64_t i = 0; i < volume->plan_count; i++)
        calls += volume->plans[i].kind == FLAT
                     ? 1
                     : calls_of(&plan->layer.problem, &volume->parts.parts[i], &volume->plans[i]);
    return calls;
}

const tconv_plan *tconv_volume_main(const tconv_volume_plan *volume)
{
    return volume->main >= 0 ? volume->layers[volume->main] : NULL;
}
