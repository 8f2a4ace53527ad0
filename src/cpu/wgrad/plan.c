/* Chooses tiles, blocks and parts of cpu_wgrad. */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/checked.h"
#include "../machine/tuning.h"
#include "task.h"

/* Percent of the first-level cache for a panel of the src strip, which is read in order, so that the second level may hold
 * some of it: two cores of a Zen 4 took 2 to 4 % less than with 75 (docs/log/2026-11-26-cpu-gradients.md). */
enum { PANEL_PERCENT = 120 };

/* Percent of the second-level cache for both strips. It is chosen, not measured. */
enum { STRIPS_PERCENT = 60 };

/* Bytes of the sums of a block, which are read once for each tile: from the third-level cache, if need be. It is chosen,
 * not measured. */
enum { SUMS_BYTES = 1 << 20 };

/* Columns of a tile where taps reach other rows, so that its halo is small. It is chosen, not measured. */
enum { HALO_COLUMNS = 32 };

/* Tasks that the layer is cut into, if it has as many parts, and bytes of the sums of all parts. They are chosen, not
 * measured. */
enum { TASKS = 128, PARTS_BYTES = 32 << 20 };

/* The least pixels of a part: its sums are written and read once more, which takes as long as a tenth of so many
 * products. It is counted, not measured. */
enum { PART_PIXELS = 2048 };

/* Tasks that are too few for two threads to share evenly: blocks are then halved, unless a block would have fewer rows
 * than LEAST_ROWS, for which loading src takes a tenth of the time, and parts have half as many pixels. */
enum { FEW_TASKS = 8, LEAST_ROWS = 192 };

/* Parts of the images for the gradient of the bias. It is chosen, not measured. */
enum { BIAS_PARTS = 16 };

/* Taps, positions of a halo, and phases of a plane that are too many. The bounds keep sizes small enough to multiply. */
enum { MAX_TAPS = 1 << 12, MAX_HALO = 1 << 12, MAX_PHASES = 1 << 12 };

static tconv_cpu_wgrad_axis init_axis(const tconv_axis *axis, const tconv_phase_table *table)
{
    tconv_cpu_wgrad_axis made = {0, 0, 0};
    for (int64_t p = 0; p < table->count; p++) {
        const tconv_cpu_taps taps = tconv_cpu_live_taps(axis, table, &table->phases[p]);
        if (taps.count == 0)
            continue;
        made.phases++;
        made.taps += taps.count;
        made.halo = tconv_max(made.halo, (taps.count - 1) * table->shift_step);
    }
    return made;
}

/* Sets what follows from the extents of a tile. */
static void set_pitches(tconv_cpu_wgrad_plan *plan)
{
    plan->pitch = tconv_round_up(plan->tile_columns + plan->columns.halo, tconv_cpu_wgrad_word(plan));
    plan->image_pitch = plan->pitch * (plan->tile_rows + plan->rows.halo);
    plan->plane = plan->images * plan->image_pitch;
    plan->channel_pitch = plan->plane * plan->rows.phases * plan->columns.phases;
}

/* Sets the extents of a tile of at most so many pixels. */
static void set_tile(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, int64_t pixels)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t image =
        problem->h.in <= pixels && problem->w.in <= pixels ? problem->h.in * problem->w.in : pixels + 1;
    plan->tile_columns = tconv_cpu_even_part(
        problem->w.in, plan->rows.halo > 0 && problem->h.in > 1 ? tconv_min(pixels, HALO_COLUMNS) : pixels);
    plan->tile_rows = tconv_cpu_even_part(problem->h.in, pixels / plan->tile_columns);
    plan->images = image <= pixels ? tconv_cpu_even_part(tconv_max(1, problem->batch), pixels / image) : 1;
    set_pitches(plan);
}

/* Returns the pixels of a whole tile. */
static int64_t pixels_of(const tconv_cpu_wgrad_plan *plan)
{
    return plan->images * plan->tile_rows * plan->tile_columns;
}

/* Returns output channels of a block, at most so many: whole vectors of them, if there are any, where each pixel is loaded
 * by vectors. */
static int64_t whole_outputs(const tconv_cpu_wgrad_plan *plan, const tconv_problem *problem, int64_t most)
{
    const int64_t count = tconv_cpu_even_part(problem->group_out, most);
    return tconv_cpu_are_channels_inside(&problem->dst) && count > plan->lanes ? count / plan->lanes * plan->lanes
                                                                               : count;
}

/* Chooses the largest block whose strips and sums fit: half of the room for each strip is the least to load for a
 * product, unless there are fewer channels. */
static void set_block(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, int64_t room)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t in_bytes = pixels_of(plan) * plan->real_size, out_bytes = plan->channel_pitch * plan->real_size;
    const int64_t sum_bytes = (plan->keeps_rest ? 2 : 1) * (int64_t)sizeof(double);
    const int64_t all_in = tconv_round_up(problem->group_in, plan->lanes);
    plan->block_in = tconv_min(all_in, tconv_max(plan->width, room / 2 / in_bytes / plan->width * plan->width));
    plan->block_out =
        tconv_max(1, tconv_min(problem->group_out, (room - plan->block_in * in_bytes) / tconv_max(1, out_bytes)));
    plan->block_in = tconv_min(
        all_in, tconv_max(plan->width, (room - plan->block_out * out_bytes) / in_bytes / plan->width * plan->width));
    const int64_t most = tconv_max(1, SUMS_BYTES / sum_bytes / plan->taps); /* channels x channels */
    if (plan->block_in * plan->block_out > most) { /* as many elements of src are loaded as of dst */
        int64_t in = plan->width;
        while (in < plan->block_in && in * in * in_bytes < most * out_bytes)
            in += plan->width;
        plan->block_in = tconv_min(plan->block_in, tconv_max(in, most / plan->block_out / plan->width * plan->width));
        plan->block_out = tconv_max(1, tconv_min(plan->block_out, most / plan->block_in));
    }
    plan->block_out = whole_outputs(plan, problem, plan->block_out);
    plan->block_in =
        tconv_min(all_in, tconv_round_up(tconv_cpu_even_part(problem->group_in, plan->block_in), plan->width));
    plan->in_blocks = tconv_ceil_div(problem->group_in, plan->block_in);
    plan->out_blocks = tconv_ceil_div(problem->group_out, plan->block_out);
    plan->sums = plan->block_in * plan->block_out * plan->taps;
}

/* Whether the strips of the least block fit. */
static bool fits(const tconv_cpu_wgrad_plan *plan, int64_t room)
{
    return (plan->width * pixels_of(plan) + plan->channel_pitch) * plan->real_size <= room;
}

/* Columns of a tile with planes. It is chosen, not measured. */
enum { PLANES_COLUMNS = 64 };

/* Percent of what columns fill of their vectors that groups, or the one input channel, may fill of theirs, for planes to
 * be worth it: transposing 16 groups takes no longer than splitting as many planes, whose vectors are then read across
 * cache lines. 16 and more channels took .8 to 1.0 of the time of planes, 3 and 21 channels 4.8 and 1.6 times as long
 * (docs/log/2026-11-26-cpu-gradients.md). */
enum { FULLER_PERCENT = 75 };

/* Whether the vectors of a layer of one input channel a group shall run along columns. */
static bool are_columns_fuller(const tconv_cpu_wgrad_plan *plan, const tconv_problem *problem)
{
    const int64_t lanes = plan->lanes, groups = problem->group_out == 1 ? problem->groups : 1;
    const int64_t columns_percent = 100 * problem->w.in / tconv_round_up(problem->w.in, lanes);
    const int64_t groups_percent = 100 * groups / tconv_round_up(groups, lanes);
    return problem->group_in == 1 && problem->layout == TCONV_NCHW &&
           100 * groups_percent < FULLER_PERCENT * columns_percent;
}

/* Sets tile and block of a plan with planes; false where the strips do not fit. */
static bool set_planes(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, int64_t room_bytes)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t room = room_bytes / plan->real_size;
    int64_t src;
    plan->width = plan->lanes;
    plan->tile_columns =
        tconv_min(problem->w.in, tconv_round_up(tconv_cpu_even_part(problem->w.in, PLANES_COLUMNS), plan->lanes));
    const int64_t width = tconv_round_up(plan->tile_columns, plan->lanes);
    plan->tile_rows = tconv_min(problem->h.in, room);
    plan->images = tconv_max(1, tconv_min(problem->batch, room));
    for (;;) {
        set_pitches(plan);
        src = plan->images * plan->tile_rows * width;
        if (src + plan->channel_pitch <= room)
            break;
        if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > 1)
            plan->tile_rows = tconv_ceil_div(plan->tile_rows, 2);
        else
            return false;
    }
    plan->block_in = plan->width;
    plan->block_out = tconv_min(problem->group_out, tconv_max(1, (room - src) / plan->channel_pitch));
    plan->block_out = tconv_cpu_even_part(problem->group_out, plan->block_out);
    plan->in_blocks = 1;
    plan->out_blocks = tconv_ceil_div(problem->group_out, plan->block_out);
    plan->sums = plan->block_in * plan->block_out * plan->taps;
    return true;
}

/* Columns of a depthwise tile, and rows that are too few unless it is narrow. They are chosen, not measured. */
enum { DEPTHWISE_COLUMNS = 32, DEPTHWISE_ROWS = 4 };

/* Sets tile and block of a depthwise layer, whose halos count outputs; false where the strips do not fit. */
static bool set_depthwise(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, int64_t room)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t pixels = room / (plan->lanes * plan->real_size); /* of both strips */
    plan->width = plan->lanes;
    plan->rows.halo = (problem->h.kernel - 1) * problem->h.dilation;
    plan->columns.halo = (problem->w.kernel - 1) * problem->w.dilation;
    plan->images = 1;
    if (problem->w.stride > pixels || problem->h.stride > pixels || plan->columns.halo > pixels ||
        plan->rows.halo > pixels)
        return false;
    for (int64_t columns = DEPTHWISE_COLUMNS; columns > 0; columns /= 2) {
        plan->tile_columns = tconv_cpu_even_part(problem->w.in, columns);
        const int64_t row = (plan->tile_columns - 1) * problem->w.stride + plan->columns.halo + 1; /* of outputs */
        const int64_t rows = (pixels - row * (plan->rows.halo + 1)) / (row * problem->h.stride + plan->tile_columns);
        if (rows < 1 || (rows < DEPTHWISE_ROWS && columns > DEPTHWISE_ROWS && problem->h.in > rows))
            continue; /* narrower tiles have less halo above and below */
        plan->tile_rows = tconv_cpu_even_part(problem->h.in, rows);
        plan->pitch = row * plan->lanes;
        plan->channel_pitch = ((plan->tile_rows - 1) * problem->h.stride + plan->rows.halo + 1) * plan->pitch;
        plan->block_in = plan->width;
        plan->block_out = plan->out_blocks = 1;
        plan->in_blocks = tconv_ceil_div(problem->groups, plan->width);
        plan->sums = plan->width * plan->taps;
        return true;
    }
    return false;
}

/* Tasks of a block, if each has at least so many pixels. */
static int64_t count_parts(const tconv_cpu_wgrad_plan *plan, int64_t pixels)
{
    return tconv_max(1, plan->tiles / tconv_ceil_div(pixels, pixels_of(plan)));
}

/* Cuts the tiles into parts, so many that there are enough tasks. */
static bool set_parts(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    plan->image_tiles = tconv_ceil_div(problem->batch, plan->images);
    plan->row_tiles = tconv_ceil_div(problem->h.in, plan->tile_rows);
    plan->column_tiles = tconv_ceil_div(problem->w.in, plan->tile_columns);
    if (!tconv_checked_mul(plan->image_tiles, plan->row_tiles, &plan->tiles) ||
        !tconv_checked_mul(plan->tiles, plan->column_tiles, &plan->tiles) ||
        !tconv_checked_mul(plan->in_blocks, plan->out_blocks, &plan->blocks) ||
        !tconv_checked_mul(plan->blocks, plan->depthwise ? 1 : problem->groups, &plan->blocks))
        return false;
    while (plan->blocks * count_parts(plan, PART_PIXELS) < FEW_TASKS &&
           plan->block_out / 2 * plan->taps >= LEAST_ROWS) {
        plan->block_out = whole_outputs(plan, problem, tconv_ceil_div(plan->block_out, 2));
        plan->blocks /= plan->out_blocks;
        plan->out_blocks = tconv_ceil_div(problem->group_out, plan->block_out);
        plan->blocks *= plan->out_blocks;
        plan->sums = plan->block_in * plan->block_out * plan->taps;
    }
    const bool few = plan->blocks * count_parts(plan, PART_PIXELS) < FEW_TASKS;
    const int64_t sums_bytes = plan->sums * (plan->keeps_rest ? 2 : 1) * (int64_t)sizeof(double);
    const int64_t most = PARTS_BYTES / tconv_max(1, sums_bytes) / plan->blocks;
    const int64_t worth = count_parts(plan, few ? PART_PIXELS / 2 : PART_PIXELS);
    plan->parts = tconv_max(1, tconv_min(tconv_min(worth, tconv_ceil_div(TASKS, plan->blocks)), most));
    plan->narrow = plan->tiles == 1 && plan->transposes && !plan->depthwise && !plan->planes;
    plan->parts_bytes = plan->parts > 1 ? plan->parts * plan->blocks * sums_bytes : 0;
    plan->bias_parts = tconv_max(1, tconv_min(problem->batch, BIAS_PARTS));
    return true;
}

static const char *set_scratch(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t size = plan->real_size, rows = plan->images * plan->tile_rows;
    const int64_t vectors = rows * tconv_ceil_div(plan->tile_columns, plan->lanes);
    const int64_t pixels = plan->planes ? vectors : rows * plan->tile_columns;
    const int64_t sum_terms = plan->planes ? vectors : rows * tconv_cpu_wgrad_terms(plan, plan->tile_columns);
    const int64_t terms = plan->depthwise || plan->planes ? pixels : rows;
    const int64_t levels =
        1 + tconv_cpu_cascade_levels(tconv_ceil_div(sum_terms, tconv_cpu_wgrad_segment(plan, sum_terms)));
    const int64_t sums = TCONV_CPU_MAX_PIXELS * plan->width;
    if (!tconv_cpu_align_size(plan->rows.phases + plan->columns.phases, (int64_t)sizeof(tconv_cpu_wgrad_phase),
                              &plan->phases_bytes) ||
        !tconv_cpu_align_size(plan->taps, (int64_t)sizeof(tconv_cpu_wgrad_tap), &plan->taps_bytes) ||
        !tconv_cpu_align_size(problem->out_channels, plan->bias_parts * (int64_t)sizeof(tconv_cpu_reference_sum),
                              &plan->bias_bytes))
        return "its sizes overflow";
    const struct {
        int64_t count, size, *bytes;
    } sizes[] = {
        {plan->block_in * pixels, size, &plan->src_bytes},
        {plan->block_out * plan->channel_pitch + (plan->planes ? plan->lanes : 0), size, &plan->dst_bytes},
        {plan->sums * (plan->keeps_rest ? 2 : 1), plan->narrow ? size : (int64_t)sizeof(double), &plan->sums_bytes},
        {levels * sums, size, &plan->levels_bytes},
        {sums, size, &plan->tile_bytes},
        {plan->block_out * plan->taps, (int64_t)sizeof(int32_t), &plan->at_bytes},
        {terms, (int64_t)sizeof(tconv_cpu_pixel_tap), &plan->terms_bytes},
        {tconv_max(1, plan->rows.phases) * (plan->tile_rows + plan->rows.halo), (int64_t)sizeof(tconv_cpu_padded_row),
         &plan->padded_bytes},
        {plan->columns.phases, (int64_t)sizeof(tconv_cpu_split_run), &plan->runs_bytes},
    };
    plan->thread_bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!tconv_cpu_align_size(sizes[i].count, sizes[i].size, sizes[i].bytes))
            return "its sizes overflow";
        plan->thread_bytes += *sizes[i].bytes;
    }
    return NULL;
}

/* Plans parts, threads and memory. */
static const char *finish_plan(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer)
{
    int64_t most;
    const tconv_cpu_axis rows = tconv_cpu_axis_init(&layer->problem.h, &layer->rows, &most);
    const tconv_cpu_axis columns = tconv_cpu_axis_init(&layer->problem.w, &layer->columns, &most);
    plan->threads = tconv_cpu_useful_threads(layer, &rows, &columns);
    return set_parts(plan, layer) ? set_scratch(plan, layer) : "its sizes overflow";
}

static const char *make_plan(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, bool pairs)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t room = tconv_cpu_cache_share(layer, STRIPS_PERCENT);
    plan->pixels = tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
    plan->kernels = tconv_cpu_find_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
    plan->real = problem->dtype == TCONV_F64;
    plan->keeps_rest = plan->real != 0;
    plan->real_size = plan->real ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    plan->lanes = plan->pixels->real[plan->real].lanes;
    plan->rows = init_axis(&problem->h, &layer->rows);
    plan->columns = init_axis(&problem->w, &layer->columns);
    if (plan->rows.taps > MAX_TAPS || plan->columns.taps > MAX_TAPS ||
        plan->rows.taps * plan->columns.taps > MAX_TAPS || plan->rows.halo > MAX_HALO ||
        plan->columns.halo > MAX_HALO || plan->rows.phases * plan->columns.phases > MAX_PHASES)
        return "its kernel has too many taps, or too long strides or dilations";
    plan->taps = plan->rows.taps * plan->columns.taps;
    plan->has_dead_taps = plan->rows.taps < problem->h.kernel || plan->columns.taps < problem->w.kernel;
    if (plan->taps == 0)
        return "no tap reaches an output";
    plan->taps_inside = !plan->has_dead_taps && (problem->w.kernel == 1 || problem->weight.w == 1) &&
                        (problem->h.kernel == 1 || problem->weight.h == problem->w.kernel) &&
                        (problem->group_out == 1 || problem->weight.out == plan->taps);
    plan->transposes = !plan->real && !problem->desc.accumulate && (plan->taps_inside || problem->weight.out == 1);
    plan->planes = are_columns_fuller(plan, problem) && set_planes(plan, layer, room);
    if (plan->planes)
        return finish_plan(plan, layer);
    plan->width = plan->lanes * (problem->group_in > plan->lanes ? TCONV_CPU_MAX_PIXEL_VECTORS : 1);
    plan->depthwise = problem->group_in == 1 && problem->group_out == 1 && problem->groups > 1;
    if (plan->depthwise)
        return set_depthwise(plan, layer, room) ? finish_plan(plan, layer) : "no strip of outputs fits the cache";
    if (pairs) {
        plan->pairs = tconv_cpu_find_pair_kernels(tconv_cpu_target_of(&layer->target).cpu_isa);
        plan->columns.halo++; /* the second number of a word */
    }
    int64_t pixels = tconv_max(1, (int64_t)tconv_cpu_target_of(&layer->target).l1_bytes / 100 * PANEL_PERCENT /
                                      (plan->width * plan->real_size));
    for (set_tile(plan, layer, pixels); pixels > 1 && !fits(plan, room); set_tile(plan, layer, pixels))
        pixels /= 2;
    if (!fits(plan, room))
        return "no strip of outputs fits the cache";
    set_block(plan, layer, room);
    return finish_plan(plan, layer);
}

bool tconv_cpu_has_wgrad_pairs(const tconv_cpu_wgrad_plan *plan, const tconv_layer *layer)
{
    return layer->problem.dtype == TCONV_BF16 && !plan->planes && !plan->depthwise && layer->problem.w.in > 1 &&
           tconv_cpu_find_pair_kernels(tconv_cpu_target_of(&layer->target).cpu_isa) != NULL &&
           tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning)->pairs_rate > 1;
}

const char *tconv_cpu_wgrad_plan_init(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, bool pairs)
{
    fenv_t caller;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    const char *refusal = make_plan(plan, layer, pairs);
    if (rounds)
        fesetenv(&caller);
    return refusal;
}
