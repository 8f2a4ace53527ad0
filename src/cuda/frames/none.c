/* What stands in place of the kernels of cuda_frames in a build without CUDA. */
#include "parameters.h"

const void *tconv_frames_f32_kernel(numerics kind, bool many_columns, bool by_vectors)
{
    (void)kind, (void)many_columns, (void)by_vectors;
    return NULL;
}

const void *tconv_frames_half_kernel(numerics kind, bool many_columns, bool by_vectors)
{
    (void)kind, (void)many_columns, (void)by_vectors;
    return NULL;
}
