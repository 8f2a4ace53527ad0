/*
 * cpu_columns: GEMM, then col2im, for layers with more weights than pixels: deep layers of generators at small batch,
 * first layers of vocoders, a step of a streamed network. All pixels are multiplied by all weights of a block of output
 * channels; the products are a pixel's row of a column buffer, which stays in the second-level cache, and each output
 * gathers its own from there. Weights are read once and as they lie: a K-block at a time is packed for the microkernels
 * of the pixels algorithm, whose vectors run along columns. Nothing is packed before, so that a call takes as long as
 * the weights take to come from memory.
 *
 * Words: a column is an output channel with a tap; a panel is the columns of a micro-tile. Others are blocking.h's.
 *
 * Numeric order, of each product by itself: over input channels in segments (tconv_cpu_pixel_microtile). An output adds
 * its products by parts of the taps and, of a part, by rising pixels, then the bias; float, or double for f64; one
 * rounding to the dtype. It depends on the layer and the machine, never on threads. What lies outside the image is
 * multiplied by nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "bias.h"
#include "columns_plan.h"
#include "cpu_backend.h"
#include "half.h"

enum { VECTORS = TCONV_CPU_MAX_PIXEL_VECTORS };

/* One call of execute, as all tasks see it. */
struct job {
    const tconv_layer *layer;
    const tconv_cpu_columns_plan *plan;
    const char *src, *weights;
    char *dst;
    const void *bias, *nothing; /* Real, [out_channels]; [width] of -0, which adds nothing */
};

/* A task and its thread's scratch. */
struct task {
    const struct job *job;
    int64_t group, channel, channels; /* the channels of the group that it computes */
    int64_t tap, part_taps, columns;  /* the part of the taps whose products it makes */
    void *strip, *weights, *sums, *levels, *products, *outputs;
    int64_t *column_weights; /* where the weights of each column begin, from the block's first */
    int64_t *pixel_src;      /* where each pixel begins in src */
    int64_t *pixel_products; /* where each pixel begins in the products */
    int64_t *rows_dst;       /* where each row of outputs, or pixel of one, begins in dst */
    int32_t *pixel_strip;    /* where each pixel begins in the strip */
};

/* ------------------------------------------------------------------------------------------------------- packing */

/* Lists where the weights of a part's columns begin. */
static void list_columns(struct task *task)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    for (int64_t column = 0; column < task->columns; column++) {
        const int64_t tap = task->tap + (plan->channels_inside ? column / task->channels : column % task->part_taps);
        const int64_t channel = plan->channels_inside ? column % task->channels : column / task->part_taps;
        task->column_weights[column] = channel * problem->weight.out + tap / problem->w.kernel * problem->weight.h +
                                       tap % problem->w.kernel * problem->weight.w;
    }
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
    static void load_##name(const void *from, int64_t step, int64_t count, void *to)                                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            ((real_type *)to)[i] = convert(((const type *)from)[i * step]);                                            \
    }

#define AS_IT_IS(value) (value)
DEFINE_PACK(f32, float, float, AS_IT_IS)
DEFINE_PACK(f64, double, double, AS_IT_IS)
DEFINE_PACK(f16, uint16_t, float, tconv_float_from_f16)
DEFINE_PACK(bf16, uint16_t, float, tconv_float_from_bf16)

/* By dtype: columns of weights; channels of a pixel. */
static const struct {
    void (*pack)(const void *from, int64_t row, const int64_t *places, int64_t rows, int64_t count, int64_t width,
                 void *to);
    void (*load)(const void *from, int64_t step, int64_t count, void *to);
} convert[TCONV_DTYPES] = {
    [TCONV_F32] = {pack_f32, load_f32},
    [TCONV_F64] = {pack_f64, load_f64},
    [TCONV_F16] = {pack_f16, load_f16},
    [TCONV_BF16] = {pack_bf16, load_bf16},
};

/* Returns the weights of the block's first column, of an input channel. */
static const char *weights_at(const struct task *task, int64_t channel)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t at =
        (task->group * problem->group_in + channel) * problem->weight.in + task->channel * problem->weight.out;
    return task->job->weights + at * (int64_t)problem->element_size;
}

static bool are_side_by_side(const int64_t *places, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (places[i] != places[0] + i)
            return false;
    return true;
}

/* Packs a panel of the K-block of `rows` input channels from `begin` on. */
static void pack_panel(const struct task *task, int64_t panel, int64_t begin, int64_t rows)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t first = panel * plan->width, count = tconv_min(plan->width, task->columns - first);
    const int64_t *places = task->column_weights + first;
    void *to = tconv_cpu_real_at(plan->real_size, task->weights, first * plan->k_block);
    if (count < plan->width)
        memset(to, 0, (size_t)(rows * plan->width * plan->real_size));
    if (!are_side_by_side(places, count)) {
        convert[problem->dtype].pack(weights_at(task, begin), problem->weight.in, places, rows, count, plan->width, to);
        return;
    }
    const tconv_cpu_pixel_load load = {.src = weights_at(task, begin) + *places * (int64_t)problem->element_size,
                                       .strip = to,
                                       .rows = rows,
                                       .count = count,
                                       .src_pitch = problem->weight.in,
                                       .strip_pitch = plan->width};
    plan->kernels->dtype[problem->dtype].load(&load);
}

/* Copies rows of a panel's bytes, a constant, to as many panels as there are whole ones. */
static inline void copy_rows(const char *from, int64_t row, int64_t rows, int64_t panels, int64_t panel_bytes, char *to,
                             const size_t bytes)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t p = 0; p < panels; p++)
            memcpy(to + p * panel_bytes + r * (int64_t)bytes, from + r * row + p * (int64_t)bytes, bytes);
}

/* Packs the whole panels of a K-block whose columns lie side by side, and are Real already: row by row as they lie.
 * Returns their number. */
static int64_t pack_rows(const struct task *task, int64_t begin, int64_t rows)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t size = plan->real_size, panels = task->columns / plan->width, bytes = plan->width * size;
    if ((int64_t)problem->element_size != size || !are_side_by_side(task->column_weights, task->columns))
        return 0;
    const char *from = weights_at(task, begin) + task->column_weights[0] * size;
    const int64_t row = problem->weight.in * size, panel_bytes = plan->k_block * bytes;
    if (bytes == 128)
        copy_rows(from, row, rows, panels, panel_bytes, task->weights, 128);
    else if (bytes == 64)
        copy_rows(from, row, rows, panels, panel_bytes, task->weights, 64);
    else
        copy_rows(from, row, rows, panels, panel_bytes, task->weights, (size_t)bytes);
    return panels;
}

/* Asks for the share of a panel of the next K-block's weights, row by row as they lie. */
static void prefetch_weights(const struct task *task, int64_t panel, int64_t panels, int64_t begin, int64_t rows)
{
    const int64_t size = (int64_t)task->job->layer->problem.element_size, step = TCONV_ALIGNMENT / size;
    for (int64_t row = begin + rows * panel / panels; row < begin + rows * (panel + 1) / panels; row++) {
        const char *from = weights_at(task, row);
        for (int64_t column = 0; column < task->columns; column += step)
            __builtin_prefetch(from + task->column_weights[column] * size, 0, 2);
    }
}

/* ------------------------------------------------------------------------------------------------------ products */

/* Multiplies all pixels by a panel, over the K-block of `rows` input channels from `begin` on. */
static void multiply_panel(const struct task *task, int64_t panel, int64_t begin, int64_t rows)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const int64_t most = plan->kernels->real[plan->real].max_pixels[VECTORS];
    const int64_t parts = tconv_ceil_div(plan->pixels, most), first_column = panel * plan->width;
    const tconv_cpu_pixel_tap tap = {0, 0};
    tconv_cpu_pixel_microtile microtile = {
        .strip = task->strip,
        .taps = &tap,
        .tap_count = 1,
        .channels = rows,
        .segment = tconv_ceil_div(rows, tconv_ceil_div(rows, TCONV_CPU_COLUMNS_SEGMENT)),
        .weights = tconv_cpu_real_at(plan->real_size, task->weights, first_column * plan->k_block),
        .levels = task->levels,
        .sums_level = plan->level,
        .calls_done = begin / plan->k_block};
    if (begin + rows == task->job->layer->problem.group_in) {
        microtile.bias = task->job->nothing;
        microtile.dst = tconv_cpu_real_at(plan->real_size, task->products, first_column);
    }
    for (int64_t part = 0, first = 0, count; part < parts; part++, first += count) {
        count = (plan->pixels - first) / (parts - part);
        microtile.at = task->pixel_strip + first;
        microtile.to = task->pixel_products + first;
        microtile.sums =
            tconv_cpu_real_at(plan->real_size, task->sums, first_column * plan->pixels + first * plan->width);
        plan->kernels->real[plan->real].dense[VECTORS][count](&microtile);
    }
}

static void load_strip(const struct task *task, int64_t begin, int64_t rows)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t channel = (task->group * problem->group_in + begin) * problem->src.c;
    for (int64_t pixel = 0; pixel < plan->pixels; pixel++)
        convert[problem->dtype].load(
            task->job->src + (task->pixel_src[pixel] + channel) * (int64_t)problem->element_size, problem->src.c, rows,
            tconv_cpu_real_at(plan->real_size, task->strip, task->pixel_strip[pixel]));
}

static void make_products(struct task *task)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const int64_t all = task->job->layer->problem.group_in, panels = tconv_ceil_div(task->columns, plan->width);
    for (int64_t begin = 0, rows; begin < all; begin += rows) {
        rows = tconv_min(plan->k_block, all - begin);
        const int64_t next = begin + rows, next_rows = tconv_min(plan->k_block, all - next);
        load_strip(task, begin, rows);
        const int64_t packed = pack_rows(task, begin, rows);
        for (int64_t panel = 0; panel < panels; panel++) {
            prefetch_weights(task, panel, panels, next, next_rows);
            if (panel >= packed)
                pack_panel(task, panel, begin, rows);
            multiply_panel(task, panel, begin, rows);
        }
    }
}

/* ----------------------------------------------------------------------------------------------------- gathering */

/* A pixel's products of taps [tap, end_tap), as they go to the outputs of an image: those of a tap, `count` channels
 * side by side, and where they go. */
struct scatter {
    const tconv_problem *problem;
    int64_t row, column; /* of the pixel */
    int64_t tap, end_tap;
    int64_t tap_pitch, output_pitch; /* columns from tap to tap; elements from output to output */
    int64_t count;
};

/* Adds a pixel's products to the outputs; those outside the image are dropped. */
#define DEFINE_SCATTER(real_type)                                                                                      \
    static void scatter_##real_type(const struct scatter *of, const real_type *products, real_type *outputs)           \
    {                                                                                                                  \
        const tconv_axis *h = &of->problem->h, *w = &of->problem->w;                                                   \
        const int64_t column = of->column * w->stride - w->pad;                                                        \
        const int64_t least = tconv_max(0, tconv_ceil_div(-column, w->dilation));                                      \
        const int64_t most = tconv_min(w->kernel, tconv_floor_div(w->out - 1 - column, w->dilation) + 1);              \
        for (int64_t i = of->tap / w->kernel; i * w->kernel < of->end_tap; i++) {                                      \
            const int64_t row = of->row * h->stride - h->pad + i * h->dilation;                                        \
            const int64_t begin = tconv_max(least, of->tap - i * w->kernel);                                           \
            const int64_t end = tconv_min(most, of->end_tap - i * w->kernel);                                          \
            if (row < 0 || row >= h->out || begin >= end)                                                              \
                continue;                                                                                              \
            const real_type *from = products + (i * w->kernel + begin - of->tap) * of->tap_pitch;                      \
            real_type *to = outputs + (row * w->out + column + begin * w->dilation) * of->output_pitch;                \
            const int64_t step = w->dilation * of->output_pitch;                                                       \
            if (of->count == 1 && step == 1 && of->tap_pitch == 1) {                                                   \
                for (int64_t j = 0; j < end - begin; j++)                                                              \
                    to[j] += from[j];                                                                                  \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t j = begin; j < end; j++, from += of->tap_pitch, to += step)                                   \
                for (int64_t c = 0; c < of->count; c++)                                                                \
                    to[c] += from[c];                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_bias_##real_type(const void *bias, int64_t channels, int64_t count, void *outputs)                 \
    {                                                                                                                  \
        real_type *to = outputs;                                                                                       \
        for (int64_t i = 0; i < count; i++)                                                                            \
            for (int64_t c = 0; c < channels; c++)                                                                     \
                *to++ += ((const real_type *)bias)[c];                                                                 \
    }

DEFINE_SCATTER(float)
DEFINE_SCATTER(double)

/* Channels of the block whose outputs lie side by side in task->outputs, [image][channel / so many][output][channel]. */
static int64_t channels_together(const struct task *task)
{
    return task->job->plan->channels_inside ? task->channels : 1;
}

/* Adds the products of a part to the outputs of `channels` of an image, from the block's channel `first` on. */
static void add_products(const struct task *task, int64_t image, int64_t first, int64_t channels, void *outputs)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t pixels = problem->h.in * problem->w.in, column = plan->channels_inside ? 0 : first * task->part_taps;
    struct scatter scatter = {.problem = problem,
                              .tap = task->tap,
                              .end_tap = task->tap + task->part_taps,
                              .tap_pitch = plan->channels_inside ? task->channels : 1,
                              .output_pitch = channels,
                              .count = channels};
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        const int64_t at = task->pixel_products[image * pixels + pixel] + column;
        scatter.row = pixel / problem->w.in;
        scatter.column = pixel % problem->w.in;
        if (plan->real)
            scatter_double(&scatter, (const double *)task->products + at, outputs);
        else
            scatter_float(&scatter, (const float *)task->products + at, outputs);
    }
}

/* Adds the bias to these outputs, and stores them. NCHW: rows of a plane; NHWC: pixels, a row at a time. */
static void store_outputs(const struct task *task, int64_t image, int64_t first, int64_t channels, void *outputs)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const bool planes = !plan->channels_inside;
    const int64_t count = planes ? problem->w.out : channels, rows = planes ? problem->h.out : problem->w.out;
    const int64_t channel = task->group * problem->group_out + task->channel + first;
    const int64_t dst = image * problem->dst.n + channel * problem->dst.c;
    const void *bias = tconv_cpu_real_at(plan->real_size, task->job->bias, channel);
    (plan->real ? add_bias_double : add_bias_float)(bias, channels, plan->outputs, outputs);
    for (int64_t part = 0; part < (planes ? 1 : problem->h.out); part++) {
        const tconv_cpu_pixel_store store = {.sums = tconv_cpu_real_at(plan->real_size, outputs, part * rows * count),
                                             .rows = rows,
                                             .count = count,
                                             .sums_pitch = count,
                                             .dst = task->job->dst +
                                                    (dst + part * problem->dst.h) * (int64_t)problem->element_size,
                                             .to = task->rows_dst};
        plan->kernels->dtype[problem->dtype].store(&store);
    }
}

/* --------------------------------------------------------------------------------------------------------- tasks */

/* Does so for all images and channels of a task. */
static void for_outputs(const struct task *task, void (*what)(const struct task *task, int64_t image, int64_t first,
                                                              int64_t channels, void *outputs))
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const int64_t together = channels_together(task);
    for (int64_t image = 0; image < task->job->layer->problem.batch; image++)
        for (int64_t first = 0; first < task->channels; first += together)
            what(task, image, first, together,
                 tconv_cpu_real_at(plan->real_size, task->outputs, (image * task->channels + first) * plan->outputs));
}

static void run_task(struct task *task, int64_t index)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    task->group = index / plan->blocks;
    task->channels = tconv_cpu_cut_tile(index % plan->blocks, plan->block_channels, problem->group_out, &task->channel);
    memset(task->outputs, 0, (size_t)(problem->batch * task->channels * plan->outputs * plan->real_size));
    for (task->tap = 0; task->tap < plan->taps; task->tap += task->part_taps) {
        task->part_taps = tconv_min(plan->part_taps, plan->taps - task->tap);
        task->columns = task->channels * task->part_taps;
        list_columns(task);
        make_products(task);
        for_outputs(task, add_products);
    }
    for_outputs(task, store_outputs);
}

/* Lists where each pixel begins in src, in the strip and in the products; and rows, or pixels of a row, in dst. */
static void list_pixels(struct task *task)
{
    const tconv_cpu_columns_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    for (int64_t pixel = 0; pixel < plan->pixels; pixel++) {
        const int64_t row = pixel / problem->w.in;
        task->pixel_src[pixel] = row / problem->h.in * problem->src.n + row % problem->h.in * problem->src.h +
                                 pixel % problem->w.in * problem->src.w;
        task->pixel_strip[pixel] = (int32_t)(pixel * plan->k_block);
        task->pixel_products[pixel] = pixel * plan->pitch;
    }
    for (int64_t i = 0; i < (plan->channels_inside ? problem->w.out : problem->h.out); i++)
        task->rows_dst[i] = i * (plan->channels_inside ? problem->dst.w : problem->dst.h);
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const struct job *job = shared->job;
    const tconv_cpu_columns_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    struct task task = {.job = job};
    task.strip = scratch;
    task.weights = (char *)task.strip + plan->strip_bytes;
    task.sums = (char *)task.weights + plan->weights_bytes;
    task.levels = (char *)task.sums + plan->sums_bytes;
    task.products = (char *)task.levels + plan->levels_bytes;
    task.outputs = (char *)task.products + plan->products_bytes;
    task.column_weights = (int64_t *)(void *)((char *)task.outputs + plan->outputs_bytes);
    task.pixel_src = task.column_weights + plan->pitch;
    task.pixel_products = task.pixel_src + plan->pixels;
    task.rows_dst = task.pixel_products + plan->pixels;
    task.pixel_strip = (int32_t *)(task.rows_dst + tconv_max(job->layer->problem.h.out, job->layer->problem.w.out));
    list_pixels(&task);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < plan->tasks;)
        run_task(&task, taken);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_columns_plan *plan = made;
    const tconv_problem *problem = &layer->problem;
    char *nothing = (char *)arguments->scratch + plan->bias_bytes;
    (void)issue;
    for (int64_t i = 0; i < plan->width; i++) {
        if (plan->real)
            ((double *)(void *)nothing)[i] = -0.0;
        else
            ((float *)(void *)nothing)[i] = -0.0F;
    }
    tconv_cpu_convert_bias(problem->dtype, arguments->bias, problem->out_channels, arguments->scratch);
    const struct job job = {
        .layer = layer,
        .plan = plan,
        .src = arguments->src,
        .weights = arguments->weights != NULL ? arguments->weights : arguments->packed,
        .dst = arguments->dst,
        .bias = arguments->scratch,
        .nothing = nothing,
    };
    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, nothing + plan->nothing_bytes, run_share);
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cpu_columns_plan *plan = made;
    const char *why = tconv_cpu_columns_plan_init(plan, layer);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)problem->weight_extent * problem->element_size;
    /* At least what the plan needs that holds packed weights, which another algorithm serves. */
    const int64_t cache = tconv_min(tconv_cpu_cache_share(layer, 100), (int64_t)planned->sizes.packed);
    planned->sizes.scratch = (size_t)(plan->bias_bytes + plan->nothing_bytes + tconv_cpu_shared_bytes() +
                                      plan->threads * tconv_max(plan->thread_bytes, cache));
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = true;
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_columns_plan *plan = made;
    (void)layer;
    snprintf(text, capacity, "pixels=%" PRId64 " channels=%" PRId64 " k_block=%" PRId64 " tasks=%" PRId64 " threads=%d",
             plan->pixels, plan->block_channels, plan->k_block, plan->tasks, plan->threads);
}

const tconv_implementation tconv_cpu_columns = {
    .name = "cpu_columns",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .plan_bytes = sizeof(tconv_cpu_columns_plan),
    .plan = plan_layer,
    .pack = tconv_cpu_copy_weights,
    .execute = execute,
    .describe = describe,
};
