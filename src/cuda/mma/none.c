/* The kernels and launches of cuda_mma and cuda_rows in a build without CUDA: there are none. */
#include "../cuda_backend.h"
#include "plan.h"

const void *tconv_mma_tf32_kernel(int number)
{
    (void)number;
    return NULL;
}

const void *tconv_mma_strict_kernel(bool compensated, int number)
{
    (void)compensated, (void)number;
    return NULL;
}

const void *tconv_mma_f16_kernel(bool nhwc, int number)
{
    (void)nhwc, (void)number;
    return NULL;
}

const void *tconv_mma_bf16_kernel(bool nhwc, int number)
{
    (void)nhwc, (void)number;
    return NULL;
}

const void *tconv_mma_tf32_row_kernel(int64_t column_stride)
{
    (void)column_stride;
    return NULL;
}

const void *tconv_mma_strict_row_kernel(int64_t column_stride)
{
    (void)column_stride;
    return NULL;
}

const void *tconv_mma_f16_row_kernel(row_sums sums, int64_t column_stride)
{
    (void)sums, (void)column_stride;
    return NULL;
}

const void *tconv_mma_bf16_row_kernel(row_sums sums, int64_t column_stride)
{
    (void)sums, (void)column_stride;
    return NULL;
}

tconv_status tconv_mma_launch_packing(const tconv_layer *layer, const parameters *params, const void *weights,
                                      void *packed, void *stream, tconv_issue *issue)
{
    (void)layer, (void)params, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_mma_launch_row_packing(const tconv_layer *layer, const row_parameters *params, const void *weights,
                                          void *packed, void *stream, tconv_issue *issue)
{
    (void)layer, (void)params, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}
