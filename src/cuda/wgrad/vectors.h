/* Vectors of channels of a pixel. */
#ifndef TCONV_CUDA_WGRAD_VECTORS_H
#define TCONV_CUDA_WGRAD_VECTORS_H

#include "../../core/problem.h"
#include "../hardware.h"
#include "images.h"

/* Returns the elements of a vector of 16 bytes. */
static inline int64_t vector_length(const tconv_problem *problem)
{
    return VECTOR_BYTES / (int64_t)problem->element_size;
}

/* Returns whether a pixel's channels are neighbours in memory that fill vectors, where the first channel's address is
 * aligned. */
static inline bool has_vectors(const tconv_problem *problem, const tconv_strides *strides, int64_t group_channels)
{
    const int64_t vector = vector_length(problem);
    const tconv_strides apart = {
        .n = strides->n, .c = strides->w, .h = strides->h}; /* pixels take the place of channels */
    return problem->layout == TCONV_NHWC && strides->c == 1 && group_channels % vector == 0 &&
           images_begin_at_multiples(problem, strides, vector) && tconv_rows_begin_at_multiples(&apart, vector);
}

#endif
