/*
 * cpu_pixels: transposed convolution of NHWC tensors by phases, vectors along output channels; for every dtype. NCHW
 * images of one input pixel have the same memory, and are taken where each of their outputs has a tap: see
 * tconv_cpu_pixel_view.
 *
 * Outputs of one residue modulo the stride form a phase, a dense stride-1 correlation over its own taps (see
 * core/phases.h). For each task (blocking.h) a strip of the input is loaded; a microkernel sums a few pixels of one
 * phase by one or two vectors of output channels over taps and input channels in registers, and writes them in dst's
 * own order. Pixels of a micro-tile follow each other across rows and images, so that its registers are full in small
 * images too.
 *
 * Numeric order, of each output by itself: over K-blocks of input channels, live taps and channels in segments
 * (tconv_cpu_pixel_microtile), then the bias, then what it held, where the layer accumulates; float, or double for f64;
 * one rounding to the dtype. It depends on the layer and the machine, never on threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/bias.h"
#include "../cpu_backend.h"
#include "../cpu_target.h"
#include "../kernels/kernels.h"
#include "../threads/parallel.h"
#include "pack.h"
#include "strip.h"
#include "sum.h"

/* Sizes of the second-level cache: outputs of a larger dst are written by streaming stores; a smaller dst may be read
 * again from the third-level cache. It is chosen, not measured. */
enum { STREAM_L2_SIZES = 4 };

/* --------------------------------------------------------------------------------------------------------- tasks */

static void run_task(tconv_cpu_pixel_task *task, int64_t index)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    task->columns =
        tconv_cpu_cut_tile(index % plan->column_tiles, plan->tile_columns, plan->columns.positions, &task->column);
    index /= plan->column_tiles;
    task->rows = tconv_cpu_cut_tile(index % plan->row_tiles, plan->tile_rows, plan->rows.positions, &task->row);
    index /= plan->row_tiles;
    task->blocks = tconv_cpu_cut_tile(index % plan->block_tasks, plan->task_blocks, plan->blocks, &task->block);
    index /= plan->block_tasks;
    task->groups = tconv_cpu_cut_tile(index % plan->group_tasks, plan->groups, plan->all_groups, &task->group);
    index /= plan->group_tasks;
    task->images = tconv_cpu_cut_tile(index, plan->images, task->job->layer->problem.batch, &task->image);
    bool by_pixels = plan->pixels_first && tconv_cpu_run_by_pixels(task);
    if (!by_pixels)
        tconv_cpu_run_by_weights(task);
    tconv_cpu_channels channels = tconv_cpu_task_channels(task);
    const tconv_cpu_bias_only region = {.layer = task->job->layer,
                                        .dst = task->job->dst,
                                        .bias = task->job->raw_bias,
                                        .posts = &task->job->posts,
                                        .image = task->image,
                                        .images = task->images,
                                        .row = task->row,
                                        .rows = task->rows,
                                        .column = task->column,
                                        .columns = task->columns,
                                        .group = task->group,
                                        .groups = task->groups,
                                        .group_out = task->job->plan->group_out,
                                        .channel = channels.first,
                                        .channels = channels.count,
                                        .whole_rows = by_pixels && task->job->stage};
    tconv_cpu_fill_bias_only(&region);
}

/* Converts the bias group by group, each padded with zeros. Where several outputs of a channel of the caller are
 * channels of the view, each gets that channel's bias. */
static void convert_bias(const tconv_cpu_pixel_view *view, const tconv_cpu_pixel_plan *plan, const void *bias,
                         void *converted)
{
    const tconv_problem *problem = &view->layer.problem;
    const int64_t width = plan->vectors * plan->lanes, size = (int64_t)problem->element_size;
    const int64_t channels = plan->group_out / view->outputs;
    memset(converted, 0, (size_t)plan->bias_bytes);
    for (int64_t group = 0; bias != NULL && group < plan->all_groups; group++) {
        void *to = tconv_cpu_real_at(plan->real_size, converted, group * width);
        tconv_cpu_convert_bias(problem->dtype, (const char *)bias + group * channels * size, channels, to);
        for (int64_t i = plan->group_out - 1; view->outputs > 1 && i > 0;
             i--) /* from the last on, so that none is written before it is read */
            memcpy(tconv_cpu_real_at(plan->real_size, to, i), tconv_cpu_real_at(plan->real_size, to, i / view->outputs),
                   (size_t)plan->real_size);
    }
}

/* Chooses how outputs are written. */
static void choose_stores(tconv_cpu_pixel_job *job)
{
    const tconv_cpu_pixel_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    const bool stores_sums = tconv_cpu_are_outputs_sums(problem) || job->posts_fit;
    bool large =
        stores_sums && plan->kernels->streams &&
        problem->dst_extent * size / STREAM_L2_SIZES > (int64_t)tconv_cpu_target_of(&job->layer->target).l2_bytes;
    bool aligned = (uintptr_t)job->dst % TCONV_ALIGNMENT == 0 && problem->dst.w * size % TCONV_ALIGNMENT == 0 &&
                   problem->dst.n * size % TCONV_ALIGNMENT == 0 && plan->group_out * size % TCONV_ALIGNMENT == 0;
    job->direct = stores_sums && size == plan->real_size && plan->group_out % plan->lanes == 0;
    job->stage = plan->can_stage && (!job->direct || (large && (!aligned || job->posts_fit)));
    job->stream = large && (job->stage || (job->direct && aligned && !job->posts_fit));
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_pixel_job *job = shared->job;
    const tconv_cpu_pixel_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_pixel_task task = {.job = job, .strip = scratch, .sums = scratch + plan->strip_bytes};
    task.levels = (char *)task.sums + plan->sums_bytes;
    task.stage = (char *)task.levels + plan->levels_bytes;
    task.to = (int64_t *)(void *)((char *)task.stage + plan->stage_bytes);
    task.at = (int32_t *)(void *)((char *)task.to + plan->to_bytes);
    task.panels = (tconv_cpu_pixel_panel *)(void *)((char *)task.at + plan->at_bytes);
    task.inside = (tconv_cpu_pixel_tap *)(void *)((char *)task.panels + plan->panels_bytes);
    if (plan->depthwise) /* zeros the lanes beyond the last channel, which are summed, but not stored */
        memset(task.strip, 0, (size_t)plan->strip_bytes);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < plan->tasks;)
        run_task(&task, taken);
    tconv_cpu_find_kernels(tconv_cpu_target_of(&job->layer->target).cpu_isa)
        ->order_stores(); /* orders the streamed outputs */
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_pixel_layer *planned = made;
    const tconv_cpu_pixel_plan *plan = &planned->plan;
    const char *packed = arguments->packed;
    (void)issue;
    tconv_cpu_pixel_job job = {.layer = &planned->view.layer,
                               .plan = plan,
                               .src = arguments->src,
                               .dst = arguments->dst,
                               .bias = arguments->scratch,
                               .raw_bias = arguments->bias,
                               .header = arguments->packed,
                               .posts = {&layer->problem, arguments->post, arguments->dst},
                               .taps = (const tconv_cpu_pixel_tap *)(const void *)(packed + TCONV_ALIGNMENT),
                               .weights = packed + TCONV_ALIGNMENT + plan->taps_bytes};
    convert_bias(&planned->view, plan, arguments->bias, arguments->scratch);
    job.posts_fit =
        planned->view.outputs == 1 && tconv_cpu_posts_fit_sums(&job.layer->problem, job.layer->columns.bias_only);
    choose_stores(&job);
    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, (char *)arguments->scratch + plan->bias_bytes,
                        run_share);
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static tconv_status plan(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    tconv_cpu_pixel_layer *to = made;
    const char *refusal = "src and dst must be NHWC, or dense images of one input pixel with a tap for each output";
    if (tconv_cpu_pixel_view_init(&to->view, layer))
        refusal = tconv_cpu_pixel_refusal(&to->view.layer);
    if (refusal != NULL)
        return tconv_decline(issue, "%s", refusal);
    const tconv_status status = tconv_cpu_pixel_plan_init(&to->plan, &to->view.layer, issue);
    if (status != TCONV_SUCCESS)
        return status;
    planned->sizes.packed = (size_t)to->plan.packed_bytes;
    /* At most TCONV_CPU_MAX_THREADS threads of 2 MiB each, beside the bias: no sum overflows. */
    planned->sizes.scratch =
        (size_t)(to->plan.bias_bytes + tconv_cpu_shared_bytes() + to->plan.threads * to->plan.thread_bytes);
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_pixel_plan *plan = &((const tconv_cpu_pixel_layer *)made)->plan;
    (void)layer;
    snprintf(text, capacity,
             "k_block=%" PRId64 "%s tile=%" PRId64 "x%" PRId64 "x%" PRId64 " tasks=%" PRId64 " threads=%d",
             plan->k_block, plan->pixels_first ? " by pixels" : " by weights", plan->images, plan->tile_rows,
             plan->tile_columns, plan->tasks, plan->threads);
}

/* The K-block may follow from how many images share a tile. */
static bool is_batch_invariant(const tconv_layer *layer, const void *made)
{
    const tconv_layer layer_of_one = tconv_layer_of_one_image(layer);
    tconv_cpu_pixel_layer one = {0};
    tconv_issue issue;
    return tconv_cpu_pixel_view_init(&one.view, &layer_of_one) && tconv_cpu_pixel_refusal(&one.view.layer) == NULL &&
           tconv_cpu_pixel_plan_init(&one.plan, &one.view.layer, &issue) == TCONV_SUCCESS &&
           one.plan.k_block == ((const tconv_cpu_pixel_layer *)made)->plan.k_block;
}

const tconv_implementation tconv_cpu_pixels = {
    .name = "cpu_pixels",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .applies_posts = true,
    .plan_bytes = sizeof(tconv_cpu_pixel_layer),
    .plan = plan,
    .pack = tconv_cpu_pack_pixels,
    .execute = execute,
    .describe = describe,
    .batch_invariant = is_batch_invariant,
};
