/*
 * The launch before the implicit GEMM: some thread blocks transpose src where the layer wants that, the others pack the
 * weights. For each channel group, phase, block tile along M, K-block of channels and tap, in the order in which a tile
 * reads them, there is an A tile
 *
 *     [M tile][wgmma along K][plane][core matrix along K][64 rows of M][4 or 8 input channels]
 *
 * A row of M that is no output channel, and an input channel past the last, are zeros. Where groups are fused the
 * weights are block-diagonal, with zeros from one group to another.
 */
#include "../pack/boxes.cuh"
#include "plan.h"
#include "transpose_src.cuh"

namespace tconv::igemm
{

namespace
{

/* The last phase that does not begin after `tap`. */
__device__ __forceinline__ int find_phase(const packed_phase *phases, int count, int tap)
{
    int phase = 0;
    while (phase + 1 < count && phases[phase + 1].first_tap <= tap)
        phase++;
    return phase;
}

template <bool fills> struct order : tf32_order, weight_source {
    static constexpr bool FILLS = fills;
    src_transpose transpose;

    __host__ __device__ unsigned other_blocks() const
    {
        return (unsigned)transpose.thread_blocks;
    }
    template <class Word> __device__ __forceinline__ void do_other(unsigned block) const
    {
        transpose_tile<Word>(transpose, (int)block);
    }

    __device__ __forceinline__ pack_strip strip_of(unsigned strip) const
    {
        const quotient of_group = divide((int)strip, by_k_blocks), block = divide(of_group.whole, by_strips);
        return {block.whole, block.rest * MMA_M, of_group.rest, block.rest, 0};
    }

    /* The packed row that the tap of an M tile begins with. before: taps of earlier phases, which all have A tiles like
     * this one's. */
    __device__ __forceinline__ int64_t row_of(const pack_strip &strip, int m_tile, int before, int taps, int tap) const
    {
        const quotient block_tile = divide(m_tile, by_m_tiles);
        const int k_block = block_tile.whole * by_k_blocks.divisor + strip.k_block;
        const int64_t a_tile = strip.group * group_a_tiles + (int64_t)before * (by_k_blocks.divisor * tiles_along_m) +
                               (int64_t)k_block * taps + tap;
        return (a_tile * by_m_tiles.divisor + block_tile.rest) * (k_steps * boxes.step_rows);
    }

    __device__ __forceinline__ pack_run run_of(const pack_strip &strip, int run) const
    {
        const quotient at = divide(run, by_columns);
        if (merged) {
            /* The M tiles that are left of the last block tile have no channels; the boxes of the first M tile write
             * them. */
            const int all = row_phases * column_phases;
            if (run >= all)
                return {strip.block > 0 ? -1 : row_of(strip, phase_m_tiles + run - all, 0, 1, 0), -1};
            const int m_tile = (at.whole * channel_m_tiles + strip.block) * column_phases + at.rest;
            return {row_of(strip, m_tile, 0, 1, 0),
                    element_of(rows[at.whole].first_kernel, columns[at.rest].first_kernel)};
        }
        const packed_phase row = rows[find_phase(rows, row_phases, at.whole)];
        const int column_phase = find_phase(columns, alternating ? 2 : column_phases, at.rest);
        const packed_phase column = columns[column_phase];
        const int row_tap = at.whole - row.first_tap, column_tap = at.rest - column.first_tap;
        return {
            row_of(strip, alternating ? strip.block * 2 + column_phase : strip.block,
                   row.first_tap * column_taps + (alternating ? 0 : row.taps * column.first_tap),
                   row.taps * column.taps, row_tap * column.taps + column_tap),
            element_of(row.first_kernel + row_tap * kernel_step[0], column.first_kernel + column_tap * kernel_step[1])};
    }

  private:
    __device__ __forceinline__ int element_of(int row, int column) const
    {
        return row * kernel_columns + column;
    }
};

template <class Word>
__global__ void __launch_bounds__(PACK_THREADS) transpose_alone(const __grid_constant__ src_transpose transpose)
{
    transpose_tile<Word>(transpose, (int)blockIdx.x);
}

template <bool fills>
tconv_status launch(const planned_layer *planned, const src_transpose *transpose, const void *weights, void *packed,
                    void *stream, tconv_issue *issue)
{
    const numerics arithmetic = planned->plan.arithmetic;
    order<fills> order = {{}, planned->weights, *transpose};
    if (weights == NULL)
        order.boxes = {};
    return launch_boxes(order, numerics_bytes(arithmetic), numerics_split(arithmetic) ? 2 : 1,
                        transpose->thread_blocks > 0 ? TRANSPOSE_BYTES : 0, weights, packed, stream, issue);
}

} // namespace

extern "C" tconv_status tconv_igemm_transpose(const src_transpose *transpose, size_t element_size, void *stream,
                                              tconv_issue *issue)
{
    src_transpose launched = *transpose;
    void *arguments[] = {&launched};
    const launch_grid grid = {element_size == 2 ? (const void *)transpose_alone<uint16_t>
                                                : (const void *)transpose_alone<uint32_t>,
                              launched.thread_blocks,
                              PACK_THREADS,
                              TRANSPOSE_BYTES,
                              false,
                              0};
    return tconv_launch_kernel(&grid, arguments, stream, issue);
}

extern "C" tconv_status tconv_igemm_pack(const planned_layer *planned, const src_transpose *transpose,
                                         const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    return planned->weights.boxes.filling.columns > 0
               ? launch<true>(planned, transpose, weights, packed, stream, issue)
               : launch<false>(planned, transpose, weights, packed, stream, issue);
}

} // namespace tconv::igemm
