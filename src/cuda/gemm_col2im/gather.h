/* How outputs are gathered from products: the tiles and launches (gather.c), and the kernels (gather.cu). */
#ifndef TCONV_CUDA_GEMM_COL2IM_GATHER_H
#define TCONV_CUDA_GEMM_COL2IM_GATHER_H

#include "../../core/impl.h"
#include "../epilogue/layer_posts.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"

TCONV_ROOM_BEGIN(tconv::gemm_col2im)

enum {
    GATHER_THREADS = 256,
    GATHER_TILE = 1024, /* outputs, at most */
    MAX_RESIDUES = 32   /* of a tile */
};

/* An axis. An output's padded coordinate is o + pad = stride * quotient + residue; its taps are those of the residue
 * (core/phases.h), and tap t reads input (o + pad - t * dilation) / stride. */
typedef struct gather_axis {
    int in, kernel, dilation, pad;
    fast_divisor stride;
    fast_divisor common;                  /* of stride and dilation: residues that it does not divide have no tap */
    fast_divisor kernel_step, shift_step; /* from one tap of a phase to the next, and of the inputs that these read */
    int inverse;                          /* of dilation / common modulo kernel_step */
    int first;                            /* of the inputs that the chunk's products begin with */
    int begin, end;                       /* padded coordinates of the chunk's outputs */
} gather_axis;

typedef struct gather_shape {
    gather_axis rows, columns;
    const float *products;
    const void *bias; /* or NULL */
    void *dst;
    tconv_strides dst_strides;
    layer_posts posts;
    int64_t image_pitch, row_pitch, column_pitch; /* of the products, in elements */
    int64_t group_pitch, out_pitch, tap_pitch;
    int64_t part_pitch;
    int parts; /* of which each has products of its own, all to be summed */
    int images, groups;
    int group_out;         /* channels of a group in the layer */
    fast_divisor channels; /* of a group in the chunk */
    int first_channel;
    bool by_output;     /* threads take outputs as they lie: where taps, not pixels, are neighbours in the products */
    bool channels_last; /* of dst */

    /* Set by tconv_gemm_col2im_cut_tiles. A place is a quotient of an output row of a channel of an image, quotients
     * fastest; by output an output as it lies. A tile has `residues` neighbouring residues of tile_places places. */
    fast_divisor out_rows, out_columns, all_channels, quotients;
    int64_t places;
    fast_divisor residues, residue_tiles;
    int tile_places;
} gather_shape;

/* Sets the tiles of a shape whose axes and counts are set; false where places are too many for 32-bit numbers. */
bool tconv_gemm_col2im_cut_tiles(gather_shape *shape);

/* Launches the gathering on the current device. overlaps: as launch_grid has it, beside what makes the products. */
tconv_status tconv_gemm_col2im_gather(const tconv_layer *layer, const gather_shape *shape, bool overlaps, void *stream,
                                      tconv_issue *issue);

/* Elements of src, from an image and a position on, that are put densely, in f32 or as they are: images, then channels,
 * then rows and columns; or channels first; or last, with zeros behind them up to the pitch. There are fewer than
 * 2^31. */
typedef enum dense_order { IMAGES_FIRST, CHANNELS_FIRST, CHANNELS_LAST } dense_order;
typedef struct dense_copy {
    const void *from;
    void *dense;
    bool widens;
    int64_t pitch; /* elements from a pixel to the next, at least the channels; CHANNELS_LAST alone */
    tconv_strides strides;
    int64_t images, channels, rows, columns;
    dense_order order;
} dense_copy;

/* Launches the copy on the current device. */
tconv_status tconv_gemm_col2im_put_densely(tconv_dtype dtype, const dense_copy *copy, void *stream, tconv_issue *issue);

/* Launches the copy of so many elements of 16 bits that lie densely, to f32. */
tconv_status tconv_gemm_col2im_widen(tconv_dtype dtype, const void *from, void *dense, int64_t count, void *stream,
                                     tconv_issue *issue);

/* Four nested axes, the last of which runs fastest: what the kernel that puts elements densely is told. */
typedef struct nested_axes {
    fast_divisor extents[4];
    int64_t strides[4];
    int count;  /* of all elements */
    int inside; /* elements of the last axis that there are; the others are zeros */
} nested_axes;

/* Return the kernels: the one that gathers, whose threads sum so many residues at a time (1, 2 or 4), and the one that
 * puts elements densely, in f32 where it widens. In a build without CUDA they return NULL. */
const void *tconv_gemm_col2im_gather_kernel(numerics kind, bool by_output, int at_once);
const void *tconv_gemm_col2im_dense_kernel(tconv_dtype dtype, bool widens);

TCONV_ROOM_END

#endif
