/*
 * Stencils over planes (NCHW) of any number of taps: as stencil_planes.cu, but taps and weights are read from shared memory
 * one by one.
 *
 * A tap outside src is skipped: NaN and Inf in the weights go only where they belong. Numeric order: from the bias, fused
 * multiply-adds over the kernel rows' taps, then the columns'. Sums in f32 of more terms than a segment may have
 * (compensated.cuh): the same from zero in each segment, and segments added to the bias in order, with compensation.
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

/* Blocks on a multiprocessor for which there are registers: as many as do not make them spill. */
template <bool compensated> constexpr int LOOP_BLOCKS = compensated ? 4 : 7;

/* All taps of a row of outputs. compensated: in segments of whole kernel rows, or of a part of one where it has more taps
 * than a segment; the sums, in f32, are those of the segments. */
template <bool compensated, class Element, int LENGTH>
__device__ __forceinline__ void sum_all_taps(const tconv_cuda_stencil_parameters &layer, const place &place,
                                             int residue, int src_row, const Element *x_row,
                                             const column (&outputs)[LENGTH], const compute_type<Element> *weights,
                                             compute_type<Element> (&sums)[LENGTH])
{
    const int row_taps = layer.rows.taps[residue];
    if constexpr (!compensated) {
        sum_taps(layer, place, residue, src_row, x_row, outputs, weights, {0, row_taps, 0, INT_MAX}, sums);
    } else {
        const int column_taps = (layer.columns.kernel - 1) / layer.columns.kernel_step + 1; /* the most of a phase */
        const int segment_rows = max(1, SEGMENT_TERMS / column_taps);
        float lost[LENGTH] = {};
        for (int row = 0; row < row_taps; row += segment_rows) {
            for (int column = 0; column < column_taps; column += SEGMENT_TERMS) {
                float segment[LENGTH] = {};
                sum_taps(layer, place, residue, src_row, x_row, outputs, weights,
                         {row, min(row + segment_rows, row_taps), column, column + SEGMENT_TERMS}, segment);
#pragma unroll
                for (int c = 0; c < LENGTH; c++)
                    add_compensated(sums[c], lost[c], segment[c]);
            }
        }
    }
}

template <class Element, bool compensated>
__global__ void __launch_bounds__(THREADS, LOOP_BLOCKS<compensated>)
    stencil_planes_loop(const __grid_constant__ tconv_cuda_stencil_parameters layer)
{
    constexpr int LENGTH = access_length<Element>;
    const place place = find_place<Element>(layer);
    const compute_type<Element> *weights = load_tile<Element, false>(layer, place).at;
    const compute_type<Element> bias = load_bias<Element>(layer, place.channel);
    column outputs[LENGTH];
    find_columns<false>(layer, place, outputs);
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = (int)threadIdx.x >> layer.tile.lanes_log2; number < numbers;
         number += THREADS >> layer.tile.lanes_log2) {
        const part part = find_part(layer, place, number);
        const Element *x = find_x<Element>(layer, place, part);
        Element *dst = find_dst<Element>(layer, place, part, outputs[0].output);
        int src_row = part.first + layer.rows.first_shift[part.residue];
        for (int q = part.first; q < part.end; q++, src_row++, x += layer.tile.pitch) {
            compute_type<Element> sums[LENGTH];
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                sums[c] = bias;
            sum_all_taps<compensated>(layer, place, part.residue, src_row, x, outputs, weights, sums);
#pragma unroll
            for (int c = 0; c < LENGTH; c++)
                if (outputs[c].output < layer.columns.out)
                    dst[c << layer.tile.lanes_log2] = from_compute<Element>(sums[c]);
            dst += layer.rows.stride * layer.dst_strides.h;
        }
    }
}

template <class Element> tconv_cuda_stencil_kernel find_kernel(bool compensated)
{
    if constexpr (sizeof(compute_type<Element>) == sizeof(float)) {
        if (compensated)
            return stencil_planes_loop<Element, true>;
    }
    return stencil_planes_loop<Element, false>;
}

} // namespace

tconv_cuda_stencil_kernel tconv_cuda_stencil_loop(tconv_dtype dtype, bool compensated)
{
    return dtype == TCONV_F32   ? find_kernel<float>(compensated)
           : dtype == TCONV_F64 ? find_kernel<double>(compensated)
           : dtype == TCONV_F16 ? find_kernel<__half>(compensated)
                                : find_kernel<__nv_bfloat16>(compensated);
}

} // namespace tconv::stencil
