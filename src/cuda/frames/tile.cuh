/* What a thread block of cuda_frames computes, and the types it does so in. */
#ifndef TCONV_CUDA_FRAMES_TILE_CUH
#define TCONV_CUDA_FRAMES_TILE_CUH

#include "parameters.h"

#include "../numeric/divisor.cuh"

namespace tconv::frames
{

namespace
{

template <class Element_> struct mode_of {
    using Element = Element_;
    static constexpr bool STRICT = false;
    static constexpr int SIZE = sizeof(Element);
    static constexpr int LANE_ROWS = LANE_BYTES / SIZE;         /* neighbouring rows that a lane loads */
    static constexpr int TILE_ROWS = tile_rows(SIZE);           /* of the product */
    static constexpr int MMAS = LANE_ROWS / 2;                  /* of a row tile: each has two of a lane's rows */
    static constexpr int STEP_CHANNELS = STEP_WORDS * 4 / SIZE; /* of a step */
    static constexpr int LANE_CHANNELS = STEP_CHANNELS / 4;     /* that a lane loads of these */
};
struct tf32 : mode_of<float> {
};
struct strict : tf32 {
    static constexpr bool STRICT = true;
};
template <class Half> struct half_mode : mode_of<Half> {
};

/* What a block computes: output channels of a group, and images. */
struct block_tile {
    int group, first_out, outs, first_image, images, columns;
    int first_x;           /* column of src; the columns before its first are its last ones */
    int first_column, end; /* columns of outputs */
    int tail;              /* places of a stream's tail behind these: of the first strip, or 0 */
    int first_row;         /* of the group's products, at a multiple of a lane's rows */
    int row_shift;         /* from there to the first row of the first output channel */
    int rows;              /* from there to the last row of the last output channel */
};

template <class Mode> __device__ __forceinline__ block_tile find_tile(const parameters &of, int number)
{
    const quotient strips = divide(number, of.strips), images = divide(strips.whole, of.image_tiles),
                   outs = divide(images.whole, of.out_tiles);
    block_tile tile;
    tile.group = outs.whole;
    tile.first_out = outs.rest * of.block_out;
    tile.outs = min(of.block_out, of.group_out - tile.first_out);
    tile.first_image = images.rest * of.tile_images;
    tile.images = min(of.tile_images, of.images - tile.first_image);
    tile.columns = tile.images * of.image_pixels.divisor;
    tile.first_x = strips.rest * of.strip_step - of.strip_back;
    const int step = of.strip_step * of.columns.stride.divisor, begin = strips.rest * step - of.columns.pad;
    tile.first_column = max(begin, 0);
    tile.end = strips.rest == of.strips.divisor - 1 ? of.columns.out : min(begin + step, of.columns.out);
    tile.tail = strips.rest == 0 ? of.carry.tail : 0;
    tile.row_shift = tile.first_out * of.taps % Mode::LANE_ROWS;
    tile.first_row = tile.first_out * of.taps - tile.row_shift;
    tile.rows = tile.row_shift + tile.outs * of.taps;
    return tile;
}

/* Elements from src to the pixel of a block's column, input channel 0 of the layer. What the first strip has before src is the
 * end of src, which a stream's tail is made of. The last strip may be wider than what is left: the last pixel is repeated, or
 * the last two where that many are read together. */
__device__ __forceinline__ int64_t find_pixel(const parameters &of, const block_tile &tile, int column,
                                              int together = 1)
{
    const quotient image = divide(column, of.image_pixels), row = divide(image.rest, of.image_columns);
    const int x = tile.first_x + row.rest;
    return (tile.first_image + image.whole) * of.src_strides.n + row.whole * of.src_strides.h +
           (x < 0 ? x + of.columns.in : min(x, of.columns.in - together)) * of.src_strides.w;
}

} // namespace

} // namespace tconv::frames

#endif
