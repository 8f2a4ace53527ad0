/* The kernels for f16. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const kernel_config *const f16_nhwc_configs = half_configs<F16_NHWC>::list;
const kernel_config *const f16_nchw_configs = half_configs<F16_NCHW>::list;

row_kernel f16_row_kernel(row_sums sums, int64_t column_stride)
{
    return find_half_row_kernel<F16_NCHW>(sums, column_stride);
}

} // namespace tconv::mma
