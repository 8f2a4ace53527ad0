/*
 * cpu_dgrad: the gradient of src, for every dtype and either layout,
 *
 *     diff_src[n, c, i] = sum over o, k of diff_dst[n, o, stride * i + dilation * k - pad] * weights[c, o, k]
 *
 * a correlation whose steps over diff_dst are the stride. Outputs of one residue modulo the stride are a phase
 * (core/phases.h), in which the outputs that a tap reads from neighbouring inputs are neighbours. For each task
 * (dgrad/plan.h) a strip is loaded, phase by phase (_strip), so that all taps of all phases read it at offsets; the
 * microkernels of cpu_phases (_planes: vectors along positions) or cpu_pixels (_pixels: vectors along input channels)
 * sum over taps and output channels in registers. Each result is written once; _border does some of them again where
 * weights are Inf or NaN. _plan decides how a layer is cut up, _pack packs weights, _ahead prefetches, _task is what they
 * share.
 *
 * Of bf16 two output channels are a word, where the machine multiplies more of them by AVX512_BF16 than of f32: there is a
 * second plan, which is the same with words for channels (kernels/pair_kernels.h). The instruction takes what is subnormal for
 * zero, so that each execute looks through the gradient of dst first (_range): where a product may be lost all is summed by
 * the first plan.
 *
 * Numeric order, of each result by itself: over K-blocks of output channels; planes: output channels, then taps; pixels:
 * taps, then output channels; in segments (tconv_cpu_microtile); then what it held, where the layer accumulates; float, or
 * double for f64; one rounding to the dtype. It depends on the layer, the machine and, of bf16, on the range of the numbers,
 * never on threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/pair_range.h"
#include "../cpu_backend.h"
#include "../wgrad/view.h"
#include "task.h"

/* Sets the part of the layer that a task is. */
static void place_task(tconv_cpu_dgrad_task *task, int64_t index)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
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
}

/* Prefetches the strip that follows, of the next group or K-block or of another task, `next`, if it is none of the last. */
static void look_ahead(tconv_cpu_dgrad_task *task, int64_t next, int64_t group, int64_t end)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    tconv_cpu_dgrad_task following = *task;
    if (end == plan->group_out) {
        end = 0;
        group++;
    }
    following.lines = task->lines_ahead;
    if (group == task->group + task->groups && next < plan->tasks) {
        place_task(&following, next);
        group = following.group;
    }
    tconv_cpu_look_ahead_dgrad(task, group < following.group + following.groups ? &following : NULL, group, end);
}

static void sum_and_store(tconv_cpu_dgrad_task *task, int64_t next)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    if (plan->pixels)
        tconv_cpu_list_pixels(task);
    else
        tconv_cpu_list_planes(task);
    for (int64_t group = task->group; group < task->group + task->groups; group++)
        for (int64_t begin = 0, end; begin < plan->group_out; begin = end) {
            end = tconv_min(plan->group_out, begin + plan->k_block);
            tconv_cpu_load_dgrad(task, group, begin, end - begin);
            if (plan->pixels) {
                tconv_cpu_sum_pixels(task, group, begin, end);
                continue;
            }
            look_ahead(task, next, group, end);
            tconv_cpu_sum_planes(task, group, begin, end);
        }
}

/* next: the task that probably follows */
static void run_task(tconv_cpu_dgrad_task *task, int64_t next)
{
    const bool border = task->job->header->has_nonfinite;
    if (!border || !task->job->layer->problem.desc.accumulate)
        sum_and_store(task, next);
    if (border)
        tconv_cpu_correlate_border(task);
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_dgrad_job *job = shared->job;
    const tconv_cpu_dgrad_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_dgrad_task task = {.job = job, .strip = scratch, .sums = scratch + plan->strip_bytes};
    task.levels = (char *)task.sums + plan->sums_bytes;
    task.stage = (char *)task.levels + plan->levels_bytes;
    task.to = (int64_t *)(void *)((char *)task.stage + plan->stage_bytes);
    task.at = (int32_t *)(void *)((char *)task.to + plan->to_bytes);
    task.runs = (tconv_cpu_dgrad_run *)(void *)((char *)task.at + plan->at_bytes);
    task.splits = (tconv_cpu_split_run *)(void *)((char *)task.runs + plan->runs_bytes);
    task.lines = (tconv_cpu_dgrad_lines *)(void *)((char *)task.splits + plan->splits_bytes);
    task.lines_ahead = (tconv_cpu_dgrad_lines *)(void *)((char *)task.lines + plan->lines_bytes);
    task.ahead.rows = (int64_t *)(void *)((char *)task.lines_ahead + plan->lines_bytes);
    /* Whole vectors are read, beyond the last position of a row and the last channel of a depthwise pixel: their sums
     * are not stored, but they must not read what the memory held before. */
    memset(task.strip, 0, (size_t)plan->strip_bytes);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < plan->tasks;) {
        place_task(&task, taken);
        run_task(&task, taken + 1);
    }
    plan->kernels->order_stores(); /* orders the streamed results */
}

typedef struct correlation {
    tconv_cpu_dgrad_plan plan;  /* of the view */
    tconv_cpu_dgrad_plan pairs; /* by pairs, where these have all products; no threads: there is none */
    tconv_cpu_wgrad_view view;
} correlation;

static tconv_status pack(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const correlation *planned = made;
    (void)layer;
    if (planned->pairs.threads > 0)
        tconv_cpu_pack_dgrad(&planned->view.layer, &planned->pairs, weights,
                             (char *)packed + planned->plan.packed_bytes, stream, issue);
    return tconv_cpu_pack_dgrad(&planned->view.layer, &planned->plan, weights, packed, stream, issue);
}

/* Whether all products are those of pairs. */
static bool by_pairs(const correlation *planned, const tconv_arguments *arguments)
{
    const char *packed = arguments->packed;
    const tconv_cpu_packed_header *header = arguments->packed;
    if (planned->pairs.threads == 0 || header->has_nonfinite)
        return false;
    const tconv_cpu_dgrad_pair_header *pairs = (const void *)(packed + planned->plan.packed_bytes);
    const tconv_layer *layer = &planned->view.layer;
    const tconv_cpu_pair_tensor dst = tconv_cpu_pairs_of_dst(&layer->problem, arguments->dst);
    tconv_cpu_pair_range range;
    return tconv_cpu_find_pair_range(&layer->target, planned->pairs.threads, &dst, &pairs->range, &range,
                                     arguments->scratch);
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const correlation *planned = made;
    const tconv_cpu_dgrad_plan *plan = &planned->plan;
    const char *packed = arguments->packed;
    (void)issue;
    if (by_pairs(planned, arguments)) {
        packed += plan->packed_bytes;
        plan = &planned->pairs;
    }
    const tconv_cpu_dgrad_job job = {.layer = &planned->view.layer,
                                     .plan = plan,
                                     .dst = arguments->dst,
                                     .src = arguments->src,
                                     .header = (const void *)packed,
                                     .terms = packed + TCONV_ALIGNMENT,
                                     .weights = packed + TCONV_ALIGNMENT + plan->terms_bytes};
    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, arguments->scratch, run_share);
    return TCONV_SUCCESS;
}

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    correlation *seen = made;
    tconv_cpu_dgrad_plan *to = &seen->plan;
    tconv_cpu_wgrad_view_init(&seen->view, layer);
    int64_t packed = 0;
    tconv_status status = tconv_cpu_dgrad_plan_init(to, &seen->view.layer, false, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (tconv_cpu_has_dgrad_pairs(to, &seen->view.layer))
        status = tconv_cpu_dgrad_plan_init(&seen->pairs, &seen->view.layer, true, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (!tconv_checked_add(to->packed_bytes, seen->pairs.packed_bytes, &packed))
        return tconv_cpu_too_large("packed weights", issue);
    planned->sizes.packed = (size_t)packed;
    /* At most TCONV_CPU_MAX_THREADS threads of 4 MiB each: no sum overflows. */
    planned->sizes.scratch =
        (size_t)(tconv_cpu_shared_bytes() +
                 tconv_max(to->threads * to->thread_bytes, seen->pairs.threads * seen->pairs.thread_bytes));
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const correlation *planned = made;
    const bool pairs = planned->pairs.threads > 0;
    const tconv_cpu_dgrad_plan *plan = pairs ? &planned->pairs : &planned->plan;
    (void)layer;
    snprintf(text, capacity,
             "strip=%s pairs=%d k_block=%" PRId64 " tile=%" PRId64 "x%" PRId64 "x%" PRId64 " tasks=%" PRId64
             " threads=%d",
             plan->pixels ? "pixels" : "planes", pairs, plan->k_block, plan->images, plan->tile_rows,
             plan->tile_columns, plan->tasks, plan->threads);
}

/* The K-block may follow from how many images share a tile, and pairs from what all images hold. */
static bool is_batch_invariant(const tconv_layer *layer, const void *made)
{
    const correlation *planned = made;
    const tconv_layer layer_of_one = tconv_layer_of_one_image(layer);
    tconv_planned sizes = {0};
    correlation one = {0};
    tconv_issue issue;
    return planned->pairs.threads == 0 && plan_layer(&layer_of_one, &one, &sizes, &issue) == TCONV_SUCCESS &&
           one.plan.k_block == planned->plan.k_block && one.plan.rows_of_taps == planned->plan.rows_of_taps;
}

const tconv_implementation tconv_cpu_dgrad = {
    .name = "cpu_dgrad",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .plan_bytes = sizeof(correlation),
    .plan = plan_layer,
    .pack = pack,
    .execute = execute,
    .describe = describe,
    .batch_invariant = is_batch_invariant,
};
