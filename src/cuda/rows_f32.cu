/* The rows kernels for f32: as TF32, and strict by 3xTF32. */
#include "rows_kernel.cuh"

tconv_cuda_rows_kernel tconv_cuda_rows_f32(bool tf32, int64_t column_stride)
{
    return tf32 ? tconv_rows::find_kernel<tconv_rows::tf32_mode>(column_stride)
                : tconv_rows::find_kernel<tconv_rows::strict_mode>(column_stride);
}
