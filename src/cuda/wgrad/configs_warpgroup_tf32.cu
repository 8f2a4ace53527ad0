/* The kernels by wgmma for TF32. */
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice warpgroup_kernels_tf32[WARPGROUP_KERNELS] = {
    warpgroups<MODE_TF32, 1, 128>(), warpgroups<MODE_TF32, 2, 128>(), warpgroups<MODE_TF32, 2, 64>(),
    warpgroups<MODE_TF32, 3, 64>(), warpgroups<MODE_TF32, 4, 64>()};

} // namespace tconv::wgrad
