/*
 * Loads input into a strip of the matrix algorithm, a chunk of channels and a few rows at a time: f32 is split from where
 * it lies, f16 and bf16 from a buffer of f32; planes are transposed. Zeros stand where a row or column lies outside the
 * image, or, where a weight is Inf or NaN, TCONV_CPU_MATRIX_MARK.
 */
#include <string.h>

#include "../core/checked.h"
#include "matrix_task.h"

/* The most rows that are loaded at a time. It is chosen, not measured. */
enum { MAX_ROWS = 64 };

/* Rows of a strip, number `first` and up, counted over all images of the task. */
struct rows {
    int64_t first, count, of_image;
    tconv_cpu_padded_row padded[MAX_ROWS];
};

/* Lists rows: where each begins in src and in the planes, and what of it lies outside the image. */
static void list_rows(const tconv_cpu_matrix_task *task, struct rows *rows)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t begin = task->column + plan->columns.min_shift, end = begin + plan->row_pitch;
    for (int64_t i = 0; i < rows->count; i++) {
        const int64_t image = task->image + (rows->first + i) / rows->of_image;
        const int64_t row = task->row + plan->rows.min_shift + (rows->first + i) % rows->of_image;
        const int64_t from = tconv_max(begin, 0), to = tconv_min(end, problem->w.in);
        tconv_cpu_padded_row padded = {.strip = i * plan->row_pitch, .left = plan->row_pitch};
        if (row >= 0 && row < problem->h.in && from < to)
            padded = (tconv_cpu_padded_row){
                .src = image * problem->src.n + row * problem->src.h + from * problem->src.w,
                .strip = padded.strip,
                .left = from - begin,
                .count = to - from,
                .right = end - to,
            };
        rows->padded[i] = padded;
    }
}

/* Where a channel of the task's group begins in src, in elements. */
static int64_t channel_offset(const tconv_cpu_matrix_task *task, int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    return (task->group * problem->group_in + channel) * problem->src.c;
}

/* Converts channels [channel, channel + count) of the group, of listed rows, to planes of so many positions. */
static void convert_planes(const tconv_cpu_matrix_task *task, const struct rows *rows, int64_t channel, int64_t count,
                           int64_t positions)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_load load = {
        .src = (const char *)task->job->src + channel_offset(task, channel) * (int64_t)problem->element_size,
        .strip = task->planes,
        .src_channel = problem->src.c,
        .strip_channel = positions,
        .src_pixel = problem->src.w,
        .channels = count,
        .row_count = rows->count,
        .rows = rows->padded,
    };
    task->job->plan->kernels->dtype[problem->dtype].load_planes(&load);
}

/* Converts them to pixels. */
static void convert_pixels(const tconv_cpu_matrix_task *task, const struct rows *rows, int64_t channel, int64_t count)
{
    const tconv_problem *problem = &task->job->layer->problem;
    for (int64_t i = 0; i < rows->count; i++) {
        const tconv_cpu_padded_row *row = &rows->padded[i];
        const tconv_cpu_pixel_load load = {
            .src = (const char *)task->job->src +
                   (row->src + channel_offset(task, channel)) * (int64_t)problem->element_size,
            .strip = task->planes + (row->strip + row->left) * count,
            .rows = row->count,
            .count = count,
            .src_pitch = problem->src.w,
            .strip_pitch = count,
        };
        task->job->plan->pixels->dtype[problem->dtype].load(&load);
    }
}

/* Writes zeros to all parts of positions outside the image, or the mark to the first. */
static void fill_outside(const tconv_cpu_matrix_task *task, uint16_t *to, int64_t positions)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    const int64_t count = positions * plan->depth;
    for (int part = 0; part < plan->parts; part++)
        memset(to + part * tconv_cpu_matrix_part(plan), 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; task->job->header->has_nonfinite && i < count; i++)
        to[i] = TCONV_CPU_MATRIX_MARK;
}

/* Where f32 numbers of a chunk of a row lie: src itself, or what was converted. */
struct source {
    const float *from;
    int64_t position, channel; /* from one to the next */
};

static struct source source_of(const tconv_cpu_matrix_task *task, const tconv_cpu_padded_row *row, int64_t channel,
                               int64_t count, int64_t positions)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t first = row->strip + row->left;
    if (problem->dtype == TCONV_F32) {
        const int64_t at = row->src + channel_offset(task, channel);
        const struct source source = {(const float *)task->job->src + at, problem->src.w, problem->src.c};
        return source;
    }
    const bool planes = problem->layout == TCONV_NCHW;
    const struct source source = {task->planes + first * (planes ? 1 : count), planes ? 1 : count,
                                  planes ? positions : 1};
    return source;
}

/* Splits channels [first, first + count) of a chunk of a row. */
static void split_channels(tconv_cpu_matrix_task *task, const struct source *source, int64_t positions, int64_t first,
                           int64_t count, uint16_t *to, tconv_cpu_matrix_range *range)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    const tconv_cpu_matrix_split split = {
        .from = source->from + first * source->channel,
        .rows = positions,
        .count = count,
        .row = source->position,
        .step = source->channel,
        .parts = plan->parts,
        .to = to + first,
        .to_row = plan->depth,
        .part_pitch = tconv_cpu_matrix_part(plan),
        .range = range,
    };
    plan->matrix->split(&split);
}

/* Loads and splits a chunk of channels of listed rows. */
static void load_chunk(tconv_cpu_matrix_task *task, const struct rows *rows, int64_t chunk)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t positions = rows->count * plan->row_pitch, channel = chunk * plan->depth;
    const int64_t count = tconv_min(plan->depth, problem->group_in - channel);
    const int64_t together = problem->layout == TCONV_NCHW ? TCONV_CPU_FRAGMENT : count;
    if (problem->dtype != TCONV_F32 && problem->layout == TCONV_NCHW)
        convert_planes(task, rows, channel, count, positions);
    else if (problem->dtype != TCONV_F32)
        convert_pixels(task, rows, channel, count);
    for (int64_t i = 0; i < rows->count; i++) {
        const tconv_cpu_padded_row *row = &rows->padded[i];
        const struct source source = source_of(task, row, channel, count, positions);
        uint16_t *const to = task->strip + (chunk * plan->pitch + (rows->first + i) * plan->row_pitch) * plan->depth;
        fill_outside(task, to, row->left);
        for (int64_t first = 0; row->count > 0 && first < count; first += together)
            split_channels(task, &source, row->count, first, tconv_min(together, count - first),
                           to + row->left * plan->depth, &task->ranges[rows->first + i]);
        fill_outside(task, to + (row->left + row->count) * plan->depth, row->right);
    }
}

/* Writes zeros for channels that pad the last chunk, and after the last row, where the last fragments read. */
static void clear_padding(const tconv_cpu_matrix_task *task, int64_t positions)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    const int64_t depth = plan->depth, given = task->job->layer->problem.group_in - (plan->chunks - 1) * depth;
    for (int64_t i = 0; i < plan->parts * plan->chunks; i++) {
        uint16_t *to = task->strip + i * plan->pitch * depth;
        memset(to + positions * depth, 0, (size_t)((plan->pitch - positions) * depth) * sizeof *to);
        if (i % plan->chunks < plan->chunks - 1 || given == depth)
            continue;
        for (int64_t position = 0; position < positions; position++)
            memset(to + position * depth + given, 0, (size_t)(depth - given) * sizeof *to);
    }
}

static void join_ranges(tconv_cpu_matrix_range *range, const tconv_cpu_matrix_range *other)
{
    range->least = other->least < range->least ? other->least : range->least;
    range->most = other->most > range->most ? other->most : range->most;
}

void tconv_cpu_load_matrix(tconv_cpu_matrix_task *task)
{
    const tconv_cpu_matrix_plan *plan = task->job->plan;
    struct rows rows = {.of_image = task->rows + tconv_cpu_halo(&plan->rows)};
    const int64_t all = task->images * rows.of_image;
    const int64_t together =
        tconv_max(1, tconv_min(MAX_ROWS, plan->planes_bytes / (int64_t)sizeof(float) / plan->depth / plan->row_pitch));
    for (int64_t row = 0; row < all; row++)
        task->ranges[row] = (tconv_cpu_matrix_range)TCONV_CPU_MATRIX_NO_RANGE;
    for (; rows.first < all; rows.first += rows.count) {
        rows.count = tconv_min(together, all - rows.first);
        list_rows(task, &rows);
        for (int64_t chunk = 0; chunk < plan->chunks; chunk++)
            load_chunk(task, &rows, chunk);
    }
    clear_padding(task, all * plan->row_pitch);
    /* From the first on, so that none is extended before it is read. */
    for (int64_t row = 0; row < all; row++)
        for (int64_t read = row + 1; read <= tconv_min(row + tconv_cpu_halo(&plan->rows), all - 1); read++)
            join_ranges(&task->ranges[row], &task->ranges[read]);
}
