/* The wgmma kernels for f32: TF32, and strict as three products of TF32. */
#include "../ptx/wgmma.cuh"
#include "kernel.cuh"

namespace tconv::wgmma
{

const tconv_wgmma_shape tconv_wgmma_tf32_shapes[TCONV_WGMMA_SHAPES] = {{128, wgmma_layer<tf32_mode, 128>},
                                                                       {104, wgmma_layer<tf32_mode, 104>},
                                                                       {88, wgmma_layer<tf32_mode, 88>},
                                                                       {64, wgmma_layer<tf32_mode, 64>}};
const tconv_wgmma_shape tconv_wgmma_strict_shapes[TCONV_WGMMA_SHAPES] = {
    {88, wgmma_layer<strict_mode, 88>}, {80, wgmma_layer<strict_mode, 80>}, {64, wgmma_layer<strict_mode, 64>}};

} // namespace tconv::wgmma
