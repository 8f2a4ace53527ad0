/* The streaming kernels for f32, and the kernel of an arithmetic and number. */
#include "configs.cuh"
#include "kernel.cuh"

namespace tconv::cells
{

namespace
{

#define TF32_KERNEL(number)   streaming_gemm<false, tf32_configs[number].mma_n, tf32_configs[number].mma_steps>
#define STRICT_KERNEL(number) streaming_gemm<true, strict_configs[number].mma_n, strict_configs[number].mma_steps>
streaming_function *const tf32_kernels[] = {TF32_KERNEL(0), TF32_KERNEL(1), TF32_KERNEL(2), TF32_KERNEL(3),
                                            TF32_KERNEL(4), TF32_KERNEL(5), TF32_KERNEL(6), TF32_KERNEL(7)};
streaming_function *const strict_kernels[] = {STRICT_KERNEL(0), STRICT_KERNEL(1), STRICT_KERNEL(2)};
#undef TF32_KERNEL
#undef STRICT_KERNEL
static_assert(sizeof tf32_kernels / sizeof tf32_kernels[0] == TF32_CONFIGS, "each has a kernel");
static_assert(sizeof strict_kernels / sizeof strict_kernels[0] == STRICT_CONFIGS, "each has a kernel");

} // namespace

extern "C" const void *tconv_cells_streaming_kernel(numerics mode, bool straddle, int number)
{
    streaming_function *const *kernels = mode == NUMERICS_F16      ? f16_kernels[straddle]
                                         : mode == NUMERICS_BF16   ? bf16_kernels[straddle]
                                         : mode == NUMERICS_STRICT ? strict_kernels
                                                                   : tf32_kernels;
    return (const void *)kernels[number];
}

} // namespace tconv::cells
