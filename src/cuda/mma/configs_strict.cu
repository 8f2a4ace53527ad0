/* The kernels for f32 as 3xTF32: up to 64 accumulators a thread, and as many partial sums. Those for sums of any length
 * also keep what additions lost, in half as many registers: their shapes are those that the registers hold. */
#include "kernel.cuh"
#include "row_kernel.cuh"

namespace tconv::mma
{

const kernel_config *const strict_configs =
    configs<STRICT, 144, 142, 124, 114, 224, 222, 214, 314, 312, 414, 412, 512, 612, 712, 812>::list;
const kernel_config *const compensated_configs =
    configs<COMPENSATED, 142, 124, 114, 224, 222, 214, 314, 412, 512>::list;

row_kernel strict_row_kernel(int64_t column_stride)
{
    return find_row_kernel<STRICT, ADDED>(column_stride);
}

} // namespace tconv::mma
