/* The kernels for f32: TF32, and strict as three products of TF32. */
#include "kernel.cuh"

namespace tconv::wgmma
{

namespace
{

kernel_function *const tf32_kernels[CONFIGS] = {
    implicit_gemm<tf32_mode, config_N(NUMERICS_TF32, 0)>, implicit_gemm<tf32_mode, config_N(NUMERICS_TF32, 1)>,
    implicit_gemm<tf32_mode, config_N(NUMERICS_TF32, 2)>, implicit_gemm<tf32_mode, config_N(NUMERICS_TF32, 3)>};
kernel_function *const strict_kernels[CONFIGS] = {implicit_gemm<strict_mode, config_N(NUMERICS_STRICT, 0)>,
                                                  implicit_gemm<strict_mode, config_N(NUMERICS_STRICT, 1)>,
                                                  implicit_gemm<strict_mode, config_N(NUMERICS_STRICT, 2)>};
static_assert(config_N(NUMERICS_STRICT, 3) == 0);

} // namespace

extern "C" const void *tconv_wgmma_f32_kernel(numerics arithmetic, int config)
{
    return (const void *)(arithmetic == NUMERICS_STRICT ? strict_kernels : tf32_kernels)[config];
}

} // namespace tconv::wgmma
