/* What the kernel that sums the gradient of the weights is told. */
#ifndef TCONV_CUDA_GENERAL_WEIGHTS_H
#define TCONV_CUDA_GENERAL_WEIGHTS_H

#include "../../core/impl.h"
#include "../wgrad/tiles.h"

TCONV_ROOM_BEGIN(tconv::general)

#ifdef __cplusplus
using wgrad::sum_tiles;
#endif

enum {
    WEIGHTS_SIDE = 64,       /* input channels of a block's square, and pairs of a tap and an output channel */
    WEIGHTS_THREAD_SIDE = 4, /* of those, a thread's */
    WEIGHTS_PIXELS = 16,     /* of a K-block */
    WEIGHTS_THREADS = (WEIGHTS_SIDE / WEIGHTS_THREAD_SIDE) * (WEIGHTS_SIDE / WEIGHTS_THREAD_SIDE)
};

typedef struct weights_parameters {
    sum_tiles tiles; /* as one tile for WEIGHTS_SIDE input channels and all pairs */
    tconv_strides src_strides, dst_strides;
    tconv_axis h, w;
    int64_t pixels; /* of all images */
    int64_t pair_tiles, splits, part_pixels;
} weights_parameters;

/* Names the kernel; NULL in a build without CUDA. */
const void *tconv_general_sum_weights_kernel(tconv_dtype dtype);

TCONV_ROOM_END

#endif
