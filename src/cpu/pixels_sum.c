/*
 * Sums the outputs of a task of the pixels algorithm and writes them. A work is one pair of phases in one block of output
 * channels; a task is all its works at all its pixels, with either outside.
 */
#include <string.h>

#include "../core/checked.h"
#include "pixels_strip.h"
#include "pixels_sum.h"

static tconv_cpu_pixel_extent extent_of(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_pair *pair)
{
    tconv_cpu_pixel_extent extent = {tconv_min(task->rows, pair->row->outputs - task->row),
                                     tconv_min(task->columns, pair->column->outputs - task->column)};
    return extent;
}

/* Lists the pixels of an extent, row by row and image by image, unless the last list was alike. */
static void list_pixels(tconv_cpu_pixel_task *task, tconv_cpu_pixel_extent extent)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t index = 0;
    if (task->pixel_images == task->images && task->pixel_rows == extent.rows && task->pixel_columns == extent.columns)
        return;
    task->pixel_images = task->images;
    task->pixel_rows = extent.rows;
    task->pixel_columns = extent.columns;
    for (int64_t n = 0; n < task->images; n++)
        for (int64_t r = 0; r < extent.rows; r++)
            for (int64_t c = 0; c < extent.columns; c++, index++) {
                task->to[index] = n * problem->dst.n + r * problem->h.stride * problem->dst.h +
                                  c * problem->w.stride * problem->dst.w;
                task->at[index] = (int32_t)(n * plan->image_pitch + r * plan->row_pitch + c * plan->pixel_pitch);
            }
}

/* The output of a task's first position and of these residues: its first channel. */
static char *first_output(const tconv_cpu_pixel_task *task, int64_t row_residue, int64_t column_residue,
                          int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t row = problem->h.stride * task->row + row_residue;
    int64_t column = problem->w.stride * task->column + column_residue;
    int64_t index = task->image * problem->dst.n + row * problem->dst.h + column * problem->dst.w + channel;
    return (char *)task->job->dst + index * (int64_t)problem->element_size;
}

/* Channels [begin, end) of the group's input for a pair and a block. */
static void describe_work(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_pair *pair, int64_t group,
                          int64_t block, int64_t begin, int64_t end, tconv_cpu_pixel_work *work)
{
    const tconv_cpu_pixel_job *job = task->job;
    const tconv_cpu_pixel_plan *plan = job->plan;
    const int64_t width = plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS, channels = end - begin;
    int64_t taps = tconv_cpu_pixel_pair_taps(pair);
    int64_t terms = tconv_max(1, taps * channels), segments = tconv_ceil_div(terms, TCONV_CPU_SEGMENT);
    int64_t strip = plan->depthwise ? (block - task->block) * width : (group - task->group) * plan->group_in;
    work->pair = *pair;
    work->extent = extent_of(task, pair);
    work->vectors = tconv_cpu_block_vectors(plan, block);
    work->outputs = tconv_min(work->vectors * plan->lanes, plan->group_out - block * width);
    work->sum = plan->depthwise ? plan->kernels->real[plan->real].depthwise[work->vectors]
                                : plan->kernels->real[plan->real].dense[work->vectors];
    work->dst = first_output(task, pair->row->residue, pair->column->residue, group * plan->group_out + block * width);
    int64_t weights = tconv_cpu_block_weights(plan, group, block) +
                      (pair->offset * plan->group_in + taps * begin) * work->vectors * plan->lanes;
    work->tile = (tconv_cpu_pixel_tile){.strip = tconv_cpu_real_at(plan, task->strip, strip),
                                        .taps = job->taps + pair->offset,
                                        .tap_count = taps,
                                        .channels = channels,
                                        .segment = tconv_ceil_div(terms, segments),
                                        .weights = tconv_cpu_real_at(plan, job->weights, weights),
                                        .sums = task->sums,
                                        .levels = task->levels,
                                        .sums_level = plan->sums_level,
                                        .calls_done = begin / plan->chunk};
    if (end == plan->group_in) {
        work->tile.bias = tconv_cpu_real_at(plan, job->bias, group * plan->vectors * plan->lanes + block * width);
        work->tile.dst = job->direct ? work->dst : NULL;
        work->tile.stream = job->stream && !job->stage;
    }
}

/* ------------------------------------------------------------------------------------------------- non-finite weights */

/* Taps [first, first + count) of the live taps of one axis: those that read the image from a position. */
static tconv_cpu_taps taps_inside(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase,
                                  tconv_cpu_taps live, int64_t position)
{
    int64_t input = position + tconv_cpu_shift(table, phase, live.first);
    tconv_cpu_taps taps;
    taps.first = tconv_max(0, tconv_ceil_div(input - (axis->in - 1), table->shift_step));
    taps.count = tconv_max(0, tconv_min(live.count - 1, tconv_floor_div(input, table->shift_step)) - taps.first + 1);
    return taps;
}

/* One pixel of the list without its taps outside the image: where weights are not finite, the strip's zeros would not
 * silence them. */
static void sum_cut_pixel(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_work *work, int64_t index,
                          const tconv_cpu_pixel_tile *described)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_pixel_pair *pair = &work->pair;
    int64_t row = task->row + index / work->extent.columns % work->extent.rows;
    int64_t column = task->column + index % work->extent.columns;
    tconv_cpu_taps rows = taps_inside(&layer->problem.h, &layer->rows, pair->row, pair->row_taps, row);
    tconv_cpu_taps columns = taps_inside(&layer->problem.w, &layer->columns, pair->column, pair->column_taps, column);
    tconv_cpu_pixel_tile tile = *described;
    tile.taps = task->inside;
    tile.tap_count = 0;
    for (int64_t r = 0; r < rows.count; r++)
        for (int64_t c = 0; c < columns.count; c++)
            task->inside[tile.tap_count++] =
                described->taps[(rows.first + r) * pair->column_taps.count + columns.first + c];
    work->sum[1](&tile);
}

/* --------------------------------------------------------------------------------------------------------- pixels */

/* Pixels [first, first + count) of the list: sums, stored to tile.dst if that is set. */
static void sum_pixels(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_work *work, int64_t first, int64_t count,
                       tconv_cpu_pixel_tile *tile)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    tile->at = task->at + first;
    if (!task->job->header->has_nonfinite) {
        work->sum[count](tile);
        return;
    }
    for (int64_t p = 0; p < count; p++) {
        tconv_cpu_pixel_tile one = *tile;
        one.at += p;
        one.to += p;
        one.sums = tconv_cpu_real_at(plan, tile->sums, p * work->vectors * plan->lanes);
        sum_cut_pixel(task, work, first + p, &one);
    }
}

/* Pixels [first, first + count) of the list, stored one by one unless the microkernel can. */
static void sum_to_dst(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_work *work, int64_t first, int64_t count,
                       tconv_cpu_pixel_tile *tile)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    tile->to = task->to + first;
    sum_pixels(task, work, first, count, tile);
    if (tile->bias == NULL || tile->dst != NULL)
        return;
    const tconv_cpu_pixel_store store = {.sums = tile->sums,
                                         .rows = count,
                                         .count = work->outputs,
                                         .sums_pitch = work->vectors * plan->lanes,
                                         .dst = work->dst,
                                         .to = tile->to};
    plan->kernels->dtype[task->job->layer->problem.dtype].store(&store);
}

/* ----------------------------------------------------------------------------------------------------- weights first */

/* All pixels of a work in parts as even as can be; where sums wait, those of the index-th pair of a pass. */
static void sum_all(const tconv_cpu_pixel_task *task, tconv_cpu_pixel_work *work, int64_t index, int64_t block)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    int64_t all = task->images * work->extent.rows * work->extent.columns;
    int64_t parts = tconv_ceil_div(all, plan->kernels->real[plan->real].max_pixels[work->vectors]);
    int64_t positions = plan->images * plan->tile_rows * plan->tile_columns;
    int64_t waiting = (index * plan->task_blocks + block - task->block) * positions * TCONV_CPU_MAX_PIXEL_VECTORS;
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        if (plan->waits)
            work->tile.sums = tconv_cpu_real_at(plan, task->sums, (waiting + first * work->vectors) * plan->lanes);
        sum_to_dst(task, work, first, count, &work->tile);
    }
}

/* Channels [begin, end) of input for one pair, the index-th of its pass. */
static void run_pair(tconv_cpu_pixel_task *task, const tconv_cpu_pixel_pair *pair, int64_t index, int64_t begin,
                     int64_t end)
{
    tconv_cpu_pixel_extent extent = extent_of(task, pair);
    if (extent.rows <= 0 || extent.columns <= 0)
        return;
    list_pixels(task, extent);
    for (int64_t group = task->group; group < task->group + task->groups; group++) {
        for (int64_t block = task->block; block < task->block + task->blocks; block++) {
            tconv_cpu_pixel_work work;
            describe_work(task, pair, group, block, begin, end, &work);
            sum_all(task, &work, index, block);
        }
    }
}

/* Weights outside, pixels inside, with chunks and passes. */
void tconv_cpu_run_by_weights(tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const int64_t pairs = layer->rows.count * layer->columns.count;
    tconv_cpu_pixel_pair next = {0};
    for (int64_t done = 0; done < pairs; done += plan->pass_pairs) {
        tconv_cpu_pixel_pair pass = next;
        for (int64_t begin = 0; begin < plan->group_in; begin += plan->chunk) {
            int64_t end = tconv_min(plan->group_in, begin + plan->chunk);
            tconv_cpu_load_pixels(task, begin, end - begin);
            next = pass;
            for (int64_t index = 0; index < plan->pass_pairs && tconv_cpu_next_pixel_pair(layer, &next); index++)
                run_pair(task, &next, index, begin, end);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------ pixels first */

/* The works of a task, ordered by residues and channels as they lie in dst. */
struct works {
    tconv_cpu_pixel_work *list; /* in scratch, too large for the stack of a thread */
    int64_t count;
    int64_t most; /* pixels at a time */
};

/* False where phases end at different positions of the tile, or before it and what is staged would end with them. */
static bool list_works(const tconv_cpu_pixel_task *task, struct works *works)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_pixel_pair pair = {0};
    works->list = task->works;
    works->count = 0;
    works->most = TCONV_CPU_MAX_PIXELS;
    while (tconv_cpu_next_pixel_pair(layer, &pair)) {
        for (int64_t group = task->group; group < task->group + task->groups; group++) {
            for (int64_t block = task->block; block < task->block + task->blocks; block++) {
                tconv_cpu_pixel_work *work = &works->list[works->count++];
                describe_work(task, &pair, group, block, 0, plan->group_in, work);
                works->most = tconv_min(works->most, plan->kernels->real[plan->real].max_pixels[work->vectors]);
                if (work->extent.rows != works->list->extent.rows ||
                    work->extent.columns != works->list->extent.columns)
                    return false;
            }
        }
    }
    if (works->count == 0 || (task->job->stage && works->list->extent.columns < task->columns))
        return false;
    return works->list->extent.rows > 0 && works->list->extent.columns > 0;
}

/* The bias to residues of staged pixels that have no column phase: they stay. */
static void stage_gaps(const tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const int64_t channels = layer->problem.out_channels;
    for (int64_t p = 0; layer->columns.bias_only > 0 && p < TCONV_CPU_MAX_PIXELS; p++)
        for (int64_t r = 0; r < layer->columns.stride; r++)
            memcpy(tconv_cpu_real_at(plan, task->stage, p * plan->stage_pitch + r * channels), task->job->bias,
                   (size_t)(channels * plan->real_size));
}

/* Stores staged pixels [first, first + count) of the list, of the row phase of work: those of one row in one run. */
static void store_stage(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_work *work, int64_t first,
                        int64_t count)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t stride = problem->w.stride, channels = problem->out_channels;
    bool dense = plan->stage_pitch == stride * channels;
    for (int64_t p = 0, run; p < count; p += run) {
        int64_t column = (first + p) % work->extent.columns, position = task->column + column;
        run = dense ? tconv_min(count - p, work->extent.columns - column) : 1;
        const tconv_cpu_pixel_store store = {.sums = tconv_cpu_real_at(plan, task->stage, p * plan->stage_pitch),
                                             .rows = 1,
                                             .count =
                                                 tconv_min(run * stride, problem->w.out - position * stride) * channels,
                                             .dst = first_output(task, work->pair.row->residue, 0, 0),
                                             .to = task->to + first + p,
                                             .stream = task->job->stream};
        plan->kernels->dtype[problem->dtype].store(&store);
    }
}

/* A few pixels of all works. */
static void run_works(const tconv_cpu_pixel_task *task, struct works *works, int64_t first, int64_t count,
                      const int64_t *staged)
{
    for (int64_t w = 0; w < works->count; w++) {
        tconv_cpu_pixel_work *work = &works->list[w];
        if (!task->job->stage) {
            sum_to_dst(task, work, first, count, &work->tile);
            continue;
        }
        work->tile.to = staged;
        sum_pixels(task, work, first, count, &work->tile);
        if (w + 1 == works->count || work[1].pair.row != work->pair.row)
            store_stage(task, work, first, count);
    }
}

/* Pixels outside, weights inside: where all weights of a task stay in the cache, a few pixels of input are read for all
 * of them, and whole pixels of output are written. */
bool tconv_cpu_run_by_pixels(tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    struct works works;
    int64_t staged[TCONV_CPU_MAX_PIXELS];
    if (!list_works(task, &works))
        return false;
    tconv_cpu_load_pixels(task, 0, plan->group_in);
    list_pixels(task, works.list->extent);
    if (task->job->stage) {
        for (int64_t p = 0; p < TCONV_CPU_MAX_PIXELS; p++)
            staged[p] = p * plan->stage_pitch;
        for (int64_t w = 0; w < works.count; w++) {
            tconv_cpu_pixel_work *work = &works.list[w];
            int64_t channel = (work->dst - first_output(task, work->pair.row->residue, 0, 0)) /
                              (int64_t)task->job->layer->problem.element_size;
            work->tile.dst = tconv_cpu_real_at(plan, task->stage, channel);
            work->tile.stream = false;
        }
        stage_gaps(task);
    }
    int64_t all = task->images * works.list->extent.rows * works.list->extent.columns;
    int64_t parts = tconv_ceil_div(all, works.most);
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        run_works(task, &works, first, count, staged);
    }
    return true;
}
