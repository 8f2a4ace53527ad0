/* The kernels for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::wgmma
{

namespace
{

kernel_function *const f16_kernels[CONFIGS] = {
    implicit_gemm<f16_mode, config_N(NUMERICS_F16, 0)>, implicit_gemm<f16_mode, config_N(NUMERICS_F16, 1)>,
    implicit_gemm<f16_mode, config_N(NUMERICS_F16, 2)>, implicit_gemm<f16_mode, config_N(NUMERICS_F16, 3)>};
kernel_function *const bf16_kernels[CONFIGS] = {
    implicit_gemm<bf16_mode, config_N(NUMERICS_BF16, 0)>, implicit_gemm<bf16_mode, config_N(NUMERICS_BF16, 1)>,
    implicit_gemm<bf16_mode, config_N(NUMERICS_BF16, 2)>, implicit_gemm<bf16_mode, config_N(NUMERICS_BF16, 3)>};
kernel_function *const f16_mn_major_kernels[MN_MAJOR_CONFIGS] = {
    implicit_gemm<f16_mn_major_mode, config_N(NUMERICS_F16, 0)>,
    implicit_gemm<f16_mn_major_mode, config_N(NUMERICS_F16, 1)>};
kernel_function *const bf16_mn_major_kernels[MN_MAJOR_CONFIGS] = {
    implicit_gemm<bf16_mn_major_mode, config_N(NUMERICS_BF16, 0)>,
    implicit_gemm<bf16_mn_major_mode, config_N(NUMERICS_BF16, 1)>};

} // namespace

extern "C" const void *tconv_wgmma_half_kernel(numerics arithmetic, bool mn_major, int config)
{
    if (mn_major)
        return (const void *)(arithmetic == NUMERICS_F16 ? f16_mn_major_kernels : bf16_mn_major_kernels)[config];
    return (const void *)(arithmetic == NUMERICS_F16 ? f16_kernels : bf16_kernels)[config];
}

} // namespace tconv::wgmma
