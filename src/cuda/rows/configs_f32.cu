/* The rows kernels for f32: as TF32, and strict by 3xTF32. */
#include "kernel.cuh"

namespace tconv::rows
{

kernel_function f32_kernel(bool tf32, int64_t column_stride)
{
    return tf32 ? find_kernel<tf32_mode>(column_stride) : find_kernel<strict_mode>(column_stride);
}

} // namespace tconv::rows
