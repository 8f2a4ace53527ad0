/* What the host side of the gradient of weights (weights.c) and its kernels share: the parameters of a kernel. */
#ifndef TCONV_CUDA_DEPTHWISE_WEIGHTS_PARAMETERS_H
#define TCONV_CUDA_DEPTHWISE_WEIGHTS_PARAMETERS_H

#include "../../core/impl.h"
#include "../hardware.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::depthwise::weights)

enum {
    THREADS = 128,
    LANES = 32, /* channels of a block in NHWC */
    PAIRS = 16  /* of a block */
};

typedef struct range {
    int first, last;
} range;

typedef struct axis {
    int in, out, kernel, stride, dilation, pad;
    range inside; /* outputs of tap 0, before padding, from which all taps' exist */
} axis;

typedef struct parameters {
    const void *src, *diff_dst;
    double *slices;
    tconv_strides src_strides, dst_strides;
    axis rows, columns;
    fast_divisor by_columns; /* inputs of a row */
    int64_t groups, group_out;
    int64_t pixels, image_pixels; /* inputs of all images, of one */
    int64_t pairs;                /* of a group */
    int64_t pair_blocks, channel_blocks, parts, part_pixels;
} parameters;

TCONV_ROOM_END

#endif
