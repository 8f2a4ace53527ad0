/* The kernels by wgmma for f16. */
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice warpgroup_kernels_f16[WARPGROUP_KERNELS] = {
    warpgroups<MODE_F16, 1, 128>(), warpgroups<MODE_F16, 2, 128>(), warpgroups<MODE_F16, 2, 64>(),
    warpgroups<MODE_F16, 3, 64>(), warpgroups<MODE_F16, 4, 64>()};

} // namespace tconv::wgrad
