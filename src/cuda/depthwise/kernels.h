/* The kernels of cuda_depthwise, as planning names them. In a build without CUDA each function returns NULL (none.c). */
#ifndef TCONV_CUDA_DEPTHWISE_KERNELS_H
#define TCONV_CUDA_DEPTHWISE_KERNELS_H

#include "../room.h"
#include "tconv/tconv.h"

TCONV_ROOM_BEGIN(tconv::depthwise)

/* Forward. The NCHW kernel (planes.cu) for up to `taps` taps along either axis, which finds columns in the way that `columns`
 * says (COLUMNS_... of forward_parameters.h); of a window and COLUMNS_SHARED for as many taps as its columns have. vectors:
 * each thread has a vector of neighbouring columns and stores it at once; of a table of 16 bits, half a vector. Else its
 * columns are `lanes` apart; or of a window neighbours, of 16 bits half a vector, of which there may be fewer, and
 * a block may have several tiles. */
const void *tconv_depthwise_planes_kernel(tconv_dtype dtype, int columns, int taps, bool vectors, bool has_posts);

/* Forward. The NHWC kernel (pixels.cu) for up to `taps` taps along either axis, or any number in a loop, whose threads have
 * the elements that `elements` says (PIXEL_... of forward_parameters.h); NULL for runs of f64. */
const void *tconv_depthwise_pixels_kernel(tconv_dtype dtype, int taps, int elements, bool has_posts);

/* The gradient of src (data_kernels.cu). vector: outputs of a row that are loaded at once, 1, 2 or 4; in NHWC channels, 1, of
 * f32 also 4 and of f64 2. */
const void *tconv_depthwise_data_kernel(tconv_dtype dtype, tconv_layout layout, int vector);

/* The gradient of src in NCHW by spans (spans.cuh), for column strides 1 and 2. before: outputs from where a vector begins to
 * where a span begins. */
const void *tconv_depthwise_spans_kernel(tconv_dtype dtype, int stride, int before);

/* The gradient of the weights (weights_kernel.cu). by_lanes: a warp's threads have a channel each. */
const void *tconv_depthwise_weights_kernel(tconv_dtype dtype, bool by_lanes);

/* The gradient of the weights by spans (weights_spans.cuh) in f32, f16 and bf16, for column strides 1, 2 and 4. threads: what
 * the threads of a warp have (weights_spans_parameters.h). taps: of a kernel row, as kernel_taps of that header returns. */
const void *tconv_depthwise_weight_spans_kernel(tconv_dtype dtype, int threads, int stride, int taps);

TCONV_ROOM_END

#endif
