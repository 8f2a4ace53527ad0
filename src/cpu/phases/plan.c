/*
 * Chooses tiles, strips and tasks of the phases algorithm. The choices that decide the bits of a result (halo or
 * gather) depend on the layer and the machine only; the number of threads decides only how tiles are cut into tasks.
 */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../machine/tuning.h"

/* Percent of the second-level cache for a halo strip: beside it weights stream in and outputs stream out. Measured on a
 * Zen 4 with 1 MiB: from 200 to 450 KiB all layers are level, but those of few output channels, which want it large. */
enum { STRIP_PERCENT = 40 };

/* Percent of the second-level cache for a gathered strip: half of a halo strip's. It is chosen, not measured; twice as
 * much gained 0 to 1 % on pose_1 (docs/log/2026-11-21-cpu.md). */
enum { GATHER_PERCENT = 20 };

/* Percent of the second-level cache for the sums that a gathered strip is added to. It is chosen, not measured. */
enum { GATHER_SUMS_PERCENT = 40 };

/* Columns of the widest tile, about: a multiple of every vector; halves are tried as well. Chosen, not measured. */
enum { TILE_COLUMNS = 512 };

/* Positions of the largest halo tile; beyond it nothing is gained. No measurement of it is on record. */
enum { HALO_POSITIONS = 2048 };

/* Bytes of the sums of a block of rows that are held until they are stored: most of them are still in the first-level
 * cache then. 48 KiB were level with it (Zen 4, docs/log/2026-11-21-cpu.md). */
enum { SUMS_BYTES = 24 << 10 };

/* Output channels of a group up to which a layer of one input channel is a stencil: so few gain nothing from a
 * microkernel that shares loads of the strip. It is chosen, not measured. */
enum { STENCIL_CHANNELS = 2 };

/* Positions of a stencil's task, over all its groups: a task costs as much as some hundred of them by itself. With one
 * group a task, 12 layers took 1.2 times as long, depthwise rows of a few positions 2.5 times (two cores of a Zen 3,
 * docs/log/2026-11-26-cpu-intel.md). */
enum { STENCIL_POSITIONS = 4096 };

/* Cycles of a vector of the strip, however few channels share it: its load crosses a cache line. Chosen, not measured. */
enum { LOAD_CYCLES = 2 };

/* Percent of the second-level cache: larger weights leave it from task to task. Each task reads all weights of its
 * channels, so tasks of fewer channels then come before smaller tiles. Chosen, not measured. */
enum { WEIGHTS_PERCENT = 50 };

/* Rows of a tile that is cut further only as the last resort: each task reads its halo again. Chosen, not measured. */
enum { FEW_ROWS = 4 };

/* Positions of a halo that is too wide for a strip, whatever the cache, so that sizes are small enough to multiply. */
enum { MAX_HALO = 1 << 16 };

/* Input channels that an NHWC strip should have at least, if groups are small: a cache line of f32. */
enum { PIXEL_CHANNELS = 16 };

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

/* Rounds a pitch up to an odd number of cache lines, so that neighbouring channels do not share cache sets. */
static int64_t odd_lines(const tconv_cpu_plan *plan, int64_t elements)
{
    int64_t line = TCONV_ALIGNMENT / plan->real_size, lines = tconv_ceil_div(elements, line);
    return (lines | 1) * line;
}

/* Cuts columns into tiles of about `width`, each of whole vectors but the last one. */
static void set_columns(tconv_cpu_plan *plan, int64_t width)
{
    int64_t positions = plan->columns.positions, tiles = tconv_max(1, (positions + width / 2) / width);
    plan->tile_columns = positions;
    if (tiles > 1)
        plan->tile_columns = tconv_ceil_div(tconv_ceil_div(positions, tiles), plan->lanes) * plan->lanes;
    plan->column_tiles = tconv_ceil_div(positions, plan->tile_columns);
}

/* Fuses the column phases of a halo plan where that is possible and no slower: see phases/plan.h. */
static void plan_fusion(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_phase_table *columns = &layer->columns;
    int64_t group_out = layer->problem.group_out, count = columns->count, apart = 0, fused = 0;
    int64_t least_shift = INT64_MAX, most_shift = INT64_MIN;
    tconv_cpu_taps taps[TCONV_CPU_MAX_CHANNELS];
    if (count < 2 || count * group_out > plan->kernels->max_channels)
        return;
    for (int64_t p = 0; p < count; p++) {
        taps[p] = tconv_cpu_live_taps(&layer->problem.w, columns, &columns->phases[p]);
        if (taps[p].count == 0 || taps[p].first != taps[0].first)
            return;
        least_shift = tconv_min(least_shift, columns->phases[p].first_shift);
        most_shift = tconv_max(most_shift, columns->phases[p].first_shift);
        apart += taps[p].count * tconv_max(group_out, LOAD_CYCLES);
        int64_t number = p; /* insertion sort by falling counts */
        for (; number > 0 && taps[plan->order[number - 1]].count < taps[p].count; number--)
            plan->order[number] = plan->order[number - 1];
        plan->order[number] = (int8_t)p;
    }
    int64_t most_taps = taps[plan->order[0]].count;
    for (int64_t phases = count, tap = 0; phases > 0; phases--) { /* the taps that exactly so many phases have */
        int64_t end = taps[plan->order[phases - 1]].count;
        fused += (end - tap) * tconv_max(phases * group_out, LOAD_CYCLES);
        tap = end;
    }
    if (most_shift - least_shift > plan->lanes || fused > apart)
        return;
    plan->fused = true;
    plan->max_lag = most_shift - least_shift;
    for (int64_t number = 0; number < count; number++)
        plan->lag[number] = (int8_t)(columns->phases[plan->order[number]].first_shift - least_shift);
    plan->columns.min_shift = least_shift - (taps[0].first + most_taps - 1) * columns->shift_step;
}

/* Returns the contiguous outputs of one position. */
static int64_t residues(const tconv_cpu_plan *plan, const tconv_layer *layer)
{
    return layer->problem.w.stride * (plan->interleave_pixels ? layer->problem.out_channels : 1);
}

/* Returns the rows of sums that are held at once. */
static int64_t held_rows(const tconv_cpu_plan *plan, const tconv_layer *layer)
{
    int64_t phases = plan->together ? tconv_max(1, layer->columns.count) : 1;
    return phases * tconv_ceil_div(layer->problem.group_out, plan->blocks);
}

/* Returns the levels of sums: a gathered tile has a cascade over its K-blocks. */
static int64_t sums_levels(const tconv_cpu_plan *plan, int64_t max_terms)
{
    return plan->gather ? tconv_max(1, tconv_cpu_cascade_levels(tconv_ceil_div(max_terms, plan->k_block))) : 1;
}

/* Cuts a halo tile into blocks of rows of about SUMS_BYTES, with the fewest vectors for a row. */
static void plan_row_block(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    int64_t columns = plan->tile_columns + plan->max_lag, best = 1;
    int64_t limit = SUMS_BYTES / plan->real_size / held_rows(plan, layer) / (plan->images * columns);
    double least = 0;
    limit = tconv_max(1, tconv_min(limit, plan->tile_rows));
    for (int64_t rows = limit / 2 + 1; rows <= limit; rows++) {
        double vectors = (double)tconv_cpu_count_vectors(plan, plan->images, rows, columns) / (double)rows;
        if (least == 0 || vectors <= least) {
            least = vectors;
            best = rows;
        }
    }
    plan->row_block = tconv_cpu_even_part(plan->tile_rows, best);
    plan->sums_pitch =
        odd_lines(plan, tconv_cpu_count_vectors(plan, plan->images, plan->row_block, columns) * plan->lanes);
}

/* Sets the pitches of a halo strip from its tile. Where the tile is as wide as the image, the zero padding at the end
 * of one row is that at the start of the next. */
static void set_pitches(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    int64_t span = tconv_cpu_halo(&plan->columns), full = plan->tile_columns + span;
    plan->padding = 0;
    if (plan->column_tiles == 1) {
        int64_t left = tconv_max(0, -plan->columns.min_shift);
        int64_t right = tconv_max(0, plan->columns.positions + plan->columns.max_shift - layer->problem.w.in);
        plan->padding = tconv_min(tconv_min(left, right), span);
    }
    plan->pitch = full - plan->padding;
    plan->row_pitch = plan->images * plan->pitch;
    int64_t rows = plan->tile_rows + tconv_cpu_halo(&plan->rows);
    int64_t vectors = plan->stencil ? TCONV_CPU_STENCIL_VECTORS : 1; /* rows are read in so many whole vectors */
    plan->channel_pitch = odd_lines(plan, rows * plan->row_pitch + plan->padding + vectors * plan->lanes);
}

/* Chooses the largest halo tile of about so many columns whose strip fits; false where not even one row fits. */
static bool cut_halo(tconv_cpu_plan *plan, const tconv_layer *layer, int64_t width)
{
    const tconv_problem *problem = &layer->problem;
    int64_t row_halo = tconv_cpu_halo(&plan->rows);
    int64_t column_halo = tconv_cpu_halo(&plan->columns);
    int64_t capacity =
        tconv_cpu_cache_share(layer, STRIP_PERCENT) / plan->real_size / problem->group_in; /* elements of one channel */
    if (row_halo > MAX_HALO || column_halo > MAX_HALO)
        return false;
    plan->images = 1;
    set_columns(plan, width);
    int64_t full = plan->tile_columns + column_halo, slack = 2 * TCONV_ALIGNMENT / plan->real_size + plan->lanes;
    int64_t rows = tconv_min((capacity - slack) / full - row_halo, tconv_max(1, HALO_POSITIONS / plan->tile_columns));
    if (rows < 1)
        return false;
    plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, rows);
    int64_t positions = plan->rows.positions * plan->columns.positions;
    if (plan->tile_rows == plan->rows.positions && plan->column_tiles == 1 && positions < HALO_POSITIONS / 2) {
        int64_t fit = (capacity - slack) / ((plan->tile_rows + row_halo) * full);
        plan->images =
            tconv_cpu_even_part(tconv_max(1, problem->batch), tconv_min(fit, HALO_POSITIONS / 2 / positions));
    }
    set_pitches(plan, layer);
    plan->task_blocks = plan->blocks;
    int64_t wanted = 1;
    if (problem->layout == TCONV_NHWC && problem->group_in < PIXEL_CHANNELS)
        wanted = tconv_ceil_div(PIXEL_CHANNELS, problem->group_in);
    else if (plan->stencil)
        wanted = STENCIL_POSITIONS / (plan->images * plan->tile_rows * plan->tile_columns);
    int64_t fit =
        tconv_cpu_cache_share(layer, STRIP_PERCENT) / (plan->channel_pitch * problem->group_in * plan->real_size);
    plan->groups = tconv_max(1, tconv_min(tconv_min(wanted, problem->groups), fit));
    return true;
}

/* Chooses a gathered tile of about so many positions, which is always possible. */
static void plan_gather(tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_terms, int64_t positions)
{
    const tconv_problem *problem = &layer->problem;
    int64_t strip = tconv_cpu_cache_share(layer, GATHER_PERCENT) / plan->real_size;
    int64_t sums = tconv_cpu_cache_share(layer, GATHER_SUMS_PERCENT) / plan->real_size;
    plan->gather = true;
    plan->stencil = false;
    plan->padding = 0;
    plan->images = 1;
    set_columns(plan, tconv_min(positions, TILE_COLUMNS));
    plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, positions / plan->tile_columns);
    if (plan->tile_rows == plan->rows.positions && plan->column_tiles == 1)
        plan->images = tconv_cpu_even_part(tconv_max(1, problem->batch),
                                           positions / (plan->rows.positions * plan->columns.positions));
    plan->pitch = plan->tile_columns;
    plan->row_pitch = plan->images * plan->pitch;
    plan->channel_pitch = odd_lines(plan, plan->tile_rows * plan->row_pitch);
    int64_t segments = tconv_ceil_div(tconv_max(1, max_terms), TCONV_CPU_SEGMENT);
    plan->k_block =
        TCONV_CPU_SEGMENT * tconv_min(segments, tconv_max(1, strip / plan->channel_pitch / TCONV_CPU_SEGMENT));
    plan->sums_pitch = plan->channel_pitch;
    plan->task_blocks = tconv_max(1, sums / (held_rows(plan, layer) * plan->sums_pitch * sums_levels(plan, max_terms)));
}

/*
 * The cost model: cycles for one position and input channel, roughly, where a multiply-add of 64 bytes takes one. Only
 * the better of two plans is wanted. The numbers are rough rates that were chosen, not measured one by one. With the
 * whole model kb57 went from 1.21 to 1.16 times the floor, unet_up4 from 1.28 to 1.21, pose_3 from 1.22 to 1.17 (two
 * cores of a Zen 4, docs/log/2026-11-21-cpu.md).
 */
enum {
    SUMS_CYCLES = 8,         /* cycles of a K-block for each vector of sums, beyond the first-level cache */
    L2_BYTES_PER_CYCLE = 24, /* bytes of weights a cycle, from the second-level cache */
    L3_BYTES_PER_CYCLE = 6,  /* bytes of weights a cycle, from behind the second-level cache */
    ROW_CYCLES = 100         /* cycles to begin a row of outputs */
};
static const double planes_cycles = 0.75;  /* cycles to load an element of an NCHW input into a strip */
static const double pixels_cycles = 1.5;   /* cycles to load an element of an NHWC input, which is transposed */
static const double load_row_cycles = 8;   /* cycles to begin a row of a strip on its first load */
static const double gather_cycles = 0.5;   /* cycles to gather an element again: the caches hold it */
static const double gather_row_cycles = 4; /* cycles to begin a row of a strip that is gathered again */

static double model_cycles(const tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_terms)
{
    const tconv_problem *problem = &layer->problem;
    double taps = (double)plan->rows.taps * (double)plan->columns.taps;
    double positions = (double)plan->images * (double)plan->tile_rows * (double)plan->tile_columns;
    double vectors =
        (double)tconv_cpu_count_vectors(plan, plan->images, plan->tile_rows, plan->tile_columns + plan->max_lag);
    double load =
        (problem->layout == TCONV_NHWC ? pixels_cycles : planes_cycles) + load_row_cycles / (double)plan->tile_columns;
    double again = gather_cycles + gather_row_cycles / (double)plan->tile_columns;
    double compute =
        taps * (double)problem->group_out * vectors / positions * (double)(plan->lanes * plan->real_size) / 64;
    double weights = taps * (double)problem->group_out * (double)plan->real_size;
    bool near = weights * (double)problem->group_in < (double)tconv_cpu_cache_share(layer, STRIP_PERCENT);
    compute += weights / positions / (near ? L2_BYTES_PER_CYCLE : L3_BYTES_PER_CYCLE);
    compute += ROW_CYCLES * (double)problem->group_out * (double)tconv_min(problem->h.stride, problem->h.out) /
               ((double)problem->group_in * (double)plan->tile_columns);
    if (!plan->gather) {
        /* The last tiles of a row and of a column may be smaller than the others. */
        int64_t row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows), last = plan->columns.positions;
        last -= (plan->column_tiles - 1) * plan->tile_columns;
        double cut = (double)tconv_cpu_count_vectors(plan, plan->images, plan->tile_rows, last + plan->max_lag) +
                     (double)(plan->column_tiles - 1) * vectors;
        cut *= (double)plan->tile_rows * (double)row_tiles * (double)plan->tile_columns /
               (vectors * (double)plan->rows.positions * (double)plan->columns.positions);
        return (compute + load * (double)plan->channel_pitch / positions) * cut;
    }
    double passes = (double)tconv_ceil_div(plan->blocks, tconv_min(plan->blocks, plan->task_blocks));
    return compute * (1 + SUMS_CYCLES / (double)tconv_max(1, tconv_min(plan->k_block, max_terms))) + load +
           again * taps * passes;
}

/* Cuts the layer into more tasks until there are enough for the threads. */
static void plan_tasks(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int64_t weights = problem->group_in * problem->group_out * plan->rows.taps * plan->columns.taps;
    int threads = tconv_cpu_useful_threads(layer, &plan->rows, &plan->columns);
    bool heavy = weights > tconv_cpu_cache_share(layer, WEIGHTS_PERCENT) / plan->real_size;
    for (;;) {
        plan->image_tiles = tconv_ceil_div(problem->batch, plan->images);
        plan->row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows);
        plan->group_tasks = tconv_ceil_div(problem->groups, plan->groups);
        plan->block_tasks = tconv_ceil_div(plan->blocks, plan->task_blocks);
        plan->tasks = plan->image_tiles * plan->row_tiles * plan->column_tiles * plan->group_tasks * plan->block_tasks;
        if (tconv_cpu_enough_tasks(plan->tasks, threads))
            break;
        if (plan->groups > 1)
            plan->groups = tconv_ceil_div(plan->groups, 2);
        else if (plan->task_blocks > 1 && heavy)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > FEW_ROWS)
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, plan->tile_rows / 2);
        else if (plan->task_blocks > 1)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->tile_rows > 1)
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, plan->tile_rows / 2);
        else
            break;
    }
    plan->threads = (int)tconv_min(threads, plan->tasks);
}

/* Returns the most vectors of sums that a micro-tile has. */
static int64_t microtile_vectors(const tconv_cpu_plan *plan)
{
    int64_t most = 0;
    for (int channels = 1; channels <= plan->kernels->max_channels; channels++)
        most = tconv_max(most, (int64_t)channels * plan->kernels->real[plan->real].max_vectors[channels]);
    return most;
}

static tconv_status plan_memory(tconv_cpu_plan *plan, const tconv_layer *layer, int64_t max_taps, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    int64_t vectors_bytes, vectors = 0, sums = held_rows(plan, layer) * plan->sums_pitch;
    int64_t segments = tconv_ceil_div(max_taps, TCONV_CPU_SEGMENT) * problem->group_in; /* no period has more */
    if (plan->gather) {
        plan->strip_bytes = plan->k_block * plan->channel_pitch * plan->real_size;
        plan->sums_level = sums * plan->task_blocks;
        sums = plan->sums_level * sums_levels(plan, max_taps * problem->group_in);
        segments = plan->k_block / TCONV_CPU_SEGMENT;
    } else {
        plan->strip_bytes = plan->channel_pitch * problem->group_in * plan->groups * plan->real_size;
        vectors = tconv_cpu_count_vectors(plan, plan->images, plan->row_block, plan->tile_columns + plan->max_lag);
    }
    /* Rows of sums are read in whole vectors, and with a lag of up to a vector. */
    plan->sums_bytes = (sums + 2 * plan->lanes) * plan->real_size;
    plan->levels_bytes = tconv_cpu_cascade_levels(segments) * microtile_vectors(plan) * plan->lanes * plan->real_size;
    plan->stage_bytes = 0;
    if (plan->stream)
        plan->stage_bytes = (plan->tile_columns + TCONV_CPU_STENCIL_VECTORS * plan->lanes) * residues(plan, layer) *
                            (int64_t)problem->element_size;
    int64_t calls = plan->gather ? 0 : plan->together ? tconv_max(1, layer->columns.count) : 1;
    tconv_cpu_align_size(vectors, (int64_t)sizeof(int32_t), &vectors_bytes);
    tconv_cpu_align_size(calls, (int64_t)sizeof(tconv_cpu_pass_call), &plan->calls_bytes);
    tconv_cpu_align_size(plan->strip_bytes + plan->lanes * plan->real_size, 1, &plan->strip_bytes);
    tconv_cpu_align_size(plan->sums_bytes, 1, &plan->sums_bytes);
    tconv_cpu_align_size(plan->stage_bytes, 1, &plan->stage_bytes);
    tconv_cpu_align_size(plan->levels_bytes, 1, &plan->levels_bytes);
    plan->thread_bytes = plan->strip_bytes + plan->sums_bytes + plan->levels_bytes + plan->stage_bytes +
                         plan->calls_bytes + vectors_bytes;

    const tconv_cpu_filters filters = {.row_taps = plan->rows.taps,
                                       .column_taps = plan->columns.taps,
                                       .groups = problem->groups,
                                       .group_in = problem->group_in,
                                       .group_out = problem->group_out,
                                       .real_size = plan->real_size,
                                       .tap_bytes = (int64_t)sizeof(int32_t)};
    tconv_cpu_packed_sizes sizes;
    tconv_status status = tconv_cpu_packed_sizes_init(&sizes, &filters, issue);
    if (status != TCONV_SUCCESS)
        return status;
    plan->bias_bytes = sizes.bias;
    plan->taps_bytes = sizes.taps;
    plan->packed_bytes = sizes.packed;
    return TCONV_SUCCESS;
}

/* Chooses which sums are stored together, and how. */
static void plan_order(tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    plan->interleave_pixels = problem->layout == TCONV_NHWC && problem->groups == 1 && plan->blocks == 1 &&
                              problem->dst.w == problem->out_channels &&
                              problem->w.stride <= TCONV_CPU_MAX_INTERLEAVE / problem->out_channels;
    plan->interleave =
        plan->interleave_pixels || (problem->layout == TCONV_NCHW && problem->w.stride <= TCONV_CPU_MAX_INTERLEAVE);
    plan->together = plan->interleave;
}

static bool plan_stream(const tconv_cpu_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cpu_traits *traits = tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning);
    int64_t phases = tconv_max(1, layer->rows.count * layer->columns.count);
    return plan->kernels->streams && plan->interleave &&
           tconv_cpu_leaves_caches(layer, layer->problem.dst_extent, plan->threads) &&
           plan->rows.taps * plan->columns.taps / phases * problem->group_in < traits->stream_terms &&
           plan->tile_columns * residues(plan, layer) * (int64_t)problem->element_size >= TCONV_CPU_STREAM_BYTES;
}

static tconv_status make_plan(tconv_cpu_plan *plan, const tconv_layer *layer, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cpu_traits *traits = tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning);
    int64_t max_row_taps, max_column_taps, max_terms;
    *plan = (tconv_cpu_plan){.kernels = tconv_cpu_find_kernels(tconv_cpu_target_of(&layer->target).cpu_isa)};
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->lanes = plan->kernels->real[plan->real].lanes;
    plan->rows = tconv_cpu_axis_init(&problem->h, &layer->rows, &max_row_taps);
    plan->columns = tconv_cpu_axis_init(&problem->w, &layer->columns, &max_column_taps);
    max_terms = max_row_taps * max_column_taps * problem->group_in; /* no more than the layer has weights */
    plan->blocks = tconv_ceil_div(problem->group_out, tconv_min(plan->kernels->max_channels, traits->block_channels));
    plan->groups = 1;
    plan_order(plan, layer);
    plan->stencil = problem->group_in == 1 && problem->group_out <= STENCIL_CHANNELS &&
                    max_terms <= TCONV_CPU_SEGMENT && problem->layout == TCONV_NCHW && plan->interleave &&
                    tconv_cpu_stores_sums(problem, layer->columns.bias_only); /* it has no other store */
    if (plan->stencil)
        plan->blocks = problem->group_out;

    tconv_cpu_plan halo = *plan, gather = *plan;
    plan_gather(plan, layer, max_terms, TCONV_CPU_GATHER_POSITIONS);
    for (int64_t positions = TCONV_CPU_GATHER_POSITIONS / 2; positions >= gather.lanes; positions /= 2) {
        plan_gather(&gather, layer, max_terms, positions);
        if (model_cycles(&gather, layer, max_terms) < model_cycles(plan, layer, max_terms))
            *plan = gather;
    }
    if (!halo.stencil)
        plan_fusion(&halo, layer);
    halo.together |= halo.fused;
    /* Narrower tiles have more rows, and so less halo above and below. */
    for (int64_t width = TILE_COLUMNS; width >= halo.lanes; width /= 2)
        if (cut_halo(&halo, layer, width) &&
            model_cycles(&halo, layer, max_terms) < model_cycles(plan, layer, max_terms))
            *plan = halo;
    plan->task_blocks = tconv_min(plan->task_blocks, plan->blocks);
    plan_tasks(plan, layer);
    if (!plan->gather) {
        set_pitches(plan, layer);
        plan_row_block(plan, layer);
    }
    plan->stream = plan_stream(plan, layer);
    return plan_memory(plan, layer, max_row_taps * max_column_taps, issue);
}

tconv_status tconv_cpu_plan_init(tconv_cpu_plan *plan, const tconv_layer *layer, tconv_issue *issue)
{
    fenv_t caller;
    bool rounds = tconv_cpu_round_to_nearest(&caller);
    tconv_status status = make_plan(plan, layer, issue);
    if (rounds)
        fesetenv(&caller);
    return status;
}
