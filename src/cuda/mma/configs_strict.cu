/* The kernels for f32 as 3xTF32: up to 64 accumulators a thread, and as many partial sums. Those for sums of any length
 * also keep what additions lost, in half as many registers: their shapes are those that the registers hold. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const void *tconv_mma_strict_kernel(bool compensated, int number)
{
    return compensated ? kernel_of_number<COMPENSATED, TCONV_MMA_COMPENSATED_SHAPES>(number)
                       : kernel_of_number<STRICT, TCONV_MMA_STRICT_SHAPES>(number);
}

const void *tconv_mma_strict_row_kernel(int64_t column_stride)
{
    return find_row_kernel<STRICT, ADDED>(column_stride);
}

} // namespace tconv::mma
