/* The kernels of cuda_frames for f16 and bf16. */
#include "configs.cuh"

namespace tconv::frames
{

const void *tconv_frames_half_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors)
{
    return arithmetic == NUMERICS_F16 ? choose_kernel<half_mode<__half>>(kind, by_vectors)
                                      : choose_kernel<half_mode<__nv_bfloat16>>(kind, by_vectors);
}

} // namespace tconv::frames
