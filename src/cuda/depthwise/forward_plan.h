/* The plan of a layer for the stencil's kernels. */
#ifndef TCONV_CUDA_DEPTHWISE_FORWARD_PLAN_H
#define TCONV_CUDA_DEPTHWISE_FORWARD_PLAN_H

#include "../model/work.h"
#include "forward_parameters.h"

namespace tconv::depthwise::forward
{

constexpr int MAX_VARIANTS = 3;

/* A kernel for tensors that begin at multiples of so many bytes. */
struct variant {
    kernel_function kernel;
    int64_t blocks;
    int64_t shared_bytes;
    uintptr_t src_multiple, dst_multiple;
    int way; /* COLUMNS_... (NCHW) or PIXEL_... (NHWC) */
    tile_shape tile;
};

/* A layer's plan. */
struct plan {
    depthwise::forward::parameters parameters; /* without addresses and tile */
    bool src_vectors;                          /* NCHW: rows of src begin at multiples of a vector where src does */
    int taps;                                  /* the most of a phase along either axis, at least 1 */
    int variants;
    variant by_address[MAX_VARIANTS]; /* best first; the last takes any address */
};

/* Counts the work of a plan. */
tconv_cuda_work work_of(const tconv_layer *layer, const plan *made);

} // namespace tconv::depthwise::forward

#endif
