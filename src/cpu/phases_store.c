/*
 * Stores sums as output: finds which positions are outputs and where they go, in either layout, and writes the bias to
 * outputs that no tap reaches. Every output is written once.
 */
#include <string.h>

#include "../core/checked.h"
#include "phases.h"

/* ---------------------------------------------------------------------------------------------------------- sums */

/* Which row of sums, or bias, each residue of a position takes: see tconv_cpu_store. */
static void list_rows(const tconv_cpu_task *task, const tconv_cpu_sums *sums, int64_t residues,
                      int32_t rows[TCONV_CPU_MAX_INTERLEAVE])
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    int64_t channels = plan->interleave_pixels ? sums->channels : 1;
    for (int64_t r = 0; r < residues; r++)
        rows[r] = (int32_t)(-1 - r % channels);
    for (int64_t p = 0; p < layer->columns.count; p++)
        for (int64_t c = 0; c < channels; c++)
            rows[tconv_cpu_column_phase(plan, layer, p)->residue * channels + c] =
                (int32_t)((p * sums->channels + c) * sums->pitch + tconv_cpu_lag(plan, p));
}

/* Stores one row of one image, of which the first output and sum are given. */
typedef void store_row(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_store *row);

static void store_interleaved(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_store *row)
{
    (void)pass;
    task->job->plan->kernels->dtype[task->job->layer->problem.dtype].store_interleaved(row);
}

static void store_apart(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_store *row)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t phases = plan->together ? task->job->layer->columns.count : 1;
    for (int64_t p = 0; p < phases; p++) {
        int64_t number = plan->together ? p : pass->first;
        const tconv_phase *phase = tconv_cpu_column_phase(plan, task->job->layer, number);
        tconv_cpu_store store = *row;
        store.sums =
            tconv_cpu_at(plan, row->sums, p * row->channels * row->channel_stride + tconv_cpu_lag(plan, number));
        store.count = tconv_min(task->columns, phase->outputs - task->column);
        store.dst = (char *)row->dst + phase->residue * problem->dst.w * (int64_t)problem->element_size;
        if (store.count <= 0)
            continue;
        if (problem->layout == TCONV_NHWC)
            plan->kernels->dtype[problem->dtype].store_pixels(&store);
        else
            plan->kernels->dtype[problem->dtype].store_scattered(&store);
    }
}

void tconv_cpu_store_sums(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_sums *sums)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t size = (int64_t)problem->element_size, stride = problem->w.stride;
    int64_t pixel = plan->interleave_pixels ? sums->channels : 1;
    int64_t first =
        sums->channel * problem->dst.c + stride * task->column * problem->dst.w + pass->row->residue * problem->dst.h;
    int32_t rows[TCONV_CPU_MAX_INTERLEAVE];
    store_row *store = plan->interleave ? store_interleaved : store_apart;
    tconv_cpu_store row = {.channel_stride = sums->pitch,
                           .channels = plan->interleave_pixels ? 1 : sums->channels,
                           .residues = stride * pixel,
                           .rows = rows,
                           .bias = tconv_cpu_at(plan, job->bias, sums->channel),
                           .dst_channel = problem->dst.c,
                           .dst_position = stride * problem->dst.w};
    if (plan->interleave) {
        list_rows(task, sums, row.residues, rows);
        row.count = tconv_min(task->columns * stride, problem->w.out - stride * task->column) * pixel;
        row.line = plan->stream && row.count * size >= TCONV_CPU_STREAM_BYTES ? task->line : NULL;
    }
    for (int64_t r = 0; r < sums->rows; r++) {
        for (int64_t n = 0; n < task->images; n++) {
            int64_t index = first + (task->image + n) * problem->dst.n +
                            problem->h.stride * (task->row + sums->row + r) * problem->dst.h;
            row.sums = tconv_cpu_at(plan, sums->sums, r * sums->row_pitch + n * sums->image_pitch);
            row.dst = (char *)job->dst + index * size;
            store(task, pass, &row);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- bias */

/* Some outputs of one row of one image, in some channels. */
struct run {
    int64_t image, channel, channels, row, column, count;
};

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
            bool stream = job->plan->stream && run->count * (int64_t)size >= TCONV_CPU_STREAM_BYTES;
            job->plan->kernels->fill(dst + c * problem->dst.c * (int64_t)size,
                                     bias != NULL ? bias + c * (int64_t)size : zero, size, run->count, stream);
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
