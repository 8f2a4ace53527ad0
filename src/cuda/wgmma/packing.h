/* What the packing kernel is told of A stages beside the layer's parameters. */
#ifndef TCONV_CUDA_WGMMA_PACKING_H
#define TCONV_CUDA_WGMMA_PACKING_H

#include "../pack/boxes.h"
#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::wgmma)

typedef struct packing_layout {
    pack_boxes boxes;
    int warpgroups, mma_tiles; /* 1 where they share their weights */
    int a_stage_columns;       /* columns of taps of an A stage where a stack's weights overlap; else 0 */
    int a_stage_rows;          /* where they overlap: rows of 16 bytes of an A stage */
    int product_rows;          /* where they do not: rows of 16 bytes that an MMA takes, in all planes */
    int depth;                 /* 2: space-to-depth, else 1 */
    int row_taps[WARPGROUPS], first_kernel_row[WARPGROUPS], kernel_row_step;
    int first_kernel_column[MMA_TILES], kernel_column_step;
    int kernel_columns;
} packing_layout;

/* Returns how many warpgroups have output channels of their own; 1 where they have the same channels. */
TCONV_ROOM_SHARED int channel_warpgroups(const packing_layout *layout, const parameters *params)
{
    return params->warpgroup_channels > 0 ? layout->warpgroups : 1;
}

/* Returns into how many parts an MMA tile's output channels fall: with space-to-depth, a part is those of a warp. */
TCONV_ROOM_SHARED int channel_parts(const packing_layout *layout, const parameters *params)
{
    return layout->depth == 2 ? params->mma_tile_channels / SPACE_TO_DEPTH_CHANNELS : 1;
}

TCONV_ROOM_SHARED int all_column_taps(const packing_layout *layout, const parameters *params)
{
    return params->column_taps[0] + (layout->mma_tiles == 2 ? params->column_taps[1] : 0);
}

/* Returns how many runs a strip has in an A stage where a stack's weights overlap: blocks of 32 rows, and the zeros
 * behind them. */
TCONV_ROOM_SHARED int overlapping_runs(const packing_layout *layout)
{
    return layout->a_stage_columns * (layout->row_taps[0] + 1) + 1;
}

/* Completes a layout, of which all is given but the boxes' counts and product_rows, by the boxes that the weights are
 * cut into. */
void tconv_wgmma_choose_boxes(packing_layout *layout, const parameters *params, numerics arithmetic);

/* Launches the packing kernel on the current device. */
tconv_status tconv_wgmma_pack_weights(const packing_layout *layout, const parameters *params, numerics arithmetic,
                                      const void *weights, void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
