/*
 * Outputs of cpu_col2im, from the products of its pixels (col2im): those of a part of the taps are added by rising
 * pixels, so that each output of a tile has its own in the same order, wherever the tile begins.
 */
#include "../../core/checked.h"
#include "task.h"

/* What a pixel of a row adds to: its taps [first, end) go to the tile, tap t to its column place + t * dilation. */
struct reach {
    int64_t place, first, end;
};

/* A row of pixels and a row of taps, [first, end), whose products go to a row of outputs: of each pixel and tap `count`
 * channels side by side. */
struct scatter {
    const struct reach *pixels;
    int64_t pixel_count, first, end;
    int64_t pixel_pitch, count, dilation; /* pixel_pitch: from a pixel's products to the next one's */
};

/* Runs of up to 4 are what most layers have. */
#define ADD_RUN(n)                                                                                                     \
    case n:                                                                                                            \
        for (int i = 0; i < (n); i++)                                                                                  \
            to[i] += from[i];                                                                                          \
        break;

#define DEFINE_SCATTER(real_type)                                                                                      \
    static inline void add_##real_type(const real_type *from, int64_t count, real_type *to)                            \
    {                                                                                                                  \
        switch (count) {                                                                                               \
            ADD_RUN(1)                                                                                                 \
            ADD_RUN(2)                                                                                                 \
            ADD_RUN(3)                                                                                                 \
            ADD_RUN(4)                                                                                                 \
        default:                                                                                                       \
            for (int64_t i = 0; i < count; i++)                                                                        \
                to[i] += from[i];                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void scatter_##real_type(const struct scatter *of, const real_type *from, real_type *to)                    \
    {                                                                                                                  \
        for (int64_t p = 0; p < of->pixel_count; p++, from += of->pixel_pitch) {                                       \
            const struct reach *reach = &of->pixels[p];                                                                \
            const int64_t first = tconv_max(of->first, reach->first), end = tconv_min(of->end, reach->end);            \
            const real_type *products = from + (first - of->first) * of->count;                                        \
            if (first >= end)                                                                                          \
                continue;                                                                                              \
            if (of->dilation == 1)                                                                                     \
                add_##real_type(products, (end - first) * of->count, to + (reach->place + first) * of->count);         \
            else                                                                                                       \
                for (int64_t t = first; t < end; t++, products += of->count)                                           \
                    add_##real_type(products, of->count, to + (reach->place + t * of->dilation) * of->count);          \
        }                                                                                                              \
    }

DEFINE_SCATTER(float)
DEFINE_SCATTER(double)

/* Adds the products of a row of taps and a row of pixels, which begin at `from` and at `row` of the tile. */
static void add_row(const tconv_cpu_col2im_task *task, const struct scatter *scatter, int64_t from, int64_t to)
{
    if (task->job->plan->real)
        scatter_double(scatter, (const double *)task->products + from, (double *)task->outputs + to);
    else
        scatter_float(scatter, (const float *)task->products + from, (float *)task->outputs + to);
}

/* Adds the products of an image, of the block's channels from `channel` on; its pixels begin with number `pixel`, its
 * outputs at `outputs`. */
static void add_image(const tconv_cpu_col2im_task *task, struct scatter *scatter, int64_t pixel, int64_t channel,
                      int64_t outputs)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t kernel = problem->w.kernel, end_tap = task->tap + task->part_taps;
    for (int64_t y = 0; y < task->src_rows.count; y++, pixel += task->src_columns.count)
        for (int64_t i = task->tap / kernel; i * kernel < end_tap; i++) {
            const int64_t row = (task->src_rows.begin + y) * problem->h.stride - problem->h.pad +
                                i * problem->h.dilation - task->dst_rows.begin;
            if (row < 0 || row >= task->dst_rows.count)
                continue;
            scatter->first = tconv_max(0, task->tap - i * kernel);
            scatter->end = tconv_min(kernel, end_tap - i * kernel);
            const int64_t tap = i * kernel + scatter->first - task->tap;
            add_row(task, scatter,
                    pixel * plan->pitch +
                        (plan->channels_inside ? tap * scatter->count : channel * task->part_taps + tap),
                    outputs + row * task->dst_columns.count * scatter->count);
        }
}

void tconv_cpu_col2im_gather(const tconv_cpu_col2im_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_axis *w = &task->job->layer->problem.w;
    const int64_t outputs = task->dst_rows.count * task->dst_columns.count;
    const int64_t together = plan->channels_inside ? task->channels : 1;
    struct reach pixels[TCONV_CPU_COL2IM_MAX_PIXELS];
    struct scatter scatter = {.pixels = pixels,
                              .pixel_count = task->src_columns.count,
                              .pixel_pitch = plan->pitch,
                              .count = together,
                              .dilation = w->dilation};
    for (int64_t x = 0; x < task->src_columns.count; x++) {
        const int64_t place = (task->src_columns.begin + x) * w->stride - w->pad - task->dst_columns.begin;
        pixels[x].place = place;
        pixels[x].first = tconv_max(0, tconv_ceil_div(-place, w->dilation));
        pixels[x].end = tconv_min(w->kernel, tconv_floor_div(task->dst_columns.count - 1 - place, w->dilation) + 1);
    }
    for (int64_t image = 0; image < task->images.count; image++)
        for (int64_t channel = 0; channel < task->channels; channel += together)
            add_image(task, &scatter, image * task->src_rows.count * task->src_columns.count, channel,
                      (image * task->channels + channel) * outputs);
}
