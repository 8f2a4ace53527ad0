/* The gradient of the bias on the host: its parts, which follow from the layer and the number of multiprocessors
 * alone. */
#include "bias.h"
#include "../cuda_target.h"

#include "../../core/checked.h"
#include "../runtime/launch.h"
#include "sums.h"

enum {
    MOST_PARTS = 1024,                 /* of a channel */
    MOST_SUMS = 1 << 18,               /* partial sums of all channels, where a channel has more than LEAST_PARTS */
    LEAST_PARTS = 64,                  /* parts of a channel that are always allowed */
    MOST_WARP_PARTS = 128,             /* parts that a warp adds: one round of its loads */
    LEAST_ROUNDS = 2,                  /* of a thread's loads */
    MOST_BLOCK_VECTORS = BIAS_THREADS, /* vectors, or single channels, of a block */
    BLOCK_WARPS = BIAS_THREADS / WARP
};

/* Plans the parts, of tensors whose addresses are not aligned. */
static bias_parameters plan_parts(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const bool channels_last = problem->layout == TCONV_NHWC;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    bias_parameters params = {.strides = problem->dst, .channels = problem->out_channels};
    const bool channel_vectors = channels_last && params.channels % vector == 0 && params.strides.w % vector == 0;
    params.block_channels =
        channels_last ? tconv_min(params.channels, MOST_BLOCK_VECTORS * (channel_vectors ? vector : 1)) : 1;
    params.channel_blocks = tconv_ceil_div(params.channels, channels_last ? params.block_channels : BLOCK_WARPS);
    const bool plane_vectors = channels_last || (params.strides.n % vector == 0 && params.strides.c % vector == 0);
    params.vectors = channel_vectors || (params.strides.w == params.block_channels && plane_vectors);
    /* Rows and planes are dense. */
    params.image_pixels = problem->d.out * problem->h.out * problem->w.out;
    const int64_t sums = (channels_last ? BIAS_THREADS : WARP) * (params.vectors ? vector : 1);
    const int64_t resident = BIAS_RESIDENT_BLOCKS * (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors;
    const int64_t most = tconv_min(tconv_min(MOST_PARTS, tconv_max(LEAST_PARTS, MOST_SUMS / params.channels)),
                                   tconv_ceil_div(resident, params.channel_blocks));
    const int64_t loads = LEAST_ROUNDS * (params.vectors ? BIAS_LOADS : BIAS_SINGLE_LOADS);
    const int64_t least = tconv_max(1, loads * sums / params.block_channels);
    const int64_t part_pixels = tconv_max(least, tconv_ceil_div(problem->batch * params.image_pixels, most));
    params.piece_pixels = tconv_round_up(tconv_min(part_pixels, params.image_pixels), vector);
    params.image_pieces = tconv_ceil_div(params.image_pixels, params.piece_pixels);
    params.pieces = problem->batch * params.image_pieces;
    params.part_pieces = tconv_max(1, part_pixels / params.piece_pixels);
    params.parts = tconv_ceil_div(params.pieces, params.part_pieces);
    return params;
}

/* Returns whether all vectors begin at multiples of their size. */
static bool are_aligned(const tconv_problem *problem, const void *diff_dst)
{
    const tconv_strides *strides = &problem->dst;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    return (uintptr_t)diff_dst % VECTOR_BYTES == 0 && strides->n % vector == 0 &&
           (problem->layout == TCONV_NHWC || strides->c % vector == 0);
}

size_t tconv_wgrad_bias_scratch(const tconv_layer *layer)
{
    return tconv_wgrad_bias_parts_bytes(layer, plan_parts(layer).parts);
}

size_t tconv_wgrad_bias_parts_bytes(const tconv_layer *layer, int64_t parts)
{
    return (size_t)(parts * layer->problem.out_channels) * BIAS_PART_BYTES;
}

wgrad_bias_parts tconv_wgrad_bias_parts_of(const tconv_layer *layer, const void *parts, int64_t count, void *bias)
{
    const int64_t channels = layer->problem.out_channels;
    const bool by_blocks = count > MOST_WARP_PARTS;
    return (wgrad_bias_parts){.parts = parts,
                              .bias = bias,
                              .channels = channels,
                              .count = count,
                              .blocks = by_blocks ? channels : tconv_ceil_div(channels, BLOCK_WARPS),
                              .by_blocks = by_blocks,
                              .accumulates = layer->problem.desc.accumulate != 0};
}

tconv_status tconv_wgrad_add_bias_parts(const tconv_layer *layer, const void *parts, int64_t count, void *bias,
                                        void *stream, tconv_issue *issue)
{
    wgrad_bias_parts of = tconv_wgrad_bias_parts_of(layer, parts, count, bias);
    void *arguments[] = {&of};
    return tconv_launch_blocks(tconv_wgrad_add_bias_kernel(layer->problem.dtype), of.blocks, BIAS_THREADS, arguments,
                               stream, issue, count > 0 && tconv_wgrad_may_overlap(layer));
}

tconv_status tconv_wgrad_sum_bias_parts(const tconv_layer *layer, const void *diff_dst, void *parts, bias_order order,
                                        int64_t *count, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    bias_parameters params = plan_parts(layer);
    params.aligned = !params.vectors || are_aligned(problem, diff_dst);
    params.beside = order == BIAS_BESIDE;
    void *arguments[] = {&params, &diff_dst, &parts};
    *count = params.parts;
    if (params.parts == 0)
        return TCONV_SUCCESS;
    return tconv_launch_blocks(tconv_wgrad_bias_kernel(problem->dtype, problem->layout, params.vectors),
                               params.channel_blocks * params.parts, BIAS_THREADS, arguments, stream, issue,
                               order != BIAS_AFTER && tconv_wgrad_may_overlap(layer));
}

tconv_status tconv_wgrad_sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias,
                                  bool overlaps, void *stream, tconv_issue *issue)
{
    int64_t parts;
    const tconv_status status = tconv_wgrad_sum_bias_parts(
        layer, diff_dst, scratch, overlaps ? BIAS_OVERLAPPING : BIAS_AFTER, &parts, stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_wgrad_add_bias_parts(layer, scratch, parts, bias, stream, issue);
}
