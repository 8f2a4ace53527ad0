/* The gradient of the bias (bias.cu): how its partial sums are cut, and its kernels. */
#ifndef TCONV_CUDA_WGRAD_BIAS_H
#define TCONV_CUDA_WGRAD_BIAS_H

#include "../../core/problem.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

enum {
    BIAS_THREADS = 256,       /* threads of a block */
    BIAS_LOADS = 4,           /* vectors that a thread loads at once */
    BIAS_SINGLE_LOADS = 16,   /* elements, where it loads no vectors */
    BIAS_RESIDENT_BLOCKS = 4, /* blocks of a multiprocessor */
    BIAS_PART_BYTES = 16      /* bytes of a partial sum: a double and what rounding has lost of it */
};

/* The images are cut into pieces, and one or more pieces are a part, of which a block (NHWC) or a warp (NCHW) sums the
 * outputs of its channels. */
typedef struct bias_parameters {
    tconv_strides strides; /* of the gradient of dst */
    int64_t channels;
    int64_t block_channels, channel_blocks; /* NCHW: a block has one channel for each warp, and block_channels is 1 */
    int64_t image_pixels, piece_pixels, image_pieces; /* of an image */
    int64_t pieces, parts, part_pieces;               /* of all images */
    bool vectors;                                     /* threads load vectors of pixels or channels */
    bool aligned;                                     /* which begin at multiples of their size */
    bool
        beside; /* the kernel ahead runs beside: it needs nothing of the parts' place, and the last block alone waits for it */
} bias_parameters;

/* Returns the kernel that writes partial sums, of tensors in NCHW or NHWC, whose loads are vectors or single
 * elements. */
const void *tconv_wgrad_bias_kernel(tconv_dtype dtype, tconv_layout layout, bool vectors);

/* Returns the kernel that adds partial sums (wgrad_bias_parts). */
const void *tconv_wgrad_add_bias_kernel(tconv_dtype dtype);

TCONV_ROOM_END

#endif
