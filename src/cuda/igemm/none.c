/* Stands in place of the kernels of the implicit GEMM in a build without CUDA. */
#include "../cuda_backend.h"
#include "plan.h"

const void *tconv_igemm_f32_kernel(bool strict, int config)
{
    (void)strict, (void)config;
    return NULL;
}

const void *tconv_igemm_half_kernel(bool bf16, bool sums, int config)
{
    (void)bf16, (void)sums, (void)config;
    return NULL;
}

tconv_status tconv_igemm_pack(const planned_layer *planned, const src_transpose *transpose, const void *weights,
                              void *packed, void *stream, tconv_issue *issue)
{
    (void)planned, (void)transpose, (void)weights, (void)packed, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_igemm_transpose(const src_transpose *transpose, size_t element_size, void *stream,
                                   tconv_issue *issue)
{
    (void)transpose, (void)element_size, (void)stream;
    return tconv_cuda_not_built(issue);
}
