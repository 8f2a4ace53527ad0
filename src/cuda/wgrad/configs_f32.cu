/* The kernels for f32. */
#include "kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice kernels_tf32[KERNELS_F32] = {choice<MODE_TF32, 1, 8>(), choice<MODE_TF32, 2, 8>(),
                                                 choice<MODE_TF32, 4, 8>(), choice<MODE_TF32, 4, 6>()};
const kernel_choice kernels_strict[KERNELS_STRICT] = {choice<MODE_STRICT, 1, 8>(), choice<MODE_STRICT, 2, 8>(),
                                                      choice<MODE_STRICT, 2, 6>()};

} // namespace tconv::wgrad
