/* Sums the task of a correlation whose vectors run along positions, and stores rows of channels. */
#include "../../core/checked.h"
#include "task.h"

void tconv_cpu_list_planes(tconv_cpu_dgrad_task *task)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    bool flat;
    int64_t count = 0;
    const int64_t vectors = tconv_cpu_dgrad_vectors(plan, task->images, task->rows, task->columns, &flat);
    for (; flat && count < vectors; count++)
        task->at[count] = (int32_t)(count * plan->lanes);
    for (int64_t row = 0; !flat && row < task->rows; row++)
        for (int64_t n = 0; n < task->images; n++)
            for (int64_t column = 0; column < task->columns; column += plan->lanes)
                task->at[count++] = (int32_t)(row * plan->row_pitch + n * plan->pitch + column);
}

/* Stores the sums of a block, row by row. */
static void store_block(const tconv_cpu_dgrad_task *task, int64_t group, const tconv_cpu_dgrad_block *block,
                        const void *sums)
{
    static const int32_t first = 0;
    static const double no_bias[TCONV_CPU_MAX_CHANNELS] = {0};
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_kernels *kernels = plan->kernels;
    const int64_t channel = group * plan->group_in + block->first;
    bool flat;
    tconv_cpu_dgrad_vectors(plan, task->images, task->rows, task->columns, &flat);
    const int64_t pitch = flat ? plan->pitch : tconv_ceil_div(task->columns, plan->lanes) * plan->lanes;
    const int64_t row_pitch = flat ? plan->row_pitch : task->images * pitch;
    /* Rows that follow one another, among the sums and in memory, are one. */
    const bool planes = !tconv_cpu_are_channels_inside(&problem->src);
    const bool joined = planes && task->columns == problem->w.in && row_pitch == task->columns;
    const int64_t rows = joined ? 1 : task->rows, columns = joined ? task->rows * task->columns : task->columns;
    const bool streamed = plan->stream && columns * (int64_t)problem->element_size >= TCONV_CPU_STREAM_BYTES;
    tconv_cpu_store_function *store =
        planes ? kernels->dtype[problem->dtype].store_interleaved : kernels->dtype[problem->dtype].store_pixels;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t n = 0; n < task->images; n++) {
            const int64_t to = (task->image + n) * problem->src.n + channel * problem->src.c +
                               (task->row + row) * problem->src.h + task->column * problem->src.w;
            store(&(tconv_cpu_store){.sums = tconv_cpu_real_at(plan->real_size, sums, row * row_pitch + n * pitch),
                                     .channel_stride = plan->sums_pitch,
                                     .channels = block->count,
                                     .count = columns,
                                     .residues = 1,
                                     .rows = &first,
                                     .dst = (char *)task->job->src + to * (int64_t)problem->element_size,
                                     .dst_channel = problem->src.c,
                                     .dst_position = problem->src.w,
                                     .stage = streamed ? task->stage : NULL,
                                     .finish = tconv_cpu_finish_of(problem, no_bias, planes ? 1 : block->count, NULL)});
        }
}

/* Sums all vectors of a task for a block, in parts as even as can be. */
static void sum_block(tconv_cpu_dgrad_task *task, const tconv_cpu_dgrad_block *block, void *sums,
                      tconv_cpu_microtile *microtile)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    bool flat;
    const int64_t all = tconv_cpu_dgrad_vectors(plan, task->images, task->rows, task->columns, &flat);
    const int64_t most = plan->kernels->real[plan->real].max_vectors[block->count];
    const int64_t parts = tconv_ceil_div(all, most);
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        microtile->vectors = task->at + first;
        microtile->sums = tconv_cpu_real_at(plan->real_size, sums, first * plan->lanes);
        plan->microkernels[block->count][count](microtile);
        tconv_cpu_prefetch_dgrad(&task->ahead);
    }
}

void tconv_cpu_sum_planes(tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t end)
{
    static const char nothing[1] = {0};
    static const int32_t nowhere[TCONV_CPU_SEGMENT] = {0};
    static const tconv_cpu_prefetch_piece none = {nothing, 0};
    static const double no_bias[TCONV_CPU_MAX_CHANNELS] = {0};
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const int64_t period = tconv_max(1, plan->period_channels * plan->taps);
    for (int64_t b = 0; b < task->blocks; b++) {
        const tconv_cpu_dgrad_block block = tconv_cpu_dgrad_block_of(plan, group, task->block + b);
        const int64_t held = plan->partial_sums ? b * plan->block_width * plan->sums_pitch : 0;
        const int64_t weights = block.weights + tconv_cpu_dgrad_weight(plan, &block, 0, begin);
        void *sums = tconv_cpu_real_at(plan->real_size, task->sums, held);
        tconv_cpu_microtile microtile = {
            .strip = task->strip,
            .offsets = task->job->terms,
            .terms = (end - begin) * plan->taps,
            .period = period,
            .period_stride = plan->period_channels * plan->channel_pitch,
            .segment = tconv_cpu_even_segment(period, plan->segment),
            .weights = tconv_cpu_real_at(plan->real_size, task->job->weights, weights),
            .levels = task->levels,
            .sums_stride = plan->sums_pitch,
            .sums_level = plan->sums_level,
            .calls_done = begin / plan->k_block,
            .last = end == plan->group_out,
            .bias = no_bias,
            .pieces = &none,
            .line_offsets = nowhere,
        };
        sum_block(task, &block, sums, &microtile);
        if (microtile.last)
            store_block(task, group, &block, sums);
    }
}
