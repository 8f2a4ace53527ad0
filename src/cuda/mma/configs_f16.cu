/* The kernels for f16: up to 64 accumulators a thread, and as many partial sums. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const void *tconv_mma_f16_kernel(bool nhwc, int number)
{
    return nhwc ? kernel_of_number<F16_NHWC, TCONV_MMA_HALF_SHAPES>(number)
                : kernel_of_number<F16_NCHW, TCONV_MMA_HALF_SHAPES>(number);
}

const void *tconv_mma_f16_row_kernel(row_sums sums, int64_t column_stride)
{
    return find_half_row_kernel<F16_NCHW>(sums, column_stride);
}

} // namespace tconv::mma
