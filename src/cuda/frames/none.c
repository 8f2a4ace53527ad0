/* What stands in place of the kernels of cuda_frames in a build without CUDA. */
#include "parameters.h"

const void *tconv_frames_f32_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors)
{
    (void)arithmetic, (void)kind, (void)by_vectors;
    return NULL;
}

const void *tconv_frames_half_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors)
{
    (void)arithmetic, (void)kind, (void)by_vectors;
    return NULL;
}
