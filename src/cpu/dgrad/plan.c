/*
 * Chooses tiles, strips and tasks of the correlation algorithm. The choices that decide the bits of a result (vectors,
 * K-blocks, segments) depend on the layer and the machine only; the number of threads decides only how tiles are cut
 * into tasks.
 */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../machine/tuning.h"

/* Percent of the second-level cache for the strip: beside it weights stream in and results stream out. It is that of
 * cpu_pixels. */
enum { STRIP_PERCENT = 44 };

/* Bytes of a thread's partial sums, which are read and written once in a K-block and may come from the third-level
 * cache. The strip of a K-block is loaded once for as many blocks as these hold: with half a mebibyte dcgan_1 takes 11 %
 * longer, unet_up1 and maskrcnn 4 % (docs/log/2026-11-26-cpu-gradients.md). */
enum { SUMS_BYTES = 1 << 21 };

/* Columns of the widest tile. It is chosen, not measured. */
enum { TILE_COLUMNS = 512 };

/* Positions of the largest tile. It is chosen, not measured. */
enum { MAX_POSITIONS = 1024 };

/* Live taps of the largest kernel, so that lists of them, and a strip of one position, stay small. It is chosen, not
 * measured. */
enum { MAX_TAPS = 4096 };

/* Output channels that a K-block is a multiple of, where it is not all: a cache line of f32. It is chosen, not
 * measured. */
enum { K_BLOCK_UNIT = 16 };

/* Terms of a period of whole output channels, whose places are listed one by one. It is that of cpu_phases. */
enum { PERIOD_TERMS = 5 * TCONV_CPU_SEGMENT };

/* Percent of the lanes of a group's vectors that must be input channels and not padding, for vectors along channels. It
 * is that of cpu_pixels. */
enum { MIN_CHANNELS_PERCENT = 50 };

/* Output channels of a group, in all taps of a row if these are one, from which vectors along input channels are worth it:
 * a microkernel begins each tap by itself. It is chosen, not measured. */
enum { MIN_TERMS = 8 };

/* Positions of a task, over all its groups: a task costs as much as some hundred by itself. It is that of a stencil of
 * cpu_phases. */
enum { TASK_POSITIONS = 4096 };

/* Rows of a tile that is cut further only as the last resort: each task reads its halo again. It is that of
 * cpu_phases. */
enum { FEW_ROWS = 4 };

/* Bytes: pixels of a strip that are so far apart, or a multiple of it, would meet in a few sets of the first-level
 * cache. It is that of cpu_pixels. */
enum { SET_BYTES = 1024 };

static int64_t positions_of(const tconv_cpu_dgrad_plan *plan)
{
    return plan->images * plan->tile_rows * plan->tile_columns;
}

/* ----------------------------------------------------------------------------------------------------------- taps */

static tconv_cpu_dgrad_axis make_axis(const tconv_axis *axis, const tconv_phase_table *table)
{
    tconv_cpu_dgrad_axis made = {.positions = axis->in,
                                 .step = table->shift_step,
                                 .stride = axis->stride,
                                 .span = (axis->kernel - 1) * axis->dilation + 1};
    for (int64_t p = 0; p < table->count; p++) {
        const int64_t taps = tconv_cpu_live_taps(axis, table, &table->phases[p]).count;
        made.phases += taps > 0;
        made.taps += taps;
        made.max_taps = tconv_max(made.max_taps, taps);
    }
    return made;
}

/* ---------------------------------------------------------------------------------------------------------- tiles */

int64_t tconv_cpu_dgrad_vectors(const tconv_cpu_dgrad_plan *plan, int64_t images, int64_t rows, int64_t columns,
                                bool *flat)
{
    const int64_t all = (rows - 1) * plan->row_pitch + (images - 1) * plan->pitch + columns;
    const int64_t by_rows = images * rows * tconv_ceil_div(columns, plan->lanes);
    *flat = all <= by_rows * plan->lanes;
    return *flat ? tconv_ceil_div(all, plan->lanes) : by_rows;
}

/* Lines of a strip, for tiles of so many rows. */
static int64_t lines_of(const tconv_cpu_dgrad_axis *rows, int64_t tile)
{
    return rows->phases * tile + (rows->taps - rows->phases) * tconv_cpu_run_step(rows, tile);
}

/* The most rows of a tile whose strip has at most so many lines; 0 where even one has more. */
static int64_t fit_rows(const tconv_cpu_dgrad_axis *rows, int64_t lines)
{
    if (rows->taps == 0)
        return rows->positions;
    const int64_t apart = lines / rows->taps; /* each tap has its own lines */
    if (apart <= rows->step)
        return apart;
    return (lines - (rows->taps - rows->phases) * rows->step) / rows->phases;
}

/* Rounds a pitch up to an odd number of cache lines, so that neighbouring channels do not share cache sets. */
static int64_t odd_lines(const tconv_cpu_dgrad_plan *plan, int64_t elements)
{
    const int64_t line = TCONV_ALIGNMENT / plan->real_size;
    return (tconv_ceil_div(elements, line) | 1) * line;
}

/* Output channels of a strip. */
static int64_t strip_channels(const tconv_cpu_dgrad_plan *plan)
{
    return plan->depthwise ? tconv_min(plan->padded_in, plan->task_blocks * plan->block_width) : plan->k_block;
}

static void set_pitches(tconv_cpu_dgrad_plan *plan)
{
    const int64_t step = plan->columns_apart ? 0 : plan->columns.step;
    plan->planes = plan->columns_apart ? plan->columns.taps : plan->columns.phases;
    plan->pitch = plan->tile_columns + tconv_max(0, plan->columns.max_taps - 1) * step;
    plan->column_step = 1;
    if (plan->columns_whole) {
        plan->planes = 1;
        plan->pitch = (plan->tile_columns - 1) * plan->columns.stride + plan->columns.span;
        plan->column_step = plan->columns.stride;
    }
    plan->row_pitch = plan->images * plan->pitch;
    plan->plane_pitch = lines_of(&plan->rows, plan->tile_rows) * plan->row_pitch;
    plan->places = plan->planes * plan->plane_pitch;
    plan->place_pitch = 1;
    plan->channel_pitch = 1;
    if (!plan->pixels) { /* vectors run on beyond the last place */
        plan->channel_pitch = odd_lines(plan, plan->places + plan->lanes);
        return;
    }
    plan->place_pitch = strip_channels(plan);
    if (plan->place_pitch * plan->column_step * plan->real_size % SET_BYTES == 0)
        plan->place_pitch += TCONV_ALIGNMENT / plan->real_size;
    plan->rows_of_taps = plan->columns_whole && !plan->depthwise && plan->columns.taps == plan->columns.span &&
                         plan->place_pitch == plan->group_out;
}

static int64_t strip_elements(const tconv_cpu_dgrad_plan *plan)
{
    return plan->pixels ? plan->places * plan->place_pitch : strip_channels(plan) * plan->channel_pitch;
}

/* Sets the sums of a block: their pitch and the levels of the calls' cascade. */
static void set_sums(tconv_cpu_dgrad_plan *plan)
{
    const int64_t vectors = plan->images * plan->tile_rows * tconv_ceil_div(plan->tile_columns, plan->lanes);
    plan->partial_sums = plan->k_block < plan->group_out;
    plan->levels = tconv_max(1, tconv_cpu_cascade_levels(tconv_ceil_div(plan->group_out, plan->k_block)));
    plan->sums_pitch = odd_lines(plan, vectors * plan->lanes);
}

/* Elements of the sums of a block on one level. */
static int64_t block_sums(const tconv_cpu_dgrad_plan *plan)
{
    return plan->block_width * (plan->pixels ? positions_of(plan) : plan->sums_pitch);
}

/* Places the largest tile of about so many columns, for the plan's K-block or blocks, with column taps apart or only
 * where they have to be; false where none fits. */
static bool place_tile(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, int64_t width, bool apart)
{
    const int64_t capacity = tconv_cpu_cache_share(layer, STRIP_PERCENT) / plan->real_size;
    plan->images = plan->tile_rows = 1;
    plan->tile_columns = tconv_cpu_even_part(plan->columns.positions, width);
    if (!plan->pixels && plan->tile_columns < plan->columns.positions)
        plan->tile_columns =
            tconv_min(plan->columns.positions, tconv_round_up(plan->tile_columns, tconv_min(width, plan->lanes)));
    plan->columns_apart = apart || plan->columns.step > plan->tile_columns;
    plan->columns_whole = plan->pixels && !plan->columns_apart && plan->columns.phases == plan->columns.stride;
    const int64_t channels = strip_channels(plan);
    if (channels > capacity)
        return false;
    set_pitches(plan);
    const int64_t line = plan->pitch * tconv_max(1, plan->planes);
    const int64_t slack = plan->pixels ? 0 : 2 * TCONV_ALIGNMENT / plan->real_size + plan->lanes;
    if (slack >= capacity / channels)
        return false;
    const int64_t rows = fit_rows(&plan->rows, (capacity / channels - slack) / line);
    if (rows < 1)
        return false;
    plan->tile_rows =
        tconv_cpu_even_part(plan->rows.positions, tconv_min(rows, tconv_max(1, MAX_POSITIONS / plan->tile_columns)));
    if (plan->tile_rows == plan->rows.positions && plan->tile_columns == plan->columns.positions) {
        const int64_t places = tconv_max(1, lines_of(&plan->rows, plan->tile_rows)) * line;
        const int64_t fit = (capacity / channels - slack) / places;
        plan->images =
            tconv_cpu_even_part(tconv_max(1, layer->problem.batch), tconv_min(fit, MAX_POSITIONS / positions_of(plan)));
    }
    set_pitches(plan);
    set_sums(plan);
    return block_sums(plan) * plan->levels <= SUMS_BYTES / plan->real_size;
}

/* Cuts the blocks of a task until their partial sums fit. */
static void plan_blocks(tconv_cpu_dgrad_plan *plan)
{
    const int64_t room = SUMS_BYTES / plan->real_size / (block_sums(plan) * plan->levels);
    if (plan->partial_sums)
        plan->task_blocks = tconv_cpu_even_part(plan->blocks, room);
}

/*
 * The cost model: cycles for a position, roughly, where a multiply-add of 64 bytes takes one. Only the better of two
 * plans is wanted. The numbers are rough rates that were chosen, not measured one by one; those of partial sums and of
 * weights from behind the second-level cache, which is read ahead, decide about K-blocks, and were set by what they chose
 * (docs/log/2026-11-26-cpu-gradients.md).
 */
enum {
    SUMS_CYCLES = 16,        /* for each vector of partial sums, beyond the first-level cache */
    CALL_CYCLES = 60,        /* to begin and end a call of a microkernel */
    RUN_CYCLES = 20,         /* to begin a run of a strip, for each output channel or pixel */
    L2_BYTES_PER_CYCLE = 24, /* bytes of weights a cycle, from the second-level cache */
    L3_BYTES_PER_CYCLE = 16  /* bytes of weights a cycle, from behind the second-level cache */
};
static const double load_cycles = 0.75; /* for an element of a strip */

/* Lines, or columns, of the strips of all tiles along an axis. */
static double all_places(const tconv_cpu_dgrad_axis *axis, int64_t tile, bool apart)
{
    const double tiles = (double)tconv_ceil_div(axis->positions, tile);
    if (apart)
        return (double)axis->taps * (double)axis->positions;
    return (double)axis->phases * (double)axis->positions +
           (double)(axis->taps - axis->phases) * (double)axis->step * tiles;
}

/* Vectors of positions of all tiles, of which the last ones of a row and a column may be smaller. */
static double all_vectors(const tconv_cpu_dgrad_plan *plan)
{
    const int64_t tiles[2] = {(plan->rows.positions - 1) / plan->tile_rows,
                              (plan->columns.positions - 1) / plan->tile_columns};
    const int64_t last[2] = {plan->rows.positions - tiles[0] * plan->tile_rows,
                             plan->columns.positions - tiles[1] * plan->tile_columns};
    double vectors = 0;
    bool flat;
    for (int i = 0; i < 4; i++) { /* whole tiles and last ones */
        const int64_t rows = i / 2 == 0 ? plan->tile_rows : last[0];
        const int64_t columns = i % 2 == 0 ? plan->tile_columns : last[1];
        const double count = (i / 2 == 0 ? (double)tiles[0] : 1) * (i % 2 == 0 ? (double)tiles[1] : 1);
        vectors += count * (double)tconv_cpu_dgrad_vectors(plan, plan->images, rows, columns, &flat);
    }
    return vectors;
}

static double model_cycles(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    const double lanes = (double)plan->lanes, size = (double)plan->real_size, images = (double)plan->images;
    const double positions = images * (double)plan->rows.positions * (double)plan->columns.positions;
    const double weights = (double)plan->taps * (double)plan->group_out * (double)plan->padded_in;
    const double covered = plan->pixels ? positions : lanes * all_vectors(plan);
    const double column_tiles = (double)tconv_ceil_div(plan->columns.positions, plan->tile_columns);
    const double tiles = column_tiles * (double)tconv_ceil_div(plan->rows.positions, plan->tile_rows);
    const double k_blocks = (double)tconv_ceil_div(plan->group_out, plan->k_block);
    const double channels = plan->depthwise ? (double)plan->group_in : (double)plan->group_out;
    const bool near = weights * size < (double)tconv_cpu_cache_share(layer, STRIP_PERCENT);
    const double lines =
        images * all_places(&plan->rows, plan->tile_rows, tconv_cpu_runs_are_apart(&plan->rows, plan->tile_rows));
    double cycles = weights * covered * size / 64;
    cycles += weights * size / (near ? L2_BYTES_PER_CYCLE : L3_BYTES_PER_CYCLE) * tiles;
    const double line = plan->columns_whole ? column_tiles * (double)plan->pitch
                                            : all_places(&plan->columns, plan->tile_columns, plan->columns_apart);
    const double loads = plan->depthwise ? 1 : (double)tconv_ceil_div(plan->blocks, plan->task_blocks);
    cycles += loads * lines * line * channels * load_cycles;
    cycles += loads * lines * column_tiles * (double)plan->planes * (plan->pixels ? k_blocks : channels) * RUN_CYCLES;
    cycles += (k_blocks - 1) * covered * (double)plan->padded_in / lanes * SUMS_CYCLES;
    cycles += k_blocks * (double)plan->padded_in / (double)plan->block_width * covered / lanes * CALL_CYCLES / 2;
    return cycles / positions;
}

/* Tries tiles of every width for the plan's K-block or blocks, and keeps the best one of all. */
static void try_widths(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, tconv_cpu_dgrad_plan *best,
                       double *least)
{
    for (int64_t width = TILE_COLUMNS; width > 0; width /= 2)
        for (int apart = 0; apart <= (plan->pixels ? 0 : 1); apart++) {
            tconv_cpu_dgrad_plan tried = *plan;
            if (!place_tile(&tried, layer, width, apart != 0))
                continue;
            plan_blocks(&tried);
            const double cycles = model_cycles(&tried, layer);
            if (*least == 0 || cycles < *least) {
                *least = cycles;
                *best = tried;
            }
        }
}

/* Chooses K-block and tile; false where nothing fits. */
static bool choose_tile(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    tconv_cpu_dgrad_plan tried = *plan;
    double least = 0;
    tried.k_block = plan->group_out;
    tried.task_blocks = plan->blocks;
    for (;;) {
        try_widths(&tried, layer, plan, &least);
        int64_t *cut = plan->depthwise ? &tried.task_blocks : &tried.k_block;
        if (*cut == 1)
            return least > 0;
        const int64_t half = tconv_ceil_div(*cut, 2);
        *cut = plan->depthwise || half < K_BLOCK_UNIT ? half : tconv_round_up(half, K_BLOCK_UNIT);
    }
}

/* ---------------------------------------------------------------------------------------------------------- tasks */

static void count_tasks(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    plan->image_tiles = tconv_ceil_div(layer->problem.batch, plan->images);
    plan->row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows);
    plan->column_tiles = tconv_ceil_div(plan->columns.positions, plan->tile_columns);
    plan->group_tasks = tconv_ceil_div(plan->all_groups, plan->groups);
    plan->block_tasks = tconv_ceil_div(plan->blocks, plan->task_blocks);
    plan->tasks = plan->image_tiles * plan->row_tiles * plan->column_tiles * plan->group_tasks * plan->block_tasks;
}

/* Cuts the layer into more tasks until there are enough for the threads. */
static void plan_tasks(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    int64_t row_taps, column_taps;
    const tconv_cpu_axis rows = tconv_cpu_axis_init(&layer->problem.h, &layer->rows, &row_taps);
    const tconv_cpu_axis columns = tconv_cpu_axis_init(&layer->problem.w, &layer->columns, &column_taps);
    const int threads = tconv_cpu_useful_threads(layer, &rows, &columns);
    for (;;) {
        count_tasks(plan, layer);
        if (tconv_cpu_enough_tasks(plan->tasks, threads))
            break;
        if (plan->groups > 1)
            plan->groups = tconv_ceil_div(plan->groups, 2);
        else if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > FEW_ROWS)
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, tconv_ceil_div(plan->tile_rows, 2));
        else if (plan->task_blocks > 1)
            plan->task_blocks = tconv_ceil_div(plan->task_blocks, 2);
        else if (plan->tile_rows > 1)
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, tconv_ceil_div(plan->tile_rows, 2));
        else
            break;
    }
    plan->threads = (int)tconv_min(threads, tconv_max(1, plan->tasks));
}

/* --------------------------------------------------------------------------------------------------------- memory */

static tconv_status plan_memory(tconv_cpu_dgrad_plan *plan, tconv_issue *issue)
{
    const int64_t held = plan->partial_sums ? plan->task_blocks : 1, channels = plan->period_channels;
    const int64_t segments =
        tconv_ceil_div(plan->k_block, channels) * tconv_ceil_div(tconv_max(1, channels * plan->taps), TCONV_CPU_UNROLL);
    const int64_t microtile = plan->lanes * TCONV_CPU_MAX_VECTORS * TCONV_CPU_MAX_CHANNELS;
    plan->sums_level = held * block_sums(plan);
    tconv_cpu_align_size(strip_elements(plan), plan->real_size, &plan->strip_bytes);
    tconv_cpu_align_size(plan->sums_level * plan->levels, plan->real_size, &plan->sums_bytes);
    tconv_cpu_align_size(microtile * tconv_cpu_cascade_levels(segments), plan->real_size, &plan->levels_bytes);
    tconv_cpu_align_size(positions_of(plan), (int64_t)sizeof(int64_t), &plan->to_bytes);
    tconv_cpu_align_size(positions_of(plan), (int64_t)sizeof(int32_t), &plan->at_bytes);
    tconv_cpu_align_size(plan->planes, (int64_t)sizeof(tconv_cpu_dgrad_run), &plan->runs_bytes);
    tconv_cpu_align_size(plan->planes, (int64_t)sizeof(tconv_cpu_split_run), &plan->splits_bytes);
    tconv_cpu_align_size(plan->rows.taps, (int64_t)sizeof(tconv_cpu_dgrad_lines), &plan->lines_bytes);
    tconv_cpu_align_size(plan->stream ? positions_of(plan) + plan->lanes : 0, plan->real_size, &plan->stage_bytes);
    tconv_cpu_align_size(plan->pixels ? 0 : lines_of(&plan->rows, plan->tile_rows) * plan->images,
                         (int64_t)sizeof(int64_t), &plan->ahead_bytes);
    plan->thread_bytes = plan->strip_bytes + plan->sums_bytes + plan->levels_bytes + plan->stage_bytes +
                         plan->to_bytes + plan->at_bytes + plan->runs_bytes + plan->splits_bytes +
                         2 * plan->lines_bytes + plan->ahead_bytes;
    const tconv_cpu_filters filters = {.row_taps = plan->rows.taps,
                                       .column_taps = plan->columns.taps,
                                       .groups = plan->all_groups,
                                       .group_in = plan->group_out,
                                       .group_out = plan->padded_in,
                                       .real_size = plan->real_size,
                                       .tap_bytes = 0};
    tconv_cpu_packed_sizes sizes;
    const tconv_status status = tconv_cpu_packed_sizes_init(&sizes, &filters, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_cpu_align_size(plan->taps * channels, (int64_t)sizeof(tconv_cpu_pixel_tap), &plan->terms_bytes);
    if (!tconv_checked_add(sizes.packed, plan->terms_bytes, &plan->packed_bytes))
        return tconv_cpu_too_large("packed weights", issue);
    return TCONV_SUCCESS;
}

/* ----------------------------------------------------------------------------------------------------------- plan */

/* Chooses where vectors run, and the blocks of channels that follow. */
static void plan_vectors(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const bool depthwise = problem->group_in == 1 && problem->group_out == 1 && problem->groups > 1;
    const int64_t channels = depthwise ? problem->in_channels : problem->group_in;
    const int64_t vectors = tconv_ceil_div(channels, plan->lanes);
    plan->all_groups = problem->groups;
    plan->group_in = plan->padded_in = problem->group_in;
    plan->group_out = tconv_ceil_div(problem->group_out, tconv_cpu_dgrad_word(plan));
    const int64_t row_taps = plan->columns.phases == plan->columns.stride ? plan->columns.taps : 1;
    plan->pixels = tconv_cpu_are_channels_inside(&problem->dst) && tconv_cpu_are_channels_inside(&problem->src) &&
                   (depthwise || problem->group_out * row_taps >= MIN_TERMS) &&
                   (double)channels * 100 >= (double)vectors * (double)plan->lanes * MIN_CHANNELS_PERCENT;
    if (plan->pixels) {
        plan->depthwise = depthwise;
        plan->all_groups = depthwise ? 1 : problem->groups;
        plan->group_in = channels;
        plan->padded_in = vectors * plan->lanes;
        plan->block_width = TCONV_CPU_MAX_PIXEL_VECTORS * plan->lanes;
    } else {
        const int most = tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning)->block_channels;
        plan->block_width = tconv_cpu_even_part(plan->group_in, tconv_min(plan->kernels->max_channels, most));
    }
    plan->blocks = tconv_ceil_div(plan->group_in, plan->block_width);
}

/* Results are streamed where they, or what is read, go past the caches: however many terms they have, as a tile's come all
 * at once (docs/log/2026-11-26-cpu-gradients.md). */
static bool plan_stream(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return plan->kernels->streams && !tconv_cpu_are_channels_inside(&problem->src) &&
           tconv_cpu_leaves_caches(layer, tconv_max(problem->src_extent, problem->dst_extent), plan->threads);
}

static tconv_status make_plan(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, bool pairs, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    *plan = (tconv_cpu_dgrad_plan){.kernels = tconv_cpu_find_kernels(tconv_cpu_target_of(&layer->target).cpu_isa),
                                   .pixel_kernels =
                                       tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&layer->target).cpu_isa),
                                   .rows = make_axis(&problem->h, &layer->rows),
                                   .columns = make_axis(&problem->w, &layer->columns),
                                   .groups = 1};
    plan->real = problem->dtype == TCONV_F64;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->lanes = plan->kernels->real[plan->real].lanes;
    plan->microkernels = plan->kernels->real[plan->real].microkernels;
    plan->segment = TCONV_CPU_SEGMENT;
    if (pairs) {
        plan->pairs = tconv_cpu_find_pair_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
        plan->microkernels = plan->pairs->microkernels;
        plan->segment = TCONV_CPU_SEGMENT / 2;
    }
    if (plan->rows.taps > MAX_TAPS || plan->columns.taps > MAX_TAPS || plan->rows.taps * plan->columns.taps > MAX_TAPS)
        return tconv_decline(issue, "a kernel of more than %d taps", MAX_TAPS);
    plan->taps = plan->rows.taps * plan->columns.taps;
    plan_vectors(plan, layer);
    if (!choose_tile(plan, layer))
        return tconv_decline(issue, "a kernel so wide that no strip of the gradient fits the cache");
    plan->period_channels =
        plan->pixels || plan->taps == 0 ? 1 : tconv_max(1, tconv_min(plan->k_block, PERIOD_TERMS / plan->taps));
    if (!plan->pixels)
        plan->groups = tconv_min(plan->all_groups, tconv_max(1, TASK_POSITIONS / positions_of(plan) / plan->group_in));
    plan_tasks(plan, layer);
    set_pitches(plan);
    set_sums(plan);
    plan->stream = plan_stream(plan, layer);
    return plan_memory(plan, issue);
}

bool tconv_cpu_has_dgrad_pairs(const tconv_cpu_dgrad_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return problem->dtype == TCONV_BF16 && problem->group_out > 1 &&
           (plan->pixels ? !plan->depthwise && problem->group_out % 2 == 0
                         : !tconv_cpu_are_channels_inside(&problem->dst)) &&
           tconv_cpu_find_pair_kernels(tconv_cpu_target_of(&layer->target).cpu_isa) != NULL &&
           tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning)->pairs_rate > 1;
}

tconv_status tconv_cpu_dgrad_plan_init(tconv_cpu_dgrad_plan *plan, const tconv_layer *layer, bool pairs,
                                       tconv_issue *issue)
{
    fenv_t caller;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    const tconv_status status = make_plan(plan, layer, pairs, issue);
    if (rounds)
        fesetenv(&caller);
    return status;
}
