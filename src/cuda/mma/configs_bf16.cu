/* The kernels for bf16. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const kernel_config *const bf16_nhwc_configs = half_configs<BF16_NHWC>::list;
const kernel_config *const bf16_nchw_configs = half_configs<BF16_NCHW>::list;

row_kernel bf16_row_kernel(row_sums sums, int64_t column_stride)
{
    return find_half_row_kernel<BF16_NCHW>(sums, column_stride);
}

} // namespace tconv::mma
