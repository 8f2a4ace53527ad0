/*
 * cpu_phases: transposed convolution by phases, for every layer, dtype and layout.
 *
 * Outputs of one residue modulo the stride form a phase, a dense stride-1 correlation over its own taps (see
 * core/phases.h). For each task (phases_plan.h) a strip of the input is loaded once; a microkernel sums channels x
 * vectors of positions over taps and input channels in registers; the column phases of a row are interleaved and each
 * output is written once. There is no column buffer and no multiplication by a stride's zeros.
 *
 * Numeric order, of each output by itself: over live taps and input channels in segments (tconv_cpu_tile), then the
 * bias; float, or double for f64; one rounding to the dtype. It depends on the layer and the machine, never on threads.
 */
#include "phases.h"

#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "cpu_backend.h"
#include "half.h"
#include "parallel.h"

/* Everything about a microkernel call but where it works: the terms of a pair of phases, and a block of channels. */
static void describe_terms(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, int64_t group,
                           tconv_cpu_block block, tconv_cpu_tile *tile)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    int64_t all_taps = plan->rows.taps * plan->columns.taps;
    int64_t weights = (group * problem->group_out + block.first) * problem->group_in * all_taps +
                      pair->offset * problem->group_in * block.count;
    *tile = (tconv_cpu_tile){.weights = tconv_cpu_at(plan, job->weights, weights), .folded = plan->folded};
    if (plan->gather) {
        static const int32_t start = 0;
        tile->outer = &start;
        tile->outer_count = 1;
        tile->inner_count = tconv_cpu_pair_taps(pair) * problem->group_in;
        tile->inner_stride = plan->channel_pitch;
    } else {
        /* With one input channel a group, kernel columns make the inner loop, which would have one turn otherwise. */
        bool single = problem->group_in == 1;
        tile->strip = tconv_cpu_at(plan, task->strip, (group - task->group) * problem->group_in * plan->channel_pitch);
        tile->outer = job->taps + pair->offset;
        tile->outer_count = single ? pair->row_taps.count : tconv_cpu_pair_taps(pair);
        tile->inner_count = single ? pair->column_taps.count : problem->group_in;
        tile->inner_stride = single ? -job->layer->columns.shift_step : plan->channel_pitch;
    }
    if (tile->inner_count == 0) { /* no live tap: the bias alone */
        tile->inner_count = 1;
        tile->outer_count = 0;
    }
    int64_t parts = tconv_ceil_div(tile->inner_count, TCONV_CPU_SEGMENT);
    tile->inner_segment = tconv_ceil_div(tile->inner_count, parts);
    tile->outer_segment = parts > 1 ? 1 : TCONV_CPU_SEGMENT / tile->inner_count;
}

/* ---------------------------------------------------------------------------------------------------------- halo */

/* Lists where the vectors of a tile begin, row by row, unless the last task's tile was alike. */
static void list_vectors(tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t count = 0;
    if (task->vector_images == task->images && task->vector_rows == task->rows && task->vector_columns == task->columns)
        return;
    task->vector_images = task->images;
    task->vector_rows = task->rows;
    task->vector_columns = task->columns;
    task->vector_count = tconv_cpu_count_vectors(plan, task->images, task->rows, task->columns);
    if (tconv_cpu_is_flat(plan, task->images, task->rows, task->columns)) {
        for (; count < task->vector_count; count++)
            task->vectors[count] = (int32_t)(count * plan->lanes);
        return;
    }
    for (int64_t row = 0; row < task->rows; row++)
        for (int64_t image = 0; image < task->images; image++)
            for (int64_t column = 0; column < task->columns; column += plan->lanes)
                task->vectors[count++] = (int32_t)(row * plan->row_pitch + image * plan->pitch + column);
}

/* Stores a tile's vectors, as runs of those that lie side by side. */
static void store_vectors(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, tconv_cpu_sums *sums,
                          const int32_t *vectors, int64_t count)
{
    const int64_t lanes = task->job->plan->lanes;
    const void *all = sums->sums;
    for (int64_t v = 0, run; v < count; v += run) {
        for (run = 1; v + run < count && vectors[v + run] == vectors[v] + run * lanes;)
            run++;
        sums->sums = tconv_cpu_at(task->job->plan, all, v * lanes);
        sums->position = vectors[v];
        sums->count = run * lanes;
        tconv_cpu_store_sums(task, pair, sums);
    }
    sums->sums = all;
}

/* All positions of a tile, for a block of channels and the pairs of one row phase that are stored together. */
static void sum_halo(const tconv_cpu_task *task, int64_t group, tconv_cpu_block block,
                     const tconv_cpu_phase_pair *pairs, int64_t pair_count)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    int64_t most = plan->kernels->real[plan->real].max_vectors[block.count], vectors = task->vector_count;
    int64_t channel = group * job->layer->problem.group_out + block.first;
    tconv_cpu_tile tiles[TCONV_CPU_MAX_INTERLEAVE];
    tconv_cpu_sums sums = {.sums = task->sums,
                           .phase_stride = block.count * most * plan->lanes,
                           .channel_stride = most * plan->lanes,
                           .channel = channel,
                           .channels = block.count};
    int64_t rows = tconv_min(task->rows, pairs->row->outputs - task->row);
    if (rows <= 0)
        return;
    if (rows < task->rows) { /* the phase ends before the tile: so do its vectors */
        int64_t end = (rows - 1) * plan->row_pitch + (task->images - 1) * plan->pitch + task->columns;
        while (vectors > 0 && task->vectors[vectors - 1] >= end)
            vectors--;
    }
    for (int64_t p = 0; p < pair_count; p++) {
        describe_terms(task, &pairs[p], group, block, &tiles[p]);
        tiles[p].sums = tconv_cpu_at(plan, task->sums, p * sums.phase_stride);
        tiles[p].sums_stride = sums.channel_stride;
        tiles[p].bias = tconv_cpu_at(plan, job->bias, channel);
    }
    int64_t parts = tconv_ceil_div(vectors, most); /* as even as can be */
    for (int64_t part = 0, v = 0, count; part < parts; part++, v += count) {
        count = (vectors - v) / (parts - part);
        tconv_cpu_tile_function *sum = plan->kernels->real[plan->real].tiles[block.count][count];
        for (int64_t p = 0; p < pair_count; p++) {
            tiles[p].vectors = task->vectors + v;
            sum(&tiles[p]);
        }
        store_vectors(task, pairs, &sums, task->vectors + v, count);
    }
}

static void run_halo(tconv_cpu_task *task)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_load_halo(task);
    list_vectors(task);
    for (int64_t group = task->group; group < task->group + task->groups; group++) {
        for (int64_t b = task->block; b < task->block + task->blocks; b++) {
            tconv_cpu_block block = tconv_cpu_block_of(plan, layer->problem.group_out, b);
            tconv_cpu_phase_pair pairs[TCONV_CPU_MAX_INTERLEAVE], pair = {0};
            int64_t count = 0;
            while (tconv_cpu_next_pair(layer, &pair)) {
                pairs[count++] = pair;
                if (plan->interleave && count < layer->columns.count)
                    continue;
                sum_halo(task, group, block, pairs, count);
                count = 0;
            }
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- gather */

/* Where the sums of a block wait, for the index-th pair that is stored together. */
static int64_t waiting_sums(const tconv_cpu_task *task, int64_t index, tconv_cpu_block block)
{
    const tconv_cpu_plan *plan = task->job->plan;
    int64_t group_out = task->job->layer->problem.group_out;
    tconv_cpu_block first = tconv_cpu_block_of(plan, group_out, task->block);
    tconv_cpu_block last = tconv_cpu_block_of(plan, group_out, task->block + task->blocks - 1);
    return (index * (last.first + last.count - first.first) + block.first - first.first) * plan->sums_pitch;
}

/* Terms [begin, end) of a pair, gathered in the strip, for a block of channels at all positions. */
static void sum_gathered(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, int64_t index,
                         tconv_cpu_block block, int64_t begin, int64_t end)
{
    const tconv_cpu_job *job = task->job;
    const tconv_cpu_plan *plan = job->plan;
    int64_t vectors = tconv_ceil_div(task->rows * task->images * task->columns, plan->lanes);
    int64_t most = plan->kernels->real[plan->real].max_vectors[block.count], parts = tconv_ceil_div(vectors, most);
    tconv_cpu_tile tile;
    describe_terms(task, pair, task->group, block, &tile);
    if (end == tconv_cpu_pair_taps(pair) * job->layer->problem.group_in)
        tile.bias = tconv_cpu_at(plan, job->bias, task->group * job->layer->problem.group_out + block.first);
    tile.inner_count = tconv_max(1, end - begin);
    tile.inner_segment = TCONV_CPU_SEGMENT;
    tile.outer_segment = 1;
    tile.weights = tconv_cpu_at(plan, tile.weights, begin * block.count);
    tile.sums_stride = plan->sums_pitch;
    tile.segments_done = begin / TCONV_CPU_SEGMENT;
    for (int64_t part = 0, v = 0, count; part < parts; part++, v += count) {
        int32_t starts[TCONV_CPU_MAX_VECTORS];
        count = (vectors - v) / (parts - part);
        for (int64_t i = 0; i < count; i++)
            starts[i] = (int32_t)((v + i) * plan->lanes);
        tile.vectors = starts;
        tile.strip = task->strip;
        tile.sums = tconv_cpu_at(plan, task->sums, waiting_sums(task, index, block) + v * plan->lanes);
        plan->kernels->real[plan->real].tiles[block.count][count](&tile);
    }
}

/* The pairs of one row phase that are stored together. */
static void run_gathered_pairs(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pairs, int64_t pair_count)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    if (pairs->row->outputs <= task->row)
        return;
    for (int64_t p = 0; p < pair_count; p++) {
        int64_t terms = tconv_cpu_pair_taps(&pairs[p]) * problem->group_in, begin = 0, end;
        do {
            end = tconv_min(terms, begin + plan->chunk);
            tconv_cpu_load_gathered(task, task->group, &pairs[p], begin, end);
            for (int64_t b = task->block; b < task->block + task->blocks; b++)
                sum_gathered(task, &pairs[p], p, tconv_cpu_block_of(plan, problem->group_out, b), begin, end);
            begin = end;
        } while (begin < terms);
    }
    for (int64_t b = task->block; b < task->block + task->blocks; b++) {
        tconv_cpu_block block = tconv_cpu_block_of(plan, problem->group_out, b);
        const tconv_cpu_sums sums = {.sums = tconv_cpu_at(plan, task->sums, waiting_sums(task, 0, block)),
                                     .phase_stride = waiting_sums(task, 1, block) - waiting_sums(task, 0, block),
                                     .channel_stride = plan->sums_pitch,
                                     .channel = task->group * problem->group_out + block.first,
                                     .channels = block.count,
                                     .position = 0,
                                     .count = task->rows * task->images * task->columns};
        tconv_cpu_store_sums(task, pairs, &sums);
    }
}

static void run_gathered(const tconv_cpu_task *task)
{
    const tconv_layer *layer = task->job->layer;
    tconv_cpu_phase_pair pairs[TCONV_CPU_MAX_INTERLEAVE], pair = {0};
    int64_t count = 0;
    while (tconv_cpu_next_pair(layer, &pair)) {
        pairs[count++] = pair;
        if (task->job->plan->interleave && count < layer->columns.count)
            continue;
        run_gathered_pairs(task, pairs, count);
        count = 0;
    }
}

/* --------------------------------------------------------------------------------------------------------- tasks */

/* Tile index of an axis: where it begins, and how long it is. */
static int64_t cut_tile(int64_t index, int64_t size, int64_t all, int64_t *begin)
{
    *begin = index * size;
    return tconv_min(size, all - *begin);
}

static void run_task(tconv_cpu_task *task, int64_t index)
{
    const tconv_cpu_plan *plan = task->job->plan;
    const tconv_problem *problem = &task->job->layer->problem;
    task->columns = cut_tile(index % plan->column_tiles, plan->tile_columns, plan->columns.positions, &task->column);
    index /= plan->column_tiles;
    task->rows = cut_tile(index % plan->row_tiles, plan->tile_rows, plan->rows.positions, &task->row);
    index /= plan->row_tiles;
    task->blocks = cut_tile(index % plan->block_tasks, plan->task_blocks, plan->blocks, &task->block);
    index /= plan->block_tasks;
    task->groups = cut_tile(index % plan->group_tasks, plan->groups, problem->groups, &task->group);
    index /= plan->group_tasks;
    task->images = cut_tile(index, plan->images, problem->batch, &task->image);
    if (plan->gather)
        run_gathered(task);
    else
        run_halo(task);
    tconv_cpu_store_bias(task);
    if (task->job->header->has_nonfinite)
        tconv_cpu_compute_border(task);
}

/* The bias in the type of the sums; zeros where there is none. */
static void convert_bias(const tconv_problem *problem, const void *bias, void *converted)
{
    float *floats = converted;
    const uint16_t *halves = bias;
    size_t count = (size_t)problem->out_channels;
    if (bias == NULL) {
        memset(converted, 0, count * (problem->dtype == TCONV_F64 ? sizeof(double) : sizeof(float)));
        return;
    }
    switch (problem->dtype) {
    case TCONV_F32: memcpy(converted, bias, count * sizeof(float)); break;
    case TCONV_F64: memcpy(converted, bias, count * sizeof(double)); break;
    case TCONV_F16:
        for (size_t i = 0; i < count; i++)
            floats[i] = tconv_float_from_f16(halves[i]);
        break;
    case TCONV_BF16:
        for (size_t i = 0; i < count; i++)
            floats[i] = tconv_float_from_bf16(halves[i]);
        break;
    }
}

static tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cpu_plan plan;
    tconv_status status = tconv_cpu_plan_init(&plan, layer, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const char *packed = arguments->packed;
    tconv_cpu_job job = {.layer = layer,
                         .plan = &plan,
                         .src = arguments->src,
                         .dst = arguments->dst,
                         .bias = arguments->scratch,
                         .raw_bias = arguments->bias,
                         .header = arguments->packed,
                         .taps = (const int32_t *)(const void *)(packed + TCONV_ALIGNMENT),
                         .weights = packed + TCONV_ALIGNMENT + plan.taps_bytes};
    convert_bias(&layer->problem, arguments->bias, arguments->scratch);
    for (int64_t r = 0; r < TCONV_CPU_MAX_INTERLEAVE; r++)
        job.residues[r] = -1;
    for (int64_t p = 0; plan.interleave && p < layer->columns.count; p++)
        job.residues[layer->columns.phases[p].residue] = (int32_t)p;

    int threads = tconv_cpu_team_size(plan.threads, plan.tasks);
    int64_t next = 0;
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    {
        char *scratch = (char *)arguments->scratch + plan.bias_bytes + tconv_cpu_thread_number() * plan.thread_bytes;
        tconv_cpu_task task = {.job = &job,
                               .strip = scratch,
                               .sums = scratch + plan.strip_bytes,
                               .vectors = (int32_t *)(void *)(scratch + plan.strip_bytes + plan.sums_bytes)};
        for (;;) { /* any thread may take any task: no sum crosses one */
            int64_t index;
#ifdef _OPENMP
#pragma omp atomic capture
#endif
            index = next++;
            if (index >= plan.tasks)
                break;
            run_task(&task, index);
        }
    }
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static bool supports(const tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    (void)layer, (void)reason;
    return true;
}

static tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_cpu_plan plan;
    int64_t scratch;
    tconv_status status = tconv_cpu_plan_init(&plan, layer, issue);
    if (status != TCONV_SUCCESS)
        return status;
    scratch = plan.bias_bytes + plan.threads * plan.thread_bytes; /* at most 65536 threads of 2 MiB, beside the bias */
    sizes->packed = (size_t)plan.packed_bytes;
    sizes->scratch = (size_t)scratch;
    return TCONV_SUCCESS;
}

const tconv_implementation tconv_cpu_phases = {
    .name = "cpu_phases",
    .backend = TCONV_BACKEND_CPU,
    .supports = supports,
    .memory = memory,
    .pack = tconv_cpu_pack_phases,
    .execute = execute,
};
