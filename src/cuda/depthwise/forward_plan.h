/* The plan of a forward layer for the kernels of cuda_depthwise. */
#ifndef TCONV_CUDA_DEPTHWISE_FORWARD_PLAN_H
#define TCONV_CUDA_DEPTHWISE_FORWARD_PLAN_H

#include "../model/work.h"
#include "forward_parameters.h"

enum { MAX_VARIANTS = 3 };

/* A kernel for tensors that begin at multiples of so many bytes. */
typedef struct variant {
    const void *kernel;
    int64_t blocks;
    int64_t shared_bytes;
    uintptr_t src_multiple, dst_multiple;
    int kind; /* COLUMNS_... (NCHW) or PIXEL_... (NHWC) */
    tile_shape tile;
} variant;

typedef struct layer_plan {
    parameters params; /* without addresses and tile */
    bool src_vectors;  /* NCHW: rows of src begin at multiples of a vector where src does */
    int taps;          /* the most of a phase along either axis, at least 1 */
    int variants;
    variant by_address[MAX_VARIANTS]; /* best first; the last takes any address */
} layer_plan;

/* Counts the work of a plan. */
tconv_cuda_work tconv_depthwise_forward_work_of(const tconv_layer *layer, const layer_plan *plan);

#endif
