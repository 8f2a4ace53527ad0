/* The rows kernels for f32: as TF32, and strict by 3xTF32. */
#include "kernel.cuh"

namespace tconv::rows
{

tconv_cuda_rows_kernel tconv_cuda_rows_f32(bool tf32, int64_t column_stride)
{
    return tf32 ? find_kernel<tf32_mode>(column_stride) : find_kernel<strict_mode>(column_stride);
}

} // namespace tconv::rows
