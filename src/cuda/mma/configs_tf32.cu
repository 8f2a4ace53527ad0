/* The kernels for f32 rounded to TF32: up to 128 accumulators a thread. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const void *tconv_mma_tf32_kernel(int number)
{
    return kernel_of_number<TF32, TCONV_MMA_TF32_SHAPES>(number);
}

const void *tconv_mma_tf32_row_kernel(int64_t column_stride)
{
    return find_row_kernel<TF32, DIRECT>(column_stride);
}

} // namespace tconv::mma
