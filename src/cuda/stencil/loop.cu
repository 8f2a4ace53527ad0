/*
 * Stencils over planes (NCHW) of any number of taps work as planes.cu has it, but read taps and weights from shared
 * memory one by one.
 *
 * A tap outside src is skipped: NaN and Inf in the weights go only where they belong. Numeric order: from the bias,
 * fused multiply-adds over the kernel rows' taps, then the columns'. Sums in f32 of more terms than a segment may have
 * (compensated.cuh) begin at zero in each segment, and segments are added to the bias in order, with compensation.
 */
#include <climits>

#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "tile.cuh"

namespace tconv::stencil
{

namespace
{

/* Blocks on a multiprocessor: as many as registers allow without spills. */
template <bool compensated> constexpr int LOOP_BLOCKS = compensated ? 4 : 7;

/* Adds all taps of a row of outputs. Where compensated, a segment has whole kernel rows, or a part of one that has more
 * taps than a segment; the sums, in f32, are those of the segments. */
template <bool compensated, class Element, int LENGTH>
__device__ __forceinline__ void sum_all_taps(const parameters &layer, const block_tile &block, int residue, int src_row,
                                             const Element *x_row, const column (&outputs)[LENGTH],
                                             const compute_type<Element> *weights,
                                             compute_type<Element> (&sums)[LENGTH])
{
    const int row_taps = layer.rows.taps[residue];
    if constexpr (!compensated) {
        sum_taps(layer, block, residue, src_row, x_row, outputs, weights, {0, row_taps, 0, INT_MAX}, sums);
    } else {
        const int column_taps = (layer.columns.kernel - 1) / layer.columns.kernel_step + 1; /* the most of a phase */
        const int segment_rows = max(1, SEGMENT_TERMS / column_taps);
        float lost[LENGTH] = {};
        for (int row = 0; row < row_taps; row += segment_rows) {
            for (int column = 0; column < column_taps; column += SEGMENT_TERMS) {
                float segment[LENGTH] = {};
                sum_taps(layer, block, residue, src_row, x_row, outputs, weights,
                         {row, min(row + segment_rows, row_taps), column, column + SEGMENT_TERMS}, segment);
#pragma unroll
                for (int c = 0; c < LENGTH; c++)
                    add_compensated(sums[c], lost[c], segment[c]);
            }
        }
    }
}

template <class Element, bool compensated>
__global__ void __launch_bounds__(THREADS, LOOP_BLOCKS<compensated>) loop(const __grid_constant__ parameters layer)
{
    constexpr int LENGTH = access_length<Element>;
    const block_tile block = find_block_tile<Element>(layer);
    const compute_type<Element> *weights = load_tile<Element, false>(layer, block).at;
    const compute_type<Element> bias = load_bias<Element>(layer, block.channel);
    column outputs[LENGTH];
    find_columns<false>(layer, block, outputs);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, block, number);
        const Element *x = find_x<Element>(layer, block, part);
        Element *dst = find_dst<Element>(layer, block, part, outputs[0].output);
        int src_row = part.first + layer.rows.first_shift[part.residue];
        for (int q = part.first; q < part.end; q++, src_row++, x += layer.tile.pitch) {
            compute_type<Element> sums[LENGTH];
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                sums[c] = bias;
            sum_all_taps<compensated>(layer, block, part.residue, src_row, x, outputs, weights, sums);
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                if (outputs[c].output < layer.columns.out)
                    dst[c << layer.tile.lanes_log2] = from_compute<Element>(sums[c]);
            dst += layer.rows.stride * layer.dst_strides.h;
        }
    }
}

template <class Element> kernel_function find_kernel(bool compensated)
{
    if constexpr (sizeof(compute_type<Element>) == sizeof(float)) {
        if (compensated)
            return loop<Element, true>;
    }
    return loop<Element, false>;
}

} // namespace

kernel_function loop_kernel(tconv_dtype dtype, bool compensated)
{
    return dtype == TCONV_F32   ? find_kernel<float>(compensated)
           : dtype == TCONV_F64 ? find_kernel<double>(compensated)
           : dtype == TCONV_F16 ? find_kernel<__half>(compensated)
                                : find_kernel<__nv_bfloat16>(compensated);
}

} // namespace tconv::stencil
