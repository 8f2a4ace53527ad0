/*
 * cuda_wgrad: the gradients of weights and bias on tensor cores (mma.sync, compute capability 8.0 and later). For each
 * input channel c, output channel o and tap k of a group
 *
 *     diff_weights[c, o, k] = sum over images n and inputs i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p],
 *
 * an implicit GEMM of input channels by pairs of a tap and an output channel, whose terms are pixels (kernel.cuh). A block has
 * a tile of it and a part of the pixels, and writes its sums to a slice of the workspace; a second kernel adds the slices in
 * order (sums.cu). On Hopper a block whose part is all pixels may write the weights itself. The gradient of the
 * bias has kernels of its own (bias.cu), or the blocks sum it of the outputs that they read (slot_bias.cuh); of such a plan
 * it has these bits always (slot_pass.cu).
 *
 * Numeric order, by layer and number of multiprocessors alone: pixels of a part by steps of MMAs, in f32, up to
 * FLUSH_TERMS; in 3xTF32 STRICT_STEPS of them, which join a compensated sum; parts in double, one rounding.
 */
#include "../../core/checked.h"
#include "../../core/space_to_depth.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"
#include "slot_pass.h"
#include "vectors.h"

#include <cstdio>

namespace tconv::wgrad
{

namespace
{

/* A plan: of the layer as it is, or of those that space-to-depth makes of it. */
struct part {
    tconv_depth_layer of;
    planned_layer made;
};
struct parts {
    int count;
    part at[TCONV_MOST_DEPTH_LAYERS];
};

/* Bytes of the slices in the workspace, behind which copies lie. */
size_t slices_bytes(const planned_layer *made)
{
    if (made->writes_weights)
        return 0;
    const int64_t sums = made->parameters.splits * slice_sums(made->parameters.tiles);
    const int64_t bytes = sums * (keeps_lost(made, made->parameters.splits) ? 2 : 1) * (int64_t)sizeof(float);
    return (size_t)tconv_round_up(bytes, COPY_ALIGNMENT);
}

/* One that space-to-depth made, on the device of the layer. */
tconv_layer layer_of(const tconv_layer *layer, const tconv_problem *problem)
{
    tconv_layer made = *layer;
    made.problem = *problem;
    made.rows = {};
    made.columns = {};
    made.rows.kernel_step = problem->h.stride / tconv_gcd(problem->h.stride, problem->h.dilation);
    made.columns.kernel_step = problem->w.stride / tconv_gcd(problem->w.stride, problem->w.dilation);
    return made;
}

/* Where parts of the bias lie in the workspace. */
size_t bias_parts_at(const planned_layer *made)
{
    return slices_bytes(made) + (size_t)copied_bytes(made->copies);
}

/* Launches of the kernel, each of which writes parts of the bias of its own. */
int64_t launches(const planned_layer *made)
{
    return made->copies.images > 0 ? parts_of(made->copies) : 1;
}

/* Bytes of the workspace. */
int64_t bytes_of(const tconv_layer *layer, const planned_layer *made)
{
    return (int64_t)(bias_parts_at(made) + bias_parts_bytes(layer, made->bias_parts * launches(made)));
}

void *bias_parts_in(const planned_layer *made, const tconv_arguments *arguments)
{
    return (char *)arguments->scratch + bias_parts_at(made);
}

/* Whether there are parts of the bias for the products to sum. */
bool has_bias_parts(const planned_layer *made)
{
    return made->bias_parts > 0 && made->parameters.k_tiles > 0;
}

/* Whether space-to-depth takes an axis: of one input, with too many taps, or where channels are vectors only then. */
bool is_worth(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    const tconv_axis *axis = columns ? &before->w : &before->h;
    return axis->in == 1 || axis->kernel > MAX_TAPS ||
           (!tconv_cuda_has_vectors(before, &before->dst, before->group_out) &&
            tconv_cuda_has_vectors(after, &after->dst, after->group_out) &&
            tconv_cuda_has_vectors(after, &after->src, after->group_in));
}

/* Plans the layer as it is. */
bool choose_whole(const tconv_layer *layer, parts *made)
{
    *made = {1, {{{layer->problem, 0, 0, 1, 0, 0}, {}}}};
    return choose(layer, &made->at[0].made);
}

/* Plans the layer by space-to-depth, or as it is; false where there is no plan. Several layers read src several times: only
 * where there is no other way. */
bool choose_parts(const tconv_layer *layer, parts *made)
{
    tconv_depth_layer of[TCONV_MOST_DEPTH_LAYERS];
    bool planned = true;
    const int count = tconv_space_to_depth(&layer->problem, MAX_TAPS, is_worth, of);
    if (count > 0 && (count > 1 || of[0].count > 1) && choose_whole(layer, made))
        return true;
    made->count = count;
    for (int i = 0; i < made->count; i++) {
        const tconv_layer part = layer_of(layer, &of[i].problem);
        made->at[i].of = of[i];
        planned = planned && choose(&part, &made->at[i].made);
        made->at[i].made.bias_parts = 0; /* the bias's channels are the layer's */
    }
    return count > 0 && planned ? true : choose_whole(layer, made);
}

tconv_status plan(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    parts *made = (parts *)to;
    if (!choose_parts(layer, made))
        return tconv_decline(issue, "needs compute capability 8.0, at most %d taps along an axis and smaller extents",
                             MAX_TAPS);
    int64_t scratch = (int64_t)bias_scratch(layer);
    for (int i = 0; i < made->count; i++)
        scratch = tconv_max(scratch, bytes_of(layer, &made->at[i].made));
    planned->sizes.scratch = scratch;
    return TCONV_SUCCESS;
}

/* Launches the kernel that writes slices of the products of src and the gradient of dst. */
tconv_status launch_products(const tconv_layer *layer, const planned_layer *made, parameters *p, const void *src,
                             const void *diff_dst, void *stream, tconv_issue *issue)
{
    p->src = src;
    p->diff_dst = diff_dst;
    const bool src_aligned = (uintptr_t)src % VECTOR_BYTES == 0,
               aligned = src_aligned && (uintptr_t)diff_dst % VECTOR_BYTES == 0;
    reading reading =
        aligned || made->reading == LINES || (src_aligned && made->reading == SRC_CHANNELS) ? made->reading : ELEMENTS;
    tensor_maps maps = {};
    tensor_map_recipe dst = made->dst, of_src = made->src;
    dst.data = diff_dst;
    dst.rounds = dst.rounds && made->bias_parts == 0; /* those that multiply round as well; the bias is of all bits */
    of_src.data = src;
    dst.extents[3] = of_src.extents[3] = (cuuint64_t)p->images;
    if (reading == ELEMENTS || p->box_bytes == 0 || !tconv_encode_tensor_map(&dst, &maps.dst))
        p->box_bytes = 0;
    if (reading == BOXES && (p->box_bytes == 0 || !tconv_encode_tensor_map(&of_src, &maps.src)))
        reading = ELEMENTS;
    if (reading == ELEMENTS)
        p->bias_parts = NULL;
    if ((uintptr_t)diff_dst % LINE_BYTES != 0)
        p->lines.unit = 1;
    p->src_unit = src_aligned ? p->src_unit : 1;
    p->lines.src_vectors = p->lines.src_vectors && src_aligned;
    if (p->lines.src_box_pixels > 0 && !tconv_encode_tensor_map(&of_src, &maps.src))
        p->lines.src_box_pixels = p->lines.src_boxes = 0;
    if (p->box_bytes == 0)
        p->sharers = 1;
    const launch_grid grid = {made->kernel.functions[reading], made->blocks, made->threads, shared_bytes_of(p), false,
                              p->sharers > 1 ? p->sharers : 0};
    void *arguments[] = {p, &maps};
    const tconv_status status = tconv_allow_shared(grid.kernel, layer->target.shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, arguments, stream, issue) : status;
}

/* The same by copies, part after part. */
tconv_status launch_copied(const tconv_layer *layer, const planned_layer *made, parameters *of_all,
                           const tconv_arguments *arguments, tconv_issue *issue)
{
    const copies &copies = made->copies;
    char *const src = static_cast<char *>(arguments->scratch) + slices_bytes(made);
    tconv_status status = TCONV_SUCCESS;
    for (int64_t part = 0; part < parts_of(copies) && status == TCONV_SUCCESS; part++) {
        parameters p = *of_all;
        p.images = (int)images_of_part(&layer->problem, copies, part);
        p.adds = part > 0;
        status = make_copies(layer, copies, part, arguments->src, arguments->dst, src, arguments->stream, issue);
        if (status == TCONV_SUCCESS)
            status = launch_products(layer, made, &p, src, src + copies.src_bytes, arguments->stream, issue);
        of_all->bias_parts =
            p.bias_parts != NULL ? p.bias_parts + made->bias_parts * layer->problem.out_channels : NULL;
    }
    return status;
}

/* Computes the gradient of the weights of one of the layers that a part is, and says in *of which parts of the bias were
 * written. */
tconv_status execute_part(const tconv_layer *layer, const planned_layer *made, const tconv_arguments *arguments,
                          slices *of, tconv_issue *issue)
{
    parameters p = made->parameters;
    tconv_status status = TCONV_SUCCESS;
    p.slices = (float *)arguments->scratch;
    if (made->writes_weights)
        p.weights.at = arguments->weights;
    of->bias = bias_parts_in(made, arguments);
    if (arguments->bias != NULL && made->bias_parts > 0)
        p.bias_parts = (double2 *)of->bias;
    if (p.k_tiles > 0)
        status = made->copies.images > 0
                     ? launch_copied(layer, made, &p, arguments, issue)
                     : launch_products(layer, made, &p, arguments->src, arguments->dst, arguments->stream, issue);
    if (arguments->bias != NULL && has_bias_parts(made)) {
        of->bias_parts = made->bias_parts * launches(made);
        if (p.bias_parts == NULL && status == TCONV_SUCCESS)
            status = sum_slots(layer, made, arguments->dst, bias_parts_in(made, arguments), arguments->stream, issue);
    }
    if (status != TCONV_SUCCESS)
        return status;
    /* All of the bias's pass would crowd where there is no block of products. */
    of->overlaps = p.k_tiles == 0 || !made->writes_weights;
    if (!of->overlaps)
        return status;
    const slices sums = {p.tiles, p.k_tiles > 0 ? p.splits : 0, false};
    return add_slices(layer, &sums, arguments->scratch, arguments->weights, arguments->stream, issue);
}

/* Computes the gradient of the bias alone. */
tconv_status execute_bias(const tconv_layer *layer, const planned_layer *made, const tconv_arguments *arguments,
                          tconv_issue *issue)
{
    void *const parts = bias_parts_in(made, arguments);
    return on_device(layer->target.device, issue, [&] {
        const tconv_status status = sum_slots(layer, made, arguments->dst, parts, arguments->stream, issue);
        return status == TCONV_SUCCESS ? add_bias_parts(layer, parts, made->bias_parts * launches(made),
                                                        arguments->bias, arguments->stream, issue)
                                       : status;
    });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const parts *made = (const parts *)from;
    if (arguments->weights == NULL && arguments->bias != NULL && has_bias_parts(&made->at[0].made))
        return execute_bias(layer, &made->at[0].made, arguments, issue);
    const auto sum_weights = [&](slices *of) {
        const int64_t size = (int64_t)layer->problem.element_size;
        tconv_status status = TCONV_SUCCESS;
        of->are_added = true;
        for (const part *part = made->at; part < made->at + made->count; part++) {
            const tconv_layer its_layer = layer_of(layer, &part->of.problem);
            for (int64_t i = 0; i < part->of.count && status == TCONV_SUCCESS; i++) {
                tconv_arguments its = *arguments;
                its.dst = (char *)arguments->dst + (part->of.dst + i * part->of.dst_step) * size;
                its.weights = (char *)arguments->weights + (part->of.weights + i * part->of.weights_step) * size;
                status = execute_part(&its_layer, &part->made, &its, of, issue);
            }
        }
        return status;
    };
    return execute_gradients(layer, arguments, sum_weights, issue);
}

void describe(const tconv_layer *layer, const void *from, char *text, size_t capacity)
{
    static const char *const readings[READINGS] = {"elements", "lines", "channels", "src_channels", "boxes"};
    const parts *plans = (const parts *)from;
    const tconv_depth_layer *of = &plans->at[0].of;
    const planned_layer *made = &plans->at[0].made;
    const parameters *p = &made->parameters;
    const long long layers = of->count + plans->count - 1;
    int begun = 0;
    if (layers > 1 || of->problem.out_channels != layer->problem.out_channels)
        begun = snprintf(text, capacity, "layers=%lld channels=%lld ", layers, (long long)of->problem.out_channels);
    snprintf(text + begun, capacity - (size_t)begun,
             "by=%s reads=%s block_tile=%dx%lld tile=%dx%d taps=%dx%d chunk=%lld k_tile=%dx%dx%d k_tiles=%d stages=%d "
             "stage_bytes=%d splits=%d blocks=%lld sharers=%d resident=%d parts=%lld writes=%s bias=%s cycles=%.0f",
             made->kernel.by_boxes        ? "boxes"
             : made->kernel.by_warpgroups ? "wgmma"
                                          : "mma",
             readings[made->reading], p->tiles.block_m, (long long)p->tiles.block_n, made->kernel.channels,
             made->kernel.pairs, p->tiles.rows.group_taps, p->tiles.columns.group_taps, (long long)p->tiles.chunk,
             1 << p->images_log2, 1 << p->rows.tile_log2, 1 << p->columns.tile_log2, p->k_tiles, p->stages,
             p->stage_bytes, p->splits, (long long)made->blocks, p->sharers, made->resident,
             (long long)parts_of(made->copies), made->writes_weights ? "weights" : "slices",
             made->bias_parts > 0 ? "products" : "pass", made->cycles);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_wgrad = {
    "cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(parts), plan, pack_nothing, execute, describe, true,
    NULL};

} // namespace tconv::wgrad
