/* The products of a chunk: as a layer, or for the kernel that makes few pixels' (products.cu). */
#ifndef TCONV_CUDA_GEMM_COL2IM_PRODUCTS_H
#define TCONV_CUDA_GEMM_COL2IM_PRODUCTS_H

#include "plan.h"

namespace tconv::gemm_col2im
{

constexpr int64_t MAX_SCRATCH = (int64_t)48 << 20;  /* bytes, of all that a chunk needs */
constexpr int64_t MAX_PRODUCTS = (int64_t)32 << 20; /* bytes of a chunk: with src they stay in the L2 of an H200 */
constexpr int64_t MAX_DIRECT_PRODUCTS = (int64_t)40 << 20; /* the same of direct ones, which nothing else lies beside */
constexpr int64_t PITCH = 4;       /* elements, a multiple of which rows of products are apart */
constexpr int64_t ALIGNMENT = 256; /* bytes, of each part of the memory */

inline int64_t taps_of(const tconv_problem *problem)
{
    return problem->h.kernel * problem->w.kernel;
}

/* The most products of a chunk. */
inline int64_t most_products(const plan *made)
{
    return (made->way == DIRECT ? MAX_DIRECT_PRODUCTS : MAX_PRODUCTS) / (int64_t)sizeof(float);
}

/* Describes the direct products of a chunk and how they are gathered: in NCHW as planes, in NHWC as pixels. Returns
 * why not, or NULL. */
const char *describe_direct(const tconv_layer *layer, plan *made, tconv_cuda_work *work);

/* Describes the products of a chunk as a layer, and how they are gathered; false where there is no such layer. */
bool describe_products(const tconv_layer *layer, plan *made);

} // namespace tconv::gemm_col2im

#endif
