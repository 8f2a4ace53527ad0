/* The tiles of a candidate for a plan of cuda_wgrad: its block tile of sums and its K-tile. */
#ifndef TCONV_CUDA_WGRAD_PLAN_TILE_H
#define TCONV_CUDA_WGRAD_PLAN_TILE_H

#include "plan.h"

enum { WGRAD_MAX_EXTENT = 1 << 28 }; /* extents, and numbers of tiles, are below this */

typedef struct candidate_tile {
    const kernel_choice *kernel;
    int warps_m; /* mma.sync: warps of a block along the input channels; else 1 */
    int k_log2;  /* a K-tile has 2^k_log2 pixels, in rows of 2^column_log2 of images of 2^row_log2 rows */
    int row_log2, column_log2;
    bool lines;                    /* the load mode is LINES */
    int64_t row_taps, column_taps; /* of a group */
    int64_t chunk; /* mma.sync: output channels of a tile, at most; else the kernel's GEMM columns set them */
} candidate_tile;

/* Returns whether the numbers of an axis fit in what kernels keep them in. */
bool tconv_wgrad_takes_axis(const tconv_axis *axis);

/* Cuts the taps and channels of a layer into the block tiles of a candidate; false where the candidate has no such
 * tile. */
bool tconv_wgrad_cut_channels(const tconv_layer *layer, const candidate_tile *candidate, planned_layer *plan);

/* Lists the taps of a block's tile by residues; false where there are too many slots. */
bool tconv_wgrad_cut_taps(const tconv_layer *layer, planned_layer *plan);

/* Cuts the pixels of a layer into the K-tiles of a candidate; false where there are too many slots. */
bool tconv_wgrad_cut_pixels(const tconv_layer *layer, const candidate_tile *candidate, planned_layer *plan);

/* Returns the bytes of shared memory from a pixel or slot with so many channels to the next, so that the rows of 16
 * bytes that lanes read at once lie in different banks. */
int tconv_wgrad_pitch(int64_t channels, bool half);

/* Returns whether the offset of a K-tile's last place from its first, in bytes, fits in 32 bits, for both tensors. */
bool tconv_wgrad_is_near(const tconv_layer *layer, const candidate_tile *candidate, const planned_layer *plan);

#endif
