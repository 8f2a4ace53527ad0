/* The kernels by mma.sync for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define F16(height, width)  mma_kernels<NUMERICS_F16, height, width>(),
#define BF16(height, width) mma_kernels<NUMERICS_BF16, height, width>(),
const kernel_functions f16[] = {WGRAD_MMA_TILES(F16)};
const kernel_functions bf16[] = {WGRAD_MMA_TILES(BF16)};

} // namespace

kernel_functions tconv_wgrad_mma_half(numerics math, int number)
{
    return math == NUMERICS_F16 ? f16[number] : bf16[number];
}

} // namespace tconv::wgrad
