/*
 * Sums the outputs of a task of the pixels algorithm and writes them. A panel is the weights of one phase in one block
 * of output channels, over a K-block; a task multiplies all its pixels by all its panels, with either loop outside.
 */
#include <string.h>

#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../kernels/kernels.h"
#include "strip.h"
#include "sum.h"

static tconv_cpu_pixel_extent extent_of(const tconv_cpu_pixel_task *task, const tconv_cpu_phase *phase)
{
    tconv_cpu_pixel_extent extent = {tconv_min(task->rows, phase->row->outputs - task->row),
                                     tconv_min(task->columns, phase->column->outputs - task->column)};
    return extent;
}

/* Lists the pixels of an extent, row by row and image by image, unless the last list was the same. */
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

/* Returns the address of a channel of the output at a task's first position, with these residues. */
static char *first_output(const tconv_cpu_pixel_task *task, int64_t row_residue, int64_t column_residue,
                          int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t row = problem->h.stride * task->row + row_residue;
    int64_t column = problem->w.stride * task->column + column_residue;
    int64_t index = task->image * problem->dst.n + row * problem->dst.h + column * problem->dst.w + channel;
    return (char *)task->job->dst + index * (int64_t)problem->element_size;
}

/* Describes a panel: a phase and a block, over input channels [begin, end) of the group. */
static void describe_panel(const tconv_cpu_pixel_task *task, const tconv_cpu_phase *phase, int64_t group, int64_t block,
                           int64_t begin, int64_t end, tconv_cpu_pixel_panel *panel)
{
    const tconv_cpu_pixel_job *job = task->job;
    const tconv_cpu_pixel_plan *plan = job->plan;
    const int64_t width = plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS, channels = end - begin;
    int64_t taps = tconv_cpu_phase_taps(phase);
    int64_t strip = plan->depthwise ? (block - task->block) * width : (group - task->group) * plan->group_in;
    panel->phase = *phase;
    panel->extent = extent_of(task, phase);
    panel->vectors = tconv_cpu_block_vectors(plan, block);
    panel->outputs = tconv_min(panel->vectors * plan->lanes, plan->group_out - block * width);
    panel->microkernels = plan->depthwise ? plan->kernels->real[plan->real].depthwise[panel->vectors]
                                          : plan->kernels->real[plan->real].dense[panel->vectors];
    panel->channel = group * plan->group_out + block * width;
    panel->dst =
        first_output(task, phase->row->residue, phase->column->residue, group * plan->group_out + block * width);
    int64_t weights = tconv_cpu_block_weights(plan, group, block) +
                      (phase->offset * plan->group_in + taps * begin) * panel->vectors * plan->lanes;
    panel->microtile =
        (tconv_cpu_pixel_microtile){.strip = tconv_cpu_real_at(plan->real_size, task->strip, strip),
                                    .taps = job->taps + phase->offset,
                                    .tap_count = taps,
                                    .channels = channels,
                                    .segment = tconv_cpu_even_segment(taps * channels, TCONV_CPU_SEGMENT),
                                    .weights = tconv_cpu_real_at(plan->real_size, job->weights, weights),
                                    .sums = task->sums,
                                    .levels = task->levels,
                                    .sums_level = plan->sums_level,
                                    .calls_done = begin / plan->k_block};
    if (end == plan->group_in) {
        panel->microtile.bias =
            tconv_cpu_real_at(plan->real_size, job->bias, group * plan->vectors * plan->lanes + block * width);
        panel->microtile.dst = job->direct ? panel->dst : NULL;
        panel->microtile.stream = job->stream && !job->stage;
    }
}

/* -------------------------------------------------------------------------------------------- non-finite weights */

/* Returns which of the live taps of an axis read the image from a position. */
static tconv_cpu_taps taps_inside(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase,
                                  tconv_cpu_taps live, int64_t position)
{
    int64_t input = position + tconv_cpu_shift(table, phase, live.first);
    tconv_cpu_taps taps;
    taps.first = tconv_max(0, tconv_ceil_div(input - (axis->in - 1), table->shift_step));
    taps.count = tconv_max(0, tconv_min(live.count - 1, tconv_floor_div(input, table->shift_step)) - taps.first + 1);
    return taps;
}

/* Sums one pixel of the list without its taps outside the image: where weights are not finite, the strip's zeros would
 * not silence them. */
static void sum_cut_pixel(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_panel *panel, int64_t index,
                          const tconv_cpu_pixel_microtile *described)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_phase *phase = &panel->phase;
    int64_t row = task->row + index / panel->extent.columns % panel->extent.rows;
    int64_t column = task->column + index % panel->extent.columns;
    tconv_cpu_taps rows = taps_inside(&layer->problem.h, &layer->rows, phase->row, phase->row_taps, row);
    tconv_cpu_taps columns = taps_inside(&layer->problem.w, &layer->columns, phase->column, phase->column_taps, column);
    tconv_cpu_pixel_microtile microtile = *described;
    microtile.taps = task->inside;
    microtile.tap_count = 0;
    for (int64_t r = 0; r < rows.count; r++)
        for (int64_t c = 0; c < columns.count; c++)
            task->inside[microtile.tap_count++] =
                described->taps[(rows.first + r) * phase->column_taps.count + columns.first + c];
    panel->microkernels[1](&microtile);
}

/* --------------------------------------------------------------------------------------------------------- pixels */

/* Sums pixels [first, first + count) of the list; the microkernel stores them where the micro-tile has a dst. */
static void sum_pixels(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_panel *panel, int64_t first,
                       int64_t count, tconv_cpu_pixel_microtile *microtile)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    microtile->at = task->at + first;
    if (!task->job->header->has_nonfinite) {
        panel->microkernels[count](microtile);
        return;
    }
    for (int64_t p = 0; p < count; p++) {
        tconv_cpu_pixel_microtile one = *microtile;
        one.at += p;
        one.to += p;
        one.sums = tconv_cpu_real_at(plan->real_size, microtile->sums, p * panel->vectors * plan->lanes);
        sum_cut_pixel(task, panel, first + p, &one);
    }
}

/* Takes pixels of a panel that are summed through the layer's post-ops. They lie where the micro-tile has written them:
 * one by one in its dst, or one after another in its sums. */
static void post_pixels(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_panel *panel, int64_t count,
                        const tconv_cpu_pixel_microtile *microtile)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_cpu_kernels *kernels = tconv_cpu_find_kernels(tconv_cpu_target_of(&task->job->layer->target).cpu_isa);
    tconv_cpu_sum_rows rows = {.posts = &task->job->posts,
                               .sums = microtile->sums,
                               .rows = count,
                               .count = panel->outputs,
                               .pitch = panel->vectors * plan->lanes,
                               .channel = panel->channel,
                               .pixels = true};
    if (microtile->dst != NULL) {
        rows.sums = microtile->dst;
        rows.to = microtile->to;
    }
    kernels->real[plan->real].post_rows(&rows);
}

/* Returns how rows of sums that go through so many channels become outputs: sums that went through the post-ops before
 * (post_pixels) are only rounded. */
static tconv_cpu_finish finish_of(const tconv_cpu_pixel_task *task, int64_t channels)
{
    tconv_cpu_finish finish = tconv_cpu_finish_of(&task->job->layer->problem, NULL, channels, &task->job->posts);
    if (task->job->posts_fit)
        finish.steps = 0;
    return finish;
}

/* Sums pixels [first, first + count) of the list, and stores them if the microkernel did not. */
static void sum_to_dst(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_panel *panel, int64_t first,
                       int64_t count, tconv_cpu_pixel_microtile *microtile)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    microtile->to = task->to + first;
    sum_pixels(task, panel, first, count, microtile);
    if (microtile->bias == NULL)
        return;
    if (task->job->posts_fit)
        post_pixels(task, panel, count, microtile);
    if (microtile->dst != NULL)
        return;
    const tconv_cpu_pixel_store store = {.sums = microtile->sums,
                                         .rows = count,
                                         .count = panel->outputs,
                                         .sums_pitch = panel->vectors * plan->lanes,
                                         .dst = panel->dst,
                                         .to = microtile->to,
                                         .finish = finish_of(task, panel->outputs)};
    plan->kernels->dtype[task->job->layer->problem.dtype].store(&store);
}

/* ----------------------------------------------------------------------------------------------- weights outside */

/* Multiplies all pixels by a panel, in parts as even as can be. Partial sums are kept in the place of the index-th
 * phase of a pass. */
static void sum_all(const tconv_cpu_pixel_task *task, tconv_cpu_pixel_panel *panel, int64_t index, int64_t block)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    int64_t all = task->images * panel->extent.rows * panel->extent.columns;
    int64_t parts = tconv_ceil_div(all, plan->kernels->real[plan->real].max_pixels[panel->vectors]);
    int64_t positions = plan->images * plan->tile_rows * plan->tile_columns;
    int64_t partial = (index * plan->task_blocks + block - task->block) * positions * TCONV_CPU_MAX_PIXEL_VECTORS;
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        if (plan->partial_sums)
            panel->microtile.sums =
                tconv_cpu_real_at(plan->real_size, task->sums, (partial + first * panel->vectors) * plan->lanes);
        sum_to_dst(task, panel, first, count, &panel->microtile);
    }
}

/* Sums input channels [begin, end) for one phase, the index-th of its pass. */
static void run_phase(tconv_cpu_pixel_task *task, const tconv_cpu_phase *phase, int64_t index, int64_t begin,
                      int64_t end)
{
    tconv_cpu_pixel_extent extent = extent_of(task, phase);
    if (extent.rows <= 0 || extent.columns <= 0)
        return;
    list_pixels(task, extent);
    for (int64_t group = task->group; group < task->group + task->groups; group++) {
        for (int64_t block = task->block; block < task->block + task->blocks; block++) {
            tconv_cpu_pixel_panel panel;
            describe_panel(task, phase, group, block, begin, end, &panel);
            sum_all(task, &panel, index, block);
        }
    }
}

/* The loop over weights is outside, that over pixels inside; with K-blocks and passes. */
void tconv_cpu_run_by_weights(tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const int64_t phases = layer->rows.count * layer->columns.count;
    tconv_cpu_phase next = {0};
    for (int64_t done = 0; done < phases; done += plan->pass_phases) {
        tconv_cpu_phase pass = next;
        for (int64_t begin = 0; begin < plan->group_in; begin += plan->k_block) {
            int64_t end = tconv_min(plan->group_in, begin + plan->k_block);
            tconv_cpu_load_pixels(task, begin, end - begin);
            next = pass;
            for (int64_t index = 0; index < plan->pass_phases && tconv_cpu_next_phase(layer, &next); index++)
                run_phase(task, &next, index, begin, end);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ pixels outside */

/* The panels of a task, ordered by residues and channels as dst is. */
struct panels {
    tconv_cpu_pixel_panel *list; /* in scratch, because it is too large for a thread's stack */
    int64_t count;
    int64_t most; /* pixels of the largest micro-tile that all panels have */
};

/* Lists the panels; false where phases end at different positions of the tile, or where they end before the tile does
 * and the pixels are staged, which would end with them. */
static bool list_panels(const tconv_cpu_pixel_task *task, struct panels *panels)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_phase phase = {0};
    panels->list = task->panels;
    panels->count = 0;
    panels->most = TCONV_CPU_MAX_PIXELS;
    while (tconv_cpu_next_phase(layer, &phase)) {
        for (int64_t group = task->group; group < task->group + task->groups; group++) {
            for (int64_t block = task->block; block < task->block + task->blocks; block++) {
                tconv_cpu_pixel_panel *panel = &panels->list[panels->count++];
                describe_panel(task, &phase, group, block, 0, plan->group_in, panel);
                panels->most = tconv_min(panels->most, plan->kernels->real[plan->real].max_pixels[panel->vectors]);
                if (panel->extent.rows != panels->list->extent.rows ||
                    panel->extent.columns != panels->list->extent.columns)
                    return false;
            }
        }
    }
    if (panels->count == 0 || (task->job->stage && panels->list->extent.columns < task->columns))
        return false;
    return panels->list->extent.rows > 0 && panels->list->extent.columns > 0;
}

/* Writes the bias to the residues of staged pixels that have no column phase; nothing overwrites it. */
static void stage_bias_only(const tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const int64_t channels = layer->problem.out_channels;
    for (int64_t p = 0; layer->columns.bias_only > 0 && p < TCONV_CPU_MAX_PIXELS; p++)
        for (int64_t r = 0; r < layer->columns.stride; r++)
            memcpy(tconv_cpu_real_at(plan->real_size, task->stage, p * plan->stage_pitch + r * channels),
                   task->job->bias, (size_t)(channels * plan->real_size));
}

/* Stores staged pixels [first, first + count) of the list, in the row phase of a panel; those of one row are one
 * run. */
static void store_stage(const tconv_cpu_pixel_task *task, const tconv_cpu_pixel_panel *panel, int64_t first,
                        int64_t count)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t stride = problem->w.stride, channels = problem->out_channels;
    bool dense = plan->stage_pitch == stride * channels;
    for (int64_t p = 0, run; p < count; p += run) {
        int64_t column = (first + p) % panel->extent.columns, position = task->column + column;
        run = dense ? tconv_min(count - p, panel->extent.columns - column) : 1;
        const tconv_cpu_pixel_store store = {
            .sums = tconv_cpu_real_at(plan->real_size, task->stage, p * plan->stage_pitch),
            .rows = 1,
            .count = tconv_min(run * stride, problem->w.out - position * stride) * channels,
            .dst = first_output(task, panel->phase.row->residue, 0, 0),
            .to = task->to + first + p,
            .stream = task->job->stream,
            .finish = finish_of(task, channels)};
        plan->kernels->dtype[problem->dtype].store(&store);
    }
}

/* Multiplies a few pixels by all panels. */
static void run_panels(const tconv_cpu_pixel_task *task, struct panels *panels, int64_t first, int64_t count,
                       const int64_t *staged)
{
    for (int64_t i = 0; i < panels->count; i++) {
        tconv_cpu_pixel_panel *panel = &panels->list[i];
        if (!task->job->stage) {
            sum_to_dst(task, panel, first, count, &panel->microtile);
            continue;
        }
        panel->microtile.to = staged;
        sum_pixels(task, panel, first, count, &panel->microtile);
        if (task->job->posts_fit)
            post_pixels(task, panel, count, &panel->microtile);
        if (i + 1 == panels->count || panel[1].phase.row != panel->phase.row)
            store_stage(task, panel, first, count);
    }
}

/* The loop over pixels is outside, that over weights inside: where all weights of a task stay in the cache, a few
 * pixels of input are read for all of them, and whole pixels of output are written. */
bool tconv_cpu_run_by_pixels(tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    struct panels panels;
    int64_t staged[TCONV_CPU_MAX_PIXELS];
    if (!list_panels(task, &panels))
        return false;
    tconv_cpu_load_pixels(task, 0, plan->group_in);
    list_pixels(task, panels.list->extent);
    if (task->job->stage) {
        for (int64_t p = 0; p < TCONV_CPU_MAX_PIXELS; p++)
            staged[p] = p * plan->stage_pitch;
        for (int64_t i = 0; i < panels.count; i++) {
            tconv_cpu_pixel_panel *panel = &panels.list[i];
            int64_t channel = (panel->dst - first_output(task, panel->phase.row->residue, 0, 0)) /
                              (int64_t)task->job->layer->problem.element_size;
            panel->microtile.dst = tconv_cpu_real_at(plan->real_size, task->stage, channel);
            panel->microtile.stream = false;
        }
        stage_bias_only(task);
    }
    int64_t all = task->images * panels.list->extent.rows * panels.list->extent.columns;
    int64_t parts = tconv_ceil_div(all, panels.most);
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (all - first) / (parts - part);
        run_panels(task, &panels, first, count, staged);
    }
    return true;
}
