/*
 * The parameters of the kernels that rearrange tensors around the inner layer's (rearrange.cu), and their launches.
 *
 * An axis of the gradient of dst is planes (planes.h), and one plane of each axis together are a plane of the image.
 * The channels of the inner layer's src are those of a channel group, of which each plane of the image has the group's
 * output channels: (group, row plane, column plane, output channel).
 */
#ifndef TCONV_CUDA_DGRAD_PARAMETERS_H
#define TCONV_CUDA_DGRAD_PARAMETERS_H

#include "../../core/impl.h"
#include "../numeric/divisor.h"
#include "planes.h"

TCONV_ROOM_BEGIN(tconv::dgrad)

enum {
    THREADS = 256,   /* of a thread block of each kernel here */
    AT_ONCE = 4,     /* loads of a lane, before what they bring is stored */
    ROW_VECTOR = 8,  /* elements, the most of 16 bytes */
    LINE_LANES = 32, /* the most lanes that share a line: a warp */
};

/* Space-to-depth of the gradient of dst. */
typedef struct depth_shape {
    const void *from;
    void *to;
    tconv_strides from_strides;                     /* elements */
    int64_t to_image, to_channel, to_row, to_pixel; /* elements from one to the next */
    tconv_cuda_planes rows, columns;                /* of a chunk: positions are its own, pad less what lies before */
    int images;
    int group_out;    /* output channels of a group */
    int row_elements; /* of a row of planes, those past the last position included */
    fast_divisor groups, channels, group_channels, row_planes, row_positions, column_positions;
} depth_shape;

/* An axis of planes, in coordinates of 32 bits where those have room, else of 64. */
typedef struct plane_axis32 {
    int stride, dilation, pad, out;
    int count, positions;
} plane_axis32;
typedef struct plane_axis64 {
    int64_t stride, dilation, pad, out;
    int count, positions;
} plane_axis64;

/* The pieces that a line of a row is cut in: so many words of so many column planes. */
typedef struct line_pieces {
    int words, planes;
    fast_divisor count, along_planes;
} line_pieces;

/* The words of a group, and the column planes, by which an item of a pixel's line is found. */
typedef struct narrow_line {
    fast_divisor words, column_planes;
} narrow_line;

/* The weights of the inner layer. */
typedef struct weight_shape {
    const void *from;
    void *to;
    tconv_weight_strides from_strides, to_strides;
    tconv_cuda_planes rows, columns;
    /* Neighbours in the inner layer's weights are of one output channel and neighbouring input channels of the layer;
     * else of one input channel and neighbouring output channels. */
    bool inputs_inside;
    int group_in, group_out;
    int64_t lines; /* of such neighbours */
    fast_divisor groups, row_taps, column_taps, row_planes, column_planes;
} weight_shape;

/* Partial sums, of each part of the channels that are summed, to be added. */
typedef struct sum_shape {
    const float *from;
    void *to;
    tconv_strides from_strides, to_strides; /* elements */
    int parts;
    int count; /* of sums */
    fast_divisor channels, rows, columns;
} sum_shape;

/* Return kernels (rearrange.cu): of words of 2, 4, 8 or 16 bytes, in coordinates of 64 bits (wide) or 32. split_rows
 * has words of one element, or of two of 16 bits; the narrow split_pixels is for few channels and many planes. */
const void *tconv_dgrad_split_rows_kernel(int word_bytes, int element_bytes, bool wide);
const void *tconv_dgrad_split_pixels_kernel(int word_bytes, bool narrow, bool wide);
const void *tconv_dgrad_derive_kernel(int element_bytes);
const void *tconv_dgrad_add_kernel(tconv_dtype dtype, bool channels_last);

/* Launch on the current device (rearrange.c): the planes of a chunk; the inner layer's weights; the sums of parts.
 * overlaps: the launch may begin before the one ahead has ended (dependent_launch.cuh). The weights may be derived
 * beside the planes that the launch ahead makes; the end of the second launch is then the end of both. */
tconv_status tconv_dgrad_split_planes(const tconv_problem *problem, const depth_shape *shape, void *stream,
                                      tconv_issue *issue);
tconv_status tconv_dgrad_derive_weights(const tconv_problem *problem, const weight_shape *shape, bool overlaps,
                                        void *stream, tconv_issue *issue);
tconv_status tconv_dgrad_add_parts(const tconv_problem *problem, const sum_shape *shape, bool overlaps, void *stream,
                                   tconv_issue *issue);

TCONV_ROOM_END

#endif
