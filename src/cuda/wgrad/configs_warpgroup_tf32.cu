/* The kernels by wgmma for TF32. */
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TILE(m, n) wgmma_kernels<NUMERICS_TF32, m, n>(),
const kernel_functions kernels[] = {WGRAD_WGMMA_TILES(TILE)};

} // namespace

kernel_functions tconv_wgrad_wgmma_tf32(int number)
{
    return kernels[number];
}

} // namespace tconv::wgrad
