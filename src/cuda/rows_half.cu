/* The rows kernels for f16 and bf16. */
#include "rows_kernel.cuh"

tconv_cuda_rows_kernel tconv_cuda_rows_half(tconv_dtype dtype, int64_t column_stride)
{
    return dtype == TCONV_F16 ? tconv_rows::find_kernel<tconv_rows::half_mode<__half>>(column_stride)
                              : tconv_rows::find_kernel<tconv_rows::half_mode<__nv_bfloat16>>(column_stride);
}
