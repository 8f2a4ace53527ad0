/* The kernels of the implicit matrix product for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::igemm
{

const tconv_igemm_shape tconv_igemm_f16_shapes[TCONV_IGEMM_SHAPES] = {
    {128, 2, true, igemm_layer<f16_mode, 128>},
    {96, 2, true, igemm_layer<f16_mode, 96>},
    {64, 2, true, igemm_layer<f16_mode, 64>},
    {64, 1, true, igemm_layer<small_mode<f16_mode>, 64>}};
const tconv_igemm_shape tconv_igemm_bf16_shapes[TCONV_IGEMM_SHAPES] = {
    {128, 2, true, igemm_layer<bf16_mode, 128>},
    {96, 2, true, igemm_layer<bf16_mode, 96>},
    {64, 2, true, igemm_layer<bf16_mode, 64>},
    {64, 1, true, igemm_layer<small_mode<bf16_mode>, 64>}};

} // namespace tconv::igemm
