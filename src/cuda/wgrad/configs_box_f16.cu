/* The kernels by boxes for f16. */
#include "box_kernel.cuh"

namespace tconv::wgrad
{

namespace
{

#define TILE(m, n) box_kernels<NUMERICS_F16, m, n>(),
const kernel_functions kernels[] = {WGRAD_BOX_TILES(TILE)};

} // namespace

kernel_functions tconv_wgrad_boxes_f16(int number)
{
    return kernels[number];
}

} // namespace tconv::wgrad
