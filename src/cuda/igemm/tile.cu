/* The block tile of an implicit GEMM, as its kernel is told of it: positions, MMA tiles, A tiles and B stages. */
#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../numeric/divisor.h"
#include "plan.h"

#include <algorithm>
#include <functional>

namespace tconv::igemm
{

namespace
{

constexpr int STAGE_ALIGNMENT = 1024; /* bytes of a B stage: the pattern of the swizzle of 128 bytes (PTX ISA) */
constexpr int RAW_STAGES = 2;         /* one is filled while one is transposed */
constexpr int RAW_STAGE_PIXELS = 512; /* pixels of a raw stage, at most: as many as the positions of a block tile */

/* Planes of an operand in shared memory: big and small parts in strict f32. */
int planes_of(mode mode)
{
    return mode == MODE_STRICT ? 2 : 1;
}

/* The outputs of the phase with most of them. */
int64_t most_outputs(const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, table->phases[i].outputs);
    return most;
}

/* Tells whether all phases of an axis have one tap, on the input of the same number, and as many outputs. */
bool is_plain(const tconv_phase_table *table)
{
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0 ||
            table->phases[i].outputs != table->phases[0].outputs)
            return false;
    return true;
}

/* The strides of src as the kernel reads it. */
tconv_strides src_strides(const tconv_problem *problem, bool src_transposed)
{
    if (!src_transposed)
        return problem->src;
    const int64_t pixel = transposed_pixel(problem);
    return {problem->h.in * problem->w.in * pixel, 1, problem->w.in * pixel, pixel};
}

bool is_merged(const tconv_layer *layer)
{
    return !layer->phases_of_src && is_plain(&layer->rows) && is_plain(&layer->columns);
}

void describe_axis(const tconv_phase_table *table, bool of_src, axis_phase *phases)
{
    int taps = 0;
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        phases[i] = {(int)phase->taps,        taps,
                     (int)phase->first_shift, of_src ? 0 : (int)phase->residue,
                     (int)phase->outputs,     of_src ? (int)phase->residue : 0,
                     (int)phase->first_kernel};
        taps += (int)phase->taps;
    }
}

/* Sees the two column phases as one. */
void describe_pair(const tconv_layer *layer, parameters *to)
{
    const tconv_phase *phases = layer->columns.phases;
    to->column_phases = 1;
    to->column_taps = (int)layer->columns.max_taps;
    to->columns[0].taps = to->column_taps;
    to->phase_m_tiles = 2 * to->channel_m_tiles;
    for (int mma = 0; mma < 2; mma++)
        to->mma_taps[mma] = (int)phases[mma].taps;
    to->uneven = phases[0].taps != phases[1].taps;
    to->cuts_pairs = phases[0].outputs != phases[1].outputs;
}

/* Moves the first positions of the MMA tiles to where narrow tiles have them. */
void place_narrow_mma_tiles(layer_plan *plan)
{
    parameters *to = &plan->parameters;
    to->mma_rows = plan->config.N / CORE_ROWS;
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma = 0; mma < plan->config.mma_tiles; mma++) {
            const int number = to->mma_position[warpgroup][mma] / plan->config.N;
            to->mma_pixel[warpgroup][mma] =
                number / to->across * to->mma_rows * to->pitch + number % to->across * CORE_ROWS;
        }
}

/* Whether TMA can step over the pixels between those of a phase of src. */
bool tma_steps_over(const tconv_layer *layer)
{
    return !layer->phases_of_src || (layer->rows.stride <= MAX_BOX_STEP && layer->columns.stride <= MAX_BOX_STEP);
}

/* How far apart the inputs of the taps are that are first and last, in elements of src, where phases are those of src. */
struct tap_span {
    int64_t first, last;
};
tap_span tap_span_of(const tconv_phase_table *table)
{
    tap_span span = {table->phases[0].residue, table->phases[0].residue};
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        const int64_t first = phase->first_shift * table->stride + phase->residue;
        const int64_t last = first - (phase->taps - 1) * table->shift_step * table->stride;
        span.first = tconv_min(span.first, tconv_min(first, last));
        span.last = tconv_max(span.last, tconv_max(first, last));
    }
    return span;
}

/* The corners of the inputs that an axis's first taps take: the last position's is as far from src's last. */
bool has_im2col_corners(const tconv_phase_table *table, int64_t in)
{
    const tap_span span = tap_span_of(table);
    const int64_t upper = span.first + (most_outputs(table) - 1) * table->stride - (in - 1);
    const auto fits = [](int64_t corner) { return corner >= MIN_IM2COL_CORNER && corner <= MAX_IM2COL_CORNER; };
    return fits(span.first) && fits(upper) && span.last - span.first <= MAX_IM2COL_OFFSET;
}

/* The pixels of a box along an axis, at most, that lie so far apart. */
int64_t most_box_pixels(int64_t stride)
{
    return (MAX_TMA_BOX - 1) / stride + 1;
}

/* Fills in where positions are that follow one another from row to row. */
void describe_im2col(const tconv_layer *layer, parameters *to)
{
    to->im2col = to->flat = true;
    to->flat_rows = (int)most_outputs(&layer->rows);
    to->flat_columns = (int)most_outputs(&layer->columns);
    to->first_row = (int)tap_span_of(&layer->rows).first;
    to->first_column = (int)tap_span_of(&layer->columns).first;
}

/* Fills in raw stages, where TMA can read NCHW: it brings of each channel a run of pixels, of whole images or, where
 * positions are flat, of the tile. */
void describe_raw_stages(const tconv_layer *layer, const tile_choice *choice, parameters *to)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, pixels = problem->h.in * problem->w.in;
    const int64_t run = to->flat && choice->images == 1 ? choice->columns : pixels;
    if (to->src_channels_last || layer->phases_of_src || run > MAX_TMA_BOX || run * element % BOX_ALIGNMENT != 0 ||
        problem->src.h != problem->w.in || problem->src.c * element % BOX_ALIGNMENT != 0 ||
        problem->src.n * element % BOX_ALIGNMENT != 0 ||
        choice->images * run * to->pixel_bytes > (int64_t)RAW_STAGE_PIXELS * to->pixel_bytes)
        return;
    to->box_columns = (int)run;
    to->by_tma = true;
    to->raw_stages = RAW_STAGES;
    to->raw_stage_bytes = (uint32_t)(choice->images * run * to->pixel_bytes);
}

/* After how many rounds of the phases their order is rotated by one, so that no multiprocessor has the longest always:
 * from a tile to its next one it is as many tiles ahead as there are multiprocessors. Where that alone leads through
 * all phases, a rotation would undo it. */
int phase_rotation_of(const parameters *of, int multiprocessors)
{
    const int64_t phases = (int64_t)of->row_phases * of->column_phases;
    const bool rotates_anyway = tconv_gcd(multiprocessors / of->tiles_along_m, phases) == 1;
    return (int)tconv_max(1, rotates_anyway ? of->tiles : multiprocessors / (of->tiles_along_m * phases));
}

int64_t taps_of(const axis_phase *phases, int count)
{
    return phases[count - 1].first_tap + phases[count - 1].taps;
}

/* Returns the mean taps of the tiles of the multiprocessor with most to do: it has tiles of all phases in turn, and of
 * those left in the last round the longest. Of a tile that sums over phases, the mean taps of one. */
double mean_tile_taps(const parameters *of, int multiprocessors)
{
    if (of->merged)
        return 1;
    if (of->src_phases > 1)
        return (double)taps_of(of->rows, of->row_phases) * of->column_taps / of->src_phases;
    int taps[MAX_PHASES * MAX_PHASES];
    int64_t sum = 0;
    const int phases = of->row_phases * of->column_phases;
    for (int i = 0; i < phases; i++)
        sum += taps[i] = of->rows[i / of->column_phases].taps * of->columns[i % of->column_phases].taps;
    const int64_t tiles = tconv_ceil_div(of->tiles, multiprocessors), left = tiles % phases;
    sum *= tiles / phases;
    if (left > 0)
        std::partial_sort(taps, taps + left, taps + phases, std::greater<int>());
    for (int64_t i = 0; i < left; i++)
        sum += taps[i];
    return (double)sum / (double)tiles;
}

/* Whether two neighbouring columns of src can be loaded at once, where loader warps have registers for them. */
bool has_column_pairs(const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    return plan->mode != MODE_STRICT && !of->by_tma && !of->src_channels_last && of->from.w == 1 &&
           of->src_column_stride == 1 && (of->from.n | of->from.c | of->from.h | of->in_columns) % 2 == 0;
}

} // namespace

bool is_transposed_before(const tconv_layer *layer)
{
    return layer->phases_of_src && layer->problem.layout == TCONV_NCHW && layer->problem.src.c == 1 &&
           layer->problem.src.w > 1;
}

/* A K-block is always of four wgmmas in f32; in 16 bits of two where there are no more channels. */
int pixel_bytes_of(const tconv_problem *problem)
{
    return problem->element_size == 2 && problem->group_in <= 32 ? 64 : 128;
}

position_space space_of(const tconv_layer *layer, bool per_tap, bool src_transposed)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides src = src_strides(problem, src_transposed);
    position_space space = {
        tconv_max(1, problem->batch), most_outputs(&layer->rows), most_outputs(&layer->columns), 0, 0, false, false};
    if (!per_tap) {
        space.row_halo = layer->rows.max_shift - layer->rows.min_shift;
        space.column_halo = layer->columns.max_shift - layer->columns.min_shift;
    }
    const int64_t pixels = problem->h.in * problem->w.in;
    space.flat = is_merged(layer) && space.rows <= problem->h.in && space.columns <= problem->w.in &&
                 src.h == problem->w.in * src.w;
    space.whole = space.flat && (problem->layout == TCONV_NHWC || src_transposed) && src.n == pixels * src.w &&
                  pixels * problem->batch < HOPPER_MAX_EXTENT;
    if (space.flat) {
        space.rows = 1;
        space.columns = space.whole ? pixels * space.images : pixels;
        space.images = space.whole ? 1 : space.images;
    }
    return space;
}

position_space im2col_space_of(const tconv_layer *layer)
{
    position_space space = space_of(layer, true, false);
    space.columns *= space.rows * space.images;
    space.rows = space.images = 1;
    space.flat = space.whole = true;
    return space;
}

position_space space_of(const tconv_layer *layer, const tile_choice *choice)
{
    return choice->im2col ? im2col_space_of(layer) : space_of(layer, choice->per_tap, choice->src_transposed);
}

bool may_be_im2col(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return layer->phases_of_src && tma_steps_over(layer) && problem->batch > 0 &&
           im2col_space_of(layer).columns < HOPPER_MAX_EXTENT && has_im2col_corners(&layer->rows, problem->h.in) &&
           has_im2col_corners(&layer->columns, problem->w.in);
}

void describe_layer(const tconv_layer *layer, bool src_transposed, layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const position_space space = space_of(layer, true, src_transposed);
    parameters *to = &plan->parameters;
    const int element = (int)problem->element_size;
    to->from = src_strides(problem, src_transposed);
    to->to = problem->dst;
    to->src_transposed = src_transposed;
    to->dst_channels_last =
        problem->layout == TCONV_NHWC || (problem->dst.c == 1 && problem->dst.w == problem->out_channels);
    to->src_channels_last = problem->layout == TCONV_NHWC || src_transposed || is_transposed_before(layer);
    to->by_tma = to->src_channels_last && (to->from.n | to->from.h | to->from.w) * element % BOX_ALIGNMENT == 0 &&
                 tma_steps_over(layer);
    to->flat = space.flat;
    to->merged = is_merged(layer);
    to->images = (int)space.images;
    to->in_rows = space.flat ? 1 : (int)problem->h.in;
    to->in_columns = space.flat ? (int)space.columns : (int)problem->w.in;
    to->flat_rows = (int)problem->h.in;
    to->flat_columns = (int)problem->w.in;
    to->groups = (int)problem->groups;
    to->group_in = (int)problem->group_in;
    to->group_out = (int)problem->group_out;
    to->pixel_bytes = pixel_bytes_of(problem);
    to->k_steps = to->pixel_bytes / MMA_K_BYTES;
    to->k_block_channels = to->pixel_bytes / element;
    to->k_blocks = (int)tconv_ceil_div(problem->group_in, to->k_block_channels);
    to->row_phases = (int)layer->rows.count;
    to->column_phases = (int)layer->columns.count;
    to->row_step = (int)layer->rows.shift_step;
    to->column_step = (int)layer->columns.shift_step;
    const bool of_src = layer->phases_of_src;
    to->src_phases = of_src ? to->row_phases * to->column_phases : 1;
    to->row_stride = of_src ? 1 : (int)layer->rows.stride;
    to->column_stride = of_src ? 1 : (int)layer->columns.stride;
    to->src_row_stride = of_src ? (int)layer->rows.stride : 1;
    to->src_column_stride = of_src ? (int)layer->columns.stride : 1;
    to->gathers_pairs = has_column_pairs(plan);
    describe_axis(&layer->rows, of_src, to->rows);
    describe_axis(&layer->columns, of_src, to->columns);
    to->column_taps = (int)taps_of(to->columns, to->column_phases);
    to->kernel_columns = (int)problem->w.kernel;
    to->kernel_row_step = (int)layer->rows.kernel_step;
    to->kernel_column_step = (int)layer->columns.kernel_step;
    to->channel_m_tiles = (int)tconv_ceil_div(problem->group_out, MMA_M);
    to->phase_m_tiles = to->merged ? to->channel_m_tiles * to->row_phases * to->column_phases : to->channel_m_tiles;
}

bool has_pairs(const tconv_layer *layer, const tile_choice *choice, const parameters *of)
{
    return !layer->phases_of_src && !of->dst_channels_last && layer->columns.count % 2 == 0 &&
           layer->columns.bias_only == 0 && layer->problem.dst.w == 1 &&
           (of->merged || (layer->columns.count == 2 && !choice->per_tap));
}

void describe_mma_tiles(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan)
{
    parameters *to = &plan->parameters;
    const int mma_tiles = plan->config.mma_tiles, n_tiles = mma_tiles_of(&plan->config) / choice->m_tiles;
    to->paired = has_pairs(layer, choice, to) && mma_tiles == 2 && choice->m_tiles > 1;
    if (to->paired && !to->merged)
        describe_pair(layer, to);
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma = 0; mma < mma_tiles; mma++) {
            const bool alternating = to->paired && choice->m_tiles == 2;
            const int number = alternating ? mma * WARPGROUPS + warpgroup : warpgroup * mma_tiles + mma;
            to->mma_m_tile[warpgroup][mma] = number / n_tiles;
            to->mma_position[warpgroup][mma] = number % n_tiles * plan->config.N;
            to->mma_pixel[warpgroup][mma] = to->mma_position[warpgroup][mma];
        }
}

void describe_divisors(parameters *to)
{
    to->by_tiles_along_m = divisor_of(to->tiles_along_m);
    to->by_phases = divisor_of(to->row_phases * to->column_phases);
    to->by_phase_rotation = divisor_of(to->phase_rotation);
    to->by_column_phases = divisor_of(to->column_phases);
    to->by_groups = divisor_of(to->groups);
    to->by_column_tiles = divisor_of(to->column_tiles);
    to->by_row_tiles = divisor_of(to->row_tiles);
    to->by_channel_m_tiles = divisor_of(to->channel_m_tiles);
    to->by_columns = divisor_of(to->flat ? to->flat_columns : to->pitch);
    to->by_rows = divisor_of(to->flat ? to->flat_rows : to->image_pixels / to->pitch);
}

bool describe_tile(const tconv_layer *layer, const tile_choice *choice, layer_plan *plan)
{
    parameters *to = &plan->parameters;
    const position_space space = space_of(layer, choice);
    const int64_t block_n = mma_tiles_of(&plan->config) / choice->m_tiles * plan->config.N;
    to->block_n = (int)block_n;
    to->per_tap = choice->per_tap;
    to->across = choice->across;
    to->tile_images = choice->images;
    to->tile_rows = choice->rows;
    to->tile_columns = choice->columns;
    const int64_t pitch = choice->columns + space.column_halo, stage_rows = choice->rows + space.row_halo;
    const int64_t most_columns = most_box_pixels(to->src_column_stride);
    if (stage_rows > most_box_pixels(to->src_row_stride) || choice->images > MAX_TMA_BOX ||
        (pitch > most_columns && (stage_rows > 1 || choice->images > 1)))
        return false;
    to->pitch = (int)pitch;
    to->image_pixels = (int)(stage_rows * pitch);
    to->stage_pixels = choice->images * to->image_pixels;
    to->boxes = choice->im2col ? 1 : (int)tconv_ceil_div(pitch, most_columns);
    if (pitch % to->boxes != 0 || (!to->src_channels_last && to->stage_pixels > MAX_COORDINATES))
        return false;
    to->box_columns = (int)pitch / to->boxes;
    if (to->boxes > 1 && to->box_columns * to->pixel_bytes % BOX_DESTINATION != 0)
        return false;
    describe_raw_stages(layer, choice, to);
    to->first_row = (int)layer->rows.min_shift;
    to->first_column = (int)layer->columns.min_shift;
    if (choice->im2col)
        describe_im2col(layer, to);
    to->image_tiles = (int)tconv_ceil_div(space.images, choice->images);
    to->row_tiles = (int)tconv_ceil_div(space.rows, choice->rows);
    to->column_tiles = (int)tconv_ceil_div(space.columns, choice->columns);
    to->m_tiles = choice->m_tiles;
    to->tiles_along_m = (int)tconv_ceil_div(to->phase_m_tiles, choice->m_tiles);
    const int64_t taps = taps_of(to->rows, to->row_phases) * to->column_taps;
    to->group_a_tiles = (int64_t)to->k_blocks * to->tiles_along_m * (to->merged ? 1 : taps);
    const int64_t tiles = (int64_t)to->image_tiles * to->row_tiles * to->column_tiles * to->groups * to->tiles_along_m *
                          (to->merged || layer->phases_of_src ? 1 : to->row_phases * to->column_phases);
    to->tiles = (int)tiles;
    to->phase_rotation = phase_rotation_of(to, layer->target.multiprocessors);
    plan->mean_taps = mean_tile_taps(to, layer->target.multiprocessors);
    if (to->across > 0)
        place_narrow_mma_tiles(plan);
    if (to->paired && !to->merged)
        for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
            to->mma_pixel[warpgroup][1] +=
                (int)(layer->columns.phases[1].first_shift - layer->columns.phases[0].first_shift);
    /* The last MMA tile reads as many pixels as any, whether the stage has them or not. */
    const int64_t reach = to->across > 0
                              ? to->stage_pixels
                              : tconv_max(to->stage_pixels, block_n + space.row_halo * pitch + space.column_halo);
    to->plane_bytes = (uint32_t)tconv_round_up(reach * to->pixel_bytes, STAGE_ALIGNMENT);
    to->b_stage_bytes = to->plane_bytes * planes_of(plan->mode);
    to->a_tile_bytes = (uint32_t)(choice->m_tiles * planes_of(plan->mode) * MMA_M * to->pixel_bytes);
    if (to->across > 0)
        return tiles < HOPPER_MAX_EXTENT;
    return tiles < HOPPER_MAX_EXTENT &&
           (choice->images - 1) * (int64_t)to->image_pixels + (choice->rows - 1) * pitch + choice->columns <= block_n;
}

} // namespace tconv::igemm
