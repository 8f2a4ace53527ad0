/* The kernels by wgmma for strict f32. */
#include "strict_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TILE(m, n) strict_wgmma_kernels<m, n>(),
const kernel_functions kernels[] = {WGRAD_WGMMA_STRICT_TILES(TILE)};

} // namespace

kernel_functions tconv_wgrad_wgmma_strict(int number)
{
    return kernels[number];
}

} // namespace tconv::wgrad
