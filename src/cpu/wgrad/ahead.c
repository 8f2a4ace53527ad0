/* Prefetches what a tile of cpu_wgrad reads while the one before it is multiplied, when memory has nothing else to do. */
#include "../../core/checked.h"
#include "task.h"

/* Finds what a tile reads along an axis of dst; returns how much. */
static int64_t find_outputs(const tconv_axis *axis, int64_t begin, int64_t inputs, int64_t *first)
{
    const int64_t from = begin * axis->stride - axis->pad;
    const int64_t to = from + (inputs - 1) * axis->stride + (axis->kernel - 1) * axis->dilation + 1;
    *first = tconv_max(0, from);
    return tconv_max(0, tconv_min(to, axis->out) - *first);
}

/* Bytes of a run that the processor foresees by itself, or load_pixels and load_split prefetch: shorter ones are not
 * listed. */
enum { FORESEEN = 256 };

/* Lists runs of an image's pixels: of rows, or of channels where these are inside. */
static void list_runs(tconv_cpu_wgrad_ahead *ahead, int which, const tconv_problem *problem, const char *first,
                      const tconv_strides *strides, int64_t channels, int64_t rows, int64_t columns)
{
    const int64_t size = (int64_t)problem->element_size;
    const bool planes = !tconv_cpu_are_channels_inside(strides);
    ahead->of[which].first = first;
    ahead->of[which].bytes = (planes ? columns : channels) * size;
    ahead->of[which].count[0] = planes ? rows : columns;
    ahead->of[which].step[0] = (planes ? strides->h : strides->w) * size;
    ahead->of[which].count[1] = planes ? channels : rows;
    ahead->of[which].step[1] = (planes ? strides->c : strides->h) * size;
    ahead->of[which].step[2] = strides->n * size;
    ahead->of[which].runs = ahead->of[which].count[0] * ahead->of[which].count[1] * ahead->of[which].count[2];
    if (ahead->of[which].bytes < FORESEEN)
        ahead->of[which].runs = 0;
}

void tconv_cpu_look_ahead_wgrad(tconv_cpu_wgrad_task *task, int64_t index, int64_t parts)
{
    const tconv_cpu_wgrad_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_strides *src = &problem->src, *dst = &problem->dst;
    tconv_cpu_wgrad_ahead *ahead = &task->ahead;
    const int64_t size = (int64_t)problem->element_size;
    int64_t row, column, image, y, x;
    ahead->next = ahead->at_a_time = 0;
    if (index < 0)
        return;
    const int64_t columns = tconv_cpu_cut_tile(index % plan->column_tiles, plan->tile_columns, problem->w.in, &column);
    index /= plan->column_tiles;
    const int64_t rows = tconv_cpu_cut_tile(index % plan->row_tiles, plan->tile_rows, problem->h.in, &row);
    const int64_t images = tconv_cpu_cut_tile(index / plan->row_tiles, plan->images, problem->batch, &image);
    const int64_t height = find_outputs(&problem->h, row, rows, &y),
                  width = find_outputs(&problem->w, column, columns, &x);
    const int64_t in = task->group * problem->group_in + task->in, out = task->group * problem->group_out + task->out;
    ahead->of[0].count[2] = ahead->of[1].count[2] = images;
    list_runs(ahead, 0, problem,
              task->job->src + (image * src->n + in * src->c + row * src->h + column * src->w) * size, src, task->ins,
              rows, columns);
    list_runs(ahead, 1, problem, task->job->dst + (image * dst->n + out * dst->c + y * dst->h + x * dst->w) * size, dst,
              task->outs, height, width);
    ahead->at_a_time = tconv_ceil_div(ahead->of[0].runs + ahead->of[1].runs, parts);
}

/* Bytes of a cache line, the same on x86-64 and on most AArch64. */
enum { LINE = 64 };

void tconv_cpu_prefetch_wgrad(tconv_cpu_wgrad_task *task)
{
    tconv_cpu_wgrad_ahead *ahead = &task->ahead;
    const int64_t all = ahead->of[0].runs + ahead->of[1].runs;
    const int64_t end = tconv_min(ahead->next + ahead->at_a_time, all);
    for (; ahead->next < end; ahead->next++) {
        const int which = ahead->next >= ahead->of[0].runs;
        const int64_t run = which ? ahead->next - ahead->of[0].runs : ahead->next;
        const int64_t *count = ahead->of[which].count, *step = ahead->of[which].step;
        const char *from = ahead->of[which].first + run % count[0] * step[0] + run / count[0] % count[1] * step[1] +
                           run / count[0] / count[1] * step[2];
        for (int64_t at = 0; at < ahead->of[which].bytes + LINE - 1; at += LINE)
            __builtin_prefetch(from + tconv_min(at, ahead->of[which].bytes - 1), 0, 2);
    }
}
