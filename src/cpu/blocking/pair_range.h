/* The range of a tensor of bf16: whether the kernels for pairs (kernels/pair_kernels.h) have all of its products. */
#ifndef TCONV_CPU_BLOCKING_PAIR_RANGE_H
#define TCONV_CPU_BLOCKING_PAIR_RANGE_H

#include "../../core/impl.h"
#include "../kernels/pair_kernels.h"

/* Numbers of bf16, of an image and a channel as strides have them, whose channels or columns are neighbours. */
typedef struct tconv_cpu_pair_tensor {
    const void *numbers;
    const tconv_strides *strides;
    int64_t images, channels, rows, columns;
} tconv_cpu_pair_tensor;

static inline tconv_cpu_pair_tensor tconv_cpu_pairs_of_src(const tconv_problem *problem, const void *src)
{
    return (tconv_cpu_pair_tensor){src,           &problem->src, problem->batch, problem->in_channels,
                                   problem->h.in, problem->w.in};
}

static inline tconv_cpu_pair_tensor tconv_cpu_pairs_of_dst(const tconv_problem *problem, const void *dst)
{
    return (tconv_cpu_pair_tensor){dst,           &problem->dst, problem->batch, problem->out_channels, problem->h.out,
                                   problem->w.out};
}

/* Finds the range of a tensor. Returns whether pairs have all products of its numbers with factors of a range; where they
 * have not, the range may be that of some numbers. What it returns does not depend on how many threads there are.
 * scratch: of tconv_cpu_run_tasks. */
bool tconv_cpu_find_pair_range(const tconv_target *target, int threads, const tconv_cpu_pair_tensor *tensor,
                               const tconv_cpu_pair_range *factors, tconv_cpu_pair_range *range, char *scratch);

#endif
