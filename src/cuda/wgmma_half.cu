/* The wgmma kernels for f16 and bf16. */
#include "wgmma_kernel.cuh"

using namespace tconv_wgmma;

const tconv_wgmma_shape tconv_wgmma_f16_shapes[TCONV_WGMMA_SHAPES] = {{192, 1, true, wgmma_layer<f16_mode, 192, 1>},
                                                                      {128, 2, true, wgmma_layer<f16_mode, 128, 2>},
                                                                      {104, 2, true, wgmma_layer<f16_mode, 104, 2>},
                                                                      {88, 2, true, wgmma_layer<f16_mode, 88, 2>},
                                                                      {64, 2, true, wgmma_layer<f16_mode, 64, 2>}};
const tconv_wgmma_shape tconv_wgmma_bf16_shapes[TCONV_WGMMA_SHAPES] = {{192, 1, true, wgmma_layer<bf16_mode, 192, 1>},
                                                                       {128, 2, true, wgmma_layer<bf16_mode, 128, 2>},
                                                                       {104, 2, true, wgmma_layer<bf16_mode, 104, 2>},
                                                                       {88, 2, true, wgmma_layer<bf16_mode, 88, 2>},
                                                                       {64, 2, true, wgmma_layer<bf16_mode, 64, 2>}};
