/* Loads the strips of cpu_wgrad. */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

/* ----------------------------------------------------------------------------------------------------------- src */

void tconv_cpu_load_wgrad_row(const tconv_cpu_wgrad_task *task, const tconv_cpu_wgrad_row *row, void *to)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    if (tconv_cpu_are_channels_inside(row->strides)) {
        const tconv_cpu_pixel_load load = {.src = row->from,
                                           .strip = to,
                                           .rows = row->columns,
                                           .count = row->channels,
                                           .src_pitch = row->strides->w,
                                           .strip_pitch = row->width};
        if (row->channels < row->width)
            memset(to, 0, (size_t)(row->columns * row->width * plan->real_size));
        plan->pixels->dtype[problem->dtype].load(&load);
        return;
    }
    const tconv_cpu_padded_row lanes = {.count = row->channels, .right = row->width - row->channels};
    const tconv_cpu_load load = {.src = row->from,
                                 .strip = to,
                                 .strip_channel = row->width,
                                 .src_pixel = row->strides->c,
                                 .channels = row->columns,
                                 .row_count = 1,
                                 .rows = &lanes};
    plan->kernels->dtype[problem->dtype].load_pixels(&load); /* columns as its channels, channels as its pixels */
}

static void load_src_row(const tconv_cpu_wgrad_task *task, int64_t image, int64_t row, int64_t channel, int64_t count,
                         int64_t width, void *to)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t first = (task->image + image) * problem->src.n +
                          (task->group * problem->group_in + channel) * problem->src.c +
                          (task->row + row) * problem->src.h + task->column * problem->src.w;
    const tconv_cpu_wgrad_row from = {task->job->src + first * (int64_t)problem->element_size, &problem->src,
                                      task->columns, count, width};
    tconv_cpu_load_wgrad_row(task, &from, to);
}

void tconv_cpu_load_wgrad_src(const tconv_cpu_wgrad_task *task)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    char *to = task->src;
    for (int64_t channel = 0; channel < task->ins; channel += plan->width) {
        const int64_t count = tconv_min(plan->width, task->ins - channel), width = tconv_round_up(count, plan->lanes);
        for (int64_t image = 0; image < task->images; image++)
            for (int64_t row = 0; row < task->rows; row++) {
                load_src_row(task, image, row, task->in + channel, count, width, to);
                if (plan->pairs != NULL)
                    plan->pairs->join_rows(to, task->columns, width); /* pixels are rows */
                to += tconv_cpu_wgrad_terms(plan, task->columns) * width * plan->real_size;
            }
    }
}

/* ----------------------------------------------------------------------------------------------------------- dst */

/* Outputs of a phase from `begin` on, of which `left` and `right` lie outside the image. */
struct run {
    int64_t begin, left, count, right;
};

static struct run cut_run(const tconv_cpu_wgrad_phase *phase, int64_t first, int64_t length)
{
    const int64_t begin = first + phase->base;
    const int64_t left = tconv_min(length, tconv_max(0, -begin));
    const int64_t count = tconv_max(0, tconv_min(length - left, phase->outputs - begin - left));
    return (struct run){begin + left, left, count, length - left - count};
}

/* Loads the planes of a row phase and a column phase, of an image and all output channels of the block. */
static void load_planes(const tconv_cpu_wgrad_task *task, int64_t image, const tconv_cpu_wgrad_phase *row_phase,
                        const tconv_cpu_wgrad_phase *column_phase)
{
    const tconv_cpu_wgrad_job *job = task->job;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t rows = task->rows + plan->rows.halo, size = (int64_t)problem->element_size;
    const int64_t place = (row_phase - job->rows) * plan->columns.phases + (column_phase - job->columns);
    const int64_t first =
        (task->image + image) * problem->dst.n + (task->group * problem->group_out + task->out) * problem->dst.c;
    const struct run columns = cut_run(column_phase, task->column, task->columns + plan->columns.halo);
    const struct run inside = cut_run(row_phase, task->row, rows);
    for (int64_t row = 0; row < rows; row++) {
        const bool is_inside = row >= inside.left && row < inside.left + inside.count && columns.count > 0;
        const int64_t y = (inside.begin + row - inside.left) * problem->h.stride + row_phase->residue;
        const int64_t x = columns.begin * problem->w.stride + column_phase->residue;
        task->padded[row] = (tconv_cpu_padded_row){.src = is_inside ? y * problem->dst.h + x * problem->dst.w : 0,
                                                   .strip = row * plan->pitch,
                                                   .left = columns.left,
                                                   .count = is_inside ? columns.count : 0,
                                                   .right = columns.right + (is_inside ? 0 : columns.count)};
    }
    const tconv_cpu_load load = {
        .src = job->dst + first * size,
        .strip = tconv_cpu_real_at(plan->real_size, task->dst, place * plan->plane + image * plan->image_pitch),
        .src_channel = problem->dst.c,
        .strip_channel = plan->channel_pitch,
        .src_pixel = problem->w.stride * problem->dst.w,
        .channels = task->outs,
        .row_count = rows,
        .rows = task->padded};
    if (tconv_cpu_are_channels_inside(&problem->dst))
        plan->kernels->dtype[problem->dtype].load_pixels(&load);
    else
        plan->kernels->dtype[problem->dtype].load_planes(&load);
}

/* Loads all planes of an image and all output channels of the block in NCHW: the rows of all phases in turn, as they
 * follow one another in memory. */
static void split_planes(const tconv_cpu_wgrad_task *task, int64_t image)
{
    const tconv_cpu_wgrad_job *job = task->job;
    const tconv_cpu_wgrad_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t rows = task->rows + plan->rows.halo, phases = plan->rows.phases;
    const int64_t first =
        (task->image + image) * problem->dst.n + (task->group * problem->group_out + task->out) * problem->dst.c;
    for (int64_t phase = 0; phase < phases; phase++) {
        const struct run inside = cut_run(&job->rows[phase], task->row, rows);
        for (int64_t row = 0; row < rows; row++) {
            const bool is_inside = row >= inside.left && row < inside.left + inside.count;
            const int64_t y = (inside.begin + row - inside.left) * problem->h.stride + job->rows[phase].residue;
            task->padded[row * phases + phase] =
                (tconv_cpu_padded_row){.src = is_inside ? y * problem->dst.h : 0,
                                       .strip = phase * plan->columns.phases * plan->plane + row * plan->pitch,
                                       .count = is_inside ? problem->w.out : 0};
        }
    }
    for (int64_t i = 0; i < plan->columns.phases; i++)
        task->runs[i] = (tconv_cpu_split_run){.residue = job->columns[i].residue,
                                              .first = task->column + job->columns[i].base,
                                              .count = task->columns + plan->columns.halo,
                                              .strip = i * plan->plane};
    plan->kernels->dtype[problem->dtype].load_split(
        &(tconv_cpu_split_load){.src = job->dst + first * (int64_t)problem->element_size,
                                .strip = tconv_cpu_real_at(plan->real_size, task->dst, image * plan->image_pitch),
                                .src_channel = problem->dst.c,
                                .strip_channel = plan->channel_pitch,
                                .channels = task->outs,
                                .row_count = rows * phases,
                                .run_count = plan->columns.phases,
                                .stride = problem->w.stride,
                                .length = problem->w.out,
                                .rows = task->padded,
                                .runs = task->runs});
}

void tconv_cpu_load_wgrad_dst(const tconv_cpu_wgrad_task *task)
{
    const tconv_cpu_wgrad_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    const bool split = !tconv_cpu_are_channels_inside(&problem->dst) && problem->w.stride > 1;
    for (int64_t image = 0; image < task->images; image++) {
        if (split) {
            split_planes(task, image);
            continue;
        }
        for (int64_t row = 0; row < job->plan->rows.phases; row++)
            for (int64_t column = 0; column < job->plan->columns.phases; column++)
                load_planes(task, image, &job->rows[row], &job->columns[column]);
    }
    if (job->plan->pairs != NULL)
        job->plan->pairs->pack(task->dst, task->outs * job->plan->channel_pitch);
}
