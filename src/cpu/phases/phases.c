/*
 * cpu_phases: transposed convolution by phases, for every layer, dtype and layout.
 *
 * Outputs of one residue modulo the stride form a phase, a dense stride-1 correlation over its own taps (see
 * core/phases.h). For each task (phases/plan.h) the input is packed once into a strip; a microkernel sums channels x
 * vectors of positions over taps and input channels in registers; the column phases of a row are interleaved and each
 * output is written once. There is no column buffer and no multiplication by a stride's zeros.
 *
 * Numeric order, of each output by itself: over live taps and input channels in segments (tconv_cpu_microtile), then
 * the bias, then what it held, where the layer accumulates; float, or double for f64; one rounding to the dtype. It
 * depends on the layer and the machine, never on threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/bias.h"
#include "../cpu_backend.h"
#include "../threads/parallel.h"
#include "border.h"
#include "pack.h"
#include "stencil.h"
#include "store.h"
#include "strip.h"

/* A bias that changes nothing, not even a zero's sign, for channels whose sums are not complete. */
static const float no_bias_f32[TCONV_CPU_MAX_CHANNELS] = {-0.0F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F,
                                                          -0.0F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F};
static const double no_bias_f64[TCONV_CPU_MAX_CHANNELS] = {-0.0, -0.0, -0.0, -0.0, -0.0, -0.0,
                                                           -0.0, -0.0, -0.0, -0.0, -0.0, -0.0};

/* Gives each channel its bias in the last of its passes; successive passes of a row phase leave out the last phases. */
static void spread_bias(const tconv_cpu_job *job, const tconv_cpu_pass *pass, const tconv_cpu_pass *next,
                        int64_t channel, int64_t channels, tconv_cpu_pass_call *call)
{
    const tconv_cpu_plan *plan = job->plan;
    const void *none = plan->real ? (const void *)no_bias_f64 : (const void *)no_bias_f32;
    int64_t later = plan->fused && !pass->ends_row ? next->phases : 0;
    for (int64_t p = 0; p < pass->phases; p++)
        memcpy(tconv_cpu_real_at(plan->real_size, call->bias, p * channels),
               p < later ? none : tconv_cpu_real_at(plan->real_size, job->bias, channel),
               (size_t)(channels * plan->real_size));
    call->microtile.bias = call->bias;
}

/* Returns the column tap that the passes of a pass's row phase begin with. */
static int64_t first_tap(const tconv_cpu_job *job, const tconv_cpu_pass *pass)
{
    const tconv_phase *column = tconv_cpu_column_phase(job->plan, job->layer, pass->first);
    return tconv_cpu_live_taps(&job->layer->problem.w, &job->layer->columns, column).first;
}

static int64_t count_segments(int64_t terms)
{
    return tconv_ceil_div(terms, TCONV_CPU_SEGMENT);
}

/* Returns how many input channels, of so many taps each, a period should have to make the fewest segments. */
static int64_t period_channels(int64_t tap_count, int64_t group_in)
{
    int64_t best = 1, least = INT64_MAX;
    for (int64_t segments = 1; segments <= TCONV_CPU_PERIOD_SEGMENTS; segments++) {
        int64_t channels = tconv_min(group_in, segments * TCONV_CPU_SEGMENT / tap_count);
        if (channels == 0)
            continue;
        int64_t all = group_in / channels * count_segments(channels * tap_count) +
                      count_segments(group_in % channels * tap_count);
        if (all < least) {
            least = all;
            best = channels;
        }
    }
    return best;
}

/* Describes the terms of a halo pass: periods of some whole input channels, in segments as even as can be. */
static void describe_halo_terms(const tconv_cpu_task *task, const tconv_cpu_pass *pass, tconv_cpu_pass_call *call)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const int32_t *taps = task->job->taps + pass->taps;
    int64_t tap_count = tconv_cpu_pass_taps(pass);
    tconv_cpu_microtile *microtile = &call->microtile;
    int64_t channels = tap_count > 0 ? period_channels(tap_count, task->job->layer->problem.group_in) : 1;
    microtile->offsets = taps;
    microtile->period = tconv_max(1, channels * tap_count);
    microtile->period_stride = channels * plan->channel_pitch;
    microtile->segment = tconv_cpu_even_segment(microtile->period, TCONV_CPU_SEGMENT);
    if (channels == 1)
        return;
    for (int64_t channel = 0; channel < channels; channel++)
        for (int64_t tap = 0; tap < tap_count; tap++)
            call->offsets[channel * tap_count + tap] = (int32_t)(channel * plan->channel_pitch + taps[tap]);
    microtile->offsets = call->offsets;
}

/* Returns the weights of a pass for a block of channels. */
static const void *pass_weights(const tconv_cpu_task *task, const tconv_cpu_pass *pass, int64_t group,
                                tconv_cpu_block block)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    const int64_t all_taps = plan->rows.taps * plan->columns.taps;
    return tconv_cpu_real_at(plan->real_size, task->job->weights,
                             (group * problem->group_out + block.first) * problem->group_in * all_taps +
                                 pass->weights * problem->group_in * block.count);
}

static void describe_pass(const tconv_cpu_task *task, const tconv_cpu_pass *pass, int64_t group, tconv_cpu_block block,
                          tconv_cpu_pass_call *call)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    tconv_cpu_microtile *microtile = &call->microtile;
    *microtile = (tconv_cpu_microtile){.strip = task->strip,
                                       .weights = pass_weights(task, pass, group, block),
                                       .terms = tconv_cpu_pass_taps(pass) * problem->group_in,
                                       .sums_stride = plan->sums_pitch,
                                       .levels = task->levels,
                                       .sums_level = plan->sums_level,
                                       .last = true};
    call->microkernels = plan->kernels->real[plan->real].microkernels[block.count * pass->phases];
    if (plan->gather) { /* a term follows another at the channel pitch */
        for (int32_t i = 0; i < TCONV_CPU_SEGMENT; i++)
            call->offsets[i] = i * (int32_t)plan->channel_pitch;
        microtile->offsets = call->offsets;
        microtile->period = microtile->segment = TCONV_CPU_SEGMENT;
        microtile->period_stride = TCONV_CPU_SEGMENT * plan->channel_pitch;
    } else {
        microtile->strip = tconv_cpu_real_at(plan->real_size, task->strip,
                                             (group - task->group) * problem->group_in * plan->channel_pitch);
        microtile->calls_done = plan->fused && pass->column_taps.first > first_tap(job, pass);
        describe_halo_terms(task, pass, call);
    }
}

/* ---------------------------------------------------------------------------------------------------------- halo */

/* Lists where the vectors of the first rows of a tile begin, row by row, unless the last list was the same. */
static void list_vectors(tconv_cpu_task *task, int64_t rows)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t count = 0, columns = task->columns + plan->max_lag;
    if (task->vector_images == task->images && task->vector_rows == rows && task->vector_columns == columns)
        return;
    task->vector_images = task->images;
    task->vector_rows = rows;
    task->vector_columns = columns;
    task->vector_count = tconv_cpu_count_vectors(plan, task->images, rows, columns);
    if (tconv_cpu_is_flat(plan, task->images, rows, columns)) {
        for (; count < task->vector_count; count++)
            task->vectors[count] = (int32_t)(count * plan->lanes);
        return;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t image = 0; image < task->images; image++)
            for (int64_t column = 0; column < columns; column += plan->lanes)
                task->vectors[count++] = (int32_t)(row * plan->row_pitch + image * plan->pitch + column);
}

/* Sums and stores all positions of a tile, for a block of channels and the passes of one row phase that are stored
 * together. */
static void sum_halo(tconv_cpu_task *task, int64_t group, tconv_cpu_block block, const tconv_cpu_pass *passes,
                     int64_t pass_count)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    int64_t channel = group * job->layer->problem.group_out + block.first;
    int64_t rows = tconv_min(task->rows, passes->row->outputs - task->row);
    tconv_cpu_pass_call *calls = task->calls;
    tconv_cpu_sums sums = {.sums = task->sums, .pitch = plan->sums_pitch, .channel = channel, .channels = block.count};
    int64_t columns = task->columns + plan->max_lag;
    for (int64_t p = 0; p < pass_count; p++) {
        describe_pass(task, &passes[p], group, block, &calls[p]);
        spread_bias(job, &passes[p], &passes[p + 1], channel, block.count, &calls[p]);
    }
    for (int64_t row = 0, count; row < rows; row += count) {
        count = tconv_min(plan->row_block, rows - row);
        list_vectors(task, count);
        bool flat = tconv_cpu_is_flat(plan, task->images, count, columns);
        sums.image_pitch = flat ? plan->pitch : tconv_ceil_div(columns, plan->lanes) * plan->lanes;
        sums.row_pitch = flat ? plan->row_pitch : task->images * sums.image_pitch;
        sums.row = row;
        sums.rows = count;
        for (int64_t p = 0; p < pass_count; p++) {
            tconv_cpu_microtile *microtile = &calls[p].microtile;
            int64_t most = plan->kernels->real[plan->real].max_vectors[block.count * passes[p].phases];
            int64_t held = plan->fused || !plan->together ? 0 : passes[p].first * block.count;
            int64_t parts = tconv_ceil_div(task->vector_count, most); /* calls as even as can be */
            int64_t segments = tconv_ceil_div(microtile->terms, microtile->segment);
            const void *strip = microtile->strip;
            if (plan->weights_ahead) { /* those of the next pass, or of the next block's first pass */
                const int64_t bytes = microtile->terms * block.count * passes[p].phases * plan->real_size;
                tconv_cpu_prefetch_run(&task->prefetch, (const char *)microtile->weights + bytes, bytes,
                                       parts * segments);
            }
            microtile->strip = tconv_cpu_real_at(plan->real_size, strip, row * plan->row_pitch);
            for (int64_t part = 0, v = 0, vectors; part < parts; part++, v += vectors) {
                vectors = (task->vector_count - v) / (parts - part);
                microtile->vectors = task->vectors + v;
                microtile->sums =
                    tconv_cpu_real_at(plan->real_size, task->sums, held * plan->sums_pitch + v * plan->lanes);
                tconv_cpu_attach_prefetch(&task->prefetch, segments, microtile);
                calls[p].microkernels[vectors](microtile);
            }
            microtile->strip = strip;
        }
        tconv_cpu_store_sums(task, passes, &sums);
    }
}

static void run_halo(tconv_cpu_task *task, const tconv_cpu_task *next)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_load_halo(task);
    if (!plan->weights_ahead)
        tconv_cpu_begin_prefetch(task, next);
    for (int64_t group = task->group; group < task->group + task->groups; group++) {
        for (int64_t b = task->block; b < task->block + task->blocks; b++) {
            tconv_cpu_block block = tconv_cpu_block_of(plan, layer->problem.group_out, b);
            tconv_cpu_pass passes[TCONV_CPU_MAX_INTERLEAVE + 1], pass = {0};
            int64_t count = 0;
            while (tconv_cpu_next_pass(plan, layer, &pass)) {
                passes[count++] = pass;
                if (plan->together && !pass.ends_row)
                    continue;
                sum_halo(task, group, block, passes, count);
                count = 0;
            }
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- gather */

/* Returns where the sums of a block are held, for the index-th of the passes that are stored together. */
static int64_t held_sums(const tconv_cpu_task *task, int64_t index, tconv_cpu_block block)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t phases = plan->together ? task->job->layer->columns.count : 1;
    tconv_cpu_block first = tconv_cpu_block_of(plan, task->job->layer->problem.group_out, task->block);
    return ((block.first - first.first) * phases + index * block.count) * plan->sums_pitch;
}

/* Plans to prefetch, over so many segments, the weights that are read after those of a block's terms [begin, end): of the
 * next block of channels, or of the first block's terms that follow. Weights come from behind the second-level cache once for
 * each tile, and a gathered tile has few positions: without it pose_1 took 1.17 times as long by AVX2
 * (docs/log/2026-11-29-avx2.md). */
static void prefetch_weights(const tconv_cpu_task *task, const tconv_cpu_pass *pass, int64_t block, int64_t begin,
                             int64_t end, int64_t segments, tconv_cpu_prefetch *prefetch)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const bool last = block + 1 == task->block + task->blocks;
    const tconv_cpu_block next =
        tconv_cpu_block_of(plan, task->job->layer->problem.group_out, last ? task->block : block + 1);
    const void *first = tconv_cpu_real_at(plan->real_size, pass_weights(task, pass, task->group, next),
                                          (last ? end : begin) * next.count);
    tconv_cpu_prefetch_run(prefetch, first, (end - begin) * next.count * plan->real_size, segments);
}

/* Sums terms [begin, end) of a pass, which are gathered in the strip, for a block of channels at all positions. */
static void sum_gathered(const tconv_cpu_task *task, const tconv_cpu_pass *pass, int64_t index, int64_t number,
                         int64_t begin, int64_t end)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const tconv_cpu_block block = tconv_cpu_block_of(plan, job->layer->problem.group_out, number);
    int64_t vectors = tconv_ceil_div(task->rows * task->images * task->columns, plan->lanes);
    int64_t most = plan->kernels->real[plan->real].max_vectors[block.count], parts = tconv_ceil_div(vectors, most);
    tconv_cpu_pass_call call;
    tconv_cpu_microtile *microtile = &call.microtile;
    describe_pass(task, pass, task->group, block, &call);
    microtile->last = end == tconv_cpu_pass_taps(pass) * job->layer->problem.group_in;
    microtile->bias =
        tconv_cpu_real_at(plan->real_size, job->bias, task->group * job->layer->problem.group_out + block.first);
    microtile->terms = end - begin;
    microtile->weights = tconv_cpu_real_at(plan->real_size, microtile->weights, begin * block.count);
    microtile->calls_done = begin / plan->k_block;
    const int64_t segments = tconv_ceil_div(microtile->terms, microtile->segment);
    tconv_cpu_prefetch prefetch;
    prefetch_weights(task, pass, number, begin, end, parts * segments, &prefetch);
    for (int64_t part = 0, v = 0, count; part < parts; part++, v += count) {
        int32_t starts[TCONV_CPU_MAX_VECTORS];
        count = (vectors - v) / (parts - part);
        for (int64_t i = 0; i < count; i++)
            starts[i] = (int32_t)((v + i) * plan->lanes);
        microtile->vectors = starts;
        microtile->sums =
            tconv_cpu_real_at(plan->real_size, task->sums, held_sums(task, index, block) + v * plan->lanes);
        tconv_cpu_attach_prefetch(&prefetch, segments, microtile);
        call.microkernels[count](microtile);
    }
}

/* Runs the passes of one row phase that are stored together: all K-blocks of each, and then the stores. */
static void run_gathered_passes(const tconv_cpu_task *task, const tconv_cpu_pass *passes, int64_t pass_count)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    if (passes->row->outputs <= task->row)
        return;
    for (int64_t p = 0; p < pass_count; p++) {
        int64_t terms = tconv_cpu_pass_taps(&passes[p]) * problem->group_in, begin = 0, end;
        do {
            end = tconv_min(terms, begin + plan->k_block);
            tconv_cpu_load_gathered(task, task->group, &passes[p], begin, end);
            for (int64_t b = task->block; b < task->block + task->blocks; b++)
                sum_gathered(task, &passes[p], p, b, begin, end);
            begin = end;
        } while (begin < terms);
    }
    for (int64_t b = task->block; b < task->block + task->blocks; b++) {
        tconv_cpu_block block = tconv_cpu_block_of(plan, problem->group_out, b);
        const tconv_cpu_sums sums = {.sums = tconv_cpu_real_at(plan->real_size, task->sums, held_sums(task, 0, block)),
                                     .pitch = plan->sums_pitch,
                                     .channel = task->group * problem->group_out + block.first,
                                     .channels = block.count,
                                     .row_pitch = task->columns,
                                     .image_pitch = task->rows * task->columns,
                                     .row = 0,
                                     .rows = tconv_min(task->rows, passes->row->outputs - task->row)};
        tconv_cpu_store_sums(task, passes, &sums);
    }
}

static void run_gathered(const tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    tconv_cpu_pass passes[TCONV_CPU_MAX_INTERLEAVE], pass = {0};
    int64_t count = 0;
    while (tconv_cpu_next_pass(plan, task->job->layer, &pass)) {
        passes[count++] = pass;
        if (plan->together && !pass.ends_row)
            continue;
        run_gathered_passes(task, passes, count);
        count = 0;
    }
}

/* --------------------------------------------------------------------------------------------------------- tasks */

/* Sets the part of the layer that a task is. */
static void place_task(tconv_cpu_task *task, int64_t index)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    task->columns =
        tconv_cpu_cut_tile(index % plan->column_tiles, plan->tile_columns, plan->columns.positions, &task->column);
    index /= plan->column_tiles;
    task->rows = tconv_cpu_cut_tile(index % plan->row_tiles, plan->tile_rows, plan->rows.positions, &task->row);
    index /= plan->row_tiles;
    task->blocks = tconv_cpu_cut_tile(index % plan->block_tasks, plan->task_blocks, plan->blocks, &task->block);
    index /= plan->block_tasks;
    task->groups = tconv_cpu_cut_tile(index % plan->group_tasks, plan->groups, problem->groups, &task->group);
    index /= plan->group_tasks;
    task->images = tconv_cpu_cut_tile(index, plan->images, problem->batch, &task->image);
}

/* Sums and stores the outputs of a task that have a phase. next is the task that the thread goes on with; NULL after the
 * last one. */
static void run_phases(tconv_cpu_task *task, const tconv_cpu_task *next)
{
    if (task->job->plan->gather)
        run_gathered(task);
    else if (task->job->plan->stencil)
        tconv_cpu_run_stencil(task, next);
    else
        run_halo(task, next);
}

static void run_task(tconv_cpu_task *task, const tconv_cpu_task *next)
{
    const tconv_cpu_job *job = task->job;
    const bool border = job->header->has_nonfinite, only_border = border && job->layer->problem.desc.accumulate;
    if (!only_border)
        run_phases(task, next);
    tconv_cpu_store_bias_only(task, job->plan->interleave && !only_border);
    if (border)
        tconv_cpu_compute_border(task);
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_job *job = shared->job;
    const tconv_cpu_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_task task = {.job = job,
                           .strip = scratch,
                           .sums = scratch + plan->strip_bytes,
                           .levels = scratch + plan->strip_bytes + plan->sums_bytes};
    task.stage = (char *)task.levels + plan->levels_bytes;
    task.calls = (tconv_cpu_pass_call *)(void *)((char *)task.stage + plan->stage_bytes);
    task.vectors = (int32_t *)(void *)((char *)task.calls + plan->calls_bytes);
    tconv_cpu_task next = {.job = job};
    int64_t taken = tconv_cpu_take_task(&shared->tasks, &index);
    while (taken < plan->tasks) {
        int64_t after = tconv_cpu_take_task(&shared->tasks, &index);
        place_task(&task, taken);
        if (after < plan->tasks)
            place_task(&next, after);
        run_task(&task, after < plan->tasks ? &next : NULL);
        taken = after;
    }
    plan->kernels->order_stores();
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_plan *plan = made;
    const char *packed = arguments->packed;
    (void)issue;
    tconv_cpu_job job = {.layer = layer,
                         .plan = plan,
                         .src = arguments->src,
                         .dst = arguments->dst,
                         .bias = arguments->scratch,
                         .raw_bias = arguments->bias,
                         .header = arguments->packed,
                         .posts = {&layer->problem, arguments->post, arguments->dst},
                         .taps = (const int32_t *)(const void *)(packed + TCONV_ALIGNMENT),
                         .weights = packed + TCONV_ALIGNMENT + plan->taps_bytes};
    tconv_cpu_convert_bias(layer->problem.dtype, arguments->bias, layer->problem.out_channels, arguments->scratch);

    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, (char *)arguments->scratch + plan->bias_bytes,
                        run_share);
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static tconv_status plan(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    tconv_cpu_plan *to = made;
    const tconv_status status = tconv_cpu_plan_init(to, layer, issue);
    if (status != TCONV_SUCCESS)
        return status;
    planned->sizes.packed = (size_t)to->packed_bytes;
    /* At most TCONV_CPU_MAX_THREADS threads of 2 MiB each, beside the bias: no sum overflows. */
    planned->sizes.scratch = (size_t)(to->bias_bytes + tconv_cpu_shared_bytes() + to->threads * to->thread_bytes);
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_plan *plan = made;
    (void)layer;
    snprintf(text, capacity, "strip=%s%s%s tile=%" PRId64 "x%" PRId64 "x%" PRId64 " tasks=%" PRId64 " threads=%d",
             plan->gather ? "gather" : "halo", plan->fused ? " fused" : "", plan->stencil ? " stencil" : "",
             plan->images, plan->tile_rows, plan->tile_columns, plan->tasks, plan->threads);
}

/* Which strip there is, and the K-block of a gathered one, may follow from how many images share a tile. */
static bool is_batch_invariant(const tconv_layer *layer, const void *made)
{
    const tconv_cpu_plan *plan = made;
    const tconv_layer layer_of_one = tconv_layer_of_one_image(layer);
    tconv_cpu_plan one;
    tconv_issue issue;
    return tconv_cpu_plan_init(&one, &layer_of_one, &issue) == TCONV_SUCCESS && one.gather == plan->gather &&
           one.k_block == plan->k_block && one.fused == plan->fused && one.stencil == plan->stencil;
}

const tconv_implementation tconv_cpu_phases = {
    .name = "cpu_phases",
    .backend = TCONV_BACKEND_CPU,
    .dtypes = TCONV_DTYPES_TO_F64,
    .accumulates = true,
    .applies_posts = true,
    .plan_bytes = sizeof(tconv_cpu_plan),
    .plan = plan,
    .pack = tconv_cpu_pack_phases,
    .execute = execute,
    .describe = describe,
    .batch_invariant = is_batch_invariant,
};
