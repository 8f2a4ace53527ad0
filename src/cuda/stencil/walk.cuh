/*
 * The stencil kernels share the walk of one thread down the rows of a row phase. The weights of its outputs of a row
 * stay in registers, and so do the values that a row's taps take, which become those of the next row's next tap.
 *
 * A Columns says which outputs of a row a thread has, LENGTH of them, and what they take along a row of src:
 *
 *     load(x, values)                     the values of all their taps, from a row of src
 *     load_weights(kernel_row, weights)   the weights of all their taps; zero for one that is missing
 *     value(tap, output)                  which value an output's tap is, known to the compiler; zero for a missing one
 *     store(dst, sums)
 *     AHEAD                               the rows by which values are loaded before they are used: 1 hides the latency
 *                                         of global memory
 *
 * Numeric order: from the bias, fused multiply-adds over the kernel rows' taps, then the columns'.
 */
#ifndef TCONV_CUDA_STENCIL_WALK_CUH
#define TCONV_CUDA_STENCIL_WALK_CUH

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "parameters.h"

namespace tconv::stencil
{

/* Some rows of one row phase; rows are counted in quotients (row / stride). */
struct part {
    int residue, first, end;
};

__device__ __forceinline__ int quotients_of(const parameters &layer, int residue)
{
    return divide(layer.rows.out - residue + layer.rows.stride - 1, layer.by_row_stride).whole;
}

/* x and dst: the rows of tap 0 and of the output that belong to part.first. */
template <class Columns, class Pitch>
__device__ __forceinline__ void walk(const parameters &layer, const part &part, const Columns &columns,
                                     const typename Columns::Element *x, Pitch pitch, typename Columns::Element *dst,
                                     const compute_type<typename Columns::Element> (&bias)[Columns::LENGTH])
{
    using Compute = compute_type<typename Columns::Element>;
    if (part.first >= part.end)
        return; /* x may then be outside what there is */
    constexpr int TAPS = Columns::TAPS, LENGTH = Columns::LENGTH, AHEAD = Columns::AHEAD, ROWS = TAPS + AHEAD;
    const int taps = layer.rows.taps[part.residue];
    int src_row = part.first + layer.rows.first_shift[part.residue];
    Compute weights[TAPS][TAPS * LENGTH];
    typename Columns::Value values[ROWS][Columns::VALUES];
    unsigned in[TAPS]; /* rows of src, none for a tap that this phase does not have */
#pragma unroll
    for (int a = 0; a < TAPS; a++) {
        in[a] = a < taps ? (unsigned)layer.rows.in : 0;
        if (a < taps)
            columns.load_weights(layer.rows.first_kernel[part.residue] + a * layer.rows.kernel_step, weights[a]);
        if (a + AHEAD > 0 && (unsigned)(src_row - a) < in[a])
            columns.load(x - a * pitch, values[(ROWS - a) % ROWS]);
    }

    const int64_t dst_step = layer.rows.stride * layer.dst_strides.h;
    /* Tap a of the row that is j past a multiple of ROWS is in values[(j - a) mod ROWS]. */
    for (int q = part.first; q < part.end; q += ROWS) {
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            if (q + j >= part.end)
                break;
            if (AHEAD == 0 ? (unsigned)src_row < in[0] : (unsigned)(src_row + 1) < in[0] && q + j + 1 < part.end)
                columns.load(x + AHEAD * pitch, values[(j + AHEAD) % ROWS]);
            Compute sums[LENGTH];
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                sums[i] = bias[i];
#pragma unroll
            for (int a = 0; a < TAPS; a++) {
                if ((unsigned)(src_row - a) >= in[a])
                    continue;
#pragma unroll
                for (int t = 0; t < TAPS; t++)
#pragma unroll
                    for (int i = 0; i < LENGTH; i++)
                        sums[i] = fma(weights[a][t * LENGTH + i],
                                      to_compute(values[(j - a + ROWS) % ROWS][Columns::value(t, i)]), sums[i]);
            }
            columns.store(dst, sums);
            src_row++;
            x += pitch;
            dst += dst_step;
        }
    }
}

} // namespace tconv::stencil

#endif
