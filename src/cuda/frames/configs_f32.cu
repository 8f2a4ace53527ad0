/* The kernels of cuda_frames for f32: strict, by 3xTF32, and TF32. */
#include "configs.cuh"

namespace tconv::frames
{

const void *tconv_frames_f32_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors)
{
    return arithmetic == NUMERICS_STRICT ? choose_kernel<strict>(kind, by_vectors)
                                         : choose_kernel<tf32>(kind, by_vectors);
}

} // namespace tconv::frames
