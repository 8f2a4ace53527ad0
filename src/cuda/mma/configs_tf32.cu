/* The kernels for f32 rounded to TF32: up to 128 accumulators a thread. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const kernel_config *const tf32_configs =
    configs<TF32, 148, 144, 128, 118, 228, 224, 218, 318, 314, 418, 414, 514, 612, 712, 814>::list;

row_kernel tf32_row_kernel(int64_t column_stride)
{
    return find_row_kernel<TF32, DIRECT>(column_stride);
}

} // namespace tconv::mma
