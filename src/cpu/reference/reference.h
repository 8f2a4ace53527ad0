/* What the reference's operations share: axes as the caller wrote them, and elements of any dtype as float64. */
#ifndef TCONV_CPU_REFERENCE_REFERENCE_H
#define TCONV_CPU_REFERENCE_REFERENCE_H

#include "../../core/impl.h"

/* One axis as the caller wrote it; problem.h may have an equivalent stride instead. */
typedef struct tconv_cpu_reference_axis {
    int64_t in, out, kernel, stride, dilation, pad;
} tconv_cpu_reference_axis;

static inline tconv_cpu_reference_axis tconv_cpu_reference_rows(const tconv_problem *problem)
{
    const tconv_desc *desc = &problem->desc;
    return (tconv_cpu_reference_axis){desc->in_h,     problem->h.out,   desc->kernel_h,
                                      desc->stride_h, desc->dilation_h, desc->pad_top};
}

static inline tconv_cpu_reference_axis tconv_cpu_reference_columns(const tconv_problem *problem)
{
    const tconv_desc *desc = &problem->desc;
    return (tconv_cpu_reference_axis){desc->in_w,     problem->w.out,   desc->kernel_w,
                                      desc->stride_w, desc->dilation_w, desc->pad_left};
}

/* A sum and what was lost in rounding it (Knuth, The Art of Computer Programming, volume 2, 4.2.2, theorem B). */
typedef struct tconv_cpu_reference_sum {
    double high, low;
} tconv_cpu_reference_sum;

/* Elements of memory that lie `step` apart, from `index` on. */
typedef struct tconv_cpu_reference_run {
    const void *memory;
    int64_t index, step;
} tconv_cpu_reference_run;

typedef struct tconv_cpu_reference_access {
    double (*get)(const void *memory, int64_t index);
    void (*put)(void *memory, int64_t index, double value); /* rounds to nearest, once */
    /* sums[i * step] += weight * (element i of the run), for count elements */
    void (*accumulate)(double *sums, int64_t step, int64_t count, double weight, tconv_cpu_reference_run run);
    /* sum += the products of count elements of two runs */
    void (*dot)(tconv_cpu_reference_sum *sum, int64_t count, tconv_cpu_reference_run a, tconv_cpu_reference_run b);
} tconv_cpu_reference_access;

extern const tconv_cpu_reference_access tconv_cpu_reference_accesses[TCONV_DTYPES];

/* Returns what the sum of an output starts from: what it holds, where the layer adds to that. */
static inline double tconv_cpu_reference_start(const tconv_problem *problem, const void *memory, int64_t index)
{
    return problem->desc.accumulate ? tconv_cpu_reference_accesses[problem->dtype].get(memory, index) : 0;
}

/* Makes an output of a whole sum, with the bias and what the output held (kernels/finish.h). */
static inline void tconv_cpu_finish_output(const tconv_problem *problem, void *dst, int64_t index, double sum)
{
    tconv_cpu_reference_accesses[problem->dtype].put(dst, index, sum);
}

/* Takes a sum in double, with the bias and what the output held, through the layer's post-ops. `addend` is the index of
 * the output's element of the addend, where there is one. */
double tconv_cpu_reference_posts(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS],
                                 int64_t channel, int64_t addend, double sum);

void tconv_cpu_reference_add(tconv_cpu_reference_sum *sum, double value);

/* Returns the sum, rounded. */
double tconv_cpu_reference_total(const tconv_cpu_reference_sum *sum);

#endif
