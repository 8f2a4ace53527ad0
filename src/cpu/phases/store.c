/*
 * The epilogue: stores sums as outputs. It finds which positions are outputs and where they go, in either layout, and
 * writes the bias to outputs that no tap reaches. Every output is written once.
 */
#include "store.h"

#include "../../core/checked.h"
#include "../blocking/bias.h"

/* ---------------------------------------------------------------------------------------------------------- sums */

/* Lists the row of sums, or the bias, that each residue of a position takes: see tconv_cpu_store. */
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

/* Stores one row of one image; *row has its first output and sum. */
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
        store.sums = tconv_cpu_real_at(plan->real_size, row->sums,
                                       p * row->channels * row->channel_stride + tconv_cpu_lag(plan, number));
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

/* Takes all sums that are stored through the layer's post-ops. */
static void post_sums(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_sums *sums)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const int64_t phases = plan->together ? job->layer->columns.count : 1;
    tconv_cpu_sum_rows rows = {.posts = &job->posts, .rows = sums->rows, .pitch = sums->row_pitch};
    for (int64_t p = 0; p < phases; p++) {
        const int64_t number = plan->together ? p : pass->first;
        rows.count = tconv_min(task->columns, tconv_cpu_column_phase(plan, job->layer, number)->outputs - task->column);
        for (int64_t i = 0; rows.count > 0 && i < sums->channels * task->images; i++) {
            const int64_t channel = i / task->images, image = i % task->images;
            rows.channel = sums->channel + channel;
            rows.sums = tconv_cpu_real_at(plan->real_size, sums->sums,
                                          (p * sums->channels + channel) * sums->pitch + image * sums->image_pitch +
                                              tconv_cpu_lag(plan, number));
            plan->kernels->real[plan->real].post_rows(&rows);
        }
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
    tconv_cpu_store row = {
        .channel_stride = sums->pitch,
        .channels = plan->interleave_pixels ? 1 : sums->channels,
        .residues = stride * pixel,
        .rows = rows,
        .dst_channel = problem->dst.c,
        .dst_position = stride * problem->dst.w,
        .finish = tconv_cpu_finish_of(problem, tconv_cpu_real_at(plan->real_size, job->bias, sums->channel),
                                      problem->layout == TCONV_NHWC ? sums->channels : 1, &job->posts)};
    if (tconv_cpu_posts_fit_sums(problem, job->layer->columns.bias_only)) {
        post_sums(task, pass, sums);
        row.finish.steps = 0;
    }
    if (plan->interleave) {
        list_rows(task, sums, row.residues, rows);
        row.count = tconv_min(task->columns * stride, problem->w.out - stride * task->column) * pixel;
        row.stage = plan->stream && row.count * size >= TCONV_CPU_STREAM_BYTES ? task->stage : NULL;
    }
    for (int64_t r = 0; r < sums->rows; r++) {
        for (int64_t n = 0; n < task->images; n++) {
            int64_t index = first + (task->image + n) * problem->dst.n +
                            problem->h.stride * (task->row + sums->row + r) * problem->dst.h;
            row.sums = tconv_cpu_real_at(plan->real_size, sums->sums, r * sums->row_pitch + n * sums->image_pitch);
            row.dst = (char *)job->dst + index * size;
            store(task, pass, &row);
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- bias */

void tconv_cpu_store_bias_only(const tconv_cpu_task *task, bool whole_rows)
{
    const tconv_cpu_job *job = task->job;
    int64_t group_out = job->layer->problem.group_out;
    tconv_cpu_block first = tconv_cpu_block_of(job->plan, group_out, task->block);
    tconv_cpu_block last = tconv_cpu_block_of(job->plan, group_out, task->block + task->blocks - 1);
    const tconv_cpu_bias_only region = {.layer = job->layer,
                                        .dst = job->dst,
                                        .bias = job->raw_bias,
                                        .posts = &job->posts,
                                        .image = task->image,
                                        .images = task->images,
                                        .row = task->row,
                                        .rows = task->rows,
                                        .column = task->column,
                                        .columns = task->columns,
                                        .group = task->group,
                                        .groups = task->groups,
                                        .group_out = group_out,
                                        .channel = first.first,
                                        .channels = last.first + last.count - first.first,
                                        .whole_rows = whole_rows,
                                        .stream = job->plan->stream};
    tconv_cpu_fill_bias_only(&region);
}
