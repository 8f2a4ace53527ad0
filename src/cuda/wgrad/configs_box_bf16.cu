/* The kernels by boxes for bf16. */
#include "box_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TILE(m, n) box_kernels<NUMERICS_BF16, m, n>(),
const kernel_functions kernels[] = {WGRAD_BOX_TILES(TILE)};

} // namespace

kernel_functions tconv_wgrad_boxes_bf16(int number)
{
    return kernels[number];
}

} // namespace tconv::wgrad
