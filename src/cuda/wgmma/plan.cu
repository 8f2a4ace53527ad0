/*
 * The tile of a layer for the wgmma kernels.
 *
 * The two units of two warpgroups share a tile out: by row phases and column phases where there are two, else by rows of
 * positions or, the warpgroups, by output channels. A layer with one tap to a phase and no border reads each pixel of src
 * at its own position alone: its positions are a run over all rows of an image, as if they were one row, whatever their
 * width. Tiles of each size that there is a kernel for are described, and the one with the least estimated time is taken.
 */
#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../numeric/divisor.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

#include <cstring>

namespace tconv::wgmma
{

namespace
{

constexpr int MAX_BOX = 256;     /* the copy engine's, of each axis */
constexpr int MAX_PATCH = 16383; /* pixels: of an operand's field for half of K */
constexpr int MAX_UNIT_ROWS = 16, MAX_STEPS = 4;
constexpr int64_t STAGED_ROW_ALIGNMENT = 8; /* bytes: of vectors that store tight rows */
constexpr int STAGE_PIXELS = 8; /* of which a quad of a stage that is turned in place has a multiple: 128 bytes */

constexpr int64_t TRANSPOSED_BIT = (int64_t)1 << 32, TIGHT_BIT = (int64_t)1 << 33, ONE_BOX_BIT = (int64_t)1 << 34,
                  IN_PLACE_BIT = (int64_t)1 << 35, RESIDENT_BIT = (int64_t)1 << 36, SHIFTED_BIT = (int64_t)1 << 37,
                  FOLDED_BIT = (int64_t)1 << 38;

/* A choice as the number that the layer keeps. */
int64_t number_of(const tconv_wgmma_tile_choice *choice)
{
    return choice->shape | choice->stack << 8 | choice->unit_rows << 16 | choice->steps << 24 |
           (int64_t)choice->channel_groups << 31 | (choice->transposed ? TRANSPOSED_BIT : 0) |
           (choice->tight ? TIGHT_BIT : 0) | (choice->one_box ? ONE_BOX_BIT : 0) |
           (choice->in_place ? IN_PLACE_BIT : 0) | (choice->resident ? RESIDENT_BIT : 0) |
           (choice->shifted ? SHIFTED_BIT : 0) | (choice->folded ? FOLDED_BIT : 0);
}

int64_t round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

/* Unit 0 is the column phase with more taps. */
int first_column_phase(const tconv_phase_table *columns)
{
    return columns->count == 2 && columns->phases[1].taps > columns->phases[0].taps ? 1 : 0;
}

const tconv_phase *row_phase(const tconv_layer *layer, int group)
{
    return &layer->rows.phases[layer->rows.count == 2 ? group : 0];
}

const tconv_phase *column_phase(const tconv_layer *layer, int unit)
{
    const tconv_phase_table *columns = &layer->columns;
    return &columns->phases[columns->count == 2 ? unit ^ first_column_phase(columns) : 0];
}

/* Whether each pixel of src is read at its own position alone, and every output has its tap. */
bool is_run(const tconv_layer *layer)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const tconv_axis *h = &layer->problem.h, *w = &layer->problem.w;
    return rows->max_taps == 1 && columns->max_taps == 1 && rows->min_shift == 0 && rows->max_shift == 0 &&
           columns->min_shift == 0 && columns->max_shift == 0 && h->out == h->in * rows->stride &&
           w->out == w->in * columns->stride && h->in * w->out < HOPPER_MAX_EXTENT;
}

bool is_aligned(int64_t stride, const tconv_problem *problem)
{
    return stride * (int64_t)problem->element_size % BOX_ALIGNMENT == 0;
}

/* Whether planes can be operands, moved there or not: 16-bit types alone have such products. */
bool can_be_operands(const tconv_problem *problem)
{
    return problem->element_size == 2 && is_aligned(problem->src.n, problem) &&
           problem->in_channels % tconv_wgmma_aligned_channels(problem) == 0 && problem->src.c < HOPPER_MAX_EXTENT;
}

/* The kernel that takes planes as they lie, of a shape of those that convert; NULL where there is none. */
const tconv_wgmma_shape *transposed_shape(tconv_wgmma_mode mode, int N)
{
    const tconv_wgmma_shape *shapes =
        mode == TCONV_WGMMA_F16 ? tconv_wgmma_f16_transposed_shapes : tconv_wgmma_bf16_transposed_shapes;
    for (int i = 0; i < TCONV_WGMMA_TRANSPOSED_SHAPES; i++)
        if (shapes[i].N == N)
            return &shapes[i];
    return NULL;
}

/* How units share a tile: by phases, and what is left over by rows of positions. */
void lay_out_units(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice, tconv_wgmma_parameters *made)
{
    const bool column_phases = layer->columns.count == 2, same_rows = layer->rows.count == 2 || choice->channel_groups;
    const int group_rows = (column_phases ? 1 : TCONV_WGMMA_UNITS) * choice->unit_rows * choice->stack;
    made->box_parts = made->box_copies = made->row_channels = 1;
    made->stack = choice->stack;
    made->fold_log2 = choice->folded ? 1 : 0;
    made->row_pixels = column_phases || choice->folded ? 2 : 1;
    made->block_channels = TCONV_WGMMA_M / choice->stack >> made->fold_log2;
    made->group_channels = choice->channel_groups ? made->block_channels : 0;
    made->tile_channels = made->block_channels + made->group_channels;
    made->unit_rows = choice->unit_rows;
    made->tile_rows = (same_rows ? 1 : TCONV_WGMMA_GROUPS) * group_rows;
    made->column_phases = column_phases ? 2 : 1;
    made->first_phase = first_column_phase(&layer->columns);
    made->stride_h = (int)layer->rows.stride;
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++) {
        made->row_residue[group] = (int)row_phase(layer, group)->residue;
        made->chunk_slots[group] = (int)row_phase(layer, group)->taps + choice->stack - 1;
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
            made->unit_row[group][unit] =
                (same_rows ? 0 : group * group_rows) + (column_phases ? 0 : unit * choice->unit_rows * choice->stack);
    }
    for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
        made->column_taps[unit] = choice->folded ? tconv_wgmma_fold_taps(layer) : (int)column_phase(layer, unit)->taps;
    made->max_chunk_slots = (int)tconv_max(made->chunk_slots[0], made->chunk_slots[1]);
    made->in_rows = (int)layer->problem.h.in;
    made->in_columns = (int)layer->problem.w.in;
    made->out_rows = (int)layer->problem.h.out;
    made->out_columns = (int)layer->problem.w.out;
}

/* Of a run, which units that are not phases follow one another on: all of src is one row of it, and so is dst where its
 * rows have one phase. */
bool lay_out_run(const tconv_layer *layer, tconv_wgmma_plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const tconv_problem *problem = &layer->problem;
    const int64_t alignment = BOX_ALIGNMENT / (int64_t)problem->element_size;
    const int units = to->column_phases == 2 ? 1 : TCONV_WGMMA_UNITS;
    const int groups = to->stride_h == 2 || to->group_channels > 0 ? 1 : TCONV_WGMMA_GROUPS;
    const int64_t positions = problem->h.in * problem->w.in, most = groups * units * made->shape.N;
    int64_t tiles = tconv_ceil_div(positions, made->transposed ? most : tconv_min(most, MAX_BOX));
    int64_t tile_columns = round_up(tconv_ceil_div(positions, tiles), alignment);
    int64_t unit_columns = round_up(tconv_ceil_div(tile_columns, groups * units), alignment);
    /* Units begin with boxes. */
    if (made->transposed && groups * units > 1) {
        unit_columns = made->shape.N;
        tile_columns = most;
    }
    to->tile_rows = 1;
    to->tile_columns = (int)tile_columns;
    to->column_tiles = (int)tiles;
    to->column_alignment = to->stage_alignment = (int)alignment;
    to->pitch = to->patch = to->box_pitch = to->box_patch = (int)tile_columns;
    made->patch_rows = 1;
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++)
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++) {
            const int before = (groups == 1 ? 0 : group * units) + (units == 1 ? 0 : unit);
            to->unit_row[group][unit] = 0;
            to->unit_column[group][unit] = to->unit_pixel[group][unit] = (int)unit_columns * before;
        }
    to->unit_columns = (int)unit_columns;
    to->in_rows = 1;
    to->in_columns = (int)positions;
    to->run_columns = to->stride_h == 1 ? (int)positions : (int)problem->w.in;
    if (to->stride_h == 1) {
        to->out_rows = 1;
        to->out_columns = (int)(problem->h.out * problem->w.out);
    }
    const bool units_begin_boxes = groups * units == 1 || unit_columns % TCONV_WGMMA_BOX == 0;
    return unit_columns <= made->shape.N && (!made->transposed || units_begin_boxes);
}

/* Columns of a folded row, of a tile that reads `columns` of src and those of the border, from `first` on. Where all tiles begin
 * alike modulo the copy engine's 16 bytes, as far past these as the first does. Of f32, even and odd columns that follow one
 * another are turned without meeting in a bank. */
int folded_pitch(const tconv_layer *layer, int64_t columns, int64_t border, int64_t first)
{
    const int64_t element = (int64_t)layer->problem.element_size, alignment = BOX_ALIGNMENT / element;
    const int64_t beside = columns % alignment == 0 ? first & (alignment - 1) : alignment - 1;
    const int64_t pitch = round_up(columns + border + beside, STAGE_PIXELS);
    return (int)(element == 4 ? pitch | STAGE_PIXELS : pitch);
}

/* Columns of a tile: as many as a unit's rows of the patch allow, made even over the tiles of a row. */
bool lay_out_patch(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice, tconv_wgmma_plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const tconv_problem *problem = &layer->problem;
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const int64_t alignment = BOX_ALIGNMENT / (int64_t)problem->element_size;
    const int64_t fold = choice->folded ? 2 : 1, fold_first = choice->folded ? tconv_wgmma_fold_first(layer) : 0;
    const int64_t positions = tconv_ceil_div(problem->w.out, columns->stride * fold);
    /* Columns of src: beside those of the positions, and from the first position to the first that is read. */
    const int64_t border = choice->folded ? fold * (to->column_taps[0] - 1) : columns->max_shift - columns->min_shift;
    const int64_t first = choice->folded ? columns->max_shift - border : columns->min_shift;
    const int64_t N = made->shape.N, unit_rows = choice->unit_rows;
    /* Beside the border; rows are staged as far apart as they are here. */
    const int64_t skip = choice->tight ? 0 : alignment - 1;
    const int64_t multiple =
        choice->tight ? tconv_max(1, STAGED_ROW_ALIGNMENT / ((int64_t)problem->element_size * columns->count))
                      : alignment;
    /* N covers unit_rows - 1 rows of the pitch and the columns of the last: most where the last is as long as the others. */
    int64_t most = unit_rows == 1 ? N : 0;
    const int64_t even = (N + border + skip) / unit_rows / multiple * multiple;
    for (int64_t pitch = even; unit_rows > 1 && pitch <= even + multiple; pitch += multiple)
        most = tconv_max(most, tconv_min(pitch - border - skip, N - (unit_rows - 1) * pitch));
    if (most <= 0)
        return false;
    const int64_t tiles = tconv_ceil_div(positions, most);
    int64_t tile_columns = tconv_ceil_div(positions, tiles);
    if (tiles > 1 && round_up(tile_columns, alignment) <= most)
        tile_columns = round_up(tile_columns, alignment);
    to->tile_columns = to->unit_columns = (int)tile_columns;
    to->column_tiles = (int)tconv_ceil_div(positions, tile_columns);
    to->column_alignment = (int)alignment;
    to->stage_alignment = choice->tight ? 1 : (int)alignment;
    to->tight = choice->tight;
    to->first_row = (int)rows->min_shift;
    to->first_column = (int)first;
    to->pitch = (int)round_up(tile_columns + border + skip, multiple);
    to->box_pitch = (int)round_up(tile_columns + border + alignment - 1, alignment);
    if (choice->folded)
        to->pitch = to->box_pitch = folded_pitch(layer, fold * tile_columns, border, first);
    made->patch_rows = (int)(to->tile_rows + rows->max_shift - rows->min_shift);
    to->in_place = choice->in_place;
    if (choice->in_place && made->patch_rows * to->pitch % STAGE_PIXELS != 0)
        to->pitch = to->box_pitch += (int)alignment;
    to->patch = made->patch_rows * to->pitch;
    to->box_patch = made->patch_rows * to->box_pitch;
    to->slot_step = (int)rows->shift_step * to->pitch;
    to->column_step = (int)columns->shift_step;
    const int64_t first_pixel = choice->folded ? to->column_taps[0] - 1 + fold_first * to->pitch / 2 : 0;
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++)
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
            to->unit_pixel[group][unit] =
                (int)(to->unit_row[group][unit] + choice->stack - 1 + row_phase(layer, group)->first_shift -
                      rows->min_shift) *
                    to->pitch +
                (int)(choice->folded ? first_pixel : column_phase(layer, unit)->first_shift - columns->min_shift);
    return to->box_pitch <= MAX_BOX && made->patch_rows <= MAX_BOX && to->patch <= MAX_PATCH &&
           (unit_rows - 1) * to->pitch + tile_columns <= N &&
           (!choice->in_place || (to->pitch <= tconv_wgmma_turned_columns((int)problem->element_size, choice->folded) &&
                                  to->patch % STAGE_PIXELS == 0));
}

/* What the kernel divides by. */
void describe_divisors(tconv_wgmma_parameters *to)
{
    const int tile = (to->run_columns > 0 ? to->run_columns : to->tile_columns) * to->row_pixels;
    const int last = to->out_columns - (to->column_tiles - 1) * tile;
    to->by_blocks = divisor_of(to->blocks);
    to->by_group_blocks = divisor_of(to->group_blocks);
    to->by_column_tiles = divisor_of(to->column_tiles);
    to->by_row_tiles = divisor_of(to->row_tiles);
    to->by_run_columns = divisor_of((int)tconv_max(to->run_columns, 1));
    to->by_row = divisor_of(tile);
    to->by_last_row = to->run_columns > 0 ? to->by_row : divisor_of(last);
}

/* Describes the layer in tiles of this choice; false where that does not fit. */
bool describe(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice, int multiprocessors,
              tconv_wgmma_plan *made)
{
    const tconv_problem *problem = &layer->problem;
    tconv_wgmma_parameters *to = &made->parameters;
    memset(to, 0, sizeof *to);
    made->mode = tconv_wgmma_mode_of(layer);
    made->transposed = choice->transposed;
    made->shifted = choice->shifted;
    made->aligned = is_aligned(problem->src.n, problem) && is_aligned(problem->src.c, problem);
    made->slot_columns = 0;
    made->shape = tconv_wgmma_shapes_of(made->mode)[choice->shape];
    if (made->transposed)
        made->shape = *transposed_shape(made->mode, made->shape.N);
    made->choice = number_of(choice);
    lay_out_units(layer, choice, to);
    if (!(is_run(layer) ? lay_out_run(layer, made) : lay_out_patch(layer, choice, made)) ||
        !tconv_wgmma_lay_out_buffers(layer, choice, made) ||
        (made->mode == TCONV_WGMMA_STRICT &&
         tconv_max(tconv_wgmma_strokes(to, 0), tconv_wgmma_strokes(to, 1)) > TCONV_WGMMA_MAX_STROKES))
        return false;
    to->src_image = problem->src.n;
    to->src_channel = problem->src.c;
    to->dst_image = problem->dst.n;
    to->dst_channel = problem->dst.c;
    to->group_in = (int)problem->group_in;
    to->group_out = (int)problem->group_out;
    to->group_blocks = (int)tconv_ceil_div(problem->group_out, to->tile_channels);
    to->blocks = (int)problem->groups * to->group_blocks;
    to->row_tiles = (int)tconv_ceil_div(to->out_rows, layer->rows.stride * to->tile_rows);
    if (to->run_columns > 0)
        to->row_tiles = 1;
    describe_divisors(to);
    const int64_t tiles = problem->batch * to->blocks * to->row_tiles * to->column_tiles;
    if (tiles >= HOPPER_MAX_EXTENT)
        return false;
    to->tiles = (int)tiles;
    made->thread_blocks = (int)tconv_max(1, tconv_min(tiles, multiprocessors));
    if (to->resident) /* a thread block takes every so manieth tile: those of one block of output channels */
        made->thread_blocks = tconv_max(made->thread_blocks / to->blocks, 1) * to->blocks;
    made->cycles = tconv_wgmma_tile_cycles(made);
    return true;
}

} // namespace

tconv_wgmma_mode tconv_wgmma_mode_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return TCONV_WGMMA_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return TCONV_WGMMA_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? TCONV_WGMMA_TF32 : TCONV_WGMMA_STRICT;
}

const tconv_wgmma_shape *tconv_wgmma_shapes_of(tconv_wgmma_mode mode)
{
    const tconv_wgmma_shape *const shapes[] = {tconv_wgmma_tf32_shapes, tconv_wgmma_strict_shapes,
                                               tconv_wgmma_f16_shapes, tconv_wgmma_bf16_shapes};
    return shapes[mode];
}

int tconv_wgmma_fold_taps(const tconv_layer *layer)
{
    return (int)(layer->problem.w.kernel / 2 + 1);
}

int tconv_wgmma_fold_first(const tconv_layer *layer)
{
    return (int)(layer->columns.max_shift & 1);
}

int tconv_wgmma_aligned_channels(const tconv_problem *problem)
{
    int channels = 1;
    while (!is_aligned(channels * problem->src.c, problem))
        channels *= 2;
    return channels;
}

int64_t tconv_wgmma_shifting(int64_t choice)
{
    return choice | SHIFTED_BIT;
}

int64_t tconv_wgmma_converting(int64_t choice)
{
    return choice & ~(TRANSPOSED_BIT | SHIFTED_BIT);
}

bool tconv_wgmma_choose(const tconv_layer *layer, int multiprocessors, tconv_wgmma_plan *best)
{
    const tconv_wgmma_mode mode = tconv_wgmma_mode_of(layer);
    const tconv_wgmma_shape *shapes = tconv_wgmma_shapes_of(mode);
    const bool run = is_run(layer), can_stack = !run && layer->rows.stride == 1 && layer->rows.shift_step == 1;
    const bool can_transpose = run && can_be_operands(&layer->problem);
    /* Rows that are turned in place can be folded; a kernel of one column would have as many taps. */
    const bool can_fold = !run && mode != TCONV_WGMMA_STRICT && layer->columns.stride == 1 &&
                          layer->columns.kernel_step == 1 && layer->columns.shift_step == 1 &&
                          layer->problem.w.kernel > 1;
    const bool can_split = layer->rows.count == 1 && layer->problem.group_out > TCONV_WGMMA_M;
    bool found = false;
    double least = 0;
    tconv_wgmma_tile_choice choice;
    tconv_wgmma_plan made;
    const auto consider = [&] {
        if (!describe(layer, &choice, multiprocessors, &made))
            return false;
        const double cycles = tconv_wgmma_apart_times(&made) * made.cycles;
        if (!found || cycles < least) {
            *best = made;
            least = cycles;
        }
        found = true;
        return true;
    };
    for (choice.shape = 0; choice.shape < TCONV_WGMMA_SHAPES && shapes[choice.shape].N > 0; choice.shape++)
        for (choice.steps = 1; choice.steps <= MAX_STEPS; choice.steps *= 2)
            for (choice.unit_rows = 1; choice.unit_rows <= (run ? 1 : MAX_UNIT_ROWS); choice.unit_rows++)
                for (choice.stack = 1; choice.stack <= (can_stack && choice.unit_rows == 1 ? 2 : 1); choice.stack++)
                    for (int split = 0; split <= (can_split && choice.stack == 1 ? 1 : 0); split++) {
                        choice.channel_groups = split == 1;
                        choice.transposed = choice.shifted = choice.tight = choice.one_box = choice.in_place =
                            choice.resident = choice.folded = false;
                        /* Transposed only what can be converted as well, for addresses that the copy engine does not take. */
                        const bool fits = consider();
                        /* In f32 boxes take longer than what is won. */
                        choice.one_box = fits && layer->problem.element_size == 2 &&
                                         made.parameters.staged_turns == 1 && made.parameters.tiles > multiprocessors;
                        if (choice.one_box)
                            consider();
                        choice.one_box = false;
                        choice.in_place = !run && mode != TCONV_WGMMA_STRICT;
                        if (choice.in_place)
                            consider();
                        choice.resident = choice.in_place && tconv_wgmma_weights_overlap(layer, &choice);
                        if (choice.resident)
                            consider();
                        choice.resident = false;
                        choice.folded = can_fold && choice.steps == 1 && choice.unit_rows == 1 && choice.stack == 1 &&
                                        !choice.channel_groups;
                        if (choice.folded)
                            consider();
                        choice.in_place = choice.folded = false;
                        choice.transposed = fits && can_transpose && transposed_shape(mode, shapes[choice.shape].N);
                        choice.shifted = choice.transposed && !is_aligned(layer->problem.src.c, &layer->problem);
                        if (choice.transposed)
                            consider();
                        choice.transposed = choice.shifted = false;
                        choice.tight = choice.unit_rows > 1;
                        if (choice.tight)
                            consider();
                    }
    return found;
}

bool tconv_wgmma_describe(const tconv_layer *layer, int64_t choice, int multiprocessors, tconv_wgmma_plan *made)
{
    const tconv_wgmma_tile_choice parts = {
        (int)(choice & 0xff),         (int)(choice >> 8 & 0xff),    (int)(choice >> 16 & 0xff),
        (int)(choice >> 24 & 0x7f),   (choice >> 31 & 1) != 0,      (choice & TRANSPOSED_BIT) != 0,
        (choice & SHIFTED_BIT) != 0,  (choice & TIGHT_BIT) != 0,    (choice & ONE_BOX_BIT) != 0,
        (choice & IN_PLACE_BIT) != 0, (choice & RESIDENT_BIT) != 0, (choice & FOLDED_BIT) != 0};
    return describe(layer, &parts, multiprocessors, made);
}

tconv_wgmma_packing tconv_wgmma_packing_of(const tconv_layer *layer, const tconv_wgmma_plan *made)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    tconv_wgmma_packing packing;
    memset(&packing, 0, sizeof packing);
    packing.from = layer->problem.weight;
    packing.group_in = of->group_in;
    packing.group_out = of->group_out;
    packing.blocks = of->blocks;
    packing.group_blocks = of->group_blocks;
    packing.block_channels = of->block_channels;
    packing.tile_channels = of->tile_channels;
    packing.group_channels = of->group_channels;
    packing.stack = of->stack;
    packing.chunks = of->chunks;
    packing.chunk_channels = of->chunk_channels;
    packing.steps = of->steps;
    packing.max_chunk_slots = of->max_chunk_slots;
    if (made->slot_columns > 0) {
        packing.slot_columns = made->slot_columns;
        packing.quad_rows = (int)of->weights_leading / TCONV_WGMMA_QUAD;
        packing.slot_rows = (int)of->slot_bytes / TCONV_WGMMA_QUAD;
    }
    packing.fold = 1 << of->fold_log2;
    packing.groups = of->group_weights > 0 ? TCONV_WGMMA_GROUPS : 1;
    packing.units = (int)layer->columns.count;
    for (int i = 0; i < 2; i++) {
        packing.row_taps[i] = (int)row_phase(layer, i)->taps;
        packing.first_kernel_row[i] = (int)row_phase(layer, i)->first_kernel;
        packing.column_taps[i] = of->column_taps[i];
        packing.first_kernel_column[i] = (int)column_phase(layer, i)->first_kernel;
    }
    packing.kernel_row_step = (int)layer->rows.kernel_step;
    packing.kernel_column_step = (int)layer->columns.kernel_step;
    packing.kernel_rows = (int)layer->problem.h.kernel;
    packing.kernel_columns = (int)layer->problem.w.kernel;
    return packing;
}

} // namespace tconv::wgmma
