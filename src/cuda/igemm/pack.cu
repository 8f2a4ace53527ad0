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
__device__ __forceinline__ int find_phase(const axis_phase *phases, int count, int tap)
{
    int phase = 0;
    while (phase + 1 < count && phases[phase + 1].first_tap <= tap)
        phase++;
    return phase;
}

template <bool fills> struct order : tf32_order, weight_source {
    static constexpr bool FILLS = fills;
    parameters layer;
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
        const unsigned of_group = strip / layer.k_blocks, group = of_group / strips, block = of_group % strips;
        return {(int)group, (int)block * MMA_M, (int)(strip % layer.k_blocks), (int)block, 0};
    }

    __device__ __forceinline__ pack_run run_of(const pack_strip &strip, int run) const
    {
        int row_phase, row_tap = 0, column_phase, column_tap = 0, m_tile, taps = 1, tap = 0;
        int64_t before = 0; /* taps of earlier phases, which all have A tiles like this one's */
        bool exists = true;
        if (layer.merged) {
            /* The M tiles that are left of the last block tile have no channels; the boxes of the first M tile write
             * them. */
            const int all = layer.row_phases * layer.column_phases;
            exists = run < all;
            if (!exists && strip.block > 0)
                return {-1, -1};
            row_phase = run / layer.column_phases;
            column_phase = run % layer.column_phases;
            m_tile = exists ? (row_phase * layer.channel_m_tiles + strip.block) * layer.column_phases + column_phase
                            : layer.phase_m_tiles + run - all;
        } else {
            row_tap = run / run_columns;
            column_tap = run % run_columns;
            row_phase = find_phase(layer.rows, layer.row_phases, row_tap);
            column_phase = layer.paired ? column_tap >= column_taps[0]
                                        : find_phase(layer.columns, layer.column_phases, column_tap);
            const axis_phase &rows = layer.rows[row_phase], &columns = layer.columns[layer.paired ? 0 : column_phase];
            m_tile = layer.paired ? strip.block * 2 + column_phase : strip.block;
            before = rows.first_tap * (int64_t)layer.column_taps + (int64_t)rows.taps * columns.first_tap;
            row_tap -= rows.first_tap;
            column_tap -= layer.paired ? column_phase * column_taps[0] : columns.first_tap;
            taps = rows.taps * columns.taps;
            tap = row_tap * columns.taps + column_tap;
        }
        const int64_t k_block = m_tile / layer.m_tiles * (int64_t)layer.k_blocks + strip.k_block;
        const int64_t a_tile =
            strip.group * layer.group_a_tiles + before * layer.k_blocks * layer.tiles_along_m + k_block * taps + tap;
        const int64_t product = (a_tile * layer.m_tiles + m_tile % layer.m_tiles) * layer.k_steps;
        if (!exists)
            return {product * boxes.step_rows, -1};
        const int64_t row = first_kernel[0][row_phase] + row_tap * kernel_step[0];
        const int64_t column = first_kernel[1][column_phase] + column_tap * kernel_step[1];
        return {product * boxes.step_rows, (int)(row * kernel_columns + column)};
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
    order<fills> order = {{}, planned->weights, planned->plan.params, *transpose};
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
