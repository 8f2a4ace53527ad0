/*
 * cpu_bf16: transposed convolution by phases, and the gradient of src, on registers that hold matrices (AMX), for f32, f16
 * and bf16 in either layout; on other machines in C to the same rules, where it is asked for by its name.
 *
 * Factors are split into parts of bf16, three for f32 (Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial
 * Intelligence Datatype For Higher-Precision Computations", ARITH 2019), the input as it is loaded, weights as they are
 * packed. A phase is a dense stride-1 correlation over its own taps (core/phases.h): for each tap and chunk of input
 * channels a fragment of weights is multiplied by the fragment of the strip that lies so far on. The sums of a block of
 * rows are stored as cpu_phases stores them. The gradient of src is seen as a layer of one phase (bf16/view.h):
 *
 *     diff_src[n, c, i] = sum over phases of dst, o, taps t of diff_dst[n, o, i + places of t] * weights[c, o, t]
 *
 * The strip holds each phase of dst by itself, and steps are those of all phases, one after another.
 *
 * Parts have bf16's range, and AMX takes subnormals for zeros. So where a strip and a block of weights hold numbers so
 * small that parts of their products may be lost, or so large that they may be infinite, or that are not finite, they are
 * joined again and multiplied in f32 (sum_joined), leaving out what lies outside the image. NaN and Inf go where the
 * formula takes them.
 *
 * Numeric order, of each output by itself: over phases that are read, chunks and taps in segments
 * (tconv_cpu_bf16_tile), then the bias, then what it held, where the layer accumulates; float; one rounding to the dtype.
 * It depends on the layer, on what the strip holds and on the machine, never on threads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../blocking/bias.h"
#include "../cpu_backend.h"
#include "../threads/parallel.h"
#include "task.h"

/* ---------------------------------------------------------------------------------------------------------- sums */

/* The binary exponent of the least product that is summed by parts: those that AMX takes for zeros are less than 2^-126,
 * and so than 2^-24 of it. */
enum { LEAST_EXPONENT = -100 };

static bool is_in_range(const tconv_cpu_bf16_range *range)
{
    return range->most == 0 || (range->least >= TCONV_CPU_BF16_LEAST && range->most < TCONV_CPU_BF16_MOST);
}

/* Tells whether all products of parts are numbers that matrix registers multiply. */
static bool has_parts(const tconv_cpu_bf16_range *strip, const tconv_cpu_bf16_range *weights)
{
    const int exponents = (int)(strip->least >> 23) + (int)(weights->least >> 23) - 2 * 127;
    return is_in_range(strip) && is_in_range(weights) &&
           (strip->most == 0 || weights->most == 0 || exponents >= LEAST_EXPONENT);
}

/* Rows [first, first + count) of each of some images of the task. Their positions count from the first one's, `position`
 * of the strip; images lie `pitch` apart. */
struct rows {
    int64_t image, images, first, count, position, pitch;
};

/* Where row number i of rows begins, counted over all images. */
static int64_t row_position(const tconv_cpu_bf16_plan *plan, const struct rows *rows, int64_t i)
{
    return i / rows->count * rows->pitch + i % rows->count * plan->row_pitch;
}

/* Lists where fragments begin that cover the positions of rows; returns their number. */
static int64_t list_fragments(const tconv_cpu_bf16_task *task, const struct rows *rows)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t runs = plan->by_rows ? rows->count : 1; /* of positions in an image */
    const int64_t length = (plan->by_rows ? 0 : (rows->count - 1) * plan->row_pitch) + task->columns;
    int64_t count = 0;
    for (int64_t image = 0; image < rows->images; image++)
        for (int64_t run = 0; run < runs; run++)
            for (int64_t at = 0; at < length; at += TCONV_CPU_FRAGMENT)
                task->fragments[count++] = (int32_t)(image * rows->pitch + run * plan->row_pitch + at);
    return count;
}

/* Lists what the steps of a phase of dst add to the place in the strip, from step number `count` on; returns how many
 * there are then. index: of the phase of the strip. */
static int64_t list_steps(const tconv_cpu_bf16_task *task, const tconv_cpu_phase *phase, int64_t index, int64_t count)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_layer *caller = &plan->view.caller;
    for (int64_t chunk = 0; chunk < plan->chunks; chunk++)
        for (int64_t tap = 0; tap < tconv_cpu_phase_taps(phase); tap++) {
            int64_t row = tconv_cpu_row_shift(caller, phase, tap) - plan->rows.min_shift;
            int64_t column = tconv_cpu_column_shift(caller, phase, tap) - plan->columns.min_shift;
            if (plan->view.exchanged) { /* shifts fall from the first tap on, and what a position reads of dst rises */
                row = tconv_cpu_row_shift(caller, phase, 0) - tconv_cpu_row_shift(caller, phase, tap);
                column = tconv_cpu_column_shift(caller, phase, 0) - tconv_cpu_column_shift(caller, phase, tap);
            }
            const int64_t position = row * plan->row_pitch + column;
            task->steps[count++] = (int32_t)(((index * plan->chunks + chunk) * plan->pitch + position) * plan->depth);
        }
    return count;
}

/* Lists the steps of all phases that the strip holds, which are those of the one phase of the view. */
static int64_t list_all_steps(const tconv_cpu_bf16_task *task)
{
    int64_t count = 0, index = 0;
    tconv_cpu_phase phase = {0};
    while (tconv_cpu_next_phase(&task->job->plan->view.caller, &phase))
        if (tconv_cpu_phase_taps(&phase) > 0)
            count = list_steps(task, &phase, index++, count);
    return count;
}

/* A phase whose sums are wanted, for blocks [block, block + blocks), in rows of sums from `sums` on. */
struct phase_sums {
    const tconv_cpu_phase *phase;
    int64_t block, step_count;
    int blocks;
    float *sums;
};

static void sum_rows(const tconv_cpu_bf16_task *task, const struct phase_sums *of, const struct rows *rows,
                     tconv_cpu_bf16_sum_function *sum)
{
    const tconv_cpu_bf16_job *job = task->job;
    const tconv_cpu_bf16_plan *plan = job->plan;
    const int64_t index = task->group * plan->blocks + of->block, fragments = list_fragments(task, rows);
    const bool planes = job->layer->problem.layout == TCONV_NCHW;
    tconv_cpu_bf16_tile tile = {
        .blocks = of->blocks,
        .parts = plan->parts,
        .depth = plan->depth,
        .strip_part = tconv_cpu_bf16_part(plan),
        .steps = task->steps,
        .step_count = of->step_count,
        .weights = job->weights + index * tconv_cpu_bf16_block(plan) +
                   of->phase->offset * plan->chunks * tconv_cpu_bf16_step(plan),
        .weights_block = tconv_cpu_bf16_block(plan),
        .levels = task->levels,
        .bias = job->bias + index * TCONV_CPU_FRAGMENT,
        .sums_position = planes ? 1 : TCONV_CPU_BF16_CHANNELS,
        .sums_channel = planes ? plan->sums_pitch : 1,
    };
    for (int64_t f = 0; f < fragments; f += tile.fragments) {
        tile.fragments = (int)tconv_min(TCONV_CPU_BF16_FRAGMENTS, fragments - f);
        for (int i = 0; i < tile.fragments; i++) {
            tile.strip[i] = task->strip + (rows->position + task->fragments[f + i]) * plan->depth;
            tile.sums[i] = of->sums + task->fragments[f + i] * tile.sums_position;
        }
        sum(&tile);
    }
}

/* Tells whether a row of outputs that begins at a position is summed by parts. Where a weight is Inf or NaN none is, because
 * the strip is marked. */
static bool is_by_parts(const tconv_cpu_bf16_task *task, const struct phase_sums *of, int64_t position)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_cpu_bf16_range *weights = &task->job->ranges[task->group * plan->blocks + of->block];
    const tconv_cpu_bf16_range *strip = &task->ranges[position / plan->row_pitch];
    return !task->job->header->has_nonfinite && has_parts(strip, &weights[0]) &&
           has_parts(strip, &weights[of->blocks - 1]);
}

/* Sums a phase of some rows. Where they are not all summed by parts, row by row, from the first on: the last fragment of
 * a row runs on into the next, which is summed after it. */
static void sum_phase(const tconv_cpu_bf16_task *task, const struct phase_sums *of, const struct rows *rows)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t apart =
        task->job->layer->problem.layout == TCONV_NCHW ? 1 : TCONV_CPU_BF16_CHANNELS; /* positions of sums */
    bool all = true;
    for (int64_t i = 0; i < rows->images * rows->count; i++)
        all &= is_by_parts(task, of, rows->position + row_position(plan, rows, i));
    if (all) {
        sum_rows(task, of, rows, plan->matrix->sum);
        return;
    }
    for (int64_t i = 0; i < rows->images * rows->count; i++) {
        const int64_t at = row_position(plan, rows, i);
        const struct rows row = {rows->image + i / rows->count, 1, rows->first + i % rows->count, 1,
                                 rows->position + at,           0};
        struct phase_sums to = *of;
        to.sums += at * apart;
        sum_rows(task, &to, &row, is_by_parts(task, of, row.position) ? plan->matrix->sum : plan->matrix->sum_joined);
    }
}

/* -------------------------------------------------------------------------------------------------------- storing */

/* Stores a row of sums of one column phase, that begins at position `position` of the sums. */
static void store_apart(const tconv_cpu_bf16_task *task, const tconv_phase *column, tconv_cpu_store store,
                        int64_t position)
{
    const tconv_problem *problem = &task->job->layer->problem;
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    store.count = tconv_min(task->columns, column->outputs - task->column);
    store.dst = (char *)store.dst + column->residue * problem->dst.w * (int64_t)problem->element_size;
    if (store.count <= 0)
        return;
    if (problem->layout == TCONV_NCHW) {
        plan->kernels->dtype[problem->dtype].store_scattered(&store);
        return;
    }
    const tconv_cpu_pixel_store pixels = {.sums = task->sums + position * TCONV_CPU_BF16_CHANNELS,
                                          .rows = store.count,
                                          .count = store.channels,
                                          .sums_pitch = TCONV_CPU_BF16_CHANNELS,
                                          .dst = store.dst,
                                          .to = task->places,
                                          .stream = plan->stream,
                                          .finish = store.finish};
    plan->pixels->dtype[problem->dtype].store(&pixels);
}

/* Takes a row of sums of some column phases, the first of which begins at `sums`, through the layer's post-ops. channel: of
 * all groups. */
static void post_row(const tconv_cpu_bf16_task *task, const tconv_phase *column, float *sums, int64_t channel,
                     int64_t channels)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const tconv_layer *layer = task->job->layer;
    const bool pixels = layer->problem.layout == TCONV_NHWC;
    const int64_t phases = plan->together ? layer->columns.count : 1;
    tconv_cpu_sum_rows rows = {.posts = &task->job->posts, .pixels = pixels, .pitch = TCONV_CPU_BF16_CHANNELS};
    for (int64_t p = 0; p < phases; p++) {
        const tconv_phase *phase = plan->together ? &layer->columns.phases[p] : column;
        const int64_t positions = tconv_min(task->columns, phase->outputs - task->column);
        rows.rows = pixels ? positions : 1;
        rows.count = pixels ? channels : positions;
        for (int64_t c = 0; positions > 0 && c < (pixels ? 1 : channels); c++) {
            rows.channel = channel + c;
            rows.sums = sums + (p * TCONV_CPU_BF16_CHANNELS + c) * plan->sums_pitch;
            plan->kernels->real[0].post_rows(&rows);
        }
    }
}

/* Stores the sums of some rows of a phase, of channels [channel, channel + channels) of the group; where column phases are
 * stored together, of all of its row phase. */
static void store_rows(const tconv_cpu_bf16_task *task, const tconv_cpu_phase *phase, const struct rows *rows,
                       int64_t channel, int64_t channels)
{
    const tconv_cpu_bf16_job *job = task->job;
    const tconv_cpu_bf16_plan *plan = job->plan;
    const tconv_layer *layer = job->layer;
    const tconv_problem *problem = &layer->problem;
    const int64_t size = (int64_t)problem->element_size, stride = problem->w.stride;
    const int64_t first = (task->image + rows->image) * problem->dst.n +
                          (task->group * problem->group_out + channel) * problem->dst.c +
                          phase->row->residue * problem->dst.h + stride * task->column * problem->dst.w;
    const int64_t kept = TCONV_CPU_BF16_CHANNELS * plan->sums_pitch; /* of a column phase */
    int32_t residues[TCONV_CPU_MAX_INTERLEAVE];
    tconv_cpu_store store = {
        .channel_stride = plan->sums_pitch,
        .channels = channels,
        .residues = stride,
        .rows = residues,
        .dst_channel = problem->dst.c,
        .dst_position = stride * problem->dst.w,
        .finish = tconv_cpu_finish_of(problem, job->bias + task->group * plan->blocks * TCONV_CPU_FRAGMENT + channel,
                                      problem->layout == TCONV_NHWC ? channels : 1, &job->posts)};
    if (plan->together) {
        for (int64_t r = 0; r < stride; r++)
            residues[r] = -1;
        for (int64_t p = 0; p < layer->columns.count; p++)
            residues[layer->columns.phases[p].residue] = (int32_t)(p * kept);
        store.count = tconv_min(task->columns * stride, problem->w.out - stride * task->column);
        store.stage = plan->stream && store.count * size >= TCONV_CPU_STREAM_BYTES ? task->stage : NULL;
    }
    const bool posts_first = tconv_cpu_posts_fit_sums(problem, layer->columns.bias_only);
    if (posts_first)
        store.finish.steps = 0;
    for (int64_t i = 0; i < rows->images * rows->count; i++) {
        const int64_t image = i / rows->count, row = i % rows->count, position = row_position(plan, rows, i);
        if (posts_first)
            post_row(task, phase->column,
                     task->sums + position * (problem->layout == TCONV_NHWC ? TCONV_CPU_BF16_CHANNELS : 1),
                     task->group * problem->group_out + channel, channels);
        const int64_t index =
            first + image * problem->dst.n + problem->h.stride * (task->row + rows->first + row) * problem->dst.h;
        store.sums = task->sums + position;
        store.dst = (char *)job->dst + index * size;
        if (plan->together)
            job->plan->kernels->dtype[problem->dtype].store_interleaved(&store);
        else
            store_apart(task, phase->column, store, position);
    }
}

/* --------------------------------------------------------------------------------------------------------- tasks */

/* Sums and stores some rows of a row phase, whose first phase is given, for blocks [block, block + blocks). */
static void run_rows(const tconv_cpu_bf16_task *task, tconv_cpu_phase phase, const struct rows *rows, int64_t block,
                     int blocks)
{
    const tconv_layer *layer = task->job->layer;
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t channel = block * TCONV_CPU_FRAGMENT;
    const int64_t channels = tconv_min((int64_t)blocks * TCONV_CPU_FRAGMENT, layer->problem.group_out - channel);
    const int64_t kept = TCONV_CPU_BF16_CHANNELS * plan->sums_pitch;
    for (int64_t p = 0; p < layer->columns.count; p++) {
        if (p > 0)
            tconv_cpu_next_phase(layer, &phase);
        const int64_t steps = plan->view.exchanged ? task->step_count : list_steps(task, &phase, 0, 0);
        const struct phase_sums of = {&phase, block, steps, blocks, task->sums + (plan->together ? p * kept : 0)};
        sum_phase(task, &of, rows);
        if (!plan->together)
            store_rows(task, &phase, rows, channel, channels);
    }
    if (plan->together)
        store_rows(task, &phase, rows, channel, channels);
}

/* Runs a row phase, whose first phase is given, for all blocks and rows of the task. Steps to its last phase. */
static void run_row_phase(const tconv_cpu_bf16_task *task, tconv_cpu_phase *phase)
{
    const tconv_cpu_bf16_plan *plan = task->job->plan;
    const int64_t rows = tconv_min(task->rows, phase->row->outputs - task->row);
    const int64_t pitch = (task->rows + tconv_cpu_halo(&plan->rows)) * plan->row_pitch;
    for (int64_t block = task->block; block < task->block + task->blocks; block += TCONV_CPU_BF16_BLOCKS) {
        const int blocks = (int)tconv_min(TCONV_CPU_BF16_BLOCKS, task->block + task->blocks - block);
        for (int64_t image = 0; image < task->images; image += plan->image_block)
            for (int64_t row = 0; row < rows; row += plan->row_block) {
                const struct rows part = {image,
                                          tconv_min(plan->image_block, task->images - image),
                                          row,
                                          tconv_min(plan->row_block, rows - row),
                                          image * pitch + row * plan->row_pitch,
                                          pitch};
                run_rows(task, *phase, &part, block, blocks);
            }
    }
    for (int64_t p = 1; p < task->job->layer->columns.count; p++)
        tconv_cpu_next_phase(task->job->layer, phase);
}

static void run_task(tconv_cpu_bf16_task *task, int64_t index)
{
    const tconv_cpu_bf16_job *job = task->job;
    const tconv_cpu_bf16_plan *plan = job->plan;
    const tconv_problem *problem = &job->layer->problem;
    const int64_t strip = index / plan->block_tasks;
    task->blocks = tconv_cpu_cut_tile(index % plan->block_tasks, plan->task_blocks, plan->blocks, &task->block);
    index = strip;
    task->columns =
        tconv_cpu_cut_tile(index % plan->column_tiles, plan->tile_columns, plan->columns.positions, &task->column);
    index /= plan->column_tiles;
    task->rows = tconv_cpu_cut_tile(index % plan->row_tiles, plan->tile_rows, plan->rows.positions, &task->row);
    index /= plan->row_tiles;
    task->group = index % problem->groups;
    task->images = tconv_cpu_cut_tile(index / problem->groups, plan->images, problem->batch, &task->image);
    if (strip != task->loaded)
        tconv_cpu_load_bf16(task);
    task->loaded = strip;
    tconv_cpu_phase phase = {0};
    while (tconv_cpu_next_phase(job->layer, &phase))
        run_row_phase(task, &phase);
    const int64_t channel = task->block * TCONV_CPU_FRAGMENT;
    const tconv_cpu_bias_only region = {
        .layer = job->layer,
        .dst = job->dst,
        .bias = job->raw_bias,
        .posts = &job->posts,
        .image = task->image,
        .images = task->images,
        .row = task->row,
        .rows = task->rows,
        .column = task->column,
        .columns = task->columns,
        .group = task->group,
        .groups = 1,
        .group_out = problem->group_out,
        .channel = channel,
        .channels = tconv_min(task->blocks * TCONV_CPU_FRAGMENT, problem->group_out - channel),
        .whole_rows = plan->together,
        .stream = plan->stream,
    };
    tconv_cpu_fill_bias_only(&region);
}

/* Takes tasks until none is left. */
static void run_share(void *argument, int index)
{
    tconv_cpu_shared *shared = argument;
    const tconv_cpu_bf16_job *job = shared->job;
    const tconv_cpu_bf16_plan *plan = job->plan;
    char *scratch = shared->scratch + index * plan->thread_bytes;
    tconv_cpu_bf16_task task = {.job = job, .loaded = -1, .strip = (uint16_t *)(void *)scratch};
    task.planes = (float *)(void *)(scratch += plan->strip_bytes);
    task.sums = (float *)(void *)(scratch += plan->planes_bytes);
    task.levels = (float *)(void *)(scratch += plan->sums_bytes);
    task.stage = scratch += plan->levels_bytes;
    task.steps = (int32_t *)(void *)(scratch += plan->stage_bytes);
    task.fragments = (int32_t *)(void *)(scratch += plan->steps_bytes);
    task.ranges = (tconv_cpu_bf16_range *)(void *)(scratch += plan->fragments_bytes);
    task.places = (int64_t *)(void *)(scratch + plan->ranges_bytes);
    task.step_count = plan->view.exchanged ? list_all_steps(&task) : 0;
    for (int64_t i = 0; i < plan->tile_columns; i++)
        task.places[i] = i * job->layer->problem.w.stride * job->layer->problem.dst.w;
    memset(task.sums, 0, (size_t)plan->sums_bytes); /* stores read whole vectors, beyond the last sum */
    plan->matrix->begin(plan->depth);
    for (int64_t taken; (taken = tconv_cpu_take_task(&shared->tasks, &index)) < plan->tasks;)
        run_task(&task, taken);
    plan->matrix->end();
    plan->kernels->order_stores();
}

static tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_cpu_bf16_plan *plan = made;
    const tconv_problem *problem = &plan->view.layer.problem;
    const char *packed = (const char *)arguments->packed + TCONV_ALIGNMENT;
    float *bias = arguments->scratch;
    (void)issue;
    memset(bias, 0, (size_t)plan->bias_bytes);
    for (int64_t group = 0; arguments->bias != NULL && group < problem->groups; group++)
        tconv_cpu_convert_bias(
            problem->dtype, (const char *)arguments->bias + group * problem->group_out * (int64_t)problem->element_size,
            problem->group_out, bias + group * plan->blocks * TCONV_CPU_FRAGMENT);
    const tconv_cpu_bf16_job job = {
        .layer = &plan->view.layer,
        .plan = plan,
        .src = plan->view.exchanged ? arguments->dst : arguments->src,
        .dst = plan->view.exchanged ? arguments->src : arguments->dst,
        .bias = bias,
        .raw_bias = arguments->bias,
        .header = arguments->packed,
        .posts = {&layer->problem, arguments->post, arguments->dst},
        .ranges = (const tconv_cpu_bf16_range *)(const void *)packed,
        .weights = (const uint16_t *)(const void *)(packed + plan->weight_ranges_bytes),
    };
    tconv_cpu_run_tasks(&layer->target, plan->threads, plan->tasks, &job, (char *)arguments->scratch + plan->bias_bytes,
                        run_share);
    return TCONV_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ implementation */

static tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    tconv_cpu_bf16_plan *plan = made;
    const char *refusal = tconv_cpu_bf16_plan_init(plan, layer, planned->named);
    if (refusal != NULL)
        return tconv_decline(issue, "%s", refusal);
    const tconv_status status = tconv_cpu_bf16_plan_memory(plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    planned->sizes.packed = (size_t)plan->packed_bytes;
    /* At most TCONV_CPU_MAX_THREADS threads of 2 MiB each, beside the bias: no sum overflows. */
    planned->sizes.scratch = (size_t)(plan->bias_bytes + tconv_cpu_shared_bytes() + plan->threads * plan->thread_bytes);
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *made, char *text, size_t capacity)
{
    const tconv_cpu_bf16_plan *plan = made;
    (void)layer;
    snprintf(text, capacity,
             "parts=%d depth=%" PRId64 "x%" PRId64 " tile=%" PRId64 "x%" PRId64 "x%" PRId64
             " fragments=%s tasks=%" PRId64 " threads=%d",
             plan->parts, plan->chunks, plan->depth, plan->images, plan->tile_rows, plan->tile_columns,
             plan->by_rows ? "by rows" : "flat", plan->tasks, plan->threads);
}

#define IMPLEMENTATION                                                                                                 \
    {                                                                                                                  \
        .name = "cpu_bf16", .backend = TCONV_BACKEND_CPU, .dtypes = TCONV_DTYPES_TO_F32, .accumulates = true,          \
        .applies_posts = true, .plan_bytes = sizeof(tconv_cpu_bf16_plan), .plan = plan_layer,                          \
        .pack = tconv_cpu_pack_bf16, .execute = execute, .describe = describe,                                         \
        .batch_invariant = tconv_always_batch_invariant,                                                               \
    }

const tconv_implementation tconv_cpu_bf16 = IMPLEMENTATION;
const tconv_implementation tconv_cpu_bf16_data = IMPLEMENTATION;
