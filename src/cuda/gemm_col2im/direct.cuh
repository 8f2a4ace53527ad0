/* What the kernels of direct products share. */
#ifndef TCONV_CUDA_GEMM_COL2IM_DIRECT_CUH
#define TCONV_CUDA_GEMM_COL2IM_DIRECT_CUH

#include "../numeric/divisor.cuh"
#include "direct.h"

namespace tconv::gemm_col2im
{

struct direct_tile {
    int group, row, pixel, part, first_channel, end_channel;
};

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

} // namespace tconv::gemm_col2im

#endif
