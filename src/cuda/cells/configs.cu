/* The instances of the streaming kernel. */
#include "kernel.cuh"

namespace tconv::cells
{

#define CONFIG(strict, mma_n, mma_steps)                                                                               \
    {                                                                                                                  \
        mma_n, mma_steps, streaming_gemm<strict, mma_n, mma_steps>                                                     \
    }
const kernel_config tf32_configs[MAX_CONFIGS] = {CONFIG(false, 256, 4), CONFIG(false, 256, 2), CONFIG(false, 128, 4),
                                                 CONFIG(false, 128, 2), CONFIG(false, 64, 4),  CONFIG(false, 64, 2),
                                                 CONFIG(false, 32, 4),  CONFIG(false, 32, 2)};
const kernel_config strict_configs[MAX_CONFIGS] = {CONFIG(true, 128, 4), CONFIG(true, 64, 4), CONFIG(true, 32, 4)};
#undef CONFIG

} // namespace tconv::cells
