/*
 * cuda_outer: the gradients of weights and bias on tensor cores (mma.sync, compute capability 8.0 and later). For each
 * input channel c, output channel o and tap k of a group
 *
 *     diff_weights[c, o, k] = sum over images n and inputs i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p],
 *
 * an implicit GEMM of input channels by pairs of a tap and an output channel, whose terms are pixels (kernel.cuh). A block has
 * a tile of it and a part of the pixels, and writes its sums to a slice of the workspace; a second kernel adds the slices in
 * order (sums.cu). On Hopper a block whose part is all pixels may write the weights itself. The gradient of the bias has kernels of its own (bias.cu).
 *
 * Numeric order, by layer and number of multiprocessors alone: pixels of a part by steps of MMAs, in f32, up to
 * FLUSH_TERMS; in 3xTF32 STRICT_STEPS of them, which join a compensated sum; parts in double, one rounding.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <cstdio>

namespace tconv::outer
{

namespace
{

size_t slices_bytes(const planned_layer *made)
{
    return (size_t)(made->parameters.splits * slice_sums(made->parameters.tiles)) * sizeof(float);
}

tconv_status plan(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *made = (planned_layer *)to;
    if (!choose(layer, made))
        return tconv_decline(issue, "needs compute capability 8.0, at most %d taps along an axis and smaller extents",
                             MAX_TAPS);
    const size_t slices = made->writes_weights ? 0 : slices_bytes(made), bias = bias_scratch(layer);
    planned->sizes.scratch = tconv_max((int64_t)slices, (int64_t)bias);
    return TCONV_SUCCESS;
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    return execute_gradients(
        layer, arguments,
        [&](slices *of) {
            parameters p = made->parameters;
            p.src = arguments->src;
            p.diff_dst = arguments->dst;
            p.slices = (float *)arguments->scratch;
            const uintptr_t read = (uintptr_t)p.src | (uintptr_t)p.diff_dst;
            const bool aligned = read % model::VECTOR_BYTES == 0;
            const reading reading = aligned || made->reading == LINES ? made->reading : ELEMENTS;
            const launch_grid grid = {made->kernel.functions[reading], made->blocks, made->threads, shared_bytes_of(&p),
                                      false};
            tensor_maps maps = {};
            tensor_map_recipe dst = made->dst, src = made->src;
            dst.data = arguments->dst;
            src.data = arguments->src;
            if ((reading != CHANNELS && reading != LINES) || p.box_bytes == 0 || !encode_tensor_map(&dst, &maps.dst))
                p.box_bytes = 0;
            if ((uintptr_t)p.diff_dst % (LINE_UNIT * sizeof(float)) != 0)
                p.lines.unit = 1;
            if ((uintptr_t)p.src % model::VECTOR_BYTES != 0)
                p.src_unit = 1;
            p.lines.src_vectors = p.lines.src_vectors && (uintptr_t)p.src % model::VECTOR_BYTES == 0;
            if (p.lines.src_box_pixels > 0 && !encode_tensor_map(&src, &maps.src))
                p.lines.src_box_pixels = 0;
            void *kernel_arguments[] = {&p, &maps};
            if (made->writes_weights)
                p.weights.at = arguments->weights;
            *of = {p.tiles, p.k_tiles > 0 ? p.splits : 0, false, p.k_tiles > 0 && made->writes_weights};
            if (p.k_tiles == 0)
                return TCONV_SUCCESS;
            const tconv_status status = allow_shared(grid.kernel, layer->target.shared_bytes, issue);
            return status == TCONV_SUCCESS ? launch_kernel(&grid, kernel_arguments, arguments->stream, issue) : status;
        },
        issue);
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const planned_layer *made = (const planned_layer *)from;
    const parameters *p = &made->parameters;
    snprintf(text, capacity,
             "by=%s block_tile=%dx%lld tile=%dx%d taps=%dx%d chunk=%lld k_tile=%dx%dx%d k_tiles=%d stages=%d "
             "stage_bytes=%d splits=%d blocks=%lld resident=%d cycles=%.0f",
             made->kernel.by_warpgroups ? "wgmma" : "mma", p->tiles.block_m, (long long)p->tiles.block_n,
             made->kernel.channels, made->kernel.pairs, p->tiles.rows.group_taps, p->tiles.columns.group_taps,
             (long long)p->tiles.chunk, 1 << p->images_log2, 1 << p->rows.tile_log2, 1 << p->columns.tile_log2,
             p->k_tiles, p->stages, p->stage_bytes, p->splits, (long long)made->blocks, made->resident, made->cycles);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_outer = {
    "cuda_outer", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(planned_layer), plan, pack_nothing, execute, describe,
    true};

} // namespace tconv::outer
