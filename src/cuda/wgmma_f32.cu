/* The wgmma kernels for f32: TF32, and strict as three products of TF32. */
#include "wgmma_kernel.cuh"

using namespace tconv_wgmma;

const tconv_wgmma_shape tconv_wgmma_tf32_shapes[TCONV_WGMMA_SHAPES] = {{192, 1, true, wgmma_layer<tf32_mode, 192, 1>},
                                                                       {128, 2, true, wgmma_layer<tf32_mode, 128, 2>},
                                                                       {104, 2, true, wgmma_layer<tf32_mode, 104, 2>},
                                                                       {88, 2, true, wgmma_layer<tf32_mode, 88, 2>},
                                                                       {64, 2, true, wgmma_layer<tf32_mode, 64, 2>}};
const tconv_wgmma_shape tconv_wgmma_strict_shapes[TCONV_WGMMA_SHAPES] = {
    {80, 2, false, wgmma_layer<strict_mode, 80, 2>},
    {64, 2, false, wgmma_layer<strict_mode, 64, 2>},
    {48, 2, true, wgmma_layer<compensated_mode, 48, 2>}};
