/* What stands in place of the kernels of cuda_gemm_col2im in a build without CUDA. */
#include "direct.h"
#include "gather.h"

const void *tconv_gemm_col2im_mma_kernel(numerics kind, int tile_pixels)
{
    (void)kind, (void)tile_pixels;
    return NULL;
}

const void *tconv_gemm_col2im_wgmma_kernel(numerics kind, int tile_pixels)
{
    (void)kind, (void)tile_pixels;
    return NULL;
}

const void *tconv_gemm_col2im_gather_kernel(numerics kind, bool by_output, int at_once)
{
    (void)kind, (void)by_output, (void)at_once;
    return NULL;
}

const void *tconv_gemm_col2im_dense_kernel(tconv_dtype dtype, bool widens)
{
    (void)dtype, (void)widens;
    return NULL;
}
