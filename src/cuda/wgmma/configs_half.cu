/* The wgmma kernels for f16 and bf16. */
#include "../ptx/wgmma.cuh"
#include "kernel.cuh"

namespace tconv::wgmma
{

const tconv_wgmma_shape tconv_wgmma_f16_shapes[TCONV_WGMMA_SHAPES] = {{128, wgmma_layer<f16_mode, 128>},
                                                                      {104, wgmma_layer<f16_mode, 104>},
                                                                      {88, wgmma_layer<f16_mode, 88>},
                                                                      {64, wgmma_layer<f16_mode, 64>}};
const tconv_wgmma_shape tconv_wgmma_f16_transposed_shapes[TCONV_WGMMA_TRANSPOSED_SHAPES] = {
    {128, wgmma_layer<f16_transposed_mode, 128>}, {104, wgmma_layer<f16_transposed_mode, 104>}};
const tconv_wgmma_shape tconv_wgmma_bf16_transposed_shapes[TCONV_WGMMA_TRANSPOSED_SHAPES] = {
    {128, wgmma_layer<bf16_transposed_mode, 128>}, {104, wgmma_layer<bf16_transposed_mode, 104>}};
const tconv_wgmma_shape tconv_wgmma_bf16_shapes[TCONV_WGMMA_SHAPES] = {{128, wgmma_layer<bf16_mode, 128>},
                                                                       {104, wgmma_layer<bf16_mode, 104>},
                                                                       {88, wgmma_layer<bf16_mode, 88>},
                                                                       {64, wgmma_layer<bf16_mode, 64>}};

} // namespace tconv::wgmma
