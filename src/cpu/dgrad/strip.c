/*
 * Loads the gradient of dst into the strip of a task of the correlation algorithm, converted to the type of the sums,
 * with zeros outside of the image: only rows and columns that some tap of the task reads.
 */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

/* Rows that are loaded together: the loop over channels is outside of them, so that contiguous parts of the strip are
 * written one after another. It is that of cpu_phases. */
enum { MAX_ROWS = 64 };

/* Steps over the runs of an axis: those of each phase with a live tap. */
struct runs {
    const tconv_axis *axis;
    const tconv_phase_table *table;
    const tconv_cpu_dgrad_axis *taps;
    bool apart;                  /* each tap has its own */
    int64_t tile, begin, length; /* the plan's tile, and the task's positions */
    int64_t phase;               /* that of the next run */
    tconv_cpu_taps live;
    int64_t index;  /* of the next run in its phase */
    int64_t places; /* of the phases that have been */

    /* The run. */
    const tconv_phase *of;
    int64_t q, count; /* the first q, and how many */
    int64_t place;    /* the first, where runs follow each other */
};

static bool next_run(struct runs *runs)
{
    while (runs->index == (runs->apart ? runs->live.count : runs->live.count > 0)) { /* the phase is done */
        if (runs->live.count > 0)
            runs->places += tconv_cpu_run_places(runs->taps, runs->live.count, runs->tile);
        if (runs->phase == runs->table->count)
            return false;
        runs->live = tconv_cpu_live_taps(runs->axis, runs->table, &runs->table->phases[runs->phase++]);
        runs->index = 0;
    }
    runs->of = &runs->table->phases[runs->phase - 1];
    runs->q = runs->begin - tconv_cpu_shift(runs->table, runs->of, runs->live.first + runs->index);
    runs->count = runs->length + (runs->apart ? 0 : (runs->live.count - 1) * runs->taps->step);
    runs->place = runs->places + runs->index * runs->tile;
    runs->index++;
    return true;
}

/* Lists the runs of lines; returns their number, and the least and the greatest q. */
static int64_t list_lines(const tconv_cpu_dgrad_task *task, int64_t *least, int64_t *greatest)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    struct runs runs = {.axis = &layer->problem.h,
                        .table = &layer->rows,
                        .taps = &plan->rows,
                        .apart = tconv_cpu_runs_are_apart(&plan->rows, plan->tile_rows),
                        .tile = plan->tile_rows,
                        .begin = task->row,
                        .length = task->rows};
    int64_t count = 0;
    *least = INT64_MAX;
    *greatest = INT64_MIN;
    while (next_run(&runs)) {
        task->lines[count++] = (tconv_cpu_dgrad_lines){runs.of, runs.q, runs.count, runs.place};
        *least = tconv_min(*least, runs.q);
        *greatest = tconv_max(*greatest, runs.q + runs.count - 1);
    }
    return count;
}

/* Makes a run of columns [first, first + count) of dst, of which some may lie outside. */
static tconv_cpu_dgrad_run whole_run(int64_t first, int64_t count, int64_t out)
{
    const int64_t inside = tconv_max(0, first), end = tconv_min(out, first + count);
    if (inside >= end)
        return (tconv_cpu_dgrad_run){.left = count};
    return (tconv_cpu_dgrad_run){
        .column = inside, .left = inside - first, .count = end - inside, .right = first + count - end};
}

/* Lists the runs of a line; returns their number. */
static int64_t list_runs(const tconv_cpu_dgrad_task *task)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    if (plan->columns_whole) {
        const tconv_cpu_dgrad_axis *columns = &plan->columns;
        task->runs[0] = whole_run(task->column * columns->stride - layer->problem.w.pad,
                                  (task->columns - 1) * columns->stride + columns->span, layer->problem.w.out);
        return 1;
    }
    struct runs runs = {.axis = &layer->problem.w,
                        .table = &layer->columns,
                        .taps = &plan->columns,
                        .apart = plan->columns_apart,
                        .tile = plan->tile_columns,
                        .begin = task->column,
                        .length = task->columns};
    int64_t count = 0;
    while (next_run(&runs)) {
        const int64_t inside = tconv_max(0, runs.q), end = tconv_min(runs.of->outputs, runs.q + runs.count);
        tconv_cpu_dgrad_run run = {.place = count * plan->plane_pitch, .left = runs.count};
        task->splits[count] = (tconv_cpu_split_run){runs.of->residue, runs.q, runs.count, run.place};
        if (inside < end) {
            run.column = inside * layer->columns.stride + runs.of->residue;
            run.left = inside - runs.q;
            run.count = end - inside;
            run.right = runs.count - run.left - run.count;
        }
        task->runs[count++] = run;
    }
    return count;
}

/* In the order in which dst has them, so that the hardware sees them coming; where taps are apart, about in that order. */
void tconv_cpu_load_dgrad_lines(const tconv_cpu_dgrad_task *task, tconv_cpu_load_dgrad_line *load, void *loader)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const int64_t stride = task->job->layer->rows.stride;
    const bool apart = tconv_cpu_runs_are_apart(&plan->rows, plan->tile_rows);
    int64_t least, greatest;
    const int64_t line_count = list_lines(task, &least, &greatest);
    const int64_t steps = line_count == 0 ? 0 : apart ? plan->tile_rows : greatest - least + 1;
    for (int64_t n = 0; n < task->images; n++)
        for (int64_t i = 0; i < steps * line_count; i++) {
            const tconv_cpu_dgrad_lines *lines = &task->lines[i % line_count];
            const int64_t q = (apart ? lines->q : least) + i / line_count, index = q - lines->q;
            if (index < 0 || index >= lines->count)
                continue;
            const int64_t row = q < 0 || q >= lines->phase->outputs ? -1 : q * stride + lines->phase->residue;
            load(loader, task->image + n, row, (lines->line + index) * plan->row_pitch + n * plan->pitch);
        }
}

/* --------------------------------------------------------------------------------------------------------- planes */

struct plane_loader {
    const tconv_cpu_dgrad_task *task;
    tconv_cpu_load_function *function; /* NULL: rows are split */
    tconv_cpu_split_load_function *split;
    tconv_cpu_load load;
    int64_t run_count;
    tconv_cpu_padded_row rows[MAX_ROWS];
};

static void flush(struct plane_loader *loader)
{
    const tconv_cpu_dgrad_job *job = loader->task->job;
    tconv_cpu_load *load = &loader->load;
    load->rows = loader->rows;
    if (loader->function != NULL)
        loader->function(load);
    else
        loader->split(&(tconv_cpu_split_load){.src = load->src,
                                              .strip = load->strip,
                                              .src_channel = load->src_channel,
                                              .strip_channel = load->strip_channel,
                                              .channels = load->channels,
                                              .row_count = load->row_count,
                                              .run_count = loader->run_count,
                                              .stride = job->layer->columns.stride,
                                              .length = job->layer->problem.w.out,
                                              .second = load->second,
                                              .rows = load->rows,
                                              .runs = loader->task->splits});
    load->row_count = 0;
}

static void add_row(struct plane_loader *loader, tconv_cpu_padded_row row)
{
    loader->rows[loader->load.row_count++] = row;
    if (loader->load.row_count == MAX_ROWS)
        flush(loader);
}

static void load_plane_line(void *argument, int64_t image, int64_t row, int64_t place)
{
    struct plane_loader *loader = argument;
    const tconv_problem *problem = &loader->task->job->layer->problem;
    const int64_t from = image * problem->dst.n + row * problem->dst.h;
    if (loader->function == NULL) {
        add_row(loader, (tconv_cpu_padded_row){
                            .src = row < 0 ? 0 : from, .strip = place, .count = row < 0 ? 0 : problem->w.out});
        return;
    }
    for (int64_t r = 0; r < loader->run_count; r++) {
        const tconv_cpu_dgrad_run *run = &loader->task->runs[r];
        if (row < 0)
            add_row(loader, (tconv_cpu_padded_row){0, place + run->place, run->left + run->count + run->right, 0, 0});
        else
            add_row(loader, (tconv_cpu_padded_row){from + run->column * problem->dst.w, place + run->place, run->left,
                                                   run->count, run->right});
    }
}

/* Loads planes of the strip from output channel `channel` on; pairs: `second` is that of a tconv_cpu_load. */
static void load_planes(const tconv_cpu_dgrad_task *task, int64_t channel, int64_t channels, int64_t second,
                        void *strip)
{
    const tconv_cpu_dgrad_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_cpu_kernels *kernels = job->plan->kernels;
    struct plane_loader loader = {
        .task = task,
        .load = {.src = (const char *)job->dst + channel * problem->dst.c * (int64_t)problem->element_size,
                 .strip = strip,
                 .src_channel = problem->dst.c * tconv_cpu_dgrad_word(job->plan),
                 .second = second,
                 .strip_channel = job->plan->channel_pitch,
                 .src_pixel = problem->dst.w * job->layer->columns.stride,
                 .channels = channels},
        .split = job->plan->pairs != NULL ? kernels->split_pairs : kernels->dtype[problem->dtype].load_split,
        .run_count = list_runs(task)};
    if (tconv_cpu_are_channels_inside(&problem->dst))
        loader.function = kernels->dtype[problem->dtype].load_pixels;
    else if (job->layer->columns.stride == 1 && job->plan->pairs != NULL)
        loader.function = kernels->load_pairs;
    else if (job->layer->columns.stride == 1)
        loader.function = kernels->dtype[problem->dtype].load_planes;
    tconv_cpu_load_dgrad_lines(task, load_plane_line, &loader);
    flush(&loader);
}

/* Loads words of two output channels. The last one of a group with an odd number of channels is loaded by itself. */
static void load_pairs(const tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t words)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t channel = group * problem->group_out + 2 * begin,
                  whole = tconv_min(words, problem->group_out / 2 - begin);
    load_planes(task, channel, whole, problem->dst.c, task->strip);
    if (whole < words)
        load_planes(task, channel + 2 * whole, 1, 0,
                    tconv_cpu_real_at(task->job->plan->real_size, task->strip, whole * task->job->plan->channel_pitch));
}

/* --------------------------------------------------------------------------------------------------------- pixels */

/* Bytes of a cache line. */
enum { LINE = 64 };

/* Copies words of two output channels, which lie in memory as in the strip. */
static void copy_words(const tconv_cpu_pixel_load *load)
{
    for (int64_t p = 0; p < load->rows; p++)
        memcpy((float *)load->strip + p * load->strip_pitch, (const uint16_t *)load->src + p * load->src_pitch,
               (size_t)load->count * sizeof(float));
}

/* Prefetches the same pixels of the next row of dst: they lie too far apart, and there are too few of them, for the
 * hardware to see a pattern. */
static void prefetch_next(const tconv_problem *problem, const tconv_cpu_pixel_load *load, int64_t word)
{
    const int64_t size = (int64_t)problem->element_size, bytes = load->count * word * size;
    const char *from = (const char *)load->src + problem->dst.h * size;
    for (int64_t p = 0; p < load->rows; p++, from += load->src_pitch * size)
        for (int64_t byte = 0; byte < bytes; byte += LINE)
            __builtin_prefetch(from + byte, 0, 2);
}

struct pixel_loader {
    const tconv_cpu_dgrad_task *task;
    int64_t channel, channels;
    int64_t run_count;
};

static void load_pixel_run(const struct pixel_loader *loader, const tconv_cpu_dgrad_run *run, int64_t image,
                           int64_t row, int64_t place)
{
    const tconv_cpu_dgrad_job *job = loader->task->job;
    const tconv_cpu_dgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t pitch = plan->place_pitch * plan->real_size, word = tconv_cpu_dgrad_word(plan);
    char *to = (char *)loader->task->strip + place * pitch;
    if (row < 0 || run->count == 0) {
        memset(to, 0, (size_t)((run->left + run->count + run->right) * pitch));
        return;
    }
    const int64_t from = image * problem->dst.n + row * problem->dst.h + run->column * problem->dst.w + loader->channel;
    tconv_cpu_pixel_load load = {.src = (const char *)job->dst + from * (int64_t)problem->element_size,
                                 .strip = to + run->left * pitch,
                                 .rows = run->count,
                                 .count = loader->channels,
                                 .src_pitch = problem->dst.w * (plan->columns_whole ? 1 : job->layer->columns.stride),
                                 .strip_pitch = plan->place_pitch};
    if (load.src_pitch == load.count * word && load.strip_pitch == load.count) { /* pixels without a gap */
        load.count *= load.rows;
        load.rows = 1;
    }
    memset(to, 0, (size_t)(run->left * pitch));
    memset(to + (run->left + run->count) * pitch, 0, (size_t)(run->right * pitch));
    if (plan->rows.phases == job->layer->rows.stride && row + 1 < problem->h.out)
        prefetch_next(problem, &load, word);
    if (plan->pairs != NULL)
        copy_words(&load);
    else
        plan->pixel_kernels->dtype[problem->dtype].load(&load);
}

static void load_pixel_line(void *argument, int64_t image, int64_t row, int64_t place)
{
    const struct pixel_loader *loader = argument;
    for (int64_t r = 0; r < loader->run_count; r++) {
        const tconv_cpu_dgrad_run *run = &loader->task->runs[r];
        load_pixel_run(loader, run, image, row, place + run->place);
    }
}

void tconv_cpu_load_dgrad(const tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t channels)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    if (plan->pairs != NULL && !plan->pixels) {
        load_pairs(task, group, begin, channels);
        return;
    }
    if (!plan->pixels) {
        load_planes(task, group * plan->group_out + begin, channels, 0, task->strip);
        return;
    }
    struct pixel_loader loader = {task, (group * plan->group_out + begin) * tconv_cpu_dgrad_word(plan), channels,
                                  list_runs(task)};
    if (plan->depthwise) {
        const tconv_cpu_dgrad_channels written = tconv_cpu_dgrad_task_channels(task);
        loader.channel = written.first;
        loader.channels = written.count;
    }
    tconv_cpu_load_dgrad_lines(task, load_pixel_line, &loader);
}
