/* The kernels of the implicit GEMM for f32: TF32, and strict as three products of TF32. */
#include "configs.cuh"
#include "plan.h"

namespace tconv::igemm
{

extern "C" const void *tconv_igemm_f32_kernel(bool strict, int config)
{
    const void *const tf32[CONFIGS] = {kernel_of<tf32_mode, tf32_configs, 0>(),
                                       kernel_of<tf32_mode, tf32_configs, 1>(),
                                       kernel_of<tf32_mode, tf32_configs, 2>(),
                                       kernel_of<small_mode<tf32_mode>, tf32_configs, 3>(),
                                       kernel_of<quarters_mode<tf32_mode>, tf32_configs, 4>(),
                                       kernel_of<clustered_mode<tf32_mode>, tf32_configs, 5>(),
                                       kernel_of<clustered_mode<small_mode<tf32_mode>>, tf32_configs, 6>()};
    const void *const of_strict[CONFIGS] = {kernel_of<strict_mode, strict_configs, 0>(),
                                            kernel_of<strict_long_mode, strict_configs, 1>(),
                                            kernel_of<strict_long_mode, strict_configs, 2>(),
                                            kernel_of<clustered_mode<strict_long_mode>, strict_configs, 3>()};
    return strict ? of_strict[config] : tf32[config];
}

} // namespace tconv::igemm
