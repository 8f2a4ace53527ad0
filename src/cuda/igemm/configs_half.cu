/* The kernels of the implicit GEMM for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::igemm
{

const config f16_configs[CONFIGS] = {{128, 2, true, implicit_gemm<f16_mode, 128>},
                                     {96, 2, true, implicit_gemm<f16_mode, 96>},
                                     {64, 2, true, implicit_gemm<f16_mode, 64>},
                                     {64, 1, true, implicit_gemm<small_mode<f16_mode>, 64>}};
const config bf16_configs[CONFIGS] = {{128, 2, true, implicit_gemm<bf16_mode, 128>},
                                      {96, 2, true, implicit_gemm<bf16_mode, 96>},
                                      {64, 2, true, implicit_gemm<bf16_mode, 64>},
                                      {64, 1, true, implicit_gemm<small_mode<bf16_mode>, 64>}};
const config f16_sums_configs[CONFIGS] = {{128, 2, true, implicit_gemm<sums_mode<f16_mode>, 128>},
                                          {64, 2, true, implicit_gemm<sums_mode<f16_mode>, 64>},
                                          {64, 1, true, implicit_gemm<small_mode<sums_mode<f16_mode>>, 64>}};
const config bf16_sums_configs[CONFIGS] = {{128, 2, true, implicit_gemm<sums_mode<bf16_mode>, 128>},
                                           {64, 2, true, implicit_gemm<sums_mode<bf16_mode>, 64>},
                                           {64, 1, true, implicit_gemm<small_mode<sums_mode<bf16_mode>>, 64>}};

} // namespace tconv::igemm
