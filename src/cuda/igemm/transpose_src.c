/* Describes the layout transform of a small src from NCHW to NHWC. */
#include "transpose_src.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../pack/transpose.h"

#include <string.h>

int64_t tconv_igemm_transposed_pixel(const tconv_problem *problem)
{
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    return tconv_ceil_div(tconv_src_channels(problem), vector) * vector;
}

int64_t tconv_igemm_transposed_volume(const tconv_problem *problem)
{
    return tconv_src_planes(problem) * problem->h.in * problem->w.in * tconv_igemm_transposed_pixel(problem);
}

int64_t tconv_igemm_transposed_bytes(const tconv_problem *problem)
{
    return tconv_volumes(problem) * tconv_igemm_transposed_volume(problem) * (int64_t)problem->element_size;
}

src_transpose tconv_igemm_transpose_of(const tconv_problem *problem)
{
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t image = problem->h.in * problem->w.in;
    src_transpose transpose;
    memset(&transpose, 0, sizeof transpose);
    transpose.from = problem->src;
    transpose.volume = problem->volumes.read;
    transpose.pixels = (int)(tconv_src_planes(problem) * image);
    transpose.rows = (int)problem->h.in;
    transpose.columns = (int)problem->w.in;
    transpose.channels = (int)tconv_src_channels(problem);
    transpose.pixel_vectors = (int)(tconv_igemm_transposed_pixel(problem) / vector);
    transpose.channel_tiles = (int)tconv_ceil_div(transpose.pixel_vectors, TRANSPOSE_VECTORS);
    const int tiles = (int)tconv_max(tconv_ceil_div(transpose.pixels, TRANSPOSE_PIXELS), 1);
    transpose.thread_blocks = (int)tconv_volumes(problem) * tiles * transpose.channel_tiles;
    transpose.by_volume_tiles = divisor_of(tiles);
    transpose.vectors = problem->src.w == 1 && problem->src.h == problem->w.in && image % vector == 0 &&
                        problem->src.c % vector == 0 && problem->src.n % vector == 0 &&
                        problem->volumes.read % vector == 0;
    transpose.by_image = divisor_of((int)image);
    transpose.by_columns = divisor_of((int)problem->w.in);
    transpose.by_channel_tiles = divisor_of(transpose.channel_tiles);
    return transpose;
}
