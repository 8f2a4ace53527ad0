/*
 * cpu_wgrad where a group has one input channel, in NCHW: the vector runs along columns, so that nothing is transposed.
 * The src strip is [image][row][column], rows filled up with zeros to whole vectors; a vector of it is a term of the
 * depthwise microkernels, and an output channel with a tap is a row of them. The sums have a place for each lane; they
 * are added up when the block is stored.
 */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

void tconv_cpu_clear_wgrad_dst(const tconv_cpu_wgrad_task *task)
{
    memset(task->dst, 0, (size_t)task->job->plan->dst_bytes);
}

static void load_src(const tconv_cpu_wgrad_task *task, int64_t width)
{
    const tconv_cpu_wgrad_job *job = task->job;
    const tconv_problem *problem = &job->layer->problem;
    const tconv_strides *strides = &problem->src;
    for (int64_t row = 0; row < task->rows; row++)
        task->padded[row] = (tconv_cpu_padded_row){
            .src = row * strides->h, .strip = row * width, .count = task->columns, .right = width - task->columns};
    const int64_t first =
        task->image * strides->n + task->group * strides->c + task->row * strides->h + task->column * strides->w;
    const tconv_cpu_load load = {.src = job->src + first * (int64_t)problem->element_size,
                                 .strip = task->src,
                                 .src_channel = strides->n, /* images as its channels */
                                 .strip_channel = task->rows * width,
                                 .src_pixel = strides->w,
                                 .channels = task->images,
                                 .row_count = task->rows,
                                 .rows = task->padded};
    job->plan->kernels->dtype[problem->dtype].load_planes(&load);
}

/* Whether some sums of a micro-tile are not finite: what lies outside the image was multiplied by what is not, or a
 * number of dst that is not by a lane without a column. */
static bool are_spoilt(const tconv_cpu_wgrad_task *task, int64_t rows)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    return !plan->pixels->real[plan->real].are_finite(task->tile, rows * plan->width);
}

/* Sums some rows of the micro-tile without what lies outside the image, in the first lane. */
static void sum_inside(const tconv_cpu_wgrad_task *task, int64_t first, int64_t count, int64_t width)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_cpu_reference_access *access = &tconv_cpu_reference_accesses[plan->real ? TCONV_F64 : TCONV_F32];
    memset(task->tile, 0, (size_t)(count * plan->width * plan->real_size));
    for (int64_t i = 0; i < count; i++) {
        const tconv_cpu_wgrad_tap *tap = &task->job->taps[(first + i) % plan->taps];
        tconv_cpu_reference_sum sum = {0, 0};
        int64_t first_row, first_column;
        const int64_t rows = tconv_cpu_wgrad_inputs(tap->row, tap->row_shift, task->row, task->rows, &first_row);
        const int64_t columns =
            tconv_cpu_wgrad_inputs(tap->column, tap->column_shift, task->column, task->columns, &first_column);
        for (int64_t image = 0; image < task->images && columns > 0; image++)
            for (int64_t row = first_row; row < first_row + rows; row++) {
                const int64_t src = (image * task->rows + row) * width + first_column;
                const int64_t dst = task->at[first + i] + image * plan->image_pitch + row * plan->pitch + first_column;
                access->dot(&sum, columns, (tconv_cpu_reference_run){task->src, src, 1},
                            (tconv_cpu_reference_run){task->dst, dst, 1});
            }
        access->put(task->tile, i * plan->width, tconv_cpu_reference_total(&sum));
    }
}

void tconv_cpu_multiply_planes(tconv_cpu_wgrad_task *task)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const int64_t vectors = tconv_ceil_div(task->columns, plan->width), width = vectors * plan->width;
    const int64_t all = task->outs * plan->taps;
    const int64_t parts = tconv_ceil_div(all, plan->pixels->real[plan->real].max_pixels[1]);
    if (task->columns < plan->tile_columns || task->rows < plan->tile_rows || task->images < plan->images)
        tconv_cpu_clear_wgrad_dst(task); /* lanes without a column may read what another tile left */
    load_src(task, width);
    tconv_cpu_load_wgrad_dst(task);
    int64_t terms = 0;
    for (int64_t image = 0; image < task->images; image++)
        for (int64_t row = 0; row < task->rows; row++)
            for (int64_t v = 0; v < vectors; v++, terms++)
                task->terms[terms] = (tconv_cpu_pixel_tap){
                    (int32_t)(image * plan->image_pitch + row * plan->pitch + v * plan->width), (int32_t)terms};
    for (int64_t part = 0, row = 0, count; part < parts; part++, row += count) {
        count = (all - row) / (parts - part);
        tconv_cpu_sum_wgrad_terms(task, terms, row, count);
        if (are_spoilt(task, count))
            sum_inside(task, row, count, width);
        tconv_cpu_add_wgrad_tile(task, row, count, 0, plan->width);
    }
}

void tconv_cpu_add_wgrad_lanes(const tconv_cpu_wgrad_plan *plan, double *sums)
{
    for (int64_t row = 0; row < plan->block_out * plan->taps; row++) {
        double *high = sums + row * plan->block_in, *low = high + plan->sums;
        tconv_cpu_reference_sum sum = {0, 0};
        for (int64_t lane = 0; lane < plan->width; lane++) {
            tconv_cpu_reference_add(&sum, high[lane]);
            sum.low += plan->keeps_rest ? low[lane] : 0;
        }
        high[0] = sum.high;
        if (plan->keeps_rest)
            low[0] = sum.low;
        else
            high[0] = tconv_cpu_reference_total(&sum);
    }
}
