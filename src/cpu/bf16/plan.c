/*
 * Chooses tiles, strips and tasks of the matrix algorithm, and which layers it is for. What decides the bits of a result
 * (chunks and segments) depends on the layer alone.
 */
#include "plan.h"
#include "../cpu_target.h"

#include "../../core/checked.h"
#include "../machine/tuning.h"

/* Percent of the second-level cache for the strip; the weights of a micro-tile stream through what is left. It is chosen,
 * not measured. */
enum { STRIP_PERCENT = 50 };

/* Percent of the second-level cache for sums that wait to be stored. It is chosen, not measured. */
enum { SUMS_PERCENT = 12 };

/* Columns of the widest tile, a multiple of a fragment. It is chosen, not measured. */
enum { TILE_COLUMNS = 128 };

/* Positions of the largest tile; beyond it nothing is gained. It is chosen, not measured. */
enum { MAX_POSITIONS = 4096 };

/* Positions of a halo that is too wide for a strip. The bound keeps sizes small enough to multiply. */
enum { MAX_HALO = 1 << 10 };

/* Steps of a phase that are too many to list. It is chosen, not measured. */
enum { MAX_STEPS = 1 << 13 };

/* Channels and positions that are loaded at a time, before they are split: 32 KiB. It is chosen, not measured. */
enum { PLANE_POSITIONS = 256 };

/* The most positions of all column phases of a row that are loaded together: 128 KiB. It is chosen, not measured. */
enum { SPLIT_POSITIONS = 1024 };

enum { SLACK = TCONV_CPU_BF16_SLACK };

/* Rows of a tile that are not cut further for the sake of more tasks, before blocks are. It is chosen, not measured. */
enum { FEW_ROWS = 8 };

/* What is_faster counts with, in nanoseconds of one core of an Emerald Rapids. Forward: fitted by eye to 28 layers in f32
 * and in bf16 (docs/log/2026-11-26-cpu-amx.md). The gradient of src: fitted to 164 layers in f32, f16 and bf16, on a machine
 * whose AMX was hidden, so that steps have forward's rates (docs/log/2026-11-27-cpu-amx-gradients.md). */
struct rates {
    double input, output, multiply_add; /* for each input, each output; of vectors, for each multiply-add of f32 */
    double input_part, weight_byte; /* of matrices, for each part of an input, each byte of weights in a strip's turn */
};
static const struct times {
    struct rates matrices, vectors;
    double enough; /* matrices are taken where they are predicted to take less of the other's time than this */
} forward[] = {[TCONV_NCHW] = {{0.5, 0.45, 0, 0.55, 0}, {0.5, 0.45, 0.0132, 0, 0}, 0.95},
               [TCONV_NHWC] = {{0.3, 0.4, 0, 0.5, 0}, {0, 0.15, 0.0125, 0, 0}, 0.95}},
  gradient[] = {[TCONV_NCHW] = {{0.35, 0.25, 0, 0.3, 0.035}, {0.33, 0.12, 0.0129, 0, 0}, 0.85},
                [TCONV_NHWC] = {{0.1, 0.25, 0, 0.17, 0.035}, {0.37, 0.26, 0.0125, 0, 0}, 0.85}};

static const struct times *times_of(const tconv_cpu_bf16_plan *plan)
{
    return &(plan->view.exchanged ? gradient : forward)[plan->view.layer.problem.layout];
}

/* The same of a step of a whole micro-tile, by the parts of a factor, and of the rest of the micro-tile. */
static const double step_rates[TCONV_CPU_BF16_PARTS + 1] = {0, 46, 144, 214}, tile_rate = 240;

/* Time of a step of a micro-tile by pairs in a vector, over that of its products alone by the rate of others' multiply-adds: sums
 * are in memory, and pairs are repeated for two blocks. Set by 150 times of 68 layers on a Zen 5: of 24 that had been left to vectors
 * of f32 and are faster here it takes 13, and one that is slower. */
static const double pairs_overhead = 0.9;

/* Products of parts that are summed for a product, by the parts of a factor. */
static const double products[TCONV_CPU_BF16_PARTS + 1] = {0, 1, 4, 6};

static int64_t residues(const tconv_cpu_bf16_plan *plan)
{
    return plan->together ? tconv_max(1, plan->view.layer.columns.count)
                          : 1; /* without one, all outputs are the bias */
}

/* Fragments of so many rows of so many columns. */
static int64_t count_fragments(const tconv_cpu_bf16_plan *plan, int64_t rows, int64_t columns)
{
    return plan->by_rows ? rows * tconv_ceil_div(columns, TCONV_CPU_FRAGMENT)
                         : tconv_ceil_div((rows - 1) * plan->row_pitch + columns, TCONV_CPU_FRAGMENT);
}

static void set_pitches(tconv_cpu_bf16_plan *plan)
{
    plan->row_pitch = plan->tile_columns + tconv_cpu_halo(&plan->columns);
    plan->image_pitch = plan->row_pitch * (plan->tile_rows + tconv_cpu_halo(&plan->rows));
    plan->pitch = plan->images * plan->image_pitch;
}

/* Chooses the largest tile whose strip fits; false where not one position fits. */
static bool place_tile(tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const int64_t slack = plan->parts * SLACK * plan->depth * (int64_t)sizeof(uint16_t);
    const int64_t position =
        plan->parts * tconv_max(1, plan->strip_phases) * plan->chunks * plan->depth * (int64_t)sizeof(uint16_t);
    const int64_t halo = tconv_cpu_halo(&plan->rows);
    const int64_t capacity = (tconv_cpu_cache_share(layer, STRIP_PERCENT) - slack) / position;
    for (int64_t width = TILE_COLUMNS; width >= TCONV_CPU_FRAGMENT; width /= 2) {
        plan->images = 1;
        plan->tile_rows = 1;
        plan->tile_columns = tconv_cpu_even_part(plan->columns.positions, width);
        set_pitches(plan);
        const int64_t rows = capacity / plan->row_pitch - halo;
        if (rows < 1 || (rows < plan->rows.positions && rows < 2 * halo && width > TCONV_CPU_FRAGMENT))
            continue; /* narrower tiles have less halo above and below */
        plan->tile_rows = tconv_cpu_even_part(plan->rows.positions,
                                              tconv_min(rows, tconv_max(1, MAX_POSITIONS / plan->tile_columns)));
        set_pitches(plan);
        if (plan->tile_rows == plan->rows.positions && plan->tile_columns == plan->columns.positions)
            plan->images = tconv_cpu_even_part(tconv_max(1, layer->problem.batch),
                                               tconv_min(capacity, MAX_POSITIONS) / plan->image_pitch);
        set_pitches(plan);
        return true;
    }
    return false;
}

/* Chooses how many column phases are loaded together. */
static void plan_columns(tconv_cpu_bf16_plan *plan)
{
    plan->column_phases =
        plan->splits ? tconv_max(1, tconv_min(TCONV_CPU_BF16_TOGETHER, SPLIT_POSITIONS / plan->row_pitch)) : 1;
    plan->plane_positions = tconv_max(PLANE_POSITIONS, plan->column_phases * plan->row_pitch);
}

/* Chooses how many rows, of one image or of several whole ones, are summed before they are stored: so many multiply the
 * same weights. */
static void place_sums(tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const int64_t channels = TCONV_CPU_BF16_CHANNELS * residues(plan);
    const int64_t room = tconv_cpu_cache_share(layer, SUMS_PERCENT) / (int64_t)sizeof(float) / channels - SLACK;
    plan->by_rows = true;
    const int64_t by_rows = count_fragments(plan, plan->tile_rows, plan->tile_columns);
    plan->by_rows = false;
    plan->by_rows = by_rows <= count_fragments(plan, plan->tile_rows, plan->tile_columns);
    plan->row_block = tconv_max(1, tconv_min(plan->tile_rows, room / plan->row_pitch));
    plan->image_block = 1;
    if (plan->row_block == plan->tile_rows)
        plan->image_block = tconv_max(1, tconv_min(plan->images, room / plan->image_pitch));
    plan->sums_pitch = tconv_round_up((plan->image_block - 1) * plan->image_pitch +
                                          (plan->row_block - 1) * plan->row_pitch + plan->tile_columns + SLACK,
                                      TCONV_CPU_FRAGMENT);
}

/* Nanoseconds of a step of a whole micro-tile. */
static double step_rate(const tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const double multiply_adds = products[plan->parts] * TCONV_CPU_BF16_SUMS * (double)plan->depth;
    return plan->matrix->multiplies == TCONV_CPU_MATRICES
               ? step_rates[plan->parts]
               : multiply_adds * times_of(plan)->vectors.multiply_add * pairs_overhead /
                     tconv_cpu_find_traits(tconv_cpu_target_of(&layer->target).tuning)->pairs_rate;
}

/* Tells whether the algorithm is predicted to be faster than those that multiply vectors of f32, in a tile of a group. Where
 * pairs are faster than f32, the gradient of src has another algorithm for them. */
static bool is_faster(const tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const struct times *times = times_of(plan);
    const struct rates *ours = &times->matrices, *theirs = &times->vectors;
    const double phases = (double)layer->rows.count * (double)layer->columns.count;
    const double taps = (double)plan->rows.taps * (double)plan->columns.taps;
    const double positions = (double)plan->tile_rows * (double)plan->tile_columns;
    const int64_t fragments = count_fragments(plan, plan->tile_rows, plan->tile_columns);
    const double tiles = (double)tconv_ceil_div(fragments, TCONV_CPU_BF16_FRAGMENTS) *
                         (double)tconv_ceil_div(plan->blocks, TCONV_CPU_BF16_BLOCKS);
    const double inputs = (double)plan->image_pitch * (double)problem->group_in * (double)plan->strip_phases;
    const double outputs = positions * (double)problem->group_out * phases;
    const double weights =
        (double)(plan->blocks * tconv_cpu_bf16_block(plan)) * sizeof(uint16_t) / (double)plan->images;
    const double by_matrices = tiles * (taps * (double)plan->chunks * step_rate(plan, layer) + phases * tile_rate) +
                               inputs * (ours->input + plan->parts * ours->input_part) + outputs * ours->output +
                               weights * ours->weight_byte;
    const double by_vectors =
        positions * (double)problem->group_out * (double)problem->group_in * taps * theirs->multiply_add +
        inputs * theirs->input + outputs * theirs->output;
    return (plan->matrix->multiplies == TCONV_CPU_MATRICES || !plan->view.exchanged) &&
           by_matrices < times->enough * by_vectors;
}

/* Cuts the layer into more tasks until there are enough for the threads. */
static void plan_tasks(tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int threads = tconv_cpu_useful_threads(layer, &plan->rows, &plan->columns);
    plan->task_blocks = plan->blocks;
    for (;;) {
        plan->image_tiles = tconv_ceil_div(problem->batch, plan->images);
        plan->row_tiles = tconv_ceil_div(plan->rows.positions, plan->tile_rows);
        plan->column_tiles = tconv_ceil_div(plan->columns.positions, plan->tile_columns);
        plan->block_tasks = tconv_ceil_div(plan->blocks, plan->task_blocks);
        plan->tasks = plan->image_tiles * plan->row_tiles * plan->column_tiles * problem->groups * plan->block_tasks;
        if (tconv_cpu_enough_tasks(plan->tasks, threads))
            break;
        if (plan->images > 1)
            plan->images = tconv_ceil_div(plan->images, 2);
        else if (plan->tile_rows > FEW_ROWS || (plan->tile_rows > 1 && plan->task_blocks <= TCONV_CPU_BF16_BLOCKS))
            plan->tile_rows = tconv_cpu_even_part(plan->rows.positions, tconv_ceil_div(plan->tile_rows, 2));
        else if (plan->task_blocks > TCONV_CPU_BF16_BLOCKS)
            plan->task_blocks = tconv_round_up(tconv_ceil_div(plan->task_blocks, 2), TCONV_CPU_BF16_BLOCKS);
        else
            break;
    }
    plan->threads = (int)tconv_min(threads, plan->tasks);
}

/* Outputs are streamed where they go past the caches: long rows, or pixels whose channels are whole cache lines. */
static bool is_streamed(const tconv_cpu_bf16_plan *plan, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t size = (int64_t)problem->element_size;
    if (!tconv_cpu_leaves_caches(layer, layer->problem.dst_extent, plan->threads))
        return false;
    if (problem->layout == TCONV_NHWC)
        return plan->pixels->streams && problem->group_out * size % TCONV_ALIGNMENT == 0 &&
               problem->dst.w * size % TCONV_ALIGNMENT == 0;
    return plan->kernels->streams && plan->together &&
           plan->tile_columns * problem->w.stride * size >= TCONV_CPU_STREAM_BYTES;
}

/* Finds what the strip holds and its positions read. */
static void plan_axes(tconv_cpu_bf16_plan *plan)
{
    const tconv_problem *problem = &plan->view.layer.problem;
    tconv_cpu_bf16_axis rows, columns;
    plan->rows = tconv_cpu_bf16_axis_init(&plan->view, false, &rows);
    plan->columns = tconv_cpu_bf16_axis_init(&plan->view, true, &columns);
    plan->phase_taps = rows.max_taps * columns.max_taps;
    plan->strip_phases = rows.phases * columns.phases;
    plan->row_stride = rows.stride;
    plan->column_stride = columns.stride;
    const bool planes = problem->layout == TCONV_NCHW;
    plan->splits = planes && columns.stride > 1;
    plan->copies = problem->dtype == TCONV_BF16 && (!planes || plan->kernels->load_pairs != NULL);
    plan->direct = problem->dtype == TCONV_F32 ? !plan->splits : !planes && plan->copies;
    plan->together = problem->layout == TCONV_NCHW && problem->w.stride <= TCONV_CPU_MAX_INTERLEAVE;
}

static const char *make_plan(tconv_cpu_bf16_plan *plan, const tconv_layer *caller, bool named)
{
    const tconv_layer *layer = &plan->view.layer;
    const tconv_problem *problem = &layer->problem;
    *plan = (tconv_cpu_bf16_plan){.matrix = tconv_cpu_find_bf16_kernels(tconv_cpu_target_of(&caller->target).cpu_isa),
                                  .kernels = tconv_cpu_find_kernels(tconv_cpu_target_of(&caller->target).cpu_isa),
                                  .pixels = tconv_cpu_find_pixel_kernels(tconv_cpu_target_of(&caller->target).cpu_isa)};
    tconv_cpu_bf16_view_init(&plan->view, caller);
    if (!named && plan->matrix->multiplies == TCONV_CPU_NUMBERS)
        return "the processor multiplies no bf16";
    plan->parts = problem->dtype == TCONV_F32 ? 3 : problem->dtype == TCONV_F16 ? 2 : 1;
    plan_axes(plan);
    plan->chunks = tconv_ceil_div(problem->group_in, TCONV_CPU_BF16_DEPTH);
    plan->depth = tconv_round_up(tconv_ceil_div(problem->group_in, plan->chunks), 2);
    plan->blocks = tconv_ceil_div(problem->group_out, TCONV_CPU_FRAGMENT);
    if (tconv_cpu_halo(&plan->rows) > MAX_HALO || tconv_cpu_halo(&plan->columns) > MAX_HALO ||
        plan->chunks > MAX_STEPS || plan->phase_taps * plan->chunks > MAX_STEPS || !place_tile(plan, layer))
        return "no strip of input fits the cache";
    plan_columns(plan);
    place_sums(plan, layer);
    if (!named && !is_faster(plan, layer))
        return "multiply-adds of vectors are predicted to be faster";
    plan_tasks(plan, layer);
    set_pitches(plan);
    place_sums(plan, layer);
    plan->stream = is_streamed(plan, layer);
    return NULL;
}

const char *tconv_cpu_bf16_plan_init(tconv_cpu_bf16_plan *plan, const tconv_layer *layer, bool named)
{
    fenv_t caller;
    const bool rounds = tconv_cpu_round_to_nearest(&caller);
    const char *refusal = make_plan(plan, layer, named);
    if (rounds)
        fesetenv(&caller);
    return refusal;
}

tconv_status tconv_cpu_bf16_plan_memory(tconv_cpu_bf16_plan *plan, tconv_issue *issue)
{
    const tconv_problem *problem = &plan->view.layer.problem;
    const int64_t steps = tconv_max(1, plan->phase_taps * plan->chunks);
    const int64_t levels = 1 + tconv_cpu_cascade_levels(steps);
    const int64_t planes = TCONV_CPU_BF16_DEPTH * plan->plane_positions;
    const int64_t channels = TCONV_CPU_BF16_CHANNELS * residues(plan);
    const int64_t stage = plan->stream && plan->together
                              ? (plan->tile_columns + TCONV_CPU_STENCIL_VECTORS * TCONV_CPU_FRAGMENT) *
                                    problem->w.stride * (int64_t)problem->element_size
                              : 0;
    tconv_cpu_align_size(plan->parts * tconv_cpu_bf16_part(plan), (int64_t)sizeof(uint16_t), &plan->strip_bytes);
    tconv_cpu_align_size(planes, (int64_t)sizeof(float), &plan->planes_bytes);
    tconv_cpu_align_size(channels * plan->sums_pitch + SLACK, (int64_t)sizeof(float), &plan->sums_bytes);
    tconv_cpu_align_size(levels * TCONV_CPU_BF16_SUMS, (int64_t)sizeof(float), &plan->levels_bytes);
    tconv_cpu_align_size(stage, 1, &plan->stage_bytes);
    tconv_cpu_align_size(steps, (int64_t)sizeof(int32_t), &plan->steps_bytes);
    tconv_cpu_align_size(plan->image_block * count_fragments(plan, plan->row_block, plan->tile_columns),
                         (int64_t)sizeof(int32_t), &plan->fragments_bytes);
    tconv_cpu_align_size(plan->images * (plan->tile_rows + tconv_cpu_halo(&plan->rows)),
                         (int64_t)sizeof(tconv_cpu_bf16_range), &plan->ranges_bytes);
    tconv_cpu_align_size(plan->tile_columns, (int64_t)sizeof(int64_t), &plan->places_bytes);
    plan->thread_bytes = plan->strip_bytes + plan->planes_bytes + plan->sums_bytes + plan->levels_bytes +
                         plan->stage_bytes + plan->steps_bytes + plan->fragments_bytes + plan->ranges_bytes +
                         plan->places_bytes;

    const tconv_cpu_filters filters = {.row_taps = plan->rows.taps,
                                       .column_taps = plan->columns.taps,
                                       .groups = problem->groups,
                                       .group_in = plan->chunks * plan->depth,
                                       .group_out = plan->blocks * TCONV_CPU_FRAGMENT,
                                       .real_size = plan->parts * (int64_t)sizeof(uint16_t)};
    tconv_cpu_packed_sizes sizes;
    const tconv_status status = tconv_cpu_packed_sizes_init(&sizes, &filters, issue);
    if (status != TCONV_SUCCESS)
        return status;
    tconv_cpu_align_size(problem->groups * plan->blocks * TCONV_CPU_FRAGMENT, (int64_t)sizeof(float),
                         &plan->bias_bytes);
    tconv_cpu_align_size(problem->groups * plan->blocks, (int64_t)sizeof(tconv_cpu_bf16_range),
                         &plan->weight_ranges_bytes);
    if (!tconv_checked_add(sizes.packed, plan->weight_ranges_bytes, &plan->packed_bytes))
        return tconv_cpu_too_large("packed weights", issue);
    return TCONV_SUCCESS;
}
