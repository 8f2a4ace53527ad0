/* How outputs are gathered from products (gather.cu). */
#ifndef TCONV_CUDA_GEMM_COL2IM_GATHER_H
#define TCONV_CUDA_GEMM_COL2IM_GATHER_H

#include "../../core/impl.h"
#include "../numeric/divisor.h"

namespace tconv::gemm_col2im
{

/* An axis. An output's padded coordinate is o + pad = stride * quotient + residue; its taps are those of the residue
 * (core/phases.h), and tap t reads input (o + pad - t * dilation) / stride. */
struct gather_axis {
    int in, kernel, dilation, pad;
    fast_divisor stride;
    fast_divisor common;                  /* of stride and dilation: residues that it does not divide have no tap */
    fast_divisor kernel_step, shift_step; /* from one tap of a phase to the next, and of the inputs that these read */
    int inverse;                          /* of dilation / common modulo kernel_step */
    int first;                            /* of the inputs that the chunk's products begin with */
    int begin, end;                       /* padded coordinates of the chunk's outputs */
};

struct gather_shape {
    gather_axis rows, columns;
    const float *products;
    const void *bias; /* or NULL */
    void *dst;
    tconv_strides dst_strides;
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

    /* Set by cut_tiles. A place is a quotient of an output row of a channel of an image, quotients fastest; by output an
     * output as it lies. A tile has `residues` neighbouring residues of tile_places places. */
    fast_divisor out_rows, out_columns, all_channels, quotients;
    int64_t places;
    fast_divisor residues, residue_tiles;
    int tile_places;
};

/* Sets the tiles of a shape whose axes and counts are set; false where places are too many for 32-bit numbers. */
bool cut_tiles(gather_shape *shape);

/* Launches the gathering on the current device. overlaps: as launch_grid has it, beside what makes the products. */
tconv_status gather(const tconv_layer *layer, const gather_shape *shape, bool overlaps, void *stream,
                    tconv_issue *issue);

/* Launches on the current device that elements of src, from an image and a position on, are put densely, in f32 or as
 * they are: images, then channels, then rows and columns; or channels first; or last, with zeros behind them up to the
 * pitch. There are fewer than 2^31. */
enum dense_order { IMAGES_FIRST, CHANNELS_FIRST, CHANNELS_LAST };
struct dense_src {
    const void *src;
    void *to;
    bool widens;
    int64_t pitch; /* elements from a pixel to the next, at least the channels; CHANNELS_LAST alone */
    tconv_strides strides;
    int64_t images, channels, rows, columns;
    dense_order order;
};
tconv_status put_densely(tconv_dtype dtype, const dense_src *of, void *stream, tconv_issue *issue);

/* The same of so many elements that lie densely. */
tconv_status copy_dense(tconv_dtype dtype, const void *from, void *to, bool widens, int64_t count, void *stream,
                        tconv_issue *issue);

} // namespace tconv::gemm_col2im

#endif
