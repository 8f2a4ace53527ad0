/* Vectors of channels of a pixel: plain C. */
#ifndef TCONV_CUDA_WGRAD_VECTORS_H
#define TCONV_CUDA_WGRAD_VECTORS_H

#include "../../core/problem.h"

/* Whether a pixel's channels are neighbours that fill vectors of 16 bytes, where the first one's address is aligned. */
static inline bool tconv_cuda_has_vectors(const tconv_problem *problem, const tconv_strides *strides,
                                          int64_t group_channels)
{
    const int64_t vector = 16 / (int64_t)problem->element_size;
    const tconv_strides apart = {strides->n, strides->w, strides->h, 0}; /* pixels take the place of channels */
    return problem->layout == TCONV_NHWC && strides->c == 1 && group_channels % vector == 0 &&
           tconv_rows_begin_at_multiples(&apart, vector);
}

#endif
