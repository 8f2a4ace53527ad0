/* The streaming kernels for 16 bits (configs_half.cu), in the order of half_configs. */
#ifndef TCONV_CUDA_CELLS_CONFIGS_CUH
#define TCONV_CUDA_CELLS_CONFIGS_CUH

#include <cuda.h>

#include "configs.h"
#include "parameters.h"

namespace tconv::cells
{

typedef void streaming_function(parameters layer, CUtensorMap map);

/* The second row is for words that straddle those of memory. */
extern streaming_function *const f16_kernels[2][HALF_CONFIGS];
extern streaming_function *const bf16_kernels[2][HALF_CONFIGS];

} // namespace tconv::cells

#endif
