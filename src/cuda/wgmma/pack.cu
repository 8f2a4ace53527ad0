/*
 * Packs the weights for the wgmma kernels: for each block of output channels, chunk of input channels and row of taps, in
 * the order in which a tile reads them, a slot
 *
 *     [warpgroup][step][unit and its column taps][plane][quad][64 rows of M][4 or 8 input channels]
 *
 * where warpgroups, and units, that share their weights have them once. A row of M that is no output channel, an input
 * channel past the last, and a tap that an output row of a stack does not have, are zeros. Folded, each step is there twice, for
 * either column of a pixel, and rows of M are 8 output channels of one column of dst, then of the other. Where a stack's weights
 * overlap, a slot is
 *
 *     [quad][column taps][zeros, then row taps][32 rows of M][4 or 8 input channels], zeros
 */
#include <cstring>

#include "../pack/boxes.cuh"
#include "../ptx/wgmma.cuh"
#include "parameters.h"

namespace tconv::wgmma
{

namespace
{

struct wgmma_order {
    tconv_wgmma_packing packing;

    __host__ __device__ int column_taps() const
    {
        return packing.column_taps[0] + (packing.units == 2 ? packing.column_taps[1] : 0);
    }

    /* Warpgroups of a block that have output channels of their own; others have the same channels. */
    __host__ __device__ int channel_groups() const
    {
        return packing.group_channels > 0 ? packing.groups : 1;
    }

    __device__ pack_place place_of(unsigned strip) const
    {
        pack_place place;
        const unsigned part = strip % parts(), of_part = strip / parts(), of_block = of_part / channel_groups();
        place.warpgroup = (int)(of_part - of_block * channel_groups());
        place.block = (int)(of_block / packing.chunks);
        place.k_block = (int)(of_block % packing.chunks);
        place.group = place.block / packing.group_blocks;
        place.out = place.block % packing.group_blocks * packing.tile_channels +
                    place.warpgroup * packing.group_channels + (int)part * TCONV_WGMMA_FOLD_CHANNELS;
        return place;
    }

    /* Of a block of output channels: folded, those of a warp. */
    __host__ __device__ int parts() const
    {
        return packing.fold == 2 ? packing.block_channels / TCONV_WGMMA_FOLD_CHANNELS : 1;
    }

    /* Of a box, where a stack's weights overlap: blocks of a slot, and the zeros behind them. */
    __host__ __device__ int overlapping_runs() const
    {
        return packing.slot_columns * (packing.row_taps[0] + 1) + 1;
    }

    __device__ pack_run overlapping_run_of(const pack_place &place, int run) const
    {
        const int slot_runs = overlapping_runs(), slot_of_chunk = run / slot_runs, at = run % slot_runs;
        const int column = at / (packing.row_taps[0] + 1), row_tap = at % (packing.row_taps[0] + 1) - 1;
        const int64_t slot =
            ((int64_t)place.block * packing.chunks + place.k_block) * packing.max_chunk_slots + slot_of_chunk;
        const int kernel_row = packing.first_kernel_row[0] + row_tap * packing.kernel_row_step;
        const int kernel_column = packing.first_kernel_column[0] +
                                  (slot_of_chunk * packing.slot_columns + column) * packing.kernel_column_step;
        return {slot * packing.slot_rows + at * packing.block_channels + place.core % 2 * packing.quad_rows + place.row,
                row_tap >= 0 && column < packing.slot_columns ? kernel_row * packing.kernel_columns + kernel_column
                                                              : -1};
    }

    __device__ pack_run run_of(const pack_place &place, int planes, int run) const
    {
        if (packing.slot_columns > 0)
            return overlapping_run_of(place, run);
        const int taps = column_taps(), groups = packing.groups / channel_groups();
        int tap = run % taps, rest = run / taps;
        const int row_of_stack = rest % packing.stack;
        rest /= packing.stack;
        const int folded_to = rest % packing.fold, folded_from = rest / packing.fold % packing.fold;
        rest /= packing.fold * packing.fold;
        const int warpgroup = place.warpgroup + rest % groups, row_tap = rest / groups;
        const int64_t slot = ((int64_t)place.block * packing.chunks + place.k_block) * packing.max_chunk_slots + row_tap;
        const int64_t step = ((slot * packing.groups + warpgroup) * packing.steps + place.step()) * packing.fold;
        const int64_t product = (step + folded_from) * taps + tap;
        /* The rows of a stack take the same taps, each a row later than the one before it. */
        const int own_tap = row_tap - (packing.stack - 1) + row_of_stack;
        const int unit = tap >= packing.column_taps[0];
        tap -= unit * packing.column_taps[0];
        const int kernel_row = packing.first_kernel_row[warpgroup] + own_tap * packing.kernel_row_step;
        const int kernel_column = packing.fold == 2
                                      ? 2 * tap + folded_to - folded_from
                                      : packing.first_kernel_column[unit] + tap * packing.kernel_column_step;
        const bool exists = own_tap >= 0 && own_tap < packing.row_taps[warpgroup] && kernel_column >= 0 &&
                            kernel_column < packing.kernel_columns;
        const int row = packing.fold == 2
                            ? 2 * (place.out % packing.block_channels) + folded_to * TCONV_WGMMA_FOLD_CHANNELS
                            : row_of_stack * packing.block_channels;
        return {product * planes * 2 * TCONV_WGMMA_M + row + place.step_row(),
                exists ? kernel_row * packing.kernel_columns + kernel_column : -1};
    }
};

} // namespace

tconv_status tconv_wgmma_pack(const tconv_wgmma_packing *packing, tconv_wgmma_mode mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue)
{
    const wgmma_order order = {*packing};
    const int planes = mode == TCONV_WGMMA_STRICT ? 2 : 1;
    pack_boxes boxes;
    memset(&boxes, 0, sizeof boxes);
    boxes.from = packing->from;
    boxes.group_in = packing->group_in;
    boxes.group_out = packing->group_out;
    boxes.outputs = boxes.out_columns = 1;
    boxes.elements = packing->kernel_rows * packing->kernel_columns;
    boxes.step_rows = order.column_taps() * planes * 2 * TCONV_WGMMA_M;
    boxes.runs = packing->max_chunk_slots * packing->groups / order.channel_groups() * packing->stack * packing->fold *
                 packing->fold * order.column_taps();
    if (packing->slot_columns > 0)
        boxes.runs = packing->max_chunk_slots * order.overlapping_runs();
    pack_choose_boxes(&boxes, packing->steps * 2 * TCONV_WGMMA_QUAD / packing->chunk_channels,
                      (int64_t)packing->blocks * packing->chunks * order.channel_groups() * order.parts(),
                      packing->block_channels / order.parts(), 2 * packing->steps);
    if (packing->slot_columns > 0)
        boxes.core_step = packing->quad_rows;
    return pack_launch(&order, &boxes, mode, weights, packed, stream, issue);
}

} // namespace tconv::wgmma
