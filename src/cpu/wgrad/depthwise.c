/*
 * cpu_wgrad where each group has one input and one output channel: the vector runs along groups, which both strips have
 * side by side for each pixel, and a tap is a row of the depthwise microkernels, whose terms are the pixels of a tile.
 */
#include <string.h>

#include "../../core/checked.h"
#include "task.h"

static void load_src(const tconv_cpu_wgrad_task *task, int64_t image)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    for (int64_t row = 0; row < task->rows; row++) {
        const int64_t at = image * problem->src.n + task->group * problem->src.c + (task->row + row) * problem->src.h +
                           task->column * problem->src.w;
        const tconv_cpu_wgrad_row from = {task->job->src + at * (int64_t)problem->element_size, &problem->src,
                                          task->columns, task->ins, plan->width};
        tconv_cpu_load_wgrad_row(task, &from,
                                 tconv_cpu_real_at(plan->real_size, task->src, row * task->columns * plan->width));
    }
}

/* Loads the outputs that taps reach from the tile, and zeros outside the image. */
static void load_dst(const tconv_cpu_wgrad_task *task, int64_t image)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t first_row = task->row * problem->h.stride - problem->h.pad;
    const int64_t first_column = task->column * problem->w.stride - problem->w.pad;
    const int64_t rows = (task->rows - 1) * problem->h.stride + plan->rows.halo + 1;
    const int64_t columns = (task->columns - 1) * problem->w.stride + plan->columns.halo + 1;
    const int64_t left = tconv_min(columns, tconv_max(0, -first_column));
    const int64_t count = tconv_max(0, tconv_min(columns - left, problem->w.out - first_column - left));
    for (int64_t row = 0; row < rows; row++) {
        char *to = tconv_cpu_real_at(plan->real_size, task->dst, row * plan->pitch);
        const int64_t y = first_row + row, pixel = plan->width * plan->real_size;
        if (y < 0 || y >= problem->h.out || count == 0) {
            memset(to, 0, (size_t)(columns * pixel));
            continue;
        }
        const int64_t at = image * problem->dst.n + task->group * problem->dst.c + y * problem->dst.h +
                           (first_column + left) * problem->dst.w;
        memset(to, 0, (size_t)(left * pixel));
        const tconv_cpu_wgrad_row from = {task->job->dst + at * (int64_t)problem->element_size, &problem->dst, count,
                                          task->ins, plan->width};
        tconv_cpu_load_wgrad_row(task, &from, to + left * pixel);
        memset(to + (left + count) * pixel, 0, (size_t)((columns - left - count) * pixel));
    }
}

/* Lists the pixels of rows [row, row + rows) and columns [column, column + columns) of the tile; returns their number. */
static int64_t list_terms(const tconv_cpu_wgrad_task *task, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t count = 0;
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = column; c < column + columns; c++)
            task->terms[count++] = (tconv_cpu_pixel_tap){
                (int32_t)(r * problem->h.stride * plan->pitch + c * problem->w.stride * plan->width),
                (int32_t)(r * task->columns + c)};
    return count;
}

/* Multiplies the terms listed by taps [first, first + taps). */
static void multiply(const tconv_cpu_wgrad_task *task, int64_t terms, int64_t first, int64_t taps)
{
    tconv_cpu_sum_wgrad_terms(task, terms, first, taps);
    tconv_cpu_add_wgrad_tile(task, first, taps, 0, task->job->plan->width);
}

static void multiply_image(const tconv_cpu_wgrad_task *task)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const int64_t most = plan->pixels->real[plan->real].max_pixels[1], parts = tconv_ceil_div(plan->taps, most);
    if (plan->pixels->real[plan->real].are_finite(task->src, task->rows * task->columns * plan->width)) {
        const int64_t terms = list_terms(task, 0, task->rows, 0, task->columns);
        for (int64_t part = 0, first = 0, taps; part < parts; part++, first += taps) {
            taps = (plan->taps - first) / (parts - part);
            multiply(task, terms, first, taps);
        }
        return;
    }
    for (int64_t t = 0; t < plan->taps; t++) { /* without what lies outside the image */
        const tconv_cpu_wgrad_tap *tap = &task->job->taps[t];
        int64_t row, column;
        const int64_t rows = tconv_cpu_wgrad_inputs(tap->row, tap->row_shift, task->row, task->rows, &row);
        const int64_t columns =
            tconv_cpu_wgrad_inputs(tap->column, tap->column_shift, task->column, task->columns, &column);
        const int64_t terms = list_terms(task, row, rows, column, columns);
        if (terms > 0)
            multiply(task, terms, t, 1);
    }
}

void tconv_cpu_multiply_depthwise(tconv_cpu_wgrad_task *task)
{
    for (int64_t image = task->image; image < task->image + task->images; image++) {
        load_src(task, image);
        load_dst(task, image);
        multiply_image(task);
    }
}
