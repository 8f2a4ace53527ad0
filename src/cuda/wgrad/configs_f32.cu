/* The kernels by mma.sync for f32. */
#include "kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TF32(height, width)   mma_kernels<NUMERICS_TF32, height, width>(),
#define STRICT(height, width) mma_kernels<NUMERICS_STRICT, height, width>(),
const kernel_functions tf32[] = {WGRAD_MMA_TILES(TF32)};
const kernel_functions strict[] = {WGRAD_MMA_STRICT_TILES(STRICT)};

} // namespace

kernel_functions tconv_wgrad_mma_f32(numerics math, int number)
{
    return math == NUMERICS_STRICT ? strict[number] : tf32[number];
}

} // namespace tconv::wgrad
