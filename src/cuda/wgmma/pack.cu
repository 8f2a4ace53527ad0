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
#include "../pack/boxes.cuh"
#include "packing.h"

namespace tconv::wgmma
{

namespace
{

struct order : tf32_order, packing_layout {
    static constexpr bool FILLS = false;
    parameters params;

    static __host__ __device__ unsigned other_blocks()
    {
        return 0;
    }
    template <class Word> static __device__ __forceinline__ void do_other(unsigned)
    {
    }

    __device__ __forceinline__ pack_strip strip_of(unsigned strip) const
    {
        const int parts = channel_parts(this, &params), warpgroups_apart = channel_warpgroups(this, &params);
        const unsigned part = strip % parts, of_part = strip / parts, of_block = of_part / warpgroups_apart;
        const int warpgroup = (int)(of_part % warpgroups_apart), block = (int)(of_block / params.k_blocks);
        return {block / params.group_m_blocks,
                block % params.group_m_blocks * params.tile_channels + warpgroup * params.warpgroup_channels +
                    (int)part * SPACE_TO_DEPTH_CHANNELS,
                (int)(of_block % params.k_blocks), block, warpgroup};
    }

    __device__ __forceinline__ int64_t a_stage_of(const pack_strip &strip, int of_k_block) const
    {
        return ((int64_t)strip.block * params.k_blocks + strip.k_block) * params.max_k_block_a_stages + of_k_block;
    }

    __device__ __forceinline__ pack_run overlapping_run_of(const pack_strip &strip, int run) const
    {
        const int stage = run / overlapping_runs(this), at = run % overlapping_runs(this);
        const int column = at / (row_taps[0] + 1), row_tap = at % (row_taps[0] + 1) - 1;
        const int kernel_row = first_kernel_row[0] + row_tap * kernel_row_step;
        const int kernel_column = first_kernel_column[0] + (stage * a_stage_columns + column) * kernel_column_step;
        return {a_stage_of(strip, stage) * a_stage_rows + at * params.mma_tile_channels,
                row_tap >= 0 && column < a_stage_columns ? kernel_row * kernel_columns + kernel_column : -1};
    }

    __device__ __forceinline__ pack_run run_of(const pack_strip &strip, int run) const
    {
        if (a_stage_columns > 0)
            return overlapping_run_of(strip, run);
        const int taps = all_column_taps(this, &params), sharing = warpgroups / channel_warpgroups(this, &params);
        int rest = run, tap = take_index(rest, taps);
        const int row_of_stack = take_index(rest, params.stack);
        const int to_column = take_index(rest, depth), from_column = take_index(rest, depth);
        const int warpgroup = strip.warpgroup + take_index(rest, sharing), row_tap = rest;
        const int64_t k_step =
            (a_stage_of(strip, row_tap) * warpgroups + warpgroup) * params.k_steps * depth + from_column;
        const int64_t product = k_step * taps + tap; /* of the first K step */
        /* The rows of a stack take the same taps, each a row later than the one before it. */
        const int own_tap = row_tap - (params.stack - 1) + row_of_stack;
        const int mma_tile = tap >= params.column_taps[0];
        tap -= mma_tile * params.column_taps[0];
        const int kernel_row = first_kernel_row[warpgroup] + own_tap * kernel_row_step;
        const int kernel_column =
            depth == 2 ? 2 * tap + to_column - from_column : first_kernel_column[mma_tile] + tap * kernel_column_step;
        const bool exists =
            own_tap >= 0 && own_tap < row_taps[warpgroup] && kernel_column >= 0 && kernel_column < kernel_columns;
        const int row = depth == 2 ? 2 * (strip.out % params.mma_tile_channels) + to_column * SPACE_TO_DEPTH_CHANNELS
                                   : row_of_stack * params.mma_tile_channels;
        return {product * product_rows + row, exists ? kernel_row * kernel_columns + kernel_column : -1};
    }
};

} // namespace

extern "C" tconv_status tconv_wgmma_pack_weights(const packing_layout *layout, const parameters *params,
                                                 numerics arithmetic, const void *weights, void *packed, void *stream,
                                                 tconv_issue *issue)
{
    const order order = {{}, *layout, *params};
    return launch_boxes(order, (size_t)numerics_bytes(arithmetic), numerics_split(arithmetic) ? 2 : 1, 0, weights,
                        packed, stream, issue);
}

} // namespace tconv::wgmma
