/* The kernels of cuda_frames for f16 and bf16. */
#include "kernel.cuh"

namespace tconv::frames
{

const void *tconv_frames_half_kernel(numerics kind, bool many_columns, bool by_vectors)
{
    return kind == NUMERICS_F16 ? choose_kernel<half_mode<__half>>(many_columns, by_vectors)
                                : choose_kernel<half_mode<__nv_bfloat16>>(many_columns, by_vectors);
}

} // namespace tconv::frames
