/* The streaming kernels for 16 bits. */
#include "configs.cuh"
#include "kernel.cuh"

namespace tconv::cells
{

#define KERNEL(element, straddle, number)                                                                              \
    streaming_gemm<false, half_configs[number].mma_n, half_configs[number].mma_steps, element, straddle>
#define KERNELS(element, straddle)                                                                                     \
    {                                                                                                                  \
        KERNEL(element, straddle, 0), KERNEL(element, straddle, 1), KERNEL(element, straddle, 2),                      \
            KERNEL(element, straddle, 3)                                                                               \
    }
static_assert(HALF_CONFIGS == 4, "each has a kernel");
streaming_function *const f16_kernels[2][HALF_CONFIGS] = {KERNELS(__half, false), KERNELS(__half, true)};
streaming_function *const bf16_kernels[2][HALF_CONFIGS] = {KERNELS(__nv_bfloat16, false), KERNELS(__nv_bfloat16, true)};
#undef KERNELS
#undef KERNEL

} // namespace tconv::cells
