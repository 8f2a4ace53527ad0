/*
 * Stores sums as output: finds which positions are outputs and where they go, in either layout, and writes the bias to
 * outputs that no tap reaches. Every output is written once.
 */
#include <string.h>

#include "../core/checked.h"
#include "phases.h"

/* ---------------------------------------------------------------------------------------------------------- sums */

/* Positions of one image row that lie side by side, in sums and in the tile. */
struct piece {
    int64_t row, image, column, count;
    int64_t at; /* in sums */
};

static void store_piece(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, const tconv_cpu_sums *sums,
                        const struct piece *piece)
{
    const tconv_cpu_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_cpu_kernels *kernels = job->plan->kernels;
    int64_t column = task->column + piece->column, stride = problem->w.stride;
    int64_t first = stride * column + (job->plan->interleave ? 0 : pair->column->residue);
    int64_t index = (task->image + piece->image) * problem->dst.n + sums->channel * problem->dst.c +
                    (problem->h.stride * (task->row + piece->row) + pair->row->residue) * problem->dst.h +
                    first * problem->dst.w;
    tconv_cpu_store store = {
        .sums = tconv_cpu_at(job->plan, sums->sums, piece->at),
        .phase_stride = sums->phase_stride,
        .channel_stride = sums->channel_stride,
        .channels = sums->channels,
        .residues = stride,
        .phases = job->residues,
        .bias = tconv_cpu_at(job->plan, job->bias, sums->channel),
        .dst = (char *)job->dst + index * (int64_t)problem->element_size,
        .dst_channel = problem->dst.c,
        .dst_position = stride * problem->dst.w,
    };
    if (job->plan->interleave) {
        store.count = tconv_min(piece->count * stride, problem->w.out - first);
        kernels->dtype[problem->dtype].store_interleaved(&store);
        return;
    }
    store.count = tconv_min(piece->count, pair->column->outputs - column);
    if (store.count <= 0)
        return;
    if (problem->layout == TCONV_NHWC)
        kernels->dtype[problem->dtype].store_pixels(&store);
    else
        kernels->dtype[problem->dtype].store_scattered(&store);
}

void tconv_cpu_store_sums(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, const tconv_cpu_sums *sums)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t pitch = plan->gather ? task->columns : plan->pitch;
    int64_t row_pitch = plan->gather ? task->images * task->columns : plan->row_pitch;
    int64_t rows = tconv_min(task->rows, pair->row->outputs - task->row);
    for (int64_t at = 0, step; at < sums->count; at += step) {
        int64_t position = sums->position + at, in_row = position % row_pitch;
        struct piece piece = {position / row_pitch, in_row / pitch, in_row % pitch, 0, at};
        if (piece.row >= rows)
            return;
        bool inside = piece.column < task->columns;
        step = piece.count = tconv_min(sums->count - at, (inside ? task->columns : pitch) - piece.column);
        if (inside && piece.image < task->images)
            store_piece(task, pair, sums, &piece);
    }
}

/* ---------------------------------------------------------------------------------------------------------- bias */

/* Some outputs of one row of one image, in some channels. */
struct run {
    int64_t image, channel, channels, row, column, count;
};

static void fill_plane(char *dst, const char *value, size_t size, int64_t count)
{
    switch (size) { /* constant sizes become plain stores */
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 2 * i, value, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 4 * i, value, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 8 * i, value, 8);
    }
}

static void fill_run(const tconv_cpu_job *job, const struct run *run)
{
    const tconv_problem *problem = &job->layer->problem;
    const size_t size = problem->element_size;
    static const char zero[8] = {0};
    const char *bias = job->raw_bias != NULL ? (const char *)job->raw_bias + run->channel * (int64_t)size : NULL;
    int64_t index = run->image * problem->dst.n + run->channel * problem->dst.c + run->row * problem->dst.h +
                    run->column * problem->dst.w;
    char *dst = (char *)job->dst + index * (int64_t)size;
    if (problem->layout == TCONV_NCHW) {
        for (int64_t c = 0; c < run->channels; c++) {
            char value[8]; /* apart from dst, so that the loop may be vectors */
            memcpy(value, bias != NULL ? bias + c * (int64_t)size : zero, size);
            fill_plane(dst + c * problem->dst.c * (int64_t)size, value, size, run->count);
        }
        return;
    }
    for (int64_t i = 0; i < run->count; i++, dst += problem->dst.w * (int64_t)size) {
        if (bias != NULL)
            memcpy(dst, bias, (size_t)run->channels * size);
        else
            memset(dst, 0, (size_t)run->channels * size);
    }
}

/* The outputs of a row between those of the column phases. */
static void fill_gaps(const tconv_cpu_job *job, struct run run, int64_t end)
{
    const tconv_phase_table *columns = &job->layer->columns;
    for (int64_t start = run.column; start < end; start += columns->stride) {
        int64_t stop = tconv_min(end, start + columns->stride);
        run.column = start;
        for (int64_t p = 0; p <= columns->count; p++) {
            int64_t next = p < columns->count ? tconv_min(stop, start + columns->phases[p].residue) : stop;
            run.count = next - run.column;
            if (run.count > 0)
                fill_run(job, &run);
            run.column = next + 1;
        }
    }
}

void tconv_cpu_store_bias(const tconv_cpu_task *task)
{
    const tconv_cpu_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_phase_table *rows = &job->layer->rows, *columns = &job->layer->columns;
    bool no_columns = columns->count == 0, gaps = !job->plan->interleave && columns->bias_only > 0;
    if (rows->bias_only == 0 && !no_columns && !gaps)
        return;
    tconv_cpu_block first = tconv_cpu_block_of(job->plan, problem->group_out, task->block);
    tconv_cpu_block last = tconv_cpu_block_of(job->plan, problem->group_out, task->block + task->blocks - 1);
    struct run run = {.channel = task->group * problem->group_out + first.first,
                      .channels = (task->groups - 1) * problem->group_out + last.first + last.count - first.first};
    int64_t column = columns->stride * task->column;
    int64_t column_end = tconv_min(problem->w.out, columns->stride * (task->column + task->columns));
    for (run.image = task->image; run.image < task->image + task->images; run.image++) {
        for (int64_t q = task->row; q < task->row + task->rows; q++) {
            int64_t start = rows->stride * q, end = tconv_min(problem->h.out, start + rows->stride), phase = 0;
            for (run.row = start; run.row < end; run.row++) {
                bool summed = !no_columns && phase < rows->count && start + rows->phases[phase].residue == run.row;
                phase += summed;
                run.column = column;
                run.count = column_end - column;
                if (!summed)
                    fill_run(job, &run);
                else if (gaps)
                    fill_gaps(job, run, column_end);
            }
        }
    }
}
