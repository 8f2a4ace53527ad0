/*
 * Products of cpu_col2im: pixels times columns, over input channels in K-blocks. A K-block of weights is packed as it
 * is used, whole rows as they lie, for the microkernels of the pixels algorithm; or, where pixels are few, rows are
 * multiplied where they lie (tconv_cpu_sweep).
 */
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../kernels/half.h"
#include "task.h"

enum { VECTORS = TCONV_CPU_MAX_PIXEL_VECTORS };

/* Columns: shorter runs are packed one by one. */
enum { SHORT_RUN = 16 };

/* Pixels side by side whose channels are loaded together: as many as half a cache line has of f32. */
enum { LOADED = 8 };

/* ------------------------------------------------------------------------------------------------------- packing */

/* Lists where the weights of a part's columns begin. */
static void list_columns(tconv_cpu_col2im_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t step = plan->channels_inside ? 1 : task->part_taps;
    int64_t row = task->tap / problem->w.kernel, column = task->tap % problem->w.kernel;
    for (int64_t tap = 0; tap < task->part_taps; tap++) {
        int64_t *to = task->column_weights + tap * (plan->channels_inside ? task->channels : 1);
        const int64_t place = row * problem->weight.h + column * problem->weight.w;
        for (int64_t channel = 0; channel < task->channels; channel++)
            to[channel * step] = place + channel * problem->weight.out;
        if (++column == problem->w.kernel) {
            column = 0;
            row++;
        }
    }
    for (task->run = 1; task->run < task->columns; task->run++)
        if (task->column_weights[task->run] != task->column_weights[0] + task->run)
            break;
}

/* Packs some columns that do not lie side by side: rows of input channels, as wide as a panel. */
#define DEFINE_PACK(name, type, real_type, convert)                                                                    \
    static void pack_##name(const void *from, int64_t row, const int64_t *places, int64_t rows, int64_t count,         \
                            int64_t width, void *to)                                                                   \
    {                                                                                                                  \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t i = 0; i < count; i++)                                                                        \
                ((real_type *)to)[r * width + i] = convert(((const type *)from)[r * row + places[i]]);                 \
    }                                                                                                                  \
    static void load_##name(const void *from, int64_t step, int64_t rows, void *to, int64_t pixels, int64_t pitch)     \
    {                                                                                                                  \
        if (pixels == LOADED)                                                                                          \
            for (int64_t i = 0; i < rows; i++)                                                                         \
                for (int64_t p = 0; p < LOADED; p++)                                                                   \
                    ((real_type *)to)[p * pitch + i] = convert(((const type *)from)[i * step + p]);                    \
        else                                                                                                           \
            for (int64_t i = 0; i < rows; i++)                                                                         \
                ((real_type *)to)[i] = convert(((const type *)from)[i * step]);                                        \
    }

#define AS_IT_IS(value) (value)
DEFINE_PACK(f32, float, float, AS_IT_IS)
DEFINE_PACK(f64, double, double, AS_IT_IS)
DEFINE_PACK(f16, uint16_t, float, tconv_float_from_f16)
DEFINE_PACK(bf16, uint16_t, float, tconv_float_from_bf16)

/* Each dtype has a function that packs columns of weights, and one that loads channels of a pixel, or of LOADED pixels side by
 * side, which go to so many strips. */
static const struct {
    void (*pack)(const void *from, int64_t row, const int64_t *places, int64_t rows, int64_t count, int64_t width,
                 void *to);
    void (*load)(const void *from, int64_t step, int64_t rows, void *to, int64_t pixels, int64_t pitch);
} convert[TCONV_DTYPES] = {
    [TCONV_F32] = {pack_f32, load_f32},
    [TCONV_F64] = {pack_f64, load_f64},
    [TCONV_F16] = {pack_f16, load_f16},
    [TCONV_BF16] = {pack_bf16, load_bf16},
};

/* Returns the weights of the block's first column, of an input channel. */
static const char *weights_at(const tconv_cpu_col2im_task *task, int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t at =
        (task->group * problem->group_in + channel) * problem->weight.in + task->channel * problem->weight.out;
    return task->job->weights + at * (int64_t)problem->element_size;
}

/* Where the weights of a K-block are packed that begins with this input channel: while one is multiplied, the next is
 * packed beside it. */
static void *packed_at(const tconv_cpu_col2im_task *task, int64_t begin)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    return tconv_cpu_real_at(plan->real_size, task->weights, begin / plan->k_block % 2 * plan->pitch * plan->k_block);
}

/* Packs a panel: so many rows of weights from an input channel on. */
static void pack_panel(const tconv_cpu_col2im_task *task, int64_t panel, int64_t channel, int64_t rows, void *to)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t first = panel * plan->width, count = tconv_min(plan->width, task->columns - first);
    const int64_t *places = task->column_weights + first;
    if (count < plan->width)
        memset(to, 0, (size_t)(rows * plan->width * plan->real_size));
    if (first / task->run != (first + count - 1) / task->run) {
        convert[problem->dtype].pack(weights_at(task, channel), problem->weight.in, places, rows, count, plan->width,
                                     to);
        return;
    }
    const tconv_cpu_pixel_load load = {.src = weights_at(task, channel) + *places * (int64_t)problem->element_size,
                                       .strip = to,
                                       .rows = rows,
                                       .count = count,
                                       .src_pitch = problem->weight.in,
                                       .strip_pitch = plan->width};
    plan->kernels->dtype[problem->dtype].load(&load);
}

/* Copies rows of a panel's bytes, a constant, to as many panels as there are whole ones; places: of the panels' columns in a row. */
static inline void copy_rows(const char *from, int64_t row, int64_t rows, const int64_t *places, int64_t width,
                             int64_t panels, int64_t panel_bytes, char *to, const size_t bytes)
{
    const int64_t size = (int64_t)bytes / width;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t p = 0; p < panels; p++)
            memcpy(to + p * panel_bytes + r * (int64_t)bytes, from + r * row + places[p * width] * size, bytes);
}

/* Packs rows of the whole panels, where the columns of each lie side by side and are Real already: row by row as they lie.
 * Returns the number of panels. */
static int64_t pack_whole(const tconv_cpu_col2im_task *task, int64_t channel, int64_t rows, char *to)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = plan->real_size, panels = task->columns / plan->width, bytes = plan->width * size;
    if ((int64_t)problem->element_size != size || (task->run < task->columns && task->run % plan->width != 0))
        return 0;
    const char *from = weights_at(task, channel);
    const int64_t row = problem->weight.in * size, panel_bytes = plan->k_block * bytes, *places = task->column_weights;
    if (bytes == 128)
        copy_rows(from, row, rows, places, plan->width, panels, panel_bytes, to, 128);
    else if (bytes == 64)
        copy_rows(from, row, rows, places, plan->width, panels, panel_bytes, to, 64);
    else
        copy_rows(from, row, rows, places, plan->width, panels, panel_bytes, to, (size_t)bytes);
    return panels;
}

/* Asks for rows of weights, row by row as they lie. */
static void prefetch_weights(const tconv_cpu_col2im_task *task, int64_t channel, int64_t rows)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = (int64_t)problem->element_size, step = TCONV_ALIGNMENT / size;
    for (int64_t row = channel; row < tconv_min(channel + rows, problem->group_in); row++) {
        const char *from = weights_at(task, row);
        for (int64_t column = 0; column < task->columns; column += step)
            __builtin_prefetch(from + task->column_weights[column] * size, 0, 2);
    }
}

/* Packs a share of the K-block of `rows` input channels from `begin` on, and asks for the rows that follow: many
 * more at a time would push each other out of the cache, where rows lie a power of two apart. */
static void pack_share(const tconv_cpu_col2im_task *task, int64_t begin, int64_t rows, int64_t share, int64_t shares)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const int64_t first = rows * share / shares, count = rows * (share + 1) / shares - first;
    void *to = tconv_cpu_real_at(plan->real_size, packed_at(task, begin), first * plan->width);
    if (begin == 0)
        prefetch_weights(task, begin + first + count, tconv_ceil_div(plan->k_block, shares));
    for (int64_t panel = pack_whole(task, begin + first, count, to); panel * plan->width < task->columns; panel++)
        pack_panel(task, panel, begin + first, count,
                   tconv_cpu_real_at(plan->real_size, to, panel * plan->width * plan->k_block));
}

/* ------------------------------------------------------------------------------------------------------ products */

/* Multiplies all pixels by a panel, over the K-block of `rows` input channels from `begin` on. */
static void multiply_panel(const tconv_cpu_col2im_task *task, const void *strip, int64_t panel, int64_t begin,
                           int64_t rows, int64_t ahead, int64_t ahead_rows)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const int64_t most = plan->kernels->real[plan->real].max_pixels[VECTORS];
    const int64_t parts = tconv_ceil_div(task->pixels, most), first_column = panel * plan->width;
    const tconv_cpu_pixel_tap tap = {0, 0};
    tconv_cpu_pixel_microtile microtile = {
        .strip = strip,
        .taps = &tap,
        .tap_count = 1,
        .channels = rows,
        .segment = tconv_cpu_even_segment(rows, TCONV_CPU_COL2IM_SEGMENT),
        .weights = tconv_cpu_real_at(plan->real_size, packed_at(task, begin), first_column * plan->k_block),
        .levels = task->levels,
        .sums_level = plan->level,
        .calls_done = begin / plan->k_block};
    if (begin + rows == task->job->layer->problem.group_in) {
        microtile.bias = task->job->nothing;
        microtile.dst = tconv_cpu_real_at(plan->real_size, task->products, first_column);
    }
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        const int64_t from = ahead_rows * part / parts;
        prefetch_weights(task, ahead + from, ahead_rows * (part + 1) / parts - from);
        count = (task->pixels - first) / (parts - part);
        microtile.at = task->pixel_strip + first;
        microtile.to = task->pixel_products + first;
        microtile.sums =
            tconv_cpu_real_at(plan->real_size, task->sums, first_column * plan->pixels + first * plan->width);
        plan->kernels->real[plan->real].dense[VECTORS][count](&microtile);
    }
}

/* Returns how many pixels are loaded together from this one on: LOADED where that many lie side by side, else 1. */
static int64_t neighbours(const tconv_cpu_col2im_task *task, int64_t pixel)
{
    if (task->job->layer->problem.src.c == 1 || pixel + LOADED > task->pixels)
        return 1;
    for (int64_t i = 1; i < LOADED; i++)
        if (task->pixel_src[pixel + i] != task->pixel_src[pixel] + i)
            return 1;
    return LOADED;
}

/* Returns the strip of the K-block of `rows` input channels from `begin` on, loaded if it does not lie there. */
static const void *load_strip(tconv_cpu_col2im_task *task, int64_t begin, int64_t rows)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t channel = (task->group * problem->group_in + begin) * problem->src.c;
    void *strip = tconv_cpu_real_at(plan->real_size, task->strip, plan->keeps_strip ? begin * plan->pixels : 0);
    if (begin < task->loaded)
        return strip;
    for (int64_t pixel = 0, count; pixel < task->pixels; pixel += count) {
        count = neighbours(task, pixel);
        convert[problem->dtype].load(
            task->job->src + (task->pixel_src[pixel] + channel) * (int64_t)problem->element_size, problem->src.c, rows,
            tconv_cpu_real_at(plan->real_size, strip, task->pixel_strip[pixel]), count, plan->k_block);
    }
    if (plan->keeps_strip)
        task->loaded = begin + rows;
    return strip;
}

/* Packs rows of weights from an input channel on, of all columns, a pitch apart. */
static void pack_rows(const tconv_cpu_col2im_task *task, int64_t channel, int64_t rows)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const char *from = weights_at(task, channel);
    if (task->run < SHORT_RUN) {
        convert[problem->dtype].pack(from, problem->weight.in, task->column_weights, rows, task->columns, plan->pitch,
                                     task->weights);
        return;
    }
    for (int64_t column = 0; column < task->columns; column += task->run) {
        const tconv_cpu_pixel_load load = {.src = from + task->column_weights[column] * (int64_t)problem->element_size,
                                           .strip = tconv_cpu_real_at(plan->real_size, task->weights, column),
                                           .rows = rows,
                                           .count = task->run,
                                           .src_pitch = problem->weight.in,
                                           .strip_pitch = plan->pitch};
        plan->kernels->dtype[problem->dtype].load(&load);
    }
}

/* Adds to sums the products of all pixels and rows of weights from an input channel on; src: of the first pixel and
 * that channel. Rows that are not Real, or in short pieces, are packed, some at a time. */
static void sweep_rows(const tconv_cpu_col2im_task *task, const char *src, int64_t channel, int64_t rows, void *sums)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = plan->real_size;
    const bool packs = (int64_t)problem->element_size != size || task->run < SHORT_RUN;
    const int64_t run = packs ? task->columns : task->run, most = packs ? TCONV_CPU_SWEEP_ROWS : rows;
    for (int64_t row = 0; row < rows; row += most) {
        tconv_cpu_sweep sweep = {.src = src + row * size,
                                 .weights = task->weights,
                                 .pixels = task->pixels,
                                 .rows = tconv_min(most, rows - row),
                                 .count = run,
                                 .src_pitch = plan->k_block,
                                 .weights_pitch = packs ? plan->pitch : problem->weight.in,
                                 .sums_pitch = plan->pitch};
        sweep.readable = packs ? sweep.rows : problem->group_in - channel;
        if (packs)
            pack_rows(task, channel + row, sweep.rows);
        for (int64_t column = 0; column < task->columns; column += run) {
            if (!packs)
                sweep.weights = weights_at(task, channel) + task->column_weights[column] * size;
            sweep.sums = tconv_cpu_real_at(size, sums, column);
            plan->kernels->real[plan->real].sweep(&sweep);
        }
    }
}

/* Adds count sums to others. */
#define DEFINE_ADD(real_type)                                                                                          \
    static void add_##real_type(const void *from, int64_t count, void *to)                                             \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            ((real_type *)to)[i] += ((const real_type *)from)[i];                                                      \
    }

DEFINE_ADD(float)
DEFINE_ADD(double)

/* Multiplies all pixels by rows of weights, in the same segments and the same cascade as the microkernels, of all
 * K-blocks together. */
static void sweep_products(tconv_cpu_col2im_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const int64_t all = task->job->layer->problem.group_in, sums_count = task->pixels * plan->pitch;
    int64_t segments = 0; /* that are done */
    for (int64_t begin = 0, rows; begin < all; begin += rows) {
        rows = tconv_min(plan->k_block, all - begin);
        const int64_t segment = tconv_cpu_even_segment(rows, TCONV_CPU_COL2IM_SEGMENT);
        const char *strip = load_strip(task, begin, rows);
        for (int64_t row = 0; row < rows; row += segment, segments++) {
            const bool last = begin + row + segment >= all;
            int64_t level = 0;
            while (segments >> level & 1)
                level++;
            void *sums = last ? task->products : tconv_cpu_real_at(plan->real_size, task->sums, level * plan->level);
            memset(sums, 0, (size_t)(sums_count * plan->real_size));
            sweep_rows(task, strip + row * plan->real_size, begin + row, tconv_min(segment, rows - row), sums);
            for (int64_t k = 0; last ? segments >> k != 0 : k < level; k++)
                if (segments >> k & 1)
                    (plan->real ? add_double : add_float)(
                        tconv_cpu_real_at(plan->real_size, task->sums, k * plan->level), sums_count, sums);
        }
    }
}

static void multiply_packed(tconv_cpu_col2im_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const int64_t all = task->job->layer->problem.group_in, panels = tconv_ceil_div(task->columns, plan->width);
    for (int64_t share = 0; share < panels; share++)
        pack_share(task, 0, tconv_min(plan->k_block, all), share, panels);
    for (int64_t begin = 0, rows; begin < all; begin += rows) {
        rows = tconv_min(plan->k_block, all - begin);
        const int64_t next = begin + rows, next_rows = tconv_min(plan->k_block, all - next);
        const void *strip = load_strip(task, begin, rows);
        for (int64_t panel = 0; panel < panels; panel++) {
            if (next_rows > 0)
                pack_share(task, next, next_rows, panel, panels);
            multiply_panel(task, strip, panel, begin, rows, next + next_rows * (panel + 1) / panels,
                           tconv_ceil_div(plan->k_block, panels));
        }
    }
}

void tconv_cpu_col2im_multiply(tconv_cpu_col2im_task *task)
{
    list_columns(task);
    if (task->job->plan->sweeps)
        sweep_products(task);
    else
        multiply_packed(task);
}
