/*
 * Where a sum becomes an output, on the CPU. The path is the same in every implementation:
 *
 *     y = sum + bias;  y += what dst holds, where the layer accumulates;  dst = y, rounded once to the dtype
 *
 * 1. A kernel or a driver sums a row in Real, in the order of dst, and adds the bias in registers as the last term. Sums
 *    that have no bias yet say so (TCONV_CPU_ADD_BIAS).
 * 2. All functions that store rows call finish_row (finish.inc.h), which is compiled once for each level and dtype.
 *    tconv_cpu_finish says what it does, tconv_cpu_finish_of fills that from the layer.
 * 3. Where nothing is to be done but round, a finish is plain, and kernels store vectors straight from registers
 *    (interleaved rows, the direct and streaming stores of pixels, the stencil). Plans take such a shortcut only where
 *    tconv_cpu_are_outputs_sums says so.
 * 4. Outputs that are computed one by one, in double (borders beside Inf and NaN, the reference), call
 *    tconv_cpu_finish_output (reference/reference.h). Outputs without a tap hold the bias as it is (blocking/bias.c).
 *
 * So one more step of an output, an activation or a scale, is a field of tconv_cpu_finish, which tconv_cpu_finish_of
 * fills, a line of tconv_cpu_are_outputs_sums, and the step itself in finish_lanes, tconv_cpu_finish_output and bias.c.
 */
#ifndef TCONV_CPU_KERNELS_FINISH_H
#define TCONV_CPU_KERNELS_FINISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../core/problem.h"

/* Steps before an output is rounded: adding the bias, where the sums do not have it; adding what dst holds. */
enum { TCONV_CPU_ADD_BIAS = 1, TCONV_CPU_ADD_HELD = 2 };

/* This struct says how rows of sums become rows of outputs. */
typedef struct tconv_cpu_finish {
    const void *bias;     /* Real, of the first channel that is stored and those after it; NULL: not needed */
    int64_t row_channels; /* channels that a row goes through, again and again; 1: a row is of one channel */
    int steps;            /* TCONV_CPU_ADD_*, in their order; 0: sums are only rounded, the finish is plain */
} tconv_cpu_finish;

/* Whether an output of the layer is its sum with the bias, rounded, and nothing else. */
static inline bool tconv_cpu_are_outputs_sums(const tconv_problem *problem)
{
    return !problem->desc.accumulate;
}

/* Returns how sums that have their bias become outputs of the layer. */
static inline tconv_cpu_finish tconv_cpu_finish_of(const tconv_problem *problem, const void *bias, int64_t row_channels)
{
    return (tconv_cpu_finish){bias, row_channels, problem->desc.accumulate ? TCONV_CPU_ADD_HELD : 0};
}

#endif
