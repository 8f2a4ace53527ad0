/*
 * Chooses tiles, strips and tasks. What decides the bits of a result (halo or gather) depends on the layer and
 * the machine only; the number of threads decides no more than how tiles are cut into tasks.
 */
#include "phases_plan.h"

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/status.h"

/* The strip's share of the second-level cache in percent: beside it weights stream in and outputs stream out. Measured
 * at 1 MiB: 450 KiB is best. Half of that for each of a gathered strip and its sums. */
enum { STRIP_PERCENT = 44, GATHER_PERCENT = 25 };

/* The most of the second-level cache that is ever planned with, so that a thread's scratch stays below 2 MiB. */
enum { MAX_CACHE_BYTES = 3 << 19 };

/* Columns of a tile: a multiple of every vector, long enough that margins and tails cost little. A wider row is cut. */
enum { TILE_COLUMNS = 128 };

/* Positions of a halo tile beyond which nothing is gained, and those of a gathered one, which share their weights. */
enum { HALO_POSITIONS = 2048, GATHER_POSITIONS = 256 };

/* Margins from which a strip is not worth it, whatever the cache: keeps sizes small enough to multiply. */
enum { MAX_MARGIN = 1 << 16 };

/* Tasks for each thread, so that the last ones to finish do not leave the others idle for long. */
enum { TASKS_PER_THREAD = 4 };

/* What is worth another thread: waking one takes about as long. */
enum { CYCLES_PER_THREAD = 20000 };

/* Input channels that an NHWC strip should have at least, if groups are small: a cache line of pixels. */
enum { PIXEL_CHANNELS = 16 };

tconv_cpu_taps tconv_cpu_live_taps(const tconv_axis *axis, const tconv_phase_table *table, const tconv_phase *phase)
{
    tconv_cpu_taps taps;
    /* Tap t is live if q + shift lies in [0, in) for some q in [0, outputs): -outputs < shift < in; shifts fall with t. */
    int64_t last = tconv_floor_div(phase->first_shift + phase->outputs - 1, table->shift_step);
    taps.first = tconv_max(0, tconv_ceil_div(phase->first_shift - (axis->in - 1), table->shift_step));
    taps.count = tconv_max(0, tconv_min(last, phase->taps - 1) - taps.first + 1);
    return taps;
}

static tconv_cpu_axis init_axis(const tconv_axis *axis, const tconv_phase_table *table, int64_t *max_taps)
{
    tconv_cpu_axis made = {(axis->out - 1) / axis->stride + 1, 0, 0, 0};
    *max_taps = 0;
    for (int64_t p = 0; p < table->count; p++) {
        const tconv_phase *phase = &table->phases[p];
        tconv_cpu_taps taps = tconv_cpu_live_taps(axis, table, phase);
        if (taps.count == 0)
            continue;
        int64_t max_shift = tconv_cpu_shift(table, phase, taps.first);
        int64_t min_shift = tconv_cpu_shift(table, phase, taps.first + taps.count - 1);
        made.min_shift = made.taps == 0 ? min_shift : tconv_min(made.min_shift, min_shift);
        made.max_shift = made.taps == 0 ? max_shift : tconv_max(made.max_shift, max_shift);
        made.taps += taps.count;
        *max_taps = tconv_max(*max_taps, taps.count);
    }
    return made;
}

/* count in the fewest parts of at most limit, as even as can be: the size of the larger ones. */
static int64_t even_part(int64_t count, int64_t limit)
{
    int64_t parts = tconv_max(1, tconv_ceil_div(count, tconv_max(limit, 1)));
    return tconv_ceil_div(count, parts);
}

/* A pitch that does not bring neighbouring channels into the same cache sets: an odd number of cache lines. */
static int64_t odd_lines(const tconv_cpu_plan *plan, int64_t elements)
{
    int64_t line = TCONV_ALIGNMENT / plan->real_size, lines = tconv_ceil_div(elements, line);
    return (lines | 1) * line;
}

static int64_t cache_share(const tconv_layer *layer, int64_t percent)
{
    return tconv_min((int64_t)layer->target.l2_bytes, MAX_CACHE_BYTES) / 100 * percent;
}

/* Cuts columns into tiles of about width, whole vectors each, but for the last one. */
static void set_columns(tconv_cpu_plan *plan, int64_t width)
{
    int64_t positions = plan->columns.positions, tiles = tconv_max(1, (positions + width / 2) / width);
    plan->tile_columns = positions;
    if (tiles > 1)
        plan->tile_columns = tconv_ceil_div(tconv_ceil_div(positions, tiles), plan->lanes) * plan->lanes;
    plan->column_tiles = tconv_ceil_div(positions, plan->tile_columns);
}

bool tconv_cpu_is_flat(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns)
{
    return (rows - 1) * plan->row_pitch + (images - 1) * plan->pitch + columns <=
           images * rows * tconv_ceil_div(columns, plan->lanes) * plan->lanes;
}

int64_t tconv_cpu_count_vectors(const tconv_cpu_plan *plan, int64_t images, int64_t rows, int64_t columns)
{
    if (tconv_cpu_is_flat(plan, images, rows, columns))
        return tconv_ceil_div((rows - 1) * plan->row_pitch + (images - 1) * plan->pitch + columns, plan->lanes);
    return images * rows * tconv_ceil_div(columns, plan->lanes);
}

/* Sets the pitches of a halo strip from its tile. A margin of zeros serves the end of one row and the start of the
 * next where the tile is as wide as the image. */
static void set_pitches(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    int64_t span = plan->columns.max_shift - plan->columns.min_shift, full = plan->tile_columns + span;
    plan->margin = 0;
    if (plan->column_tiles == 1) {
        int64_t left = tconv_max(0, -plan->columns.min_shift);
        int64_t right = tconv_max(0, plan->columns.positions + plan->columns.max_shift - layer->problem.w.in);
        plan->margin = tconv_min(tconv_min(left, right), span);
    }
    plan->pitch = full - plan->margin;
    plan->row_pitch = plan->images * plan->pitch;
    int64_t rows = plan->tile_rows + plan->rows.max_shift - plan->rows.min_shift;
    plan->channel_pitch = odd_lines(plan, rows * plan->row_pitch + plan->margin + plan->lanes);
}

/* The largest halo tile whose strip fits; false where not even a small one does. */
static bool plan_halo(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t row_span = plan->rows.max_shift - plan->rows.min_shift;
    int64_t column_span = plan->columns.max_shift - plan->columns.min_shift;
    int64_t capacity = cache_share(layer, STRIP_PERCENT) / plan->real_size / problem->group_in; /* of one channel */
    plan->gather = false;
    if (row_span > MAX_MARGIN || column_span > MAX_MARGIN)
        return false;
    for (int64_t width = TILE_COLUMNS; width >= plan->lanes; width /= 2) {
        plan->images = 1;
        set_columns(plan, width);
        int64_t full = plan->tile_columns + column_span, slack = 2 * TCONV_ALIGNMENT + plan->lanes;
        int64_t rows = (capacity - slack) / full - row_span;
        if (rows < 1 || (rows < plan->rows.positions && rows < row_span && width > plan->lanes))
            continue; /* narrower tiles have less margin above and below */
        rows = tconv_min(rows, tconv_max(1, HALO_POSITIONS / plan->tile_columns));
        plan->tile_rows = even_part(plan->rows.positions, rows);
        int64_t positions = plan->rows.positions * plan->columns.positions;
        if (plan->tile_rows == plan->rows.positions && plan->column_tiles == 1 && positions < HALO_POSITIONS / 2) {
            int64_t fit = (capacity - slack) / ((plan->tile_rows + row_span) * full);
            plan->images = even_part(tconv_max(1, problem->batch), tconv_min(fit, HALO_POSITIONS / 2 / positions));
        }
        set_pitches(plan, layer);
        return true;
    }
    return false;
}

/* A gathered tile: always possible. */
static void plan_gather(tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_terms)
{
    const tconv_problem *problem = &layer->problem;
    int64_t waiting = plan->interleave ? tconv_max(1, layer->columns.count) : 1; /* phases that wait for each other */
    int64_t share = cache_share(layer, GATHER_PERCENT) / plan->real_size;
    int64_t block = tconv_min(plan->kernels->max_channels, problem->group_out);
    int64_t positions = GATHER_POSITIONS;
    while (positions > plan->lanes && block * waiting * positions > share)
        positions /= 2;
    plan->gather = true;
    plan->margin = 0;
    plan->images = 1;
    set_columns(plan, tconv_min(positions, TILE_COLUMNS));
    plan->tile_rows = even_part(plan->rows.positions, positions / plan->tile_columns);
    if (plan->tile_rows == plan->rows.positions && plan->column_tiles == 1)
        plan->images =
            even_part(tconv_max(1, problem->batch), positions / (plan->rows.positions * plan->columns.positions));
    plan->pitch = plan->tile_columns;
    plan->row_pitch = plan->images * plan->pitch;
    plan->channel_pitch = odd_lines(plan, plan->tile_rows * plan->row_pitch);
    int64_t segments = tconv_ceil_div(tconv_max(1, max_terms), TCONV_CPU_SEGMENT);
    plan->chunk =
        TCONV_CPU_SEGMENT * tconv_min(segments, tconv_max(1, share / plan->channel_pitch / TCONV_CPU_SEGMENT));
    plan->sums_pitch = plan->channel_pitch;
    plan->task_blocks = tconv_max(1, share / (block * waiting * plan->sums_pitch));
}

/* Cycles for one position and input channel, roughly: a multiply-add of 64 bytes is 1. Short rows cost more to load by the
 * element; sums that wait outside the first-level cache cost SUMS_CYCLES by the vector and chunk. Only the better of two
 * plans is wanted. */
static double estimate(const tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_terms)
{
    enum { SUMS_CYCLES = 4 };
    const tconv_problem *problem = &layer->problem;
    double taps = (double)(plan->rows.taps * plan->columns.taps);
    double positions = (double)(plan->images * plan->tile_rows * plan->tile_columns);
    double vectors = (double)tconv_cpu_count_vectors(plan, plan->images, plan->tile_rows, plan->tile_columns);
    double load = (problem->layout == TCONV_NHWC ? 1.5 : 0.25) + 4.0 / (double)plan->tile_columns;
    double compute =
        taps * (double)problem->group_out * vectors / positions * (double)(plan->lanes * plan->real_size) / 64;
    if (!plan->gather)
        return compute + load * (double)plan->channel_pitch / positions;
    double passes = (double)tconv_ceil_div(plan->blocks, tconv_min(plan->blocks, plan->task_blocks));
    return compute * (1 + SUMS_CYCLES / (double)tconv_max(1, tconv_min(plan->chunk, max_terms))) + load * taps * passes;
}

/* Threads that the layer can keep busy, by its multiply-adds (16 a cycle) and outputs. */
static int useful_threads(const tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    double images = (double)problem->batch * (double)problem->out_channels;
    double sums = (double)plan->rows.positions * (double)plan->columns.positions * (double)plan->rows.taps *
                  (double)plan->columns.taps * (double)problem->group_in;
    double outputs = (double)problem->h.out * (double)problem->w.out;
    double threads = images * (sums / 16 + outputs) / CYCLES_PER_THREAD;
    return threads < layer->target.threads ? 1 + (int)threads : layer->target.threads;
}

/* Cuts tiles into more tasks until there are enough for the threads. */
static void plan_tasks(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t weights = problem->group_in * problem->group_out * plan->rows.taps * plan->columns.taps;
    int threads = useful_threads(plan, layer);
    bool heavy = weights > cache_share(layer, 50) / plan->real_size; /* each task reads all weights of its channels */
    for (;;) {
        plan->image_tiles = tconv_ceil_div(problem->batch, plan->images);
        plan->row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows);
        plan->group_tasks = tconv_ceil_div(problem->groups, plan->groups);
        plan->block_tasks = tconv_ceil_div(plan->blocks, plan->task_blocks);
        plan->tasks = plan->image_tiles * plan->row_tiles * plan->column_tiles * plan->group_tasks * plan->block_tasks;
        if (threads == 1 || plan->tasks >= (int64_t)TASKS_PER_THREAD * threads)
            break;
        if (plan->groups > 1)
            plan->groups = tconv_ceil_div(plan->groups, 2);
        else if (plan->task_blocks > 1 && heavy)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > 4)
            plan->tile_rows = even_part(plan->rows.positions, plan->tile_rows / 2);
        else if (plan->task_blocks > 1)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->tile_rows > 1)
            plan->tile_rows = even_part(plan->rows.positions, plan->tile_rows / 2);
        else
            break;
    }
    plan->threads = (int)tconv_min(threads, plan->tasks);
}

static tconv_status too_large(const char *what, tconv_issue *issue)
{
    return tconv_fail(issue, TCONV_ERROR_OVERFLOW, what, "%s: its size in bytes must be at most 2^63 - 1", what);
}

static bool align_size(int64_t count, int64_t size, int64_t *bytes)
{
    if (!tconv_checked_mul(count, size, bytes) || !tconv_checked_add(*bytes, TCONV_ALIGNMENT - 1, bytes))
        return false;
    *bytes -= *bytes % TCONV_ALIGNMENT;
    return true;
}

static tconv_status plan_memory(tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_terms, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    int64_t waiting = plan->interleave ? tconv_max(1, layer->columns.count) : 1, taps, weights, vectors_bytes;
    int64_t block = tconv_ceil_div(problem->group_out, plan->blocks), sums;
    plan->max_vectors = tconv_cpu_count_vectors(plan, plan->images, plan->tile_rows, plan->tile_columns);
    if (plan->gather) {
        plan->strip_bytes = plan->chunk * plan->channel_pitch * plan->real_size;
        sums = waiting * plan->task_blocks * block * plan->sums_pitch;
    } else {
        plan->strip_bytes = plan->channel_pitch * problem->group_in * plan->groups * plan->real_size;
        sums = waiting * block * TCONV_CPU_MAX_VECTORS * plan->lanes;
    }
    plan->folded = max_terms > TCONV_CPU_FOLD * TCONV_CPU_SEGMENT ? sums : 0;
    plan->sums_bytes =
        (sums + plan->folded + plan->lanes) * plan->real_size; /* rows of sums are read in whole vectors */
    align_size(plan->max_vectors, (int64_t)sizeof(int32_t), &vectors_bytes);
    align_size(plan->strip_bytes + plan->lanes * plan->real_size, 1, &plan->strip_bytes);
    align_size(plan->sums_bytes, 1, &plan->sums_bytes);
    plan->thread_bytes = plan->strip_bytes + plan->sums_bytes + vectors_bytes;
    if (!align_size(problem->out_channels, plan->real_size, &plan->bias_bytes))
        return too_large("bias", issue);

    if (!tconv_checked_mul(plan->rows.taps, plan->columns.taps, &taps) ||
        !align_size(taps, (int64_t)sizeof(int32_t), &plan->taps_bytes) ||
        !tconv_checked_mul(taps, problem->group_in, &weights) ||
        !tconv_checked_mul(weights, problem->out_channels, &weights) ||
        !align_size(weights, plan->real_size, &plan->packed_bytes) ||
        !tconv_checked_add(plan->packed_bytes, plan->taps_bytes + TCONV_ALIGNMENT, &plan->packed_bytes))
        return too_large("packed weights", issue);
    return TCONV_SUCCESS;
}

tconv_status tconv_cpu_plan_init(tconv_cpu_plan *plan, const tconv_layer *layer, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    int64_t max_row_taps, max_column_taps, max_terms;
    *plan = (tconv_cpu_plan){.kernels = tconv_cpu_find_kernels(layer->target.cpu_isa)};
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->lanes = plan->kernels->real[plan->real].lanes;
    plan->rows = init_axis(&problem->h, &layer->rows, &max_row_taps);
    plan->columns = init_axis(&problem->w, &layer->columns, &max_column_taps);
    max_terms = max_row_taps * max_column_taps * problem->group_in; /* no more than there are weights */
    plan->interleave = problem->layout == TCONV_NCHW && problem->w.stride <= TCONV_CPU_MAX_INTERLEAVE;
    plan->blocks = tconv_ceil_div(problem->group_out, plan->kernels->max_channels);
    plan->groups = 1;

    tconv_cpu_plan halo = *plan;
    plan_gather(plan, layer, max_terms);
    if (plan_halo(&halo, layer)) {
        halo.task_blocks = halo.blocks;
        if (problem->layout == TCONV_NHWC && problem->group_in < PIXEL_CHANNELS) {
            int64_t fit = cache_share(layer, STRIP_PERCENT) / (halo.channel_pitch * problem->group_in * halo.real_size);
            int64_t wanted = tconv_ceil_div(PIXEL_CHANNELS, problem->group_in);
            halo.groups = tconv_max(1, tconv_min(tconv_min(wanted, problem->groups), fit));
        }
        if (estimate(&halo, layer, max_terms) <= estimate(plan, layer, max_terms))
            *plan = halo;
    }
    plan->task_blocks = tconv_min(plan->task_blocks, plan->blocks);
    plan_tasks(plan, layer);
    if (!plan->gather)
        set_pitches(plan, layer);
    return plan_memory(plan, layer, max_terms, issue);
}
