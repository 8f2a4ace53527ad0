/* The kernels of the implicit GEMM for f32: TF32, and strict as three products of TF32. */
#include "kernel.cuh"

namespace tconv::igemm
{

const config tf32_configs[CONFIGS] = {{128, 2, true, implicit_gemm<tf32_mode, 128>},
                                      {96, 2, true, implicit_gemm<tf32_mode, 96>},
                                      {64, 2, true, implicit_gemm<tf32_mode, 64>},
                                      {64, 1, true, implicit_gemm<small_mode<tf32_mode>, 64>},
                                      {128, 2, true, implicit_gemm<quarters_mode<tf32_mode>, 128>, QUARTERS}};
const config strict_configs[CONFIGS] = {{128, 1, false, implicit_gemm<strict_mode, 128>},
                                        {128, 1, true, implicit_gemm<strict_long_mode, 128>},
                                        {64, 1, true, implicit_gemm<strict_long_mode, 64>}};

} // namespace tconv::igemm
