/* Loads the strip of a task of the pixels algorithm. */
#include <string.h>

#include "../../core/checked.h"
#include "strip.h"

/* Loads `count` pixels of a row, from `column` on, to `to`; pixels outside columns [0, in) are zero. src is column
 * 0's. */
static void load_row(const tconv_cpu_pixel_task *task, char *to, const char *src, int64_t column, int64_t count,
                     int64_t channels)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t pitch = plan->pixel_pitch * plan->real_size;
    int64_t left = tconv_min(count, tconv_max(0, -column));
    int64_t inside = tconv_max(0, tconv_min(count - left, problem->w.in - (column + left)));
    int64_t right = count - left - inside;
    memset(to, 0, (size_t)(left * pitch));
    memset(to + (left + inside) * pitch, 0, (size_t)(right * pitch));
    if (inside == 0)
        return;
    tconv_cpu_pixel_load load = {.src = src + (column + left) * problem->src.w * (int64_t)problem->element_size,
                                 .strip = to + left * pitch,
                                 .rows = inside,
                                 .count = channels,
                                 .src_pitch = problem->src.w,
                                 .strip_pitch = plan->pixel_pitch};
    if (channels == problem->src.w && channels == plan->pixel_pitch) { /* all is dense, so it is one long row */
        load.count *= load.rows;
        load.rows = 1;
    }
    plan->kernels->dtype[problem->dtype].load(&load);
}

void tconv_cpu_load_pixels(const tconv_cpu_pixel_task *task, int64_t begin, int64_t channels)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t rows = task->rows + tconv_cpu_halo(&plan->rows);
    int64_t columns = task->columns + tconv_cpu_halo(&plan->columns);
    int64_t first_row = task->row + plan->rows.min_shift, column = task->column + plan->columns.min_shift;
    int64_t first_channel = task->group * plan->group_in + begin;
    if (plan->depthwise) {
        tconv_cpu_channels written = tconv_cpu_task_channels(task);
        first_channel = written.first;
        channels = written.count;
    } else if (task->groups > 1) {
        channels = task->groups * plan->group_in;
    }
    for (int64_t n = 0; n < task->images; n++) {
        const char *image = (const char *)task->job->src +
                            ((task->image + n) * problem->src.n + first_channel) * (int64_t)problem->element_size;
        for (int64_t r = 0; r < rows; r++) {
            char *to = tconv_cpu_real_at(plan->real_size, task->strip, n * plan->image_pitch + r * plan->row_pitch);
            int64_t row = first_row + r;
            if (row < 0 || row >= problem->h.in)
                memset(to, 0, (size_t)(columns * plan->pixel_pitch * plan->real_size));
            else
                load_row(task, to, image + row * problem->src.h * (int64_t)problem->element_size, column, columns,
                         channels);
        }
    }
}
