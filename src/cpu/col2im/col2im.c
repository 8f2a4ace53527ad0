/*
 * cpu_col2im: GEMM, then col2im, for layers with more weights than pixels: deep layers of generators at small batch,
 * first layers of vocoders, a step of a streamed network. All pixels are multiplied by all weights of a block of output
 * channels; the products are a pixel's row of a column buffer, which stays in the second-level cache, and each output
 * gathers its own from there. Weights are read once and as they lie: a K-block at a time is packed for the microkernels
 * of the pixels algorithm, whose vectors run along columns, or none where pixels are few. Nothing is packed before, so
 * that a call takes as long as the weights take to come from memory.
 *
 * And for layers with long filters, few output channels and any number of pixels (overlap-add, inverse short-time
 * Fourier transforms), whose phases are too many to read the input for each: in tiles of positions, with the pixels that
 * they reach. Pixels that several tiles reach are multiplied in each, so that no sum crosses tasks.
 *
 * Words: a column is an output channel with a tap; a panel is the columns of a micro-tile. Others are blocking.h's.
 *
 * Numeric order, of each product by itself: over input channels in segments (tconv_cpu_pixel_microtile). An output adds
 * its products by parts of the taps and, of a part, by rising pixels, then the bias, then what it held, where the layer
 * accumulates; float, or double for f64; one rounding to the dtype. It depends on the layer and the machine, never on
 * threads. What lies outside the image is multiplied by nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/bias.h"
#include "../cpu_backend.h"
#include "task.h"

/* -------------------------------------------------------------------------------------------------------- storing */

/* Adds the bias to sums of an image, of `channels` of the block from `first` on, and stores them. NCHW: rows of a
 * plane, which are one where they are whole, because they are dense; NHWC: pixels, a row at a time. */
static void store_outputs(const tconv_cpu_col2im_task *task, int64_t image, int64_t first, int64_t channels,
                          const void *sums)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const bool planes = !plan->channels_inside;
    const bool whole = planes && task->dst_columns.count == problem->w.out;
    const int64_t count = !planes ? channels : task->dst_columns.count * (whole ? task->dst_rows.count : 1);
    const int64_t rows = whole ? 1 : planes ? task->dst_rows.count : task->dst_columns.count;
    const int64_t channel = task->group * problem->group_out + task->channel + first;
    const int64_t dst = image * problem->dst.n + channel * problem->dst.c + task->dst_rows.begin * problem->dst.h +
                        task->dst_columns.begin * problem->dst.w;
    const void *bias = tconv_cpu_real_at(plan->real_size, task->job->bias, channel);
    tconv_cpu_finish finish = tconv_cpu_finish_of(problem, bias, channels, &task->job->posts);
    finish.steps |= TCONV_CPU_ADD_BIAS;
    for (int64_t part = 0; part < (planes ? 1 : task->dst_rows.count); part++) {
        const tconv_cpu_pixel_store store = {.sums = tconv_cpu_real_at(plan->real_size, sums, part * rows * count),
                                             .rows = rows,
                                             .count = count,
                                             .sums_pitch = count,
                                             .dst = task->job->dst +
                                                    (dst + part * problem->dst.h) * (int64_t)problem->element_size,
                                             .to = task->rows_dst,
                                             .finish = finish};
        plan->kernels->dtype[problem->dtype].store(&store);
    }
}

static void store_images(const tconv_cpu_col2im_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const int64_t together = plan->channels_inside ? task->channels : 1;
    const int64_t outputs = task->dst_rows.count * task->dst_columns.count;
    for (int64_t image = 0; image < task->images.count; image++)
        for (int64_t first = 0; first < task->channels; first += together)
            store_outputs(
                task, task->images.begin + image, first, together,
                tconv_cpu_real_at(plan->real_size, task->outputs, (image * task->channels + first) * outputs));
}

/* --------------------------------------------------------------------------------------------------------- tasks */

/* Sets the outputs and the inputs of so many positions of an axis. */
static void cut_axis(const tconv_axis *axis, const tconv_cpu_axis *live, int64_t begin, int64_t positions,
                     tconv_cpu_span *src, tconv_cpu_span *dst)
{
    const int64_t end = begin + positions;
    dst->begin = begin * axis->stride;
    dst->count = (end >= live->positions ? axis->out : end * axis->stride) - dst->begin;
    src->begin = tconv_min(tconv_max(0, begin + live->min_shift), axis->in);
    src->count = tconv_max(0, tconv_min(axis->in, end + live->max_shift) - src->begin);
}

/* Sets a tile, and lists where each pixel begins in src, in the strip and in the products. */
static void begin_tile(tconv_cpu_col2im_task *task, int64_t tile)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    int64_t row, column, pixel = 0;
    const int64_t rows = tconv_cpu_cut_tile(tile / plan->column_tiles % plan->row_tiles, plan->tile_rows,
                                            plan->row_axis.positions, &row);
    const int64_t columns =
        tconv_cpu_cut_tile(tile % plan->column_tiles, plan->tile_columns, plan->column_axis.positions, &column);
    task->tile = tile;
    task->images.count = tconv_cpu_cut_tile(tile / plan->column_tiles / plan->row_tiles, plan->tile_images,
                                            problem->batch, &task->images.begin);
    cut_axis(&problem->h, &plan->row_axis, row, rows, &task->src_rows, &task->dst_rows);
    cut_axis(&problem->w, &plan->column_axis, column, columns, &task->src_columns, &task->dst_columns);
    for (int64_t image = 0; image < task->images.count; image++)
        for (int64_t y = 0; y < task->src_rows.count; y++)
            for (int64_t x = 0; x < task->src_columns.count; x++, pixel++) {
                task->pixel_src[pixel] = (task->images.begin + image) * problem->src.n +
                                         (task->src_rows.begin + y) * problem->src.h +
                                         (task->src_columns.begin + x) * problem->src.w;
                task->pixel_strip[pixel] = (int32_t)(pixel * plan->k_block);
                task->pixel_products[pixel] = pixel * plan->pitch;
            }
    task->pixels = pixel;
}

static void run_task(tconv_cpu_col2im_task *task, int64_t index)
{
    const tconv_cpu_col2im_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t tile = index / plan->blocks / problem->groups, group = index / plan->blocks % problem->groups;
    if (tile != task->tile || group != task->group)
        task->loaded = 0;
    if (tile != task->tile)
        begin_tile(task, tile);
    task->group = group;
    task->channels = tconv_cpu_cut_tile(index % plan->blocks, plan->block_channels, problem->group_out, &task->channel);
    memset(task->outputs, 0,
           (size_t)(task->images.count * task->channels * task->dst_rows.count * task->dst_columns.count *
                    plan->real_size));
    for (task->tap = 0; task->tap < plan->taps && task->pixels > 0; task->tap += task->part_taps) {
        task->part_taps = tconv_min(plan->part_taps, plan->taps - task->tap);
        task->columns = task->channels * task->part_taps;
        tconv_cpu_col2im_multiply(task);
        tconv_cpu_col2im_gather(task);
    }
    store_images(task);
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_col2im_job *job = shared->job;
    const tconv_cpu_col2im_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_col2im_task task = {.job = job, .tile = -1};
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
    task.pixel_strip = (int32_t *)(task.rows_dst + plan->store_rows);
    for (int64_t i = 0; i < plan->store_rows; i++)
        task.rows_dst[i] = i * (plan->channels_inside ? problem->dst.w : problem->dst.h);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < plan->tasks;)
        run_task(&task, taken);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_col2im_plan *plan = made;
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
    const tconv_cpu_col2im_job job = {
        .layer = layer,
        .plan = plan,
        .src = arguments->src,
        .weights = arguments->weights != NULL ? arguments->weights : arguments->packed,
        .dst = arguments->dst,
        .bias = arguments->scratch,
        .nothing = nothing,
        .posts = {problem, arguments->post, arguments->dst},
    };
    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, nothing + plan->nothing_bytes, run_share);
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cpu_col2im_plan *plan = made;
    const char *why = tconv_cpu_col2im_plan_init(plan, layer);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)problem->weight_extent * problem->element_size;
    planned->sizes.scratch = (size_t)(plan->bias_bytes + plan->nothing_bytes + tconv_cpu_shared_bytes() +
                                      plan->threads * plan->thread_bytes);
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = true;
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_col2im_plan *plan = made;
    (void)layer;
    snprintf(text, capacity,
             "tiles=%" PRId64 " pixels=%" PRId64 " channels=%" PRId64 " taps=%" PRId64 " k_block=%" PRId64
             " packs=%s tasks=%" PRId64 " threads=%d",
             plan->tiles, plan->pixels, plan->block_channels, plan->part_taps, plan->k_block,
             plan->sweeps ? "no" : "yes", plan->tasks, plan->threads);
}

/* Parts of the taps may follow from how many pixels there are. */
static bool is_batch_invariant(const tconv_layer *layer, const void *made)
{
    const tconv_cpu_col2im_plan *plan = made;
    const tconv_layer layer_of_one = tconv_layer_of_one_image(layer);
    tconv_cpu_col2im_plan one = {0};
    return tconv_cpu_col2im_plan_init(&one, &layer_of_one) == NULL && one.part_taps == plan->part_taps &&
           one.k_block == plan->k_block && one.sweeps == plan->sweeps;
}

const tconv_implementation tconv_cpu_col2im = {
    .name = "cpu_col2im",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .applies_posts = true,
    .plan_bytes = sizeof(tconv_cpu_col2im_plan),
    .plan = plan_layer,
    .pack = tconv_cpu_copy_weights,
    .execute = execute,
    .describe = describe,
    .batch_invariant = is_batch_invariant,
};
