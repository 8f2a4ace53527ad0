/* The kernels for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::wgmma
{

const kernel_config f16_configs[CONFIGS] = {{128, implicit_gemm<f16_mode, 128>},
                                            {104, implicit_gemm<f16_mode, 104>},
                                            {88, implicit_gemm<f16_mode, 88>},
                                            {64, implicit_gemm<f16_mode, 64>}};
const kernel_config f16_mn_major_configs[MN_MAJOR_CONFIGS] = {{128, implicit_gemm<f16_mn_major_mode, 128>},
                                                              {104, implicit_gemm<f16_mn_major_mode, 104>}};
const kernel_config bf16_mn_major_configs[MN_MAJOR_CONFIGS] = {{128, implicit_gemm<bf16_mn_major_mode, 128>},
                                                               {104, implicit_gemm<bf16_mn_major_mode, 104>}};
const kernel_config bf16_configs[CONFIGS] = {{128, implicit_gemm<bf16_mode, 128>},
                                             {104, implicit_gemm<bf16_mode, 104>},
                                             {88, implicit_gemm<bf16_mode, 88>},
                                             {64, implicit_gemm<bf16_mode, 64>}};

} // namespace tconv::wgmma
