/* The kernels of the implicit GEMM for f16 and bf16. */
#include "configs.cuh"
#include "plan.h"

namespace tconv::igemm
{

namespace
{

template <class Mode> const void *outputs_kernel(int config)
{
    const void *const kernels[CONFIGS] = {kernel_of<Mode, half_configs, 0>(),
                                          kernel_of<Mode, half_configs, 1>(),
                                          kernel_of<Mode, half_configs, 2>(),
                                          kernel_of<small_mode<Mode>, half_configs, 3>(),
                                          kernel_of<clustered_mode<Mode>, half_configs, 4>(),
                                          kernel_of<clustered_mode<small_mode<Mode>>, half_configs, 5>()};
    return kernels[config];
}

template <class Mode> const void *sums_kernel(int config)
{
    const void *const kernels[CONFIGS] = {kernel_of<sums_mode<Mode>, half_sums_configs, 0>(),
                                          kernel_of<sums_mode<Mode>, half_sums_configs, 1>(),
                                          kernel_of<small_mode<sums_mode<Mode>>, half_sums_configs, 2>()};
    return kernels[config];
}

} // namespace

extern "C" const void *tconv_igemm_half_kernel(bool bf16, bool sums, int config)
{
    if (bf16)
        return sums ? sums_kernel<bf16_mode>(config) : outputs_kernel<bf16_mode>(config);
    return sums ? sums_kernel<f16_mode>(config) : outputs_kernel<f16_mode>(config);
}

} // namespace tconv::igemm
