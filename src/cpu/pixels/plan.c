/*
 * Chooses tiles, strips and tasks of the pixels algorithm. The choices that decide the bits of a result (K-blocks and
 * segments) depend on the layer and the machine only; the number of threads decides only how tiles are cut into tasks.
 */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../kernels/kernels.h"

/* Percent of the second-level cache for the strip; outputs stream through what this and the two shares below leave. It
 * is that of the first plan of cpu_phases, which was best at 450 KiB of 1 MiB (Zen 4). */
enum { STRIP_PERCENT = 44 };

/* Percent of the second-level cache for the weights that are read again and again beside the strip. It is chosen, not
 * measured. */
enum { WEIGHTS_PERCENT = 25 };

/* Percent of the second-level cache for partial sums. It is chosen, not measured. */
enum { SUMS_PERCENT = 25 };

/* Columns of a tile: enough for the hardware to prefetch the input's rows. A wider row is cut. It is chosen, not
 * measured. */
enum { TILE_COLUMNS = 64 };

/* Positions of the largest tile; beyond it nothing is gained. No measurement of it is on record. */
enum { MAX_POSITIONS = 1024 };

/* Positions of the smallest tile that is worth its weights: below it, weights are not used often enough for their way
 * from the third-level cache, and fewer input channels at a time are better. No measurement of it is on record. */
enum { MIN_POSITIONS = 96 };

/* Input channels that a K-block is a multiple of: whole cache lines of a pixel, and enough that partial sums are seldom
 * read and written. It is chosen, not measured. */
enum { K_BLOCK_UNIT = 64 };

/* Bytes: pixels of a strip that are so far apart, or a multiple of it, would meet in a few sets of the first-level
 * cache. It is chosen, not measured. */
enum { SET_BYTES = 1024 };

/* Positions of a halo that is too wide for a strip, whatever the cache. The bound keeps sizes small enough to
 * multiply. */
enum { MAX_HALO = 1 << 12 };

/* Percent of the lanes of a group's vectors that must be output channels and not padding: the microkernels are not to
 * spend more than half of their work on zeros. Two vectors and more always pass. It is chosen, not measured. */
enum { MIN_CHANNELS_PERCENT = 50 };

/* What is_padded_too_much counts with; fitted by eye to 40 layers. */
enum { SCATTER_CYCLES = 3 };
static const double phases_ratio = 1.1;

/* The most elements (residues x channels) of a pixel that is staged: a dozen such pixels, of 4 KiB each,
 * fill the first-level cache. */
enum { STAGE_ELEMENTS = 1024 };

/* Input channels that a strip should have at least, if groups are small: four cache lines of f32. It is chosen, not
 * measured. */
enum { STRIP_CHANNELS = 64 };

/* Returns the elements in a share of the cache. */
static int64_t cache_share(const tconv_cpu_pixel_plan *plan, const tconv_layer *layer, int64_t percent)
{
    return tconv_cpu_cache_share(layer, percent) / plan->real_size;
}

static int64_t positions_of(const tconv_cpu_pixel_plan *plan)
{
    return plan->images * plan->tile_rows * plan->tile_columns;
}

static void set_pitches(tconv_cpu_pixel_plan *plan)
{
    plan->pixel_pitch = plan->groups * plan->k_block;
    if (plan->depthwise)
        plan->pixel_pitch = tconv_min(plan->vectors, plan->task_blocks * TCONV_CPU_MAX_PIXEL_VECTORS) * plan->lanes;
    if (plan->pixel_pitch * plan->real_size % SET_BYTES == 0)
        plan->pixel_pitch += TCONV_ALIGNMENT / plan->real_size;
    plan->row_pitch = plan->pixel_pitch * (plan->tile_columns + tconv_cpu_halo(&plan->columns));
    plan->image_pitch = plan->row_pitch * (plan->tile_rows + tconv_cpu_halo(&plan->rows));
}

/* Chooses the largest tile whose strip fits, for the plan's groups and K-block; false where not one position fits. */
static bool place_tile(tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    int64_t capacity = cache_share(plan, layer, STRIP_PERCENT);
    for (int64_t width = TILE_COLUMNS; width > 0; width /= 2) {
        plan->images = 1;
        plan->tile_columns = tconv_cpu_even_part(plan->columns.positions, width);
        if (plan->depthwise && plan->task_blocks > capacity) /* too many channels to multiply their number */
            return false;
        set_pitches(plan);
        int64_t rows = capacity / plan->row_pitch - tconv_cpu_halo(&plan->rows);
        if (rows < 1 || (rows < plan->rows.positions && rows < 2 * tconv_cpu_halo(&plan->rows) && width > 1))
            continue; /* narrower tiles have less halo above and below */
        plan->tile_rows = tconv_cpu_even_part(plan->rows.positions,
                                              tconv_min(rows, tconv_max(1, MAX_POSITIONS / plan->tile_columns)));
        set_pitches(plan);
        if (plan->tile_rows == plan->rows.positions && plan->tile_columns == plan->columns.positions)
            plan->images =
                tconv_cpu_even_part(tconv_max(1, layer->problem.batch),
                                    tconv_min(capacity / plan->image_pitch, MAX_POSITIONS / positions_of(plan)));
        return true;
    }
    return false;
}

static bool place_enough(tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    double all = (double)layer->problem.batch * (double)plan->rows.positions * (double)plan->columns.positions;
    return place_tile(plan, layer) && (positions_of(plan) >= MIN_POSITIONS || (double)positions_of(plan) >= all);
}

/* Chooses the K-block: all channels where a tile of some size fits and its weights stay in the cache from pixels to
 * pixels. For a depthwise layer, chooses the blocks of a task. */
static bool place_strip(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, int64_t phase_taps)
{
    int64_t width = tconv_min(plan->vectors, TCONV_CPU_MAX_PIXEL_VECTORS) * plan->lanes;
    int64_t most = cache_share(plan, layer, WEIGHTS_PERCENT) / (width * tconv_max(1, phase_taps));
    plan->k_block = plan->group_in;
    plan->groups = 1;
    plan->task_blocks = plan->blocks;
    if (plan->k_block > most && plan->k_block > K_BLOCK_UNIT)
        plan->k_block = tconv_max(K_BLOCK_UNIT, most / K_BLOCK_UNIT * K_BLOCK_UNIT);
    while (!place_enough(plan, layer)) {
        if (plan->k_block > K_BLOCK_UNIT)
            plan->k_block = tconv_max(1, plan->k_block / 2 / K_BLOCK_UNIT) * K_BLOCK_UNIT;
        else if (plan->depthwise && plan->task_blocks > 1)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else
            return place_tile(plan, layer);
    }
    return true;
}

/* Cuts the layer into more tasks until there are enough for the threads. */
static void plan_tasks(tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    int threads = tconv_cpu_useful_threads(layer, &plan->rows, &plan->columns);
    for (;;) {
        plan->image_tiles = tconv_ceil_div(problem->batch, plan->images);
        plan->row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows);
        plan->column_tiles = tconv_ceil_div(plan->columns.positions, plan->tile_columns);
        plan->group_tasks = tconv_ceil_div(plan->all_groups, plan->groups);
        plan->block_tasks = tconv_ceil_div(plan->blocks, plan->task_blocks);
        plan->tasks = plan->image_tiles * plan->row_tiles * plan->column_tiles * plan->group_tasks * plan->block_tasks;
        if (tconv_cpu_enough_tasks(plan->tasks, threads))
            break;
        if (plan->task_blocks > 1 && !plan->pixels_first) /* each task reads all weights of its channels */
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > 1)
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, tconv_ceil_div(plan->tile_rows, 2));
        else if (plan->task_blocks > 1 && !plan->can_stage)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else
            break;
    }
    plan->threads = (int)tconv_min(threads, plan->tasks);
}

static tconv_status plan_memory(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, int64_t phase_taps,
                                tconv_issue *issue)
{
    int64_t panels =
        plan->pixels_first ? layer->rows.count * layer->columns.count * plan->groups * plan->task_blocks : 0;
    int64_t width = plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS, microtile = width * TCONV_CPU_MAX_PIXELS, inside_bytes;
    int64_t segments = tconv_ceil_div(phase_taps * plan->k_block, TCONV_CPU_SEGMENT);
    plan->sums_level =
        plan->partial_sums ? plan->pass_phases * plan->task_blocks * width * positions_of(plan) : microtile;
    tconv_cpu_align_size(plan->images * plan->image_pitch, plan->real_size, &plan->strip_bytes);
    tconv_cpu_align_size(plan->sums_level * plan->levels, plan->real_size, &plan->sums_bytes);
    tconv_cpu_align_size(microtile * tconv_cpu_cascade_levels(segments), plan->real_size, &plan->levels_bytes);
    tconv_cpu_align_size(plan->can_stage ? TCONV_CPU_MAX_PIXELS * plan->stage_pitch : 0, plan->real_size,
                         &plan->stage_bytes);
    tconv_cpu_align_size(positions_of(plan), (int64_t)sizeof(int64_t), &plan->to_bytes);
    tconv_cpu_align_size(positions_of(plan), (int64_t)sizeof(int32_t), &plan->at_bytes);
    tconv_cpu_align_size(panels, (int64_t)sizeof(tconv_cpu_pixel_panel), &plan->panels_bytes);
    tconv_cpu_align_size(phase_taps, (int64_t)sizeof(tconv_cpu_pixel_tap), &inside_bytes);
    plan->thread_bytes = plan->strip_bytes + plan->sums_bytes + plan->levels_bytes + plan->stage_bytes +
                         plan->to_bytes + plan->at_bytes + plan->panels_bytes + inside_bytes;

    const tconv_cpu_filters filters = {.row_taps = plan->rows.taps,
                                       .column_taps = plan->columns.taps,
                                       .groups = plan->all_groups,
                                       .group_in = plan->group_in,
                                       .group_out = plan->vectors * plan->lanes,
                                       .real_size = plan->real_size,
                                       .tap_bytes = (int64_t)sizeof(tconv_cpu_pixel_tap)};
    tconv_cpu_packed_sizes sizes;
    tconv_status status = tconv_cpu_packed_sizes_init(&sizes, &filters, issue);
    if (status != TCONV_SUCCESS)
        return status;
    plan->bias_bytes = sizes.bias;
    plan->taps_bytes = sizes.taps;
    plan->packed_bytes = sizes.packed;
    return TCONV_SUCCESS;
}

/* Makes the part of a plan that a refusal depends on: vectors, axes and strip. */
static bool init_strip(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, int64_t *phase_taps)
{
    const tconv_problem *problem = &layer->problem;
    int64_t row_taps, column_taps;
    *plan = (tconv_cpu_pixel_plan){.kernels = tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&layer->target).cpu_isa),
                                   .all_groups = problem->groups,
                                   .group_in = problem->group_in,
                                   .group_out = problem->group_out};
    plan->depthwise = problem->group_in == 1 && problem->group_out == 1 && problem->groups > 1;
    if (plan->depthwise) {
        plan->all_groups = 1;
        plan->group_out = problem->out_channels;
    }
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->lanes = plan->kernels->real[plan->real].lanes;
    plan->vectors = tconv_ceil_div(plan->group_out, plan->lanes);
    plan->blocks = tconv_ceil_div(plan->vectors, TCONV_CPU_MAX_PIXEL_VECTORS);
    plan->rows = tconv_cpu_axis_init(&problem->h, &layer->rows, &row_taps);
    plan->columns = tconv_cpu_axis_init(&problem->w, &layer->columns, &column_taps);
    *phase_taps = row_taps * column_taps;
    return tconv_cpu_halo(&plan->rows) <= MAX_HALO && tconv_cpu_halo(&plan->columns) <= MAX_HALO &&
           place_strip(plan, layer, *phase_taps);
}

/* Tells whether padding output channels to whole vectors costs more than cpu_phases does, whose vectors run along
 * positions: its multiply-adds are phases_ratio times as slow, and each output takes SCATTER_CYCLES to transpose. On two
 * cores of an Emerald Rapids 9 of 11 layers that cpu_phases ran more than 10 % faster are such, none that it ran slower
 * (docs/log/2026-11-26-cpu-intel.md). */
static bool is_padded_too_much(const tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    double phases = (double)tconv_max(1, layer->rows.count * layer->columns.count);
    double terms = (double)plan->rows.taps * (double)plan->columns.taps * (double)plan->group_in / phases;
    double filled = (double)plan->group_out / (double)plan->lanes;
    return terms * filled * phases_ratio + (double)plan->group_out * SCATTER_CYCLES < terms * (double)plan->vectors;
}

static const char *find_refusal(const tconv_layer *layer)
{
    tconv_cpu_pixel_plan plan;
    int64_t phase_taps;
    bool placed = init_strip(&plan, layer, &phase_taps);
    if ((double)plan.group_out * 100 < (double)plan.vectors * (double)plan.lanes * MIN_CHANNELS_PERCENT)
        return plan.depthwise ? "output channels fill less than half a vector"
                              : "output channels of a group fill less than half a vector";
    if (!plan.depthwise && is_padded_too_much(&plan, layer))
        return "output channels of a group leave too much of their vectors empty";
    return placed ? NULL : "a kernel so wide that no strip of input fits the cache";
}

/* Chooses passes and blocks, so that partial sums fit their share of the cache. */
static void plan_passes(tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    int64_t width = tconv_min(plan->vectors, TCONV_CPU_MAX_PIXEL_VECTORS) * plan->lanes;
    plan->partial_sums = plan->k_block < plan->group_in;
    plan->levels = tconv_max(1, tconv_cpu_cascade_levels(tconv_ceil_div(plan->group_in, plan->k_block)));
    plan->pass_phases = tconv_max(1, layer->rows.count * layer->columns.count);
    const double room = (double)cache_share(plan, layer, SUMS_PERCENT) / (double)plan->levels;
    while (plan->partial_sums &&
           (double)plan->pass_phases * (double)(plan->task_blocks * width * positions_of(plan)) > room) {
        if (plan->pass_phases > 1)
            plan->pass_phases = tconv_ceil_div(plan->pass_phases, 2);
        else if (plan->task_blocks > 1)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else
            break;
    }
}

/* Chooses whether the loop over pixels is outside of that over weights, and whether pixels may be staged. */
static void plan_order(tconv_cpu_pixel_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    double taps = (double)plan->rows.taps * (double)plan->columns.taps;
    double panels = (double)layer->rows.count * (double)layer->columns.count * (double)plan->groups;
    double weights = taps * (double)plan->groups * (double)plan->group_in * (double)plan->vectors * (double)plan->lanes;
    while (plan->depthwise && panels * (double)plan->task_blocks > TCONV_CPU_MAX_PIXEL_PANELS && plan->task_blocks > 1)
        plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
    plan->pixels_first = !plan->partial_sums && panels * (double)plan->task_blocks <= TCONV_CPU_MAX_PIXEL_PANELS &&
                         weights <= (double)cache_share(plan, layer, WEIGHTS_PERCENT);
    bool padded = plan->group_out % plan->lanes != 0, bias_only = layer->columns.bias_only > 0;
    bool whole = plan->groups == plan->all_groups && plan->task_blocks == plan->blocks &&
                 problem->dst.w == problem->out_channels;
    plan->can_stage = plan->pixels_first && whole && !(padded && bias_only) && problem->w.stride <= STAGE_ELEMENTS &&
                      problem->out_channels <= STAGE_ELEMENTS &&
                      problem->w.stride * problem->out_channels <= STAGE_ELEMENTS;
    if (plan->can_stage)
        plan->stage_pitch =
            problem->w.stride * problem->out_channels + (padded ? plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS : 0);
}

static tconv_status make_plan(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, tconv_issue *issue)
{
    int64_t phase_taps;
    init_strip(plan, layer, &phase_taps);
    plan_passes(plan, layer);
    if (plan->group_in < STRIP_CHANNELS) {
        int64_t fit = cache_share(plan, layer, STRIP_PERCENT) / (plan->images * plan->image_pitch);
        int64_t wanted = tconv_ceil_div(STRIP_CHANNELS, plan->group_in);
        plan->groups = tconv_max(1, tconv_min(tconv_min(wanted, plan->all_groups), fit));
    }
    plan_order(plan, layer);
    plan_tasks(plan, layer);
    set_pitches(plan);
    return plan_memory(plan, layer, phase_taps, issue);
}

const char *tconv_cpu_pixel_refusal(const tconv_layer *layer)
{
    fenv_t caller;
    bool rounds = tconv_cpu_round_to_nearest(&caller);
    const char *refusal = find_refusal(layer);
    if (rounds)
        fesetenv(&caller);
    return refusal;
}

tconv_status tconv_cpu_pixel_plan_init(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, tconv_issue *issue)
{
    fenv_t caller;
    bool rounds = tconv_cpu_round_to_nearest(&caller);
    tconv_status status = make_plan(plan, layer, issue);
    if (rounds)
        fesetenv(&caller);
    return status;
}
