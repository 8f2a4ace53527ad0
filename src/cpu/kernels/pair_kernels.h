/*
 * The kernels for sums of pairs of bf16 factors: microkernels (kernels.h, kernels/pixels_kernels.h) whose terms are two channels, and
 * the range of what they may multiply, as they take what is subnormal for zero. A word has two numbers of bf16, the first in
 * the lower half.
 */
#ifndef TCONV_CPU_KERNELS_PAIR_KERNELS_H
#define TCONV_CPU_KERNELS_PAIR_KERNELS_H

#include "kernels.h"
#include "pixels_kernels.h"

/* The least and the greatest of some numbers of bf16, without zeros and signs, as their bits. */
typedef struct tconv_cpu_pair_range {
    uint16_t least, most;
} tconv_cpu_pair_range;

#define TCONV_CPU_NO_PAIR_RANGE                                                                                        \
    {                                                                                                                  \
        UINT16_MAX, 0                                                                                                  \
    }

typedef struct tconv_cpu_pair_kernels {
    /* strip and weights are words, for the kernels' float */
    tconv_cpu_microkernel *microkernels[TCONV_CPU_MAX_CHANNELS + 1][TCONV_CPU_MAX_VECTORS + 1];
    /* the same, but that `at` counts numbers, so that a pixel's words may begin with any */
    tconv_cpu_pixel_microkernel *pixels[TCONV_CPU_MAX_PIXEL_VECTORS + 1][TCONV_CPU_MAX_PIXELS + 1];
    /* Of cpu_wgrad, in the place of floats that are numbers of bf16: makes words of rows 2 i and 2 i + 1, of `width` floats,
     * whole vectors, the last one with zeros where rows are odd; or numbers of all. */
    void (*join_rows)(void *floats, int64_t rows, int64_t width);
    void (*pack)(void *floats, int64_t count);
    /* Extends a range to some numbers. */
    void (*find_range)(tconv_cpu_pair_range *range, const uint16_t *numbers, int64_t count);
} tconv_cpu_pair_kernels;

extern const tconv_cpu_pair_kernels tconv_cpu_pair_kernels_avx512_bf16;

/* Returns the table of a level that tconv_cpu_resolve gave; NULL where it has none. */
const tconv_cpu_pair_kernels *tconv_cpu_find_pair_kernels(tconv_cpu_isa isa);

#endif
