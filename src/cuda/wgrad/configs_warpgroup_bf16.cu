/* The kernels by wgmma for bf16. */
#include "warpgroup_kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice warpgroup_kernels_bf16[WARPGROUP_KERNELS] = {
    warpgroups<MODE_BF16, 1, 128>(), warpgroups<MODE_BF16, 2, 128>(), warpgroups<MODE_BF16, 2, 64>(),
    warpgroups<MODE_BF16, 3, 64>(), warpgroups<MODE_BF16, 4, 64>()};

} // namespace tconv::wgrad
