/*
 * Packs the weights for the kernels of cuda_wgmma: for each block of output channels, K-block and row of taps, in the
 * order in which a tile reads them, an A stage
 *
 *     [warpgroup][K step][MMA tile and its column taps][plane][core][64 rows of M][4 or 8 input channels]
 *
 * where warpgroups, and MMA tiles, that share their weights have them once. A row of M that is no output channel, an
 * input channel past the last, and a tap that an output row of a stack does not have, are zeros. With space-to-depth,
 * each K step is there twice, for either column of src, and rows of M are 8 output channels of one column of dst, then
 * of the other. Where a stack's weights overlap, an A stage is
 *
 *     [core][column taps][zeros, then row taps][32 rows of M][4 or 8 input channels], zeros
 */
#include <cstring>

#include "../pack/boxes.cuh"
#include "parameters.h"

namespace tconv::wgmma
{

namespace
{

struct packing_order {
    packing_layout packing;

    __host__ __device__ int column_taps() const
    {
        return packing.column_taps[0] + (packing.mma_tiles == 2 ? packing.column_taps[1] : 0);
    }

    /* Returns how many warpgroups have output channels of their own; 1 where they have the same channels. */
    __host__ __device__ int channel_warpgroups() const
    {
        return packing.warpgroup_channels > 0 ? packing.warpgroups : 1;
    }

    __device__ pack_place place_of(unsigned strip) const
    {
        pack_place place;
        const unsigned part = strip % parts(), of_part = strip / parts(), of_block = of_part / channel_warpgroups();
        place.warpgroup = (int)(of_part - of_block * channel_warpgroups());
        place.block = (int)(of_block / packing.k_blocks);
        place.k_block = (int)(of_block % packing.k_blocks);
        place.group = place.block / packing.group_m_blocks;
        place.out = place.block % packing.group_m_blocks * packing.tile_channels +
                    place.warpgroup * packing.warpgroup_channels + (int)part * SPACE_TO_DEPTH_CHANNELS;
        return place;
    }

    /* Returns into how many parts an MMA tile's output channels fall: with space-to-depth, a part is those of a
     * warp. */
    __host__ __device__ int parts() const
    {
        return packing.depth == 2 ? packing.mma_tile_channels / SPACE_TO_DEPTH_CHANNELS : 1;
    }

    /* Returns how many runs a box has in an A stage where a stack's weights overlap: blocks of 32 rows, and the zeros
     * behind them. */
    __host__ __device__ int overlapping_runs() const
    {
        return packing.a_stage_columns * (packing.row_taps[0] + 1) + 1;
    }

    __device__ pack_run overlapping_run_of(const pack_place &place, int run) const
    {
        const int a_stage_runs = overlapping_runs(), stage_of_k_block = run / a_stage_runs, at = run % a_stage_runs;
        const int column = at / (packing.row_taps[0] + 1), row_tap = at % (packing.row_taps[0] + 1) - 1;
        const int64_t a_stage =
            ((int64_t)place.block * packing.k_blocks + place.k_block) * packing.max_k_block_a_stages + stage_of_k_block;
        const int kernel_row = packing.first_kernel_row[0] + row_tap * packing.kernel_row_step;
        const int kernel_column = packing.first_kernel_column[0] +
                                  (stage_of_k_block * packing.a_stage_columns + column) * packing.kernel_column_step;
        return {a_stage * packing.a_stage_rows + at * packing.mma_tile_channels + place.core % 2 * packing.core_step +
                    place.row,
                row_tap >= 0 && column < packing.a_stage_columns ? kernel_row * packing.kernel_columns + kernel_column
                                                                 : -1};
    }

    __device__ pack_run run_of(const pack_place &place, int planes, int run) const
    {
        if (packing.a_stage_columns > 0)
            return overlapping_run_of(place, run);
        const int taps = column_taps(), warpgroups = packing.warpgroups / channel_warpgroups();
        int tap = run % taps, rest = run / taps;
        const int row_of_stack = rest % packing.stack;
        rest /= packing.stack;
        const int to_column = rest % packing.depth, from_column = rest / packing.depth % packing.depth;
        rest /= packing.depth * packing.depth;
        const int warpgroup = place.warpgroup + rest % warpgroups, row_tap = rest / warpgroups;
        const int64_t a_stage =
            ((int64_t)place.block * packing.k_blocks + place.k_block) * packing.max_k_block_a_stages + row_tap;
        const int64_t k_step =
            ((a_stage * packing.warpgroups + warpgroup) * packing.k_steps + place.step()) * packing.depth;
        const int64_t mma = (k_step + from_column) * taps + tap;
        /* The rows of a stack take the same taps, each a row later than the one before it. */
        const int own_tap = row_tap - (packing.stack - 1) + row_of_stack;
        const int mma_tile = tap >= packing.column_taps[0];
        tap -= mma_tile * packing.column_taps[0];
        const int kernel_row = packing.first_kernel_row[warpgroup] + own_tap * packing.kernel_row_step;
        const int kernel_column = packing.depth == 2
                                      ? 2 * tap + to_column - from_column
                                      : packing.first_kernel_column[mma_tile] + tap * packing.kernel_column_step;
        const bool exists = own_tap >= 0 && own_tap < packing.row_taps[warpgroup] && kernel_column >= 0 &&
                            kernel_column < packing.kernel_columns;
        const int row = packing.depth == 2
                            ? 2 * (place.out % packing.mma_tile_channels) + to_column * SPACE_TO_DEPTH_CHANNELS
                            : row_of_stack * packing.mma_tile_channels;
        return {mma * planes * 2 * MMA_M + row + place.step_row(),
                exists ? kernel_row * packing.kernel_columns + kernel_column : -1};
    }
};

} // namespace

tconv_status pack_weights(const packing_layout *packing, arithmetic mode, const void *weights, void *packed,
                          void *stream, tconv_issue *issue)
{
    const packing_order order = {*packing};
    const int planes = mode == arithmetic::STRICT ? 2 : 1;
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    boxes.from = packing->from;
    boxes.group_in = packing->group_in;
    boxes.group_out = packing->group_out;
    boxes.outputs = boxes.out_columns = 1;
    boxes.elements = packing->kernel_rows * packing->kernel_columns;
    boxes.step_rows = order.column_taps() * planes * 2 * MMA_M;
    boxes.runs = packing->max_k_block_a_stages * packing->warpgroups / order.channel_warpgroups() * packing->stack *
                 packing->depth * packing->depth * order.column_taps();
    if (packing->a_stage_columns > 0)
        boxes.runs = packing->max_k_block_a_stages * order.overlapping_runs();
    pack_choose_boxes(&boxes, packing->k_steps * 2 * CORE_ROW_BYTES / packing->k_block_channels,
                      (int64_t)packing->m_blocks * packing->k_blocks * order.channel_warpgroups() * order.parts(),
                      packing->mma_tile_channels / order.parts(), 2 * packing->k_steps);
    if (packing->a_stage_columns > 0)
        boxes.core_step = packing->core_step;
    return pack_launch(&order, &boxes, (int)mode, weights, packed, stream, issue);
}

} // namespace tconv::wgmma
