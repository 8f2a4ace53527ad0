/* The choice of tiles for the implicit matrix product, by the estimate of igemm_estimate.cu, and their description to the
 * kernel. */
#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../numeric/divisor.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

#include <cstring>

namespace tconv::igemm
{

namespace
{

constexpr int MAX_BOX = 256;         /* the copy engine's, of each axis */
constexpr int ALIGNMENT = 1024;      /* of a stage: the swizzle's pattern is as long */
constexpr int64_t LEAST_COLUMNS = 8; /* narrower tiles are not tried where there are wider ones */

/* src is turned where it is no larger: it should come from the second-level cache when it is read again, and the workspace be
 * small. */
constexpr int64_t MOST_TURNED_BYTES = 48 << 20;

constexpr int PLANE_BOXES = 2;        /* buffers */
constexpr int PLANE_BOX_PIXELS = 512; /* of one: as many as a tile covers */

/* Buffers, from the least to what there is no use beyond: stages, slots. The last that fits is taken. */
constexpr int BUFFERS[][2] = {{2, 2}, {2, 3}, {3, 3}, {3, 4}, {4, 4}, {4, 5}, {5, 6}, {6, 6}, {7, 8}, {8, 8}};

int64_t round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

int planes_of(tconv_igemm_mode mode)
{
    return mode == TCONV_IGEMM_STRICT ? 2 : 1;
}

/* Outputs of the phase with most of them. */
int64_t most_outputs(const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, table->phases[i].outputs);
    return most;
}

/* Whether all phases of an axis have one tap, on the input of the same number, and as many outputs. */
bool is_plain(const tconv_phase_table *table)
{
    for (int64_t i = 0; i < table->count; i++)
        if (table->phases[i].taps != 1 || table->phases[i].first_shift != 0 ||
            table->phases[i].outputs != table->phases[0].outputs)
            return false;
    return true;
}

/* How src lies that the kernel reads. */
tconv_strides src_strides(const tconv_problem *problem, bool turned)
{
    if (!turned)
        return problem->src;
    const int64_t pixel = tconv_igemm_turned_pixel(problem);
    return {problem->h.in * problem->w.in * pixel, 1, problem->w.in * pixel, pixel};
}

/* What the layer is to a tile: positions, and the border that all taps of a position span. */
struct position_space {
    int64_t images, rows, columns, row_border, column_border;
    bool flat, whole; /* rows of an image as one row; images as one image */
};

position_space space_of(const tconv_layer *layer, bool per_tap, bool turned)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides src = src_strides(problem, turned);
    position_space space = {
        tconv_max(1, problem->batch), most_outputs(&layer->rows), most_outputs(&layer->columns), 0, 0, false, false};
    if (!per_tap) {
        space.row_border = layer->rows.max_shift - layer->rows.min_shift;
        space.column_border = layer->columns.max_shift - layer->columns.min_shift;
    }
    const int64_t pixels = problem->h.in * problem->w.in;
    space.flat = is_plain(&layer->rows) && is_plain(&layer->columns) && space.rows <= problem->h.in &&
                 space.columns <= problem->w.in && src.h == problem->w.in * src.w;
    space.whole = space.flat && (problem->layout == TCONV_NHWC || turned) && src.n == pixels * src.w &&
                  pixels * problem->batch < HOPPER_MAX_EXTENT;
    if (space.flat) {
        space.rows = 1;
        space.columns = space.whole ? pixels * space.images : pixels;
        space.images = space.whole ? 1 : space.images;
    }
    return space;
}

bool is_merged(const tconv_layer *layer)
{
    return is_plain(&layer->rows) && is_plain(&layer->columns);
}

void describe_axis(const tconv_phase_table *table, tconv_igemm_phase *phases)
{
    int taps = 0;
    for (int64_t i = 0; i < table->count; i++) {
        const tconv_phase *phase = &table->phases[i];
        phases[i] = {(int)phase->taps, taps, (int)phase->first_shift, (int)phase->residue, (int)phase->outputs};
        taps += (int)phase->taps;
    }
}

/* Everything that no choice changes. */
void describe_layer(const tconv_layer *layer, bool turned, tconv_igemm_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const position_space space = space_of(layer, true, turned);
    tconv_igemm_parameters *to = &plan->parameters;
    const int element = (int)problem->element_size;
    to->from = src_strides(problem, turned);
    to->to = problem->dst;
    to->turned = turned;
    to->dst_channels_last = problem->layout == TCONV_NHWC;
    to->src_channels_last = to->dst_channels_last || turned;
    to->by_boxes = to->src_channels_last && (to->from.n | to->from.h | to->from.w) * element % BOX_ALIGNMENT == 0;
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
    /* Of f32 a slot is always of four steps; of 16 bits, half of that where there are no more channels. */
    to->row_bytes = element == 2 && problem->group_in <= 32 ? 64 : 128;
    to->steps = to->row_bytes / TCONV_IGEMM_STEP;
    to->chunk_channels = to->row_bytes / element;
    to->chunks = (int)tconv_ceil_div(problem->group_in, to->chunk_channels);
    to->row_phases = (int)layer->rows.count;
    to->column_phases = (int)layer->columns.count;
    to->row_step = (int)layer->rows.shift_step;
    to->column_step = (int)layer->columns.shift_step;
    to->row_stride = (int)layer->rows.stride;
    to->column_stride = (int)layer->columns.stride;
    describe_axis(&layer->rows, to->rows);
    describe_axis(&layer->columns, to->columns);
    for (int i = 0; i < to->column_phases; i++)
        to->column_taps += to->columns[i].taps;
    to->channel_blocks = (int)tconv_ceil_div(problem->group_out, TCONV_IGEMM_M);
    to->blocks = to->merged ? to->channel_blocks * to->row_phases * to->column_phases : to->channel_blocks;
}

/* Whether src can be turned in the workspace. */
bool may_be_turned(const tconv_problem *problem)
{
    const int64_t elements = problem->batch * problem->in_channels * problem->h.in * problem->w.in;
    return problem->layout == TCONV_NCHW && elements <= MOST_TURNED_BYTES &&
           tconv_igemm_turned_bytes(problem) <= MOST_TURNED_BYTES;
}

int units_of(const tconv_igemm_shape *shape)
{
    return TCONV_IGEMM_GROUPS * shape->units;
}

/* Whether neighbouring phases of columns can be stored in pairs, by warpgroups of two units: where phases differ in taps there
 * should be but two, with as many outputs, and a stage should have the input of both. */
bool has_pairs(const tconv_layer *layer, const tconv_igemm_choice *choice, const tconv_igemm_parameters *of)
{
    const tconv_phase *phases = layer->columns.phases;
    return !of->dst_channels_last && layer->columns.count % 2 == 0 && layer->columns.bias_only == 0 &&
           layer->problem.dst.w == 1 &&
           (of->merged || (layer->columns.count == 2 && phases[0].outputs == phases[1].outputs && !choice->per_tap));
}

/* Whether rows of dst begin at whole vectors of 16 bytes, if dst does. */
bool has_vector_rows(const tconv_problem *problem)
{
    return tconv_rows_begin_at_multiples(&problem->dst, 16 / (int64_t)problem->element_size);
}

/* Sees the two column phases as one. */
void describe_pair(const tconv_layer *layer, tconv_igemm_parameters *to)
{
    const tconv_phase *phases = layer->columns.phases;
    to->column_phases = 1;
    to->column_taps = (int)layer->columns.max_taps;
    to->columns[0].taps = to->column_taps;
    to->blocks = 2 * to->channel_blocks;
    for (int unit = 0; unit < 2; unit++)
        to->unit_taps[unit] = (int)phases[unit].taps;
    to->uneven = phases[0].taps != phases[1].taps;
}

/* Which blocks and pixels the units take: as many different blocks as the tile has, then different pixels. Where units are
 * paired, the two of a warpgroup are neighbouring blocks. */
void describe_units(const tconv_layer *layer, const tconv_igemm_choice *choice, tconv_igemm_plan *plan)
{
    tconv_igemm_parameters *to = &plan->parameters;
    const int units = plan->shape.units, block_units = units_of(&plan->shape) / choice->tile_blocks;
    to->paired = has_pairs(layer, choice, to) && units == 2 && choice->tile_blocks > 1;
    if (to->paired && !to->merged)
        describe_pair(layer, to);
    for (int group = 0; group < TCONV_IGEMM_GROUPS; group++)
        for (int unit = 0; unit < units; unit++) {
            const bool in_turn = to->paired && choice->tile_blocks == 2;
            const int number = in_turn ? unit * TCONV_IGEMM_GROUPS + group : group * units + unit;
            to->unit_block[group][unit] = number / block_units;
            to->unit_output[group][unit] = number % block_units * plan->shape.N;
            to->unit_pixel[group][unit] = to->unit_output[group][unit];
        }
}

/* The same where tiles are narrow: where the units' first positions lie. */
void place_units(tconv_igemm_plan *plan)
{
    tconv_igemm_parameters *to = &plan->parameters;
    to->unit_rows = plan->shape.N / TCONV_IGEMM_ROW;
    for (int group = 0; group < TCONV_IGEMM_GROUPS; group++)
        for (int unit = 0; unit < plan->shape.units; unit++) {
            const int number = to->unit_output[group][unit] / plan->shape.N;
            to->unit_pixel[group][unit] =
                number / to->across * to->unit_rows * to->pitch + number % to->across * TCONV_IGEMM_ROW;
        }
}

/* NCHW by boxes of planes: what the copy engine brings of a channel is a run of pixels, of whole images or, where positions
 * are flat, of the tile. */
void describe_planes(const tconv_layer *layer, const tconv_igemm_choice *choice, tconv_igemm_parameters *to)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, pixels = problem->h.in * problem->w.in;
    const int64_t run = to->flat && choice->images == 1 ? choice->columns : pixels;
    if (to->src_channels_last || run > MAX_BOX || run * element % BOX_ALIGNMENT != 0 ||
        problem->src.h != problem->w.in || problem->src.c * element % BOX_ALIGNMENT != 0 ||
        problem->src.n * element % BOX_ALIGNMENT != 0 ||
        choice->images * run * to->row_bytes > (int64_t)PLANE_BOX_PIXELS * to->row_bytes)
        return;
    to->box_columns = (int)run;
    to->by_boxes = true;
    to->plane_boxes = PLANE_BOXES;
    to->plane_box_bytes = (uint32_t)(choice->images * run * to->row_bytes);
}

void describe_divisors(tconv_igemm_parameters *to)
{
    to->by_block_tiles = divisor_of(to->block_tiles);
    to->by_phases = divisor_of(to->row_phases * to->column_phases);
    to->by_phase_turn = divisor_of(to->phase_turn);
    to->by_column_phases = divisor_of(to->column_phases);
    to->by_groups = divisor_of(to->groups);
    to->by_column_tiles = divisor_of(to->column_tiles);
    to->by_row_tiles = divisor_of(to->row_tiles);
    to->by_channel_blocks = divisor_of(to->channel_blocks);
    to->by_columns = divisor_of(to->flat ? to->flat_columns : to->pitch);
    to->by_rows = divisor_of(to->flat ? to->flat_rows : to->image_pixels / to->pitch);
}

/* After how many turns of the phases their order is turned by one, so that no multiprocessor has the longest always:
 * from a tile to its next one it is as many tiles ahead as there are multiprocessors. Where that alone leads through
 * all phases, turning them would undo it. */
int phase_turn_of(const tconv_igemm_parameters *of, int multiprocessors)
{
    const int64_t phases = (int64_t)of->row_phases * of->column_phases;
    const bool in_turn = tconv_gcd(multiprocessors / of->block_tiles, phases) == 1;
    return (int)tconv_max(1, in_turn ? of->tiles : multiprocessors / (of->block_tiles * phases));
}

bool describe_tile(const tconv_layer *layer, const tconv_igemm_choice *choice, int multiprocessors,
                   tconv_igemm_plan *plan)
{
    tconv_igemm_parameters *to = &plan->parameters;
    const position_space space = space_of(layer, choice->per_tap, choice->turned);
    const int64_t covered = units_of(&plan->shape) / choice->tile_blocks * plan->shape.N;
    to->covered = (int)covered;
    to->per_tap = choice->per_tap;
    to->across = choice->across;
    to->tile_images = choice->images;
    to->tile_rows = choice->rows;
    to->tile_columns = choice->columns;
    const int64_t pitch = choice->columns + space.column_border, patch_rows = choice->rows + space.row_border;
    if (patch_rows > MAX_BOX || choice->images > MAX_BOX || (pitch > MAX_BOX && (patch_rows > 1 || choice->images > 1)))
        return false;
    to->pitch = (int)pitch;
    to->image_pixels = (int)(patch_rows * pitch);
    to->patch = choice->images * to->image_pixels;
    to->boxes = (int)tconv_ceil_div(pitch, MAX_BOX);
    if (pitch % to->boxes != 0 || (!to->src_channels_last && to->patch > TCONV_IGEMM_PLACES))
        return false;
    to->box_columns = (int)pitch / to->boxes;
    describe_planes(layer, choice, to);
    to->first_row = (int)layer->rows.min_shift;
    to->first_column = (int)layer->columns.min_shift;
    to->image_tiles = (int)tconv_ceil_div(space.images, choice->images);
    to->row_tiles = (int)tconv_ceil_div(space.rows, choice->rows);
    to->column_tiles = (int)tconv_ceil_div(space.columns, choice->columns);
    to->tile_blocks = choice->tile_blocks;
    to->block_tiles = (int)tconv_ceil_div(to->blocks, choice->tile_blocks);
    int64_t taps = 0;
    for (int i = 0; i < to->row_phases; i++)
        taps += to->rows[i].taps;
    to->group_slots = (int64_t)to->chunks * to->block_tiles * (to->merged ? 1 : taps * to->column_taps);
    const int64_t tiles = (int64_t)to->image_tiles * to->row_tiles * to->column_tiles * to->groups * to->block_tiles *
                          (to->merged ? 1 : to->row_phases * to->column_phases);
    to->tiles = (int)tiles;
    to->phase_turn = phase_turn_of(to, multiprocessors);
    if (to->across > 0)
        place_units(plan);
    if (to->paired && !to->merged)
        for (int group = 0; group < TCONV_IGEMM_GROUPS; group++)
            to->unit_pixel[group][1] +=
                (int)(layer->columns.phases[1].first_shift - layer->columns.phases[0].first_shift);
    /* The last unit reads as many pixels as any, whether the patch has them or not. */
    const int64_t reach =
        to->across > 0 ? to->patch : tconv_max(to->patch, covered + space.row_border * pitch + space.column_border);
    to->plane_bytes = (uint32_t)round_up(reach * to->row_bytes, ALIGNMENT);
    to->stage_bytes = to->plane_bytes * planes_of(plan->mode);
    to->slot_bytes = (uint32_t)(choice->tile_blocks * planes_of(plan->mode) * TCONV_IGEMM_M * to->row_bytes);
    if (to->across > 0)
        return tiles < HOPPER_MAX_EXTENT;
    return tiles < HOPPER_MAX_EXTENT &&
           (choice->images - 1) * (int64_t)to->image_pixels + (choice->rows - 1) * pitch + choice->columns <= covered;
}

/* As many buffers as fit, of slots of so many taps, beside these of sums that are handed over (0: none are). */
bool describe_buffers(const tconv_layer *layer, int halves, int slot_taps, tconv_igemm_plan *plan)
{
    tconv_igemm_parameters *to = &plan->parameters;
    const int element = (int)layer->problem.element_size;
    /* What warps stage themselves, and the table of places, is needed in any case: src may lie so that the copy engine cannot
     * read it. */
    const size_t own = (size_t)4 * TCONV_IGEMM_GROUPS * tconv_igemm_staged_bytes(plan->shape.N, element) +
                       (size_t)tconv_min(to->patch, TCONV_IGEMM_PLACES) * sizeof(uint32_t),
                 handed =
                     (size_t)TCONV_IGEMM_GROUPS * halves * tconv_igemm_half_bytes(plan->shape.N, element, to->paired);
    to->tables = halves > 0 ? 3 : 2; /* the one that is stored is another than the one that is multiplied */
    const size_t fixed = (size_t)to->plane_boxes * to->plane_box_bytes +
                         (size_t)to->tables * to->covered * sizeof(int64_t) + tconv_max(own, handed);
    to->hands_over = halves > 0;
    to->halves = halves;
    to->slot_taps = slot_taps;
    to->stages = 0;
    for (size_t i = 0; i < sizeof BUFFERS / sizeof BUFFERS[0]; i++) {
        const size_t bytes =
            (size_t)BUFFERS[i][0] * to->stage_bytes + (size_t)BUFFERS[i][1] * slot_taps * to->slot_bytes + fixed;
        if (bytes <= (size_t)TCONV_IGEMM_SHARED_MEMORY) {
            to->stages = BUFFERS[i][0];
            to->slots = BUFFERS[i][1];
        }
    }
    return to->stages > 0;
}

/* Slots that the sums of the phase with most taps are made of. */
int64_t most_slots(const tconv_layer *layer, const tconv_igemm_parameters *of)
{
    return of->chunks * layer->rows.max_taps * layer->columns.max_taps;
}

/* The taps of the phase with the fewest. */
int64_t least_taps(const tconv_phase_table *table)
{
    int64_t least = table->max_taps;
    for (int64_t i = 0; i < table->count; i++)
        least = tconv_min(least, table->phases[i].taps);
    return least;
}

/* Taps that a buffer of slots may hold: more than one where there is little to multiply for each, but no more than every
 * phase has. */
int most_slot_taps(const tconv_layer *layer, const tconv_igemm_plan *plan)
{
    const tconv_igemm_parameters *of = &plan->parameters;
    const int64_t taps = least_taps(&layer->rows) * least_taps(&layer->columns);
    const int cycles = of->steps * units_of(&plan->shape) * plan->shape.N / 2;
    return of->per_tap || !tconv_igemm_is_fed(plan) || cycles > TCONV_IGEMM_SLOT_PERIOD
               ? 1
               : (int)tconv_min(taps, TCONV_IGEMM_SLOT_TAPS);
}

/* Whether tiles may be of the plan's shape. Those of fewer units than the mode's others are for layers that do not fill the
 * multiprocessors; not where pairs are stored, or planes turned into pixels for each tap, which more tiles do more often. */
bool may_have(const tconv_layer *layer, const tconv_igemm_choice *choice, const tconv_igemm_plan *plan,
              int multiprocessors)
{
    const tconv_igemm_parameters *of = &plan->parameters;
    return plan->shape.units == tconv_igemm_shapes_of(plan->mode)[0].units ||
           (of->tiles <= multiprocessors && !(of->merged && has_pairs(layer, choice, of)) &&
            (of->src_channels_last || !of->per_tap));
}

/* Takes the tile where its estimate is the least up to now. */
void try_tile(const tconv_layer *layer, int multiprocessors, const tconv_igemm_choice *choice, tconv_igemm_choice *best,
              tconv_igemm_plan *best_plan)
{
    tconv_igemm_plan plan;
    if (tconv_igemm_describe(layer, choice, multiprocessors, &plan) &&
        may_have(layer, choice, &plan, multiprocessors) &&
        (best_plan->cycles == 0 || plan.cycles < best_plan->cycles)) {
        *best = *choice;
        *best_plan = plan;
    }
}

/* Tries all tiles of this many blocks and pixels: rows of positions in equal parts, as many rows and images as fit. */
void try_tiles(const tconv_layer *layer, int multiprocessors, tconv_igemm_choice choice, const tconv_igemm_shape *shape,
               tconv_igemm_choice *best, tconv_igemm_plan *best_plan)
{
    const position_space space = space_of(layer, choice.per_tap, choice.turned);
    const int64_t covered = units_of(shape) / choice.tile_blocks * shape->N;
    for (int64_t tiles = tconv_ceil_div(space.columns, covered);; tiles += 1 + tiles / 8) {
        const int64_t columns = tiles == 1 && space.columns < covered ? space.columns
                                : space.flat                          ? covered
                                                                      : tconv_ceil_div(space.columns, tiles);
        const int64_t pitch = columns + space.column_border;
        int64_t rows = tconv_min(space.rows, (covered - columns) / pitch + 1);
        rows = tconv_ceil_div(space.rows, tconv_ceil_div(space.rows, rows));
        const int64_t image = (rows + space.row_border) * pitch, first = (rows - 1) * pitch + columns;
        choice.columns = (int)columns;
        choice.rows = (int)rows;
        choice.images = 1;
        if (rows == space.rows && columns == space.columns)
            choice.images = (int)tconv_min(tconv_min(space.images, MAX_BOX), (covered - first) / image + 1);
        try_tile(layer, multiprocessors, &choice, best, best_plan);
        if (space.flat || columns <= LEAST_COLUMNS)
            return;
    }
}

/* Tries narrow tiles of this many blocks: of units below and beside one another. */
void try_narrow_tiles(const tconv_layer *layer, int multiprocessors, tconv_igemm_choice choice,
                      const tconv_igemm_shape *shape, tconv_igemm_choice *best, tconv_igemm_plan *best_plan)
{
    const int pixel_units = units_of(shape) / choice.tile_blocks;
    choice.per_tap = false;
    choice.images = 1;
    for (choice.across = 1; choice.across <= pixel_units; choice.across *= 2) {
        choice.columns = choice.across * TCONV_IGEMM_ROW;
        choice.rows = pixel_units / choice.across * shape->N / TCONV_IGEMM_ROW;
        try_tile(layer, multiprocessors, &choice, best, best_plan);
    }
}

} // namespace

tconv_igemm_mode tconv_igemm_mode_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return TCONV_IGEMM_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return TCONV_IGEMM_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? TCONV_IGEMM_TF32 : TCONV_IGEMM_STRICT;
}

const tconv_igemm_shape *tconv_igemm_shapes_of(tconv_igemm_mode mode)
{
    const tconv_igemm_shape *const shapes[] = {tconv_igemm_tf32_shapes, tconv_igemm_strict_shapes,
                                               tconv_igemm_f16_shapes, tconv_igemm_bf16_shapes};
    return shapes[mode];
}

bool tconv_igemm_describe(const tconv_layer *layer, const tconv_igemm_choice *choice, int multiprocessors,
                          tconv_igemm_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->mode = tconv_igemm_mode_of(layer);
    plan->shape = tconv_igemm_shapes_of(plan->mode)[choice->shape];
    describe_layer(layer, choice->turned, plan);
    if (plan->shape.N % TCONV_IGEMM_M != 0 && !tconv_igemm_is_fed(plan))
        return false; /* 96 pixels: timed there alone */
    describe_units(layer, choice, plan);
    if (!describe_tile(layer, choice, multiprocessors, plan) ||
        (!plan->shape.long_sums && most_slots(layer, &plan->parameters) > TCONV_IGEMM_MAX_SLOTS))
        return false;
    /* With more buffers of sums that are handed over there are fewer of factors. Of NHWC sums are always handed over where warps
     * are left to store them. Of pairs it is worth it where all of a tile's sums find room and are stored by vectors: few
     * warps store, and those that multiply should not wait for them. */
    const bool fed = tconv_igemm_is_fed(plan), always = fed && plan->parameters.dst_channels_last;
    const bool pairs = fed && plan->parameters.paired && choice->across > 0 && has_vector_rows(&layer->problem);
    tconv_igemm_plan with = *plan;
    for (int halves = always || pairs ? TCONV_IGEMM_HALVES : 0;; halves = always ? halves / 2 : 0) {
        for (int slot_taps = 1; slot_taps <= most_slot_taps(layer, plan); slot_taps++)
            if (describe_buffers(layer, halves, slot_taps, &with)) {
                with.cycles = tconv_igemm_estimate(layer, &with, multiprocessors);
                if (plan->cycles == 0 || with.cycles < plan->cycles)
                    *plan = with;
            }
        if (halves <= (always ? 1 : 0))
            break;
    }
    describe_divisors(&plan->parameters);
    return plan->cycles > 0;
}

bool tconv_igemm_choose(const tconv_layer *layer, int multiprocessors, tconv_igemm_choice *best,
                        tconv_igemm_plan *best_plan)
{
    const tconv_igemm_shape *shapes = tconv_igemm_shapes_of(tconv_igemm_mode_of(layer));
    /* Without a border the plain tile is as good; of NCHW neighbours in a row should be many. */
    const position_space space = space_of(layer, false, false);
    const bool border = space.row_border + space.column_border > 0;
    best_plan->cycles = 0;
    tconv_igemm_choice choice;
    memset(&choice, 0, sizeof choice);
    for (choice.shape = 0; choice.shape < TCONV_IGEMM_SHAPES && shapes[choice.shape].N > 0; choice.shape++)
        for (choice.tile_blocks = 1; choice.tile_blocks <= units_of(&shapes[choice.shape]); choice.tile_blocks *= 2) {
            for (int turned = 0; turned <= (may_be_turned(&layer->problem) ? 1 : 0); turned++) {
                choice.turned = turned == 1;
                for (int per_tap = 0; per_tap < 2; per_tap++) {
                    choice.per_tap = per_tap == 1;
                    try_tiles(layer, multiprocessors, choice, &shapes[choice.shape], best, best_plan);
                }
                if (border && (choice.turned || layer->problem.layout == TCONV_NHWC))
                    try_narrow_tiles(layer, multiprocessors, choice, &shapes[choice.shape], best, best_plan);
            }
        }
    return best_plan->cycles > 0;
}

int tconv_igemm_thread_blocks(const tconv_igemm_plan *plan, int multiprocessors)
{
    return (int)tconv_min(plan->parameters.tiles, multiprocessors);
}

int64_t tconv_igemm_number_of(const tconv_igemm_choice *choice)
{
    return (int64_t)choice->shape | (int64_t)choice->tile_blocks << 4 | (int64_t)choice->per_tap << 8 |
           (int64_t)choice->across << 9 | (int64_t)choice->images << 12 | (int64_t)choice->rows << 24 |
           (int64_t)choice->columns << 36 | (int64_t)choice->turned << 48;
}

tconv_igemm_choice tconv_igemm_choice_of(int64_t number)
{
    return {(int)(number & 15),     (int)(number >> 4 & 15),    (number >> 48 & 1) != 0,    (number >> 8 & 1) != 0,
            (int)(number >> 9 & 7), (int)(number >> 12 & 4095), (int)(number >> 24 & 4095), (int)(number >> 36 & 4095)};
}

} // namespace tconv::igemm
