/* The streaming kernel's instances for 16 bits, whose cells have one column. */
#include "configs.cuh"
#include "kernel.cuh"

namespace tconv::cells
{

#define CONFIG(element, straddle, mma_n, mma_steps)                                                                    \
    {                                                                                                                  \
        mma_n, mma_steps, streaming_gemm<false, mma_n, mma_steps, element, straddle>                                   \
    }
#define CONFIGS(element, straddle)                                                                                     \
    {                                                                                                                  \
        CONFIG(element, straddle, 128, 4), CONFIG(element, straddle, 128, 2), CONFIG(element, straddle, 64, 4),        \
            CONFIG(element, straddle, 64, 2)                                                                           \
    }
const streaming_config f16_configs[2][MAX_CONFIGS] = {CONFIGS(__half, false), CONFIGS(__half, true)};
const streaming_config bf16_configs[2][MAX_CONFIGS] = {CONFIGS(__nv_bfloat16, false), CONFIGS(__nv_bfloat16, true)};
#undef CONFIGS
#undef CONFIG

} // namespace tconv::cells
