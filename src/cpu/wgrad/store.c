/* Stores what cpu_wgrad summed for a block, rounded once. */
#include "../../core/checked.h"
#include "../kernels/half.h"
#include "task.h"

/* Returns a sum with what rounding lost of it, which is NaN where the sum is Inf. */
static double whole(double high, double low)
{
    return low - low == 0 ? high + low : high;
}

/* Stores up to TCONV_CPU_WGRAD_STORED numbers, rounded once to the dtype, `step` apart; where the layer accumulates, with what is there. */
static void store_numbers(const tconv_problem *problem, char *memory, int64_t step, const double *high,
                          const double *low, int64_t count)
{
    float *f32 = (float *)(void *)memory;
    uint16_t *half = (uint16_t *)(void *)memory;
    double sums[TCONV_CPU_WGRAD_STORED];
    for (int64_t i = 0; problem->desc.accumulate && i < count; i++)
        sums[i] = high[i] + tconv_cpu_reference_start(problem, memory, i * step);
    if (problem->desc.accumulate)
        high = sums;
    switch (problem->dtype) {
    case TCONV_F32:
        for (int64_t i = 0; i < count; i++)
            f32[i * step] = (float)high[i];
        return;
    case TCONV_F16:
        for (int64_t i = 0; i < count; i++)
            half[i * step] = tconv_f16_from_double(high[i]);
        return;
    case TCONV_BF16:
        for (int64_t i = 0; i < count; i++)
            half[i * step] = tconv_bf16_from_double(high[i]);
        return;
    case TCONV_F64:
        for (int64_t i = 0; i < count; i++)
            ((double *)(void *)memory)[i * step] = whole(high[i], low[i]);
    }
}

/* Stores the sums of a row, of an output channel and a tap, for a few input channels of a block. */
static void store_row(const tconv_cpu_wgrad_job *job, const tconv_cpu_wgrad_block *block, const double *sums,
                      int64_t row, int64_t first, int64_t count)
{
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const double *high = sums + row * plan->block_in + first;
    const int64_t at = (block->group * problem->group_in + block->in + first) * problem->weight.in +
                       (block->out + row / plan->taps) * problem->weight.out + job->taps[row % plan->taps].weight;
    store_numbers(problem, job->weights + at * (int64_t)problem->element_size, problem->weight.in, high,
                  high + (plan->keeps_rest ? plan->sums : 0), count);
}

/* Rows that are stored at a time: 2 KiB of an input channel's weights, so that few pages are written in turn. */
enum { ROUNDED = 512 };

/* Stores sums of weights of which taps or output channels are neighbours: those of an input channel follow one another
 * in memory, where each input channel's begin far apart. */
static void store_transposed(const tconv_cpu_wgrad_job *job, const tconv_cpu_wgrad_block *block, const double *sums,
                             int64_t first, int64_t count)
{
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_weight_strides *strides = &problem->weight;
    const int64_t in = block->group * problem->group_in + block->in + first;
    const int64_t first_at = in * strides->in + block->out * strides->out;
    const int64_t rows = block->outs * plan->taps;
    for (int64_t begin = 0, some; begin < rows; begin += some) {
        int32_t row[ROUNDED];
        int64_t at = begin;
        some = tconv_min(ROUNDED, rows - begin);
        if (plan->taps_inside) {
            int64_t tap = begin % plan->taps, out = begin - tap; /* out: the first row of an output channel */
            for (int64_t i = 0; i < some; i++) {
                row[i] = (int32_t)out + job->taps[tap].at_place;
                if (++tap == plan->taps) {
                    tap = 0;
                    out += plan->taps;
                }
            }
        } else {
            const int64_t tap = begin / block->outs, out = begin % block->outs;
            at = job->taps[tap].weight + out;
            some = tconv_min(some, block->outs - out);
            for (int64_t i = 0; i < some; i++)
                row[i] = (int32_t)((out + i) * plan->taps + tap);
        }
        plan->pixels->dtype[problem->dtype].round(
            &(tconv_cpu_round){.sums = plan->narrow ? (const void *)sums : sums + first,
                               .narrow = plan->narrow,
                               .row = row,
                               .rows = some,
                               .columns = count,
                               .pitch = plan->block_in,
                               .to = job->weights + (first_at + at) * (int64_t)problem->element_size,
                               .to_pitch = strides->in});
    }
}

void tconv_cpu_store_wgrad(const tconv_cpu_wgrad_job *job, const tconv_cpu_wgrad_block *block, const double *sums,
                           int64_t first, int64_t count)
{
    if (job->plan->transposes) {
        store_transposed(job, block, sums, first, count);
        return;
    }
    for (int64_t c = first; c < first + count; c += TCONV_CPU_WGRAD_STORED)
        for (int64_t row = 0; row < block->outs * job->plan->taps; row++)
            store_row(job, block, sums, row, c, tconv_min(TCONV_CPU_WGRAD_STORED, first + count - c));
}
