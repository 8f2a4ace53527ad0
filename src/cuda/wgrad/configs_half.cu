/* The kernels for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice kernels_f16[KERNELS_HALF] = {choice<MODE_F16, 1, 8>(), choice<MODE_F16, 2, 8>(),
                                                 choice<MODE_F16, 4, 8>(), choice<MODE_F16, 4, 6>()};
const kernel_choice kernels_bf16[KERNELS_HALF] = {choice<MODE_BF16, 1, 8>(), choice<MODE_BF16, 2, 8>(),
                                                  choice<MODE_BF16, 4, 8>(), choice<MODE_BF16, 4, 6>()};

} // namespace tconv::wgrad
