/* Products of few pixels with many weights, which are read as they lie: the plan (direct.cu), and the kernels by
 * mma.sync (direct_mma.cu) and, of 16-bit elements on Hopper, by wgmma (direct_wgmma.cu). */
#ifndef TCONV_CUDA_GEMM_COL2IM_DIRECT_H
#define TCONV_CUDA_GEMM_COL2IM_DIRECT_H

#include "../model/work.h"
#include "../numeric/divisor.h"

namespace tconv::gemm_col2im
{

constexpr int DIRECT_K_BYTES = 128; /* of a pixel's channels in a K-block */

/* A row is a weight of an input channel: an output channel and a tap, as they lie. Pitches are in elements. */
struct direct_shape {
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
};

/* Cuts the products, whose extents, groups and pitches are set, into tiles and parts that make at most so many
 * products; adds what they do to a work that has begun. may_wgmma: TMA can read the weights at aligned addresses. */
void cut_products(const tconv_layer *layer, int64_t most_products, bool may_wgmma, direct_shape *shape,
                  tconv_cuda_work *work);

/* Launches the products on the current device. overlaps: beside what writes src, as launch_grid has it. */
tconv_status multiply_directly(const tconv_layer *layer, const direct_shape *shape, bool overlaps, void *stream,
                               tconv_issue *issue);

/* What the kernels share. */

struct direct_tile {
    int group, row, pixel, part, first_channel, end_channel;
};

#ifdef __CUDACC__
/* The tile and part of a block. Those of the same weights follow one another. */
static __device__ __forceinline__ direct_tile find_tile(const direct_shape &of, int number)
{
    const quotient pixels = divide(number, of.pixel_tiles), parts = divide(pixels.whole, of.parts_of_tile);
    const quotient rows = divide(parts.whole, of.row_tiles);
    direct_tile tile;
    tile.group = rows.whole;
    tile.row = rows.rest * of.tile_rows;
    tile.pixel = pixels.rest * of.tile_pixels;
    tile.part = parts.rest;
    tile.first_channel = parts.rest * of.part_channels;
    tile.end_channel = min(of.channels, tile.first_channel + of.part_channels);
    return tile;
}
#endif

/* A kernel, and its tile. The functions return the one whose tile has room for so many pixels, else the largest. */
struct direct_kernel {
    const void *function;
    int threads, tile_rows, tile_pixels;
    int64_t shared_bytes;
};
direct_kernel mma_kernel(const tconv_layer *layer, int pixels);
direct_kernel wgmma_kernel(const tconv_layer *layer, int pixels);

} // namespace tconv::gemm_col2im

#endif
