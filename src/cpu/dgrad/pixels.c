/* Sums the task of a correlation whose vectors run along input channels, and stores pixels. */
#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "task.h"

void tconv_cpu_list_pixels(tconv_cpu_dgrad_task *task)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const tconv_strides *src = &task->job->layer->problem.src;
    int64_t index = 0;
    for (int64_t n = 0; n < task->images; n++)
        for (int64_t row = 0; row < task->rows; row++)
            for (int64_t column = 0; column < task->columns; column++, index++) {
                task->to[index] = n * src->n + row * src->h + column * src->w;
                task->at[index] = (int32_t)((row * plan->row_pitch + n * plan->pitch + column * plan->column_step) *
                                            plan->place_pitch * tconv_cpu_dgrad_word(plan));
            }
}

/* Sums all positions of a task for a block, in parts as even as can be, and stores them if the microkernel does not.
 * dst is the first position's place in the gradient of src. */
static void sum_block(const tconv_cpu_dgrad_task *task, const tconv_cpu_dgrad_block *block, int64_t held, char *dst,
                      tconv_cpu_pixel_microtile *microtile)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_pixel_kernels *kernels = plan->pixel_kernels;
    const int64_t all = task->images * task->rows * task->columns, vectors = block->width / plan->lanes;
    const int64_t most = kernels->real[plan->real].max_pixels[vectors], parts = tconv_ceil_div(all, most);
    tconv_cpu_pixel_microkernel *const *microkernels = plan->depthwise ? kernels->real[plan->real].depthwise[vectors]
                                                       : plan->pairs != NULL ? plan->pairs->pixels[vectors]
                                                                             : kernels->real[plan->real].dense[vectors];
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        microtile->at = task->at + first;
        microtile->to = task->to + first;
        microtile->sums = tconv_cpu_real_at(plan->real_size, task->sums, held + first * block->width);
        microkernels[count](microtile);
        if (microtile->bias == NULL || microtile->dst != NULL)
            continue;
        const tconv_cpu_pixel_store store = {.sums = microtile->sums,
                                             .rows = count,
                                             .count = block->count,
                                             .sums_pitch = block->width,
                                             .dst = dst,
                                             .to = microtile->to,
                                             .finish = tconv_cpu_finish_of(problem, NULL, block->count, NULL)};
        kernels->dtype[problem->dtype].store(&store);
    }
}

void tconv_cpu_sum_pixels(const tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t end)
{
    static const _Alignas(TCONV_ALIGNMENT) char no_bias[TCONV_CPU_MAX_PIXEL_VECTORS * TCONV_ALIGNMENT] = {0};
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const int64_t row = plan->rows_of_taps ? plan->columns.taps : 1,
                  channels = row * (plan->depthwise ? 1 : end - begin);
    const int64_t positions = plan->images * plan->tile_rows * plan->tile_columns;
    for (int64_t b = 0; b < task->blocks; b++) {
        const tconv_cpu_dgrad_block block = tconv_cpu_dgrad_block_of(plan, group, task->block + b);
        const int64_t weights = block.weights + tconv_cpu_dgrad_weight(plan, &block, 0, begin);
        const int64_t to = task->image * problem->src.n + task->row * problem->src.h + task->column * problem->src.w +
                           group * plan->group_in + block.first;
        char *dst = (char *)task->job->src + to * size;
        const bool last = end == plan->group_out;
        const bool direct =
            tconv_cpu_are_outputs_sums(problem) && size == plan->real_size && block.count == block.width;
        tconv_cpu_pixel_microtile microtile = {
            .strip = tconv_cpu_real_at(plan->real_size, task->strip, plan->depthwise ? b * plan->block_width : 0),
            .taps = task->job->terms,
            .tap_count = plan->taps / row,
            .channels = channels,
            .segment = tconv_cpu_even_segment(plan->taps / row * channels, plan->segment),
            .weights = tconv_cpu_real_at(plan->real_size, task->job->weights, weights),
            .levels = task->levels,
            .sums_level = plan->sums_level,
            .calls_done = begin / plan->k_block,
            .bias = last ? no_bias : NULL,
            .dst = last && direct ? dst : NULL,
        };
        sum_block(task, &block, plan->partial_sums ? b * plan->block_width * positions : 0, dst, &microtile);
    }
}
