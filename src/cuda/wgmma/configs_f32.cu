/* The kernels for f32: TF32, and strict as three products of TF32. */
#include "kernel.cuh"

namespace tconv::wgmma
{

const kernel_config tf32_configs[CONFIGS] = {{128, implicit_gemm<tf32_mode, 128>},
                                             {104, implicit_gemm<tf32_mode, 104>},
                                             {88, implicit_gemm<tf32_mode, 88>},
                                             {64, implicit_gemm<tf32_mode, 64>}};
const kernel_config strict_configs[CONFIGS] = {
    {88, implicit_gemm<strict_mode, 88>}, {80, implicit_gemm<strict_mode, 80>}, {64, implicit_gemm<strict_mode, 64>}};

} // namespace tconv::wgmma
