/* Products of few pixels with many weights, which are read as they lie: the plan (direct.c), and the kernels by
 * mma.sync (direct_mma.cu) and, of 16-bit elements on Hopper, by wgmma (direct_wgmma.cu). */
#ifndef TCONV_CUDA_GEMM_COL2IM_DIRECT_H
#define TCONV_CUDA_GEMM_COL2IM_DIRECT_H

#include "../gemm/shape.h"
#include "../model/work.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"

TCONV_ROOM_BEGIN(tconv::gemm_col2im)

enum {
    DIRECT_K_BYTES = 128, /* of a pixel's channels in a K-block */

    /* The kernels by mma.sync. Rows of shared memory are pitched so that lanes meet in no bank: those that f32 loads by
     * 32 bytes (lanes of neighbouring channels are 8 words apart), others by 16. */
    DIRECT_MMA_THREADS = 256,
    DIRECT_MMA_ROWS = 128,                      /* of a tile */
    DIRECT_MMA_SRC_PITCH = DIRECT_K_BYTES + 16, /* bytes from a pixel to the next */

    /* The kernels by wgmma, with two MMA tiles of 64 pixels by 128 weights for each of two warpgroups, and a warp that
     * loads. */
    DIRECT_WGMMA_THREADS = (WARPGROUPS * WARPGROUP_WARPS + 1) * WARP,
    DIRECT_WGMMA_N = 128,                           /* weights of a wgmma */
    DIRECT_WGMMA_TILES = 2,                         /* MMA tiles of a warpgroup */
    DIRECT_BOX = DIRECT_K_BYTES / 2,                /* elements of a row that TMA swizzles */
    DIRECT_BOX_BYTES = DIRECT_BOX * DIRECT_K_BYTES, /* of a box of so many rows */
    DIRECT_WGMMA_SHARED_BYTES = 216 * 1024          /* the most of all stages */
};

/* A row is a weight of an input channel: an output channel and a tap, as they lie. Pitches are in elements. */
typedef struct direct_shape {
    const void *src; /* pixels, whose channels follow one another; begins at a multiple of 16 bytes, as pixels do */
    const void *weights;
    float *products;
    int64_t src_pitch;                                       /* from a pixel to the next */
    int64_t weight_pitch;                                    /* from a channel's weights to the next one's */
    int64_t part_pitch, group_pitch, row_pitch, pixel_pitch; /* of the products */
    int pixels, rows;
    int channels; /* input channels of a group */
    int groups;
    int row_length;           /* weights of a channel from the first row on, which may be read */
    int parts, part_channels; /* input channels are summed in parts, each of which has products of its own */
    int weight_access;        /* bytes that are copied at once; by_wgmma: 16 */
    bool by_wgmma;
    int tile_rows, tile_pixels; /* of a block's tile, with all channels of a part */
    fast_divisor pixel_tiles, parts_of_tile, row_tiles;
} direct_shape;

/* Cuts the products, whose extents, groups and pitches are set, into tiles and parts that make at most so many
 * products; adds what they do to a work that has begun. may_wgmma: TMA can read the weights at aligned addresses. */
void tconv_gemm_col2im_cut_products(const tconv_layer *layer, int64_t most_products, bool may_wgmma,
                                    direct_shape *shape, tconv_cuda_work *work);

/* Launches the products on the current device. overlaps: beside what writes src, as launch_grid has it. */
tconv_status tconv_gemm_col2im_multiply_directly(const tconv_layer *layer, const direct_shape *shape, bool overlaps,
                                                 void *stream, tconv_issue *issue);

/* ---------------------------------------------------------------------- facts about the kernels, which these have too */

/* Returns the pipeline stages of the kernel by mma.sync with so many pixels in a tile; the bytes of a row of weights in
 * shared memory from a channel to the next; and the bytes of all stages. */
TCONV_ROOM_CONSTANT int direct_mma_stages(int tile_pixels)
{
    return tile_pixels >= 128 ? 3 : 4;
}
TCONV_ROOM_CONSTANT int direct_mma_weight_pitch(int element_size)
{
    return DIRECT_MMA_ROWS * element_size + (element_size == 4 ? 32 : 16);
}
TCONV_ROOM_CONSTANT int direct_mma_bytes(int element_size, int tile_pixels)
{
    return direct_mma_stages(tile_pixels) *
           (DIRECT_K_BYTES / element_size * direct_mma_weight_pitch(element_size) + tile_pixels * DIRECT_MMA_SRC_PITCH);
}

/* Returns the rows of a tile of the kernel by wgmma whose tile has so many pixels, 64, 128 or 256; the bytes of a stage;
 * and how many stages there are. */
TCONV_ROOM_CONSTANT int direct_wgmma_rows(int tile_pixels)
{
    return WARPGROUPS * DIRECT_WGMMA_TILES * MMA_M / tile_pixels * DIRECT_WGMMA_N;
}
TCONV_ROOM_CONSTANT int direct_wgmma_stage_bytes(int tile_pixels)
{
    return (tile_pixels / MMA_M + direct_wgmma_rows(tile_pixels) / DIRECT_BOX) * DIRECT_BOX_BYTES;
}
TCONV_ROOM_CONSTANT int direct_wgmma_stages(int tile_pixels)
{
    return DIRECT_WGMMA_SHARED_BYTES / direct_wgmma_stage_bytes(tile_pixels);
}

/* Return the kernel whose tile has so many pixels: by mma.sync 32, 64 or, but in strict f32, 128; by wgmma 64, 128 or
 * 256. In a build without CUDA they return NULL. */
const void *tconv_gemm_col2im_mma_kernel(numerics kind, int tile_pixels);
const void *tconv_gemm_col2im_wgmma_kernel(numerics kind, int tile_pixels);

TCONV_ROOM_END

#endif
