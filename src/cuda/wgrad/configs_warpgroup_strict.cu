/* The kernels by wgmma for strict f32. */
#include "strict_kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice warpgroup_kernels_strict[STRICT_WARPGROUP_KERNELS] = {
    strict_warpgroups<1, 64>(), strict_warpgroups<2, 64>(), strict_warpgroups<1, 128>()};

} // namespace tconv::wgrad
