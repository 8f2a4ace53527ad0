/* The kernels by wgmma for bf16. */
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TILE(m, n) wgmma_kernels<NUMERICS_BF16, m, n>(),
const kernel_functions kernels[] = {WGRAD_WGMMA_TILES(TILE)};

} // namespace

kernel_functions tconv_wgrad_wgmma_bf16(int number)
{
    return kernels[number];
}

} // namespace tconv::wgrad
