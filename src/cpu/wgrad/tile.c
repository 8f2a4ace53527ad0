/* What the three ways of a tile of the gradient of weights share: the inputs of a tap, the sums of terms, and adding them. */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

void tconv_cpu_add_wgrad_tile(const tconv_cpu_wgrad_task *task, int64_t row, int64_t rows, int64_t channel,
                              int64_t width)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    if (plan->narrow && task->wide == NULL) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(task->narrow + (row + r) * plan->block_in + channel, (const float *)task->tile + r * width,
                   (size_t)width * sizeof(float));
        return;
    }
    double *high = task->wide != NULL ? task->wide : task->sums + row * plan->block_in + channel;
    double *low = high + (plan->keeps_rest ? plan->sums : 0);
    if (task->begins)
        plan->pixels->real[plan->real].begin(high, low, plan->block_in, task->tile, rows, width);
    else
        plan->pixels->real[plan->real].accumulate(high, low, plan->block_in, task->tile, rows, width);
}

int64_t tconv_cpu_wgrad_inputs(const tconv_cpu_wgrad_phase *phase, int64_t shift, int64_t begin, int64_t count,
                               int64_t *first)
{
    const int64_t output = begin + phase->base + shift;
    *first = tconv_max(0, -output);
    return tconv_max(0, tconv_min(count, phase->outputs - output) - *first);
}

void tconv_cpu_sum_wgrad_terms(const tconv_cpu_wgrad_task *task, int64_t terms, int64_t first, int64_t count)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_cpu_pixel_microtile tile = {.strip = task->dst,
                                            .at = task->at + first,
                                            .taps = task->terms,
                                            .tap_count = terms,
                                            .channels = 1,
                                            .segment = tconv_cpu_wgrad_segment(plan, terms),
                                            .weights = task->src,
                                            .levels = task->levels,
                                            .sums = task->tile};
    plan->pixels->real[plan->real].depthwise[1][count](&tile);
}
