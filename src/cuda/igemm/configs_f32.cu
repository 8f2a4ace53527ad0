/* The kernels of the implicit matrix product for f32: TF32, and strict as three products of TF32. */
#include "kernel.cuh"

namespace tconv::igemm
{

const tconv_igemm_shape tconv_igemm_tf32_shapes[TCONV_IGEMM_SHAPES] = {
    {128, 2, true, igemm_layer<tf32_mode, 128>},
    {96, 2, true, igemm_layer<tf32_mode, 96>},
    {64, 2, true, igemm_layer<tf32_mode, 64>},
    {64, 1, true, igemm_layer<small_mode<tf32_mode>, 64>}};
const tconv_igemm_shape tconv_igemm_strict_shapes[TCONV_IGEMM_SHAPES] = {
    {128, 1, false, igemm_layer<strict_mode, 128>},
    {128, 1, true, igemm_layer<strict_long_mode, 128>},
    {64, 1, true, igemm_layer<strict_long_mode, 64>}};

} // namespace tconv::igemm
