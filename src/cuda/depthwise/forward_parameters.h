/*
 * What the host side of forward (forward.c) and its kernels share: the parameters of a kernel, and the kinds of kernels.
 *
 * Words of its own: rows are counted in quotients, that is output row / stride, so that one quotient has a row of
 * each phase. A vector is an access of 16 bytes; a walk is one thread's way down the rows of a row phase (walk.cuh).
 */
#ifndef TCONV_CUDA_DEPTHWISE_FORWARD_PARAMETERS_H
#define TCONV_CUDA_DEPTHWISE_FORWARD_PARAMETERS_H

#include "../epilogue/affine.h"
#include "../maps/small_axis.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::depthwise::forward)

enum {
    THREADS = 128,      /* of a block */
    MAX_TAPS = 3,       /* along an axis: more weights than 3 x 3 a column do not fit in registers */
    STRIP = 8,          /* outputs of a strip (strip.cuh), whose sums and values stay in registers */
    LEAST_OF_STRIP = 3, /* rows of a part that make strips; of fewer rows columns do */
    HALF_LENGTH =
        4, /* NCHW, elements of 16 bits: columns of a thread where rows are no whole vectors, or a table finds them */
    PIXEL_RUN = 4 /* elements of a run: with 3 taps their weights, 36 numbers, fit in registers */
};

/*
 * How dst is cut into tiles. NCHW: the columns of `lanes` threads in one plane by `rows`; a block has as many tiles as its
 * threads suffice for, each in warps and shared memory of its own. NHWC, a tile of a block: the first THREADS pairs of
 * column and vector of channels, of `channel_vectors` vectors, by `rows`.
 */
typedef struct tile_shape {
    int count;                 /* NCHW: tiles of dst */
    int threads_log2;          /* NCHW: threads of a tile, whole warps */
    int shared_bytes;          /* NCHW: of a tile */
    int rows;                  /* quotients of a tile */
    fast_divisor row_tiles;    /* tiles along a column */
    fast_divisor column_tiles; /* tiles along a row */
    int channel_vectors;       /* NHWC: vectors of a tile's channels, or single channels, or runs of a row */
    int channel_tiles;         /* NHWC: tiles along the channels */
    int lanes_log2;            /* NCHW: threads along a row */
    int columns;               /* NCHW: of a tile */
    int column_step;           /* NCHW, in a loop: from a thread's column to its next one, of the same phase */
    int part_rows, parts;      /* NCHW: quotients of one thread's walk; walks down a tile */
    int row_vectors;           /* vectors of a row of src in shared memory */
    int pitch;                 /* elements from a row of src in shared memory to the next */
    int load_rows;             /* rows of src in shared memory */
    fast_divisor load_lanes;   /* threads along a row when loading; NHWC: vectors of a column */
    bool src_aligned;          /* rows of src start at multiples of a vector */
    bool stages_weights;       /* NHWC, vectors: weights are as they lie, and come through shared memory */
    bool stores_runs; /* NCHW, a window: a thread's columns are stored at once; else there may be fewer of them */
} tile_shape;

typedef struct parameters {
    const void *src;
    const void *weights;               /* packed: [kernel row][kernel column][output channel]; or as they lie */
    int64_t weight_in, weight_out;     /* from an input channel to the next, and from its output channel */
    int64_t weight_tap;                /* from a tap to the next */
    int64_t weight_row, weight_column; /* NHWC, loops: from a kernel row to the next, and from a column */
    fast_divisor weight_taps;          /* of the kernel */
    const void *bias;                  /* or NULL */
    void *dst;
    small_axis rows, columns;
    tconv_strides src_strides, dst_strides;
    affine_posts posts;
    fast_divisor row_stride, column_stride;
    fast_divisor channels;   /* output channels */
    fast_divisor multiplier; /* output channels that read one input channel */
    tile_shape tile;
} parameters;

/* The ways in which an NCHW kernel finds the columns that a thread's outputs read. WINDOW: dilation 1, and a stride and kernel
 * that the compiler knows, and so which of a run of src columns an output takes. */
enum {
    COLUMNS_TABLE,         /* any, up to MAX_TAPS along either axis and rows whose taps are neighbours */
    COLUMNS_WINDOW_1,      /* kernel 3, stride 1 */
    COLUMNS_WINDOW_3_EVEN, /* kernel 3, stride 2, even padding before */
    COLUMNS_WINDOW_3_ODD,  /* kernel 3, stride 2, odd padding before */
    COLUMNS_WINDOW_4_EVEN, /* kernel 4, stride 2, likewise */
    COLUMNS_WINDOW_4_ODD,
    COLUMNS_WINDOW_5_EVEN, /* kernel 5, stride 2, likewise */
    COLUMNS_WINDOW_5_ODD,
    COLUMNS_WINDOW_HALF, /* kernel twice the stride, which is access_length columns; padding half of it before */
    COLUMNS_SHARED, /* likewise, stride and padding multiples of access_length: all columns of a thread take the same values */
    COLUMNS_LOOP,     /* any number of taps */
    COLUMNS_LONG_LOOP /* the same in segments, for sums in f32 of more terms than a segment may have */
};

/* NHWC: channels of a thread that has a vector of them, so that weights and values, which are f32, fit in registers. */
TCONV_ROOM_CONSTANT int vector_length(size_t element_size, int taps)
{
    return element_size == 2 && taps == 3 ? 4 : 16 / (int)element_size;
}

/* The ways in which the elements of a row are dealt out to the threads of an NHWC kernel. */
enum {
    PIXEL_SINGLE,    /* one channel of a column */
    PIXEL_VECTORS,   /* a vector of neighbouring channels, read from global memory */
    PIXEL_TILE,      /* a vector of neighbouring channels, read from a tile in shared memory */
    PIXEL_RUNS,      /* PIXEL_RUN elements of a row of dst that is one run of memory */
    PIXEL_LOOP,      /* one channel of a column, with any number of taps */
    PIXEL_LONG_LOOP, /* the same in segments, for sums in f32 of more terms than a segment may have */
    PIXEL_KINDS
};

TCONV_ROOM_END

#endif
