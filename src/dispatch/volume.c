/* Layers with depth: their parts as plans of two axes, what these need, and their calls. */
#include "volume.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/status.h"
#include "impl_list.h"
#include "volume_plan.h"

/* Bytes of a tap's channels that kernels take at a time; of elements of 16 bits half as many where a tap has no more. */
static const int64_t WHOLE_TAP_BYTES = 128;

/* The most depth taps whose borders are parts of their own on the CPU (tconv_volume_parts_create). */
static const int64_t MOST_EXACT_TAPS = 32;

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
static tconv_status plan_slot(tconv_plan *plan, part_plan *made, int slot, const plane_layer *wanted, size_t *packed,
                              size_t *scratch, tconv_issue *issue)
{
    tconv_status status = tconv_volume_find_layer(plan, wanted, &made->layers[slot], issue);
    if (status != TCONV_SUCCESS)
        return status;
    const tconv_plan *layer = plan->volume->layers[made->layers[slot]];
    made->packed_at[slot] = *packed;
    if (plan->holds_packed || wanted->packed_before || !layer->sizes.reads_unpacked)
        *packed += aligned(layer->sizes.packed);
    *scratch = most(*scratch, layer->sizes.scratch);
    return TCONV_SUCCESS;
}

/* Plans the calls of a part. Returns through *packed and *scratch what they need. */
static tconv_status plan_calls(tconv_plan *plan, const tconv_volume_part *part, part_plan *made, size_t *packed,
                               size_t *scratch, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t calls = tconv_volume_calls_of(problem, part, made),
                  last_volumes = problem->batch % tconv_max(made->volumes, 1);
    const int64_t last_planes = part->images % made->planes;
    plane_layer wanted = {.taps = tconv_volume_plane_taps(problem, part, made),
                          .volumes = tconv_volume_image_volumes(problem, made),
                          .stacked = made->stacked,
                          .packed_before =
                              plan->layer.packed_before || (calls > 1 && made->kind != KERNEL && !plan->holds_packed)};
    for (int slot = 0; slot < SLOTS; slot++) {
        const bool fewer_volumes = (slot & FEWER_VOLUMES) != 0, fewer_planes = (slot & FEWER_PLANES) != 0;
        const bool again = (slot & AGAIN) != 0, only = problem->batch < made->volumes;
        made->layers[slot] = -1;
        if ((fewer_volumes && last_volumes == 0) || (fewer_planes && last_planes == 0) ||
            (again && (made->kind != KERNEL || calls == 1)) || (!fewer_volumes && only))
            continue;
        wanted.desc = tconv_volume_describe_call(problem, part, made, fewer_volumes ? last_volumes : made->volumes,
                                                 fewer_planes ? last_planes : made->planes, again);
        const tconv_status status = plan_slot(plan, made, slot, &wanted, packed, scratch, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

/* Seconds of the copies of planes of src or of dst for a call. */
static double seconds_of_planes(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made,
                                bool src)
{
    const int64_t images = made->volumes * made->planes * part->taps, size = (int64_t)problem->element_size;
    const int64_t pixels = src ? problem->h.in * problem->w.in : problem->h.out * problem->w.out;
    const int64_t channels = src ? problem->group_in : problem->group_out;
    return tconv_volume_copy_seconds((double)(images * tconv_volume_plane_elements(problem, src) * size),
                                     size * (problem->layout == TCONV_NHWC ? channels : pixels));
}

/* Seconds of all calls of a part by prediction, copies of planes among them. */
static double seconds_of(const tconv_plan *plan, const tconv_volume_part *part, const part_plan *made)
{
    const tconv_problem *problem = &plan->layer.problem;
    double seconds = plan->volume->layers[made->layers[0]]->seconds;
    if (made->copies_src)
        seconds += seconds_of_planes(problem, part, made, true);
    if (made->copies_dst)
        seconds += seconds_of_planes(problem, part, made, false);
    const bool copies = made->copies_weights && !plan->holds_packed;
    return (double)tconv_volume_calls_of(problem, part, made) * seconds + (copies ? TCONV_VOLUME_LAUNCH_SECONDS : 0);
}

/* Counts the part's layers among those of the plan. */
static void count_work(tconv_plan *plan, const tconv_volume_part *part, const part_plan *made)
{
    tconv_volume_plan *volume = plan->volume;
    const double work = work_of(&plan->layer.problem, part);
    if (made->layers[0] < 0)
        return;
    plan->seconds += made->kind == FLAT ? volume->layers[made->layers[0]]->seconds : seconds_of(plan, part, made);
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

/* Whether a call may take all volumes as they lie, and that is not what the calls of a part do already. */
static bool may_take_volumes(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made)
{
    return problem->batch > 1 && (made->tap_channels > 0 || tconv_volume_calls_of(problem, part, made) > 1) &&
           (problem->addend_extent == 0 ||
            (problem->addend.n == problem->dst.n && problem->addend.d == problem->dst.d));
}

/* What the calls of a part need, and their seconds by prediction. */
struct part_needs {
    size_t packed, scratch;
    double seconds;
};

bool tconv_volume_is_none(tconv_status *status, tconv_issue *issue)
{
    const tconv_status found = *status;
    if (found == TCONV_ERROR_UNSUPPORTED || found == TCONV_ERROR_OVERFLOW) {
        tconv_issue_clear(issue);
        *status = TCONV_SUCCESS;
    }
    return found != TCONV_SUCCESS;
}

/* Plans the calls of a part in another way, and takes that where it is predicted to be faster. UNSUPPORTED or OVERFLOW where
 * no implementation has it. */
static tconv_status try_calls(tconv_plan *plan, const tconv_volume_part *part, const part_plan *trial, part_plan *made,
                              struct part_needs *needs, tconv_issue *issue)
{
    part_plan tried = *trial;
    struct part_needs its = {0};
    const tconv_status status = plan_calls(plan, part, &tried, &its.packed, &its.scratch, issue);
    if (status != TCONV_SUCCESS)
        return status;
    its.seconds = seconds_of(plan, part, &tried);
    if (its.seconds < needs->seconds) {
        *made = tried;
        *needs = its;
    }
    return TCONV_SUCCESS;
}

/* Tries to have planes read where they lie, of each tap as so many channels (0: there is one tap): all volumes in one call, else
 * one volume in each. */
static tconv_status try_in_place(tconv_plan *plan, const tconv_volume_part *part, int64_t tap_channels, part_plan *made,
                                 struct part_needs *needs, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    tconv_status status = TCONV_SUCCESS;
    bool none = true;
    part_plan trial = *made;
    trial.copies_src = trial.copies_dst = false;
    trial.copies_weights = made->copies_weights && tap_channels == 0;
    trial.tap_channels = tap_channels;
    trial.planes = part->images;
    if (may_take_volumes(problem, part, &trial)) {
        trial.by_volumes = true;
        trial.volumes = problem->batch;
        status = try_calls(plan, part, &trial, made, needs, issue);
        none = tconv_volume_is_none(&status, issue);
    }
    if (tap_channels > 0 && none && status == TCONV_SUCCESS) {
        trial.by_volumes = false;
        trial.volumes = 1;
        status = try_calls(plan, part, &trial, made, needs, issue);
        tconv_volume_is_none(&status, issue);
    }
    return status;
}

/* The channels that a tap of so many channels is rounded up to, so that kernels take it at a time. */
static int64_t whole_tap(const tconv_problem *problem, int64_t channels)
{
    const int64_t size = (int64_t)problem->element_size, whole = WHOLE_TAP_BYTES / size;
    return tconv_round_up(channels, size == 2 && channels <= whole / 2 ? whole / 2 : whole);
}

/* Plans the calls of a part by copies, or where an implementation is predicted to be faster by planes as they lie. */
static tconv_status plan_best_calls(tconv_plan *plan, const tconv_volume_part *part, part_plan *made,
                                    struct part_needs *needs, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    tconv_volume_cut_calls(plan, part, made);
    tconv_status status = plan_calls(plan, part, made, &needs->packed, &needs->scratch, issue);
    if (status != TCONV_SUCCESS || !is_cuda(plan) || made->kind == KERNEL || problem->batch == 0)
        return status;
    const bool copies = made->copies_src || made->copies_dst;
    const int64_t held = made->copies_src ? problem->in_channels : problem->out_channels;
    const int64_t whole = whole_tap(problem, held);
    needs->seconds = seconds_of(plan, part, made);
    if (!copies || problem->groups == 1)
        status = try_in_place(plan, part, copies ? held : 0, made, needs, issue);
    if (status == TCONV_SUCCESS && copies && problem->groups == 1 && whole != held)
        status = try_in_place(plan, part, whole, made, needs, issue);
    return status;
}

static tconv_status plan_part(tconv_plan *plan, const tconv_volume_part *part, part_plan *made, size_t *packed_all,
                              tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    tconv_volume_plan *volume = plan->volume;
    const int64_t size = (int64_t)problem->element_size;
    struct part_needs needs = {0};
    const tconv_op op = problem->desc.op;
    made->kind = op == TCONV_BACKWARD_WEIGHTS ? (part->taps > 0 && problem->batch > 0 ? KERNEL : ZERO)
                 : part->taps > 0             ? SUM
                 : op == TCONV_FORWARD        ? BIAS
                                              : ZERO;
    if (made->kind == ZERO)
        return TCONV_SUCCESS;
    made->copies_weights = made->kind != BIAS && copies_weights(problem, part);
    const tconv_status status = plan_best_calls(plan, part, made, &needs, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t images = made->volumes * made->planes * part->taps;
    size_t src = made->copies_src ? aligned((size_t)(images * tconv_volume_plane_elements(problem, true) * size)) : 0;
    if (made->kind == BIAS && made->layers[0] >= 0) /* inputs without an output, which may be read */
        src = aligned((size_t)(volume->layers[made->layers[0]]->layer.problem.src_extent * size));
    const size_t dst =
        made->copies_dst ? aligned((size_t)(images * tconv_volume_plane_elements(problem, false) * size)) : 0;
    volume->src_bytes = most(volume->src_bytes, src);
    volume->dst_bytes = most(volume->dst_bytes, dst);
    if (made->copies_weights) {
        size_t *const bytes = plan->holds_packed && made->kind == SUM ? &volume->packing_bytes : &volume->weights_bytes;
        *bytes = most(*bytes, aligned((size_t)weight_bytes(problem, part)));
    }
    made->packed_bytes = plan->holds_packed ? 0 : needs.packed;
    volume->inner_bytes = most(volume->inner_bytes, made->packed_bytes + needs.scratch);
    if (plan->holds_packed)
        for (int slot = 0; slot < SLOTS; slot++)
            made->packed_at[slot] += *packed_all;
    *packed_all += needs.packed;
    count_work(plan, part, made);
    return TCONV_SUCCESS;
}

/* The last implementation of the plan's operation and backend. */
static const tconv_implementation *last_implementation(const tconv_plan *plan)
{
    const tconv_implementation *at, *last = NULL;
    for (size_t i = 0; (at = tconv_implementation_at(plan->layer.problem.desc.op, i)) != NULL; i++)
        if (at->backend == plan->layer.target.backend)
            last = at;
    return last;
}

/* Plans the gradient of the bias, which no part has. On CUDA it is the last implementation's, which has a pass for it: what the
 * others are predicted to take is of weights, which nobody wants of this layer. */
static tconv_status plan_bias(tconv_plan *plan, tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    tconv_plan by_pass = *plan;
    if (plan->layer.problem.desc.op != TCONV_BACKWARD_WEIGHTS)
        return TCONV_SUCCESS;
    if (is_cuda(plan))
        by_pass.named = last_implementation(plan);
    const plane_layer wanted = {.desc = tconv_volume_describe_bias_gradient(&plan->layer.problem),
                                .packed_before = plan->layer.packed_before};
    const tconv_status status = tconv_volume_find_layer(&by_pass, &wanted, &volume->bias, issue);
    if (status == TCONV_SUCCESS)
        volume->inner_bytes = most(volume->inner_bytes, volume->layers[volume->bias]->sizes.scratch);
    return status;
}

static tconv_status plan_flat(tconv_plan *plan, const tconv_desc *flat, size_t *packed, tconv_issue *issue)
{
    const plane_layer wanted = {.desc = *flat, .packed_before = plan->layer.packed_before};
    const tconv_volume_part all = {.images = 1, .taps = 1, .whole = true};
    tconv_volume_plan *volume = plan->volume;
    part_plan *made = volume->plans;
    size_t scratch = 0;
    tconv_status status;
    made->kind = FLAT;
    if ((status = plan_slot(plan, made, 0, &wanted, packed, &scratch, issue)))
        return status;
    made->packed_bytes = plan->holds_packed ? 0 : *packed;
    volume->inner_bytes = made->packed_bytes + scratch;
    count_work(plan, &all, made);
    return TCONV_SUCCESS;
}

/* Whether the implementation that the plan names computes a part, or the plan names none, or there is nothing to compute. */
static bool has_named(const tconv_plan *plan)
{
    bool any = plan->named == NULL || plan->volume->main < 0;
    for (int64_t i = 0; i < plan->volume->plan_count; i++)
        for (int slot = 0; slot < SLOTS; slot++) {
            const tconv_plan *layer = tconv_volume_layer_of(plan->volume, i, slot);
            any |= layer != NULL && layer->implementation == plan->named;
        }
    return any;
}

/* Plans so many parts, or of a layer that is flat in memory the one that it is. */
static tconv_status plan_all(tconv_plan *plan, const tconv_desc *flat, size_t *packed, tconv_issue *issue)
{
    tconv_volume_plan *volume = plan->volume;
    void *memory;
    tconv_status status;
    volume->plan_count = flat != NULL ? 1 : volume->parts.count;
    const size_t bytes = (size_t)volume->plan_count * sizeof *volume->plans;
    if ((status = tconv_allocate_for(&plan->allocator, bytes, "parts", &memory, issue)))
        return status;
    volume->plans = memset(memory, 0, bytes);
    for (int64_t i = 0; i < volume->plan_count; i++)
        for (int slot = 0; slot < SLOTS; slot++)
            volume->plans[i].layers[slot] = -1;
    if (flat != NULL)
        return plan_flat(plan, flat, packed, issue);
    for (int64_t i = 0; i < volume->plan_count; i++)
        if ((status = plan_part(plan, &volume->parts.parts[i], &volume->plans[i], packed, issue)))
            return status;
    return plan_bias(plan, issue);
}

/* Plans all outputs as rows of one image for each plane of src. */
static tconv_status plan_stack(tconv_plan *plan, part_plan *made, const tconv_volume_part *part, size_t *packed,
                               size_t *scratch, tconv_issue *issue)
{
    *made = (part_plan){.kind = SUM, .stacked = true};
    tconv_volume_cut_calls(plan, part, made);
    return plan_calls(plan, part, made, packed, scratch, issue);
}

/* Has a plan that was tried take the place of all parts. */
static void take_instead(tconv_plan *plan, const tconv_volume_part *part, const part_plan *made, size_t packed,
                         size_t scratch)
{
    tconv_volume_plan *volume = plan->volume;
    volume->parts.parts[0] = *part;
    volume->plans[0] = *made;
    volume->parts.count = volume->plan_count = 1;
    volume->weights_bytes = volume->src_bytes = volume->dst_bytes = volume->packing_bytes = 0;
    volume->plans[0].packed_bytes = plan->holds_packed ? 0 : packed;
    volume->inner_bytes = volume->plans[0].packed_bytes + scratch;
    volume->main = volume->bias = -1;
    plan->seconds = 0;
    count_work(plan, part, made);
}

/* Has an implementation compute the gradients of the weights and of the bias at once, by planes as they lie, where it is predicted
 * to be faster by that than by a part for each kernel plane. */
static tconv_status try_whole(tconv_plan *plan, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    const plane_layer wanted = {.desc = problem->desc, .packed_before = plan->layer.packed_before};
    const tconv_volume_part all = {.images = 1, .taps = problem->d.kernel, .whole = true};
    part_plan made = {.kind = FLAT};
    size_t packed = 0, scratch = 0;
    if (!is_cuda(plan) || problem->desc.op != TCONV_BACKWARD_WEIGHTS || problem->batch == 0)
        return TCONV_SUCCESS;
    for (int slot = 0; slot < SLOTS; slot++)
        made.layers[slot] = -1;
    tconv_status status = plan_slot(plan, &made, 0, &wanted, &packed, &scratch, issue);
    if (tconv_volume_is_none(&status, issue))
        return status;
    if (plan->volume->layers[made.layers[0]]->seconds < plan->seconds)
        take_instead(plan, &all, &made, packed, scratch);
    return TCONV_SUCCESS;
}

/* Has all outputs be rows of one image for each plane of src, where an implementation is predicted to be faster by that than
 * by a part for each phase of depth: a launch takes the place of several, and src is read once. */
static tconv_status try_stack(tconv_plan *plan, size_t *packed, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    const tconv_volume_part part = {
        .images = problem->d.in, .taps = 1, .src = {0, 1, 0}, .dst = {0, problem->d.stride, 0}, .whole = true};
    part_plan made;
    size_t stack_packed = 0, scratch = 0;
    if (!is_cuda(plan) || !tconv_volume_stacks(problem) || problem->batch == 0)
        return TCONV_SUCCESS;
    tconv_status status = plan_stack(plan, &made, &part, &stack_packed, &scratch, issue);
    if (tconv_volume_is_none(&status, issue) || seconds_of(plan, &part, &made) >= plan->seconds)
        return status;
    take_instead(plan, &part, &made, stack_packed, scratch);
    *packed = stack_packed;
    return TCONV_SUCCESS;
}

static tconv_status plan_parts(tconv_plan *plan, size_t *packed, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->layer.problem;
    const bool exact = !is_cuda(plan) && problem->d.kernel <= MOST_EXACT_TAPS;
    tconv_desc flat;
    tconv_status status;
    if (tconv_volume_flatten(problem, &flat))
        return plan_all(plan, &flat, packed, issue);
    if ((status = tconv_volume_parts_create(problem, exact, &plan->allocator, &plan->volume->parts, issue)) ||
        (status = plan_all(plan, NULL, packed, issue)) || (status = try_stack(plan, packed, issue)))
        return status;
    return try_whole(plan, issue);
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
    if (!has_named(plan))
        return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation",
                          "implementation = %.40s: takes no part of this layer with depth", plan->named->name);
    const tconv_plan *main = tconv_volume_main(plan->volume);
    plan->implementation = main != NULL          ? main->implementation
                           : plan->named != NULL ? plan->named /* which stands for a plan that has nothing to compute */
                                                 : last_implementation(plan);
    plan->sizes = (tconv_memory_sizes){.packed = plan->holds_packed ? packed : 0,
                                       .scratch = plan->volume->weights_bytes + plan->volume->src_bytes +
                                                  plan->volume->dst_bytes + plan->volume->inner_bytes,
                                       .execute_packs = true,
                                       .reads_unpacked = true};
    return plan->volume->parts.count == 0 ? TCONV_SUCCESS
                                          : tconv_volume_try_view(plan, issue); /* 0: a layer of two axes in memory */
}

void tconv_volume_release(tconv_volume_plan *volume, const tconv_allocator *allocator)
{
    if (volume == NULL)
        return;
    tconv_volume_release_view(&volume->view, allocator);
    tconv_volume_release_layers(volume, allocator);
    tconv_release(allocator, volume->plans);
    tconv_volume_parts_release(&volume->parts, allocator);
    tconv_release(allocator, volume);
}
