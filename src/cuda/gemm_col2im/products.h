/* The products of a chunk: as a layer, or for the kernels that compute few pixels' (products.c). */
#ifndef TCONV_CUDA_GEMM_COL2IM_PRODUCTS_H
#define TCONV_CUDA_GEMM_COL2IM_PRODUCTS_H

#include "plan.h"

enum {
    MAX_SCRATCH = 48 << 20,         /* bytes, of all that a chunk needs */
    MAX_PRODUCTS = 32 << 20,        /* bytes of a chunk: with src they stay in the L2 of an H200 */
    MAX_DIRECT_PRODUCTS = 40 << 20, /* the same of direct ones, which nothing else lies beside */
    PRODUCT_PITCH = 4               /* elements, a multiple of which rows of products are apart */
};

static inline int64_t count_taps(const tconv_problem *problem)
{
    return problem->h.kernel * problem->w.kernel;
}

/* Returns the most products of a chunk. */
static inline int64_t most_products(const gemm_col2im_plan *plan)
{
    return (plan->mode == DIRECT ? MAX_DIRECT_PRODUCTS : MAX_PRODUCTS) / (int64_t)sizeof(float);
}

/* Describes the direct products of a chunk and how they are gathered: in NCHW as planes, in NHWC as pixels. Returns
 * why not, or NULL. */
const char *tconv_gemm_col2im_describe_direct(const tconv_layer *layer, gemm_col2im_plan *plan, tconv_cuda_work *work);

/* Describes the products of a chunk as a layer, and how they are gathered; false where there is no such layer. */
bool tconv_gemm_col2im_describe_products(const tconv_layer *layer, gemm_col2im_plan *plan);

#endif
