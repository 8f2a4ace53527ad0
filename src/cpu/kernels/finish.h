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
 * 5. Post-ops: sums in a task's memory go through the list there, in long rows of a channel or of a pixel, and are stored
 *    like those of a layer without one (tconv_cpu_sum_rows, where tconv_cpu_posts_fit_sums). Else a row goes through the
 *    list in a buffer when it is stored (posts.inc.h); its channels and its elements of the addend are found from its
 *    address in dst. Both ways give the same bits.
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

/* Rows of sums, with their bias, that go through a layer's post-ops where they lie, in the type of the sums. */
typedef struct tconv_cpu_sum_rows {
    const tconv_cpu_posts *posts;
    void *sums;
    const int64_t *to;          /* [rows], where each begins in sums; NULL: at multiples of the pitch */
    int64_t rows, count, pitch; /* rows of count sums */
    int64_t channel;            /* of all groups: that of all sums, or with `pixels` that of a row's first */
    bool pixels;                /* a row's sums are of neighbouring channels */
} tconv_cpu_sum_rows;

typedef void tconv_cpu_sum_rows_function(const tconv_cpu_sum_rows *rows);

/* Whether what the list makes of an output follows from its sum and its channel: no list adds a tensor, whose elements are
 * found by where an output lies, and nothing comes between the bias and the list. */
static inline bool tconv_cpu_posts_follow_channels(const tconv_problem *problem)
{
    return tconv_has_posts(problem) && !problem->desc.accumulate && tconv_post_addend(&problem->desc) < 0;
}

/* Whether sums can go through the layer's post-ops where they lie, so that outputs are these sums, rounded. Not so where a row
 * of outputs has the bias alone between sums (bias_only: residues without a tap). */
static inline bool tconv_cpu_posts_fit_sums(const tconv_problem *problem, int64_t bias_only)
{
    return tconv_cpu_posts_follow_channels(problem) && bias_only == 0;
}

/* Whether an output of the layer is its sum with the bias, rounded, and nothing else. */
static inline bool tconv_cpu_are_outputs_sums(const tconv_problem *problem)
{
    return !problem->desc.accumulate && !tconv_has_posts(problem);
}

/* Whether rows of sums are stored as they are in the end, so that they may be streamed. */
static inline bool tconv_cpu_stores_sums(const tconv_problem *problem, int64_t bias_only)
{
    return tconv_cpu_are_outputs_sums(problem) || tconv_cpu_posts_fit_sums(problem, bias_only);
}

/* Returns how sums that have their bias become outputs of the layer. posts may be NULL where the layer has no list. */
static inline tconv_cpu_finish tconv_cpu_finish_of(const tconv_problem *problem, const void *bias, int64_t row_channels,
                                                   const tconv_cpu_posts *posts)
{
    const int held = problem->desc.accumulate ? TCONV_CPU_ADD_HELD : 0;
    return (tconv_cpu_finish){bias, row_channels, held | (tconv_has_posts(problem) ? TCONV_CPU_APPLY_POSTS : 0), posts};
}

#endif
