/* The instances of the streaming kernel, each with its shape: the same shapes as the tables in plan.c. */
#ifndef TCONV_CUDA_CELLS_CONFIGS_CUH
#define TCONV_CUDA_CELLS_CONFIGS_CUH

#include <cuda.h>

#include "parameters.h"

namespace tconv::cells
{

constexpr int MAX_CONFIGS = 8; /* instances of one arithmetic */

typedef void streaming_function(parameters layer, CUtensorMap map);
struct streaming_config {
    int mma_n, mma_steps; /* mma_n = 0: there is no such instance */
    streaming_function *kernel;
};
extern const streaming_config f16_configs[2][MAX_CONFIGS]; /* the second for words that straddle those of memory */
extern const streaming_config bf16_configs[2][MAX_CONFIGS];

} // namespace tconv::cells

#endif
