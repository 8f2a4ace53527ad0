/* The streaming kernel's instances for f32, and the choice of an instance by its shape. */
#include "configs.cuh"
#include "kernel.cuh"

namespace tconv::cells
{

namespace
{

#define CONFIG(strict, mma_n, mma_steps)                                                                               \
    {                                                                                                                  \
        mma_n, mma_steps, streaming_gemm<strict, mma_n, mma_steps>                                                     \
    }
const streaming_config tf32_configs[MAX_CONFIGS] = {CONFIG(false, 256, 4), CONFIG(false, 256, 2), CONFIG(false, 128, 4),
                                                    CONFIG(false, 128, 2), CONFIG(false, 64, 4),  CONFIG(false, 64, 2),
                                                    CONFIG(false, 32, 4),  CONFIG(false, 32, 2)};
const streaming_config strict_configs[MAX_CONFIGS] = {CONFIG(true, 128, 4), CONFIG(true, 64, 4), CONFIG(true, 32, 4)};
#undef CONFIG

} // namespace

extern "C" const void *tconv_cells_streaming_kernel(numerics mode, bool straddle, int mma_n, int mma_steps)
{
    const streaming_config *configs = mode == NUMERICS_F16      ? f16_configs[straddle]
                                      : mode == NUMERICS_BF16   ? bf16_configs[straddle]
                                      : mode == NUMERICS_STRICT ? strict_configs
                                                                : tf32_configs;
    for (int i = 0; i < MAX_CONFIGS; i++)
        if (configs[i].mma_n == mma_n && configs[i].mma_steps == mma_steps)
            return (const void *)configs[i].kernel;
    return NULL;
}

} // namespace tconv::cells
