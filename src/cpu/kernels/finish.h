/*
 * Where a sum becomes an output, on the CPU. The path is the same in every implementation:
 *
 *     y = sum + bias;  y += what dst holds, where the layer accumulates;  y goes through the layer's post-ops;
 *     dst = y, rounded once to the dtype
 *
 * 1. A kernel or a driver sums a row in Real, in the order of dst, and adds the bias in registers as the last term. Sums
 *    that have no bias yet say so (TCONV_CPU_ADD_BIAS).
 * 2. All functions that store rows call finish_row (finish.inc.h), which is compiled once for each level and dtype.
 *    tconv_cpu_finish says what it does, tconv_cpu_finish_of fills that from the layer.
 * 3. Where nothing is to be done but round, a finish is plain, and kernels store vectors straight from registers
 *    (interleaved rows, the direct and streaming stores of pixels, the stencil). Plans take such a shortcut only where
 *    tconv_cpu_are_outputs_sums says so.
 * 4. Outputs that are computed one by one, in double (borders beside Inf and NaN, the reference), call
 *    tconv_cpu_reference_posts and tconv_cpu_finish_output (reference/reference.h). Outputs without a tap hold the bias
 *    as it is, or what the post-ops make of the bias (blocking/bias.c).
 * 5. A row with post-ops is summed into a buffer, goes through the list there, and is stored (posts.inc.h). Its channels
 *    and its elements of the addend are found from its address in dst.
 */
#ifndef TCONV_CPU_KERNELS_FINISH_H
#define TCONV_CPU_KERNELS_FINISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../core/post.h"
#include "../../core/problem.h"

/* Steps before an output is rounded: adding the bias, where the sums do not have it; adding what dst holds; the layer's
 * post-ops. */
enum { TCONV_CPU_ADD_BIAS = 1, TCONV_CPU_ADD_HELD = 2, TCONV_CPU_APPLY_POSTS = 4 };

/* What the post-ops of a layer need in one call of execute. */
typedef struct tconv_cpu_posts {
    const tconv_problem *problem; /* the caller's: the list, and the strides of dst and of the addend */
    const void *const *operands;  /* [TCONV_MAX_POST_OPS], those of the call */
    const void *dst;
} tconv_cpu_posts;

/* This struct says how rows of sums become rows of outputs. */
typedef struct tconv_cpu_finish {
    const void *bias;             /* Real, of the first channel that is stored and those after it; NULL: not needed */
    int64_t row_channels;         /* channels that a row goes through, again and again; 1: a row is of one channel */
    int steps;                    /* TCONV_CPU_*, in their order; 0: sums are only rounded, the finish is plain */
    const tconv_cpu_posts *posts; /* with TCONV_CPU_APPLY_POSTS */
} tconv_cpu_finish;

/* Whether an output of the layer is its sum with the bias, rounded, and nothing else. */
static inline bool tconv_cpu_are_outputs_sums(const tconv_problem *problem)
{
    return !problem->desc.accumulate && !tconv_has_posts(problem);
}

/* Returns how sums that have their bias become outputs of the layer. posts may be NULL where the layer has no list. */
static inline tconv_cpu_finish tconv_cpu_finish_of(const tconv_problem *problem, const void *bias, int64_t row_channels,
                                                   const tconv_cpu_posts *posts)
{
    const int held = problem->desc.accumulate ? TCONV_CPU_ADD_HELD : 0;
    return (tconv_cpu_finish){bias, row_channels, held | (tconv_has_posts(problem) ? TCONV_CPU_APPLY_POSTS : 0), posts};
}

#endif
