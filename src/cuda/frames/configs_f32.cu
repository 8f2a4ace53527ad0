/* The kernels of cuda_frames for f32: strict, by 3xTF32, and TF32. */
#include "kernel.cuh"

namespace tconv::frames
{

const void *tconv_frames_f32_kernel(numerics kind, bool many_columns, bool by_vectors)
{
    return kind == NUMERICS_STRICT ? choose_kernel<strict>(many_columns, by_vectors)
                                   : choose_kernel<tf32>(many_columns, by_vectors);
}

} // namespace tconv::frames
