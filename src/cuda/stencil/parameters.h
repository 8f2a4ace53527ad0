/* Between the host side of the stencil algorithm (stencil.cu) and its kernels: what a kernel is told, and which there are. */
#ifndef TCONV_CUDA_STENCIL_PARAMETERS_H
#define TCONV_CUDA_STENCIL_PARAMETERS_H

#include "../maps/small_axis.h"
#include "../numeric/divisor.h"

namespace tconv::stencil
{

#define TCONV_CUDA_STENCIL_THREADS   128
#define TCONV_CUDA_STENCIL_MAX_TAPS  3 /* along an axis: more weights than 3 x 3 a column do not fit in registers */
#define TCONV_CUDA_STENCIL_PIXEL_RUN 4 /* elements of a run: with 3 taps their weights, 36 numbers, fit in registers */

/*
 * How dst is cut into tiles of a block. Rows are counted in quotients (row / stride). NCHW: `lanes` threads' columns of one
 * plane by `rows`. NHWC: the first THREADS pairs of column and vector of channels, of `channel_vectors` vectors, by `rows`.
 */
struct tconv_cuda_stencil_tile {
    int rows, row_tiles, column_tiles;
    int channel_vectors, channel_tiles; /* NHWC: accesses of a tile's channels, or single channels, or runs of a row */
    int lanes_log2;                     /* NCHW: threads along a row; */
    int part_rows, parts;               /* rows of one thread; */
    int chunks, pitch, load_rows;       /* src in shared memory: accesses and elements of a row, rows; */
    int load_lanes;                     /* threads along a row when loading; NHWC: vectors of a column */
    bool src_aligned;                   /* whether rows of src start at multiples of an access */
    fast_divisor by_row_tiles, by_column_tiles, by_load_lanes;
};

struct tconv_cuda_stencil_parameters {
    const void *src, *weights /* packed: [kernel row][kernel column][output channel] */, *bias /* or NULL */;
    void *dst;
    small_axis rows, columns;
    tconv_strides src_strides, dst_strides;
    int channels, multiplier; /* output channels, and how many of them read one input channel */
    fast_divisor by_row_stride, by_column_stride, by_channels, by_multiplier;
    tconv_cuda_stencil_tile tile;
};

typedef void (*tconv_cuda_stencil_kernel)(tconv_cuda_stencil_parameters);

/*
 * How an NCHW kernel finds the columns that a thread's outputs read. WINDOW: dilation 1, a kernel of `taps` times the
 * stride, so that which of a run of src columns an output takes is known to the compiler. TABLE: any, up to MAX_TAPS
 * along either axis and rows whose taps are neighbours. SHARED: as WINDOW, and all columns of a thread take the same.
 * LOOP: any number of taps. LONG_LOOP: the same in segments, for sums in f32 of more terms than one may have.
 */
enum {
    TCONV_CUDA_STENCIL_TABLE,
    TCONV_CUDA_STENCIL_WINDOW_1,      /* stride 1 */
    TCONV_CUDA_STENCIL_WINDOW_2_EVEN, /* stride 2, even padding before */
    TCONV_CUDA_STENCIL_WINDOW_2_ODD,
    TCONV_CUDA_STENCIL_WINDOW_HALF, /* stride of access_length columns, padding half of it before */
    TCONV_CUDA_STENCIL_SHARED,      /* stride and padding multiples of access_length */
    TCONV_CUDA_STENCIL_LOOP,
    TCONV_CUDA_STENCIL_LONG_LOOP
};

/* The NCHW kernel, NULL where there is none. vectors: each thread has an access of neighbouring columns and stores it at
 * once; else its columns are `lanes` apart. Both have access_length columns a thread. */
tconv_cuda_stencil_kernel tconv_cuda_stencil_planes(tconv_dtype dtype, int columns, int taps, bool vectors);

/* Of these, the loops. */
tconv_cuda_stencil_kernel tconv_cuda_stencil_loop(tconv_dtype dtype, bool compensated);

/* Channels of a thread where src comes through shared memory, so that weights and values, which are f32, fit in registers. */
#define TCONV_CUDA_STENCIL_TILE_LENGTH(element_size, taps)                                                             \
    ((element_size) == 2 && (taps) == 3 ? 4 : 16 / (int)(element_size))

/* What an NHWC kernel's thread has of a row: one channel of a column, an access of neighbouring channels (TILE: from shared memory),
 * or a run of elements of a row of dst that is one run of memory. */
enum {
    TCONV_CUDA_STENCIL_PIXEL_SINGLE,
    TCONV_CUDA_STENCIL_PIXEL_VECTORS,
    TCONV_CUDA_STENCIL_PIXEL_TILE,
    TCONV_CUDA_STENCIL_PIXEL_RUNS,
    TCONV_CUDA_STENCIL_PIXEL_WAYS
};

/* The NHWC kernel for up to `taps` taps along either axis; NULL for runs of f64. */
tconv_cuda_stencil_kernel tconv_cuda_stencil_pixels(tconv_dtype dtype, int taps, int way);

} // namespace tconv::stencil

#endif
