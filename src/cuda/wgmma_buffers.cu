/* How shared memory is shared out among a tile's buffers, in which order weights lie in a slot and are multiplied. */
#include "../core/checked.h"
#include "hopper.h"
#include "wgmma_plan.h"

namespace
{

constexpr int WARP = 32;

/* Buffers, from the least to what there is no use beyond: stages, boxes, slots, turns that are staged at once. The last that
 * fits is taken. */
constexpr int BUFFERS[][4] = {{2, 1, 2, 1}, {2, 2, 2, 1}, {2, 2, 3, 1}, {2, 2, 4, 1}, {3, 2, 4, 1},
                              {3, 3, 5, 1}, {3, 3, 6, 1}, {2, 2, 4, 2}, {2, 2, 6, 2}, {2, 3, 6, 2},
                              {3, 3, 6, 2}, {3, 4, 8, 2}, {4, 4, 8, 2}};
constexpr int ONE_BOX[] = {2, 1, 4, 2}; /* the same */
/* Where planes are turned in place; 0 slots: those of all weights. */
constexpr int IN_PLACE[][4] = {{2, 0, 2, 1}, {2, 0, 4, 1}, {3, 0, 4, 1}, {3, 0, 6, 1}, {2, 0, 3, 2},
                               {2, 0, 4, 2}, {2, 0, 6, 2}, {2, 0, 8, 2}, {3, 0, 3, 2}, {3, 0, 4, 2},
                               {3, 0, 6, 2}, {3, 0, 8, 2}, {4, 0, 6, 2}, {4, 0, 8, 2}};
constexpr int RESIDENT[][4] = {{2, 0, 0, 1}, {3, 0, 0, 1}, {2, 0, 0, 2}, {3, 0, 0, 2}, {4, 0, 0, 2}};
constexpr int LEAST_COLUMN_SLOTS = 4; /* of one column of taps each: they are short */

size_t staged_bytes(const tconv_layer *layer, const tconv_wgmma_shape *shape)
{
    constexpr size_t WARPS = 4 * TCONV_WGMMA_GROUPS;
    return WARPS * tconv_wgmma_staged_bytes(shape->N, (int)layer->problem.element_size);
}

/* In which order a unit with so many taps in a row multiplies. */
tconv_wgmma_order order_of(const tconv_wgmma_parameters *of, int taps, int product_rows)
{
    tconv_wgmma_order order;
    const int step_weights = of->step_weights, step_pixels = of->step_pixels;
    const bool pairs = taps == 2 && of->steps % 2 == 0, along_steps = taps == 1;
    order.runs = pairs || along_steps ? 1 : of->steps;
    order.count = pairs || along_steps ? of->steps * taps : taps;
    order.run_weights = step_weights;
    order.run_pixels = step_pixels;
    order.weights = along_steps ? step_weights : product_rows;
    order.pixels = along_steps ? step_pixels : -of->column_step;
    order.pair_weights = pairs ? step_weights : 2 * order.weights;
    order.pair_pixels = pairs ? step_pixels : 2 * order.pixels;
    return order;
}

/*
 * A slot is then, for each quad and column of taps, the stack's zeros and the taps of its rows, and at last zeros again: the two
 * rows of a stack of 32 channels take 0 a, a b, b c and c 0 of 0 a b c 0. It has all columns of taps if all weights stay.
 */
void lay_out_overlapping(const tconv_wgmma_tile_choice *choice, tconv_wgmma_plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const int rows = to->max_chunk_slots, columns = choice->resident ? to->column_taps[0] : 1;
    const int strip = rows * to->block_channels, row_step = to->slot_step;
    tconv_wgmma_order order;
    order.runs = columns;
    order.count = rows;
    order.run_weights = strip;
    order.run_pixels = -to->column_step;
    order.weights = to->block_channels;
    order.pixels = -row_step;
    order.pair_weights = 2 * order.weights;
    order.pair_pixels = 2 * order.pixels;
    for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
        to->order[unit] = order;
    to->weights_leading = columns * strip * TCONV_WGMMA_QUAD;
    to->slot_bytes = 2 * to->weights_leading + (choice->stack - 1) * to->block_channels * TCONV_WGMMA_QUAD;
    to->max_chunk_slots = to->chunk_slots[0] = to->chunk_slots[1] = to->column_taps[0] / columns;
    to->slot_step = to->column_step;
    made->slot_columns = columns;
}

/* Takes these buffers if they fit. */
bool take(const int (&buffers)[4], int64_t staged, tconv_wgmma_parameters *to)
{
    const int slots = buffers[2] > 0 ? buffers[2] : to->chunks * to->max_chunk_slots;
    if (slots > TCONV_WGMMA_STAGES || (int64_t)buffers[0] * to->stage_bytes + (int64_t)buffers[1] * to->box_bytes +
                                              (int64_t)slots * to->slot_bytes + buffers[3] * staged >
                                          TCONV_WGMMA_SHARED_MEMORY)
        return false;
    to->stages = buffers[0];
    to->boxes = buffers[1];
    to->slots = slots;
    to->staged_turns = buffers[3];
    return true;
}

/* Takes the most buffers that fit; false where none do. */
bool take_buffers(int64_t staged, const tconv_wgmma_tile_choice *choice, bool overlap, tconv_wgmma_parameters *to)
{
    bool fits = false;
    const auto take_last = [&](const auto &ways, int least_slots) {
        for (const int(&buffers)[4] : ways)
            fits |= buffers[2] >= least_slots && take(buffers, staged, to);
    };
    to->resident = choice->resident;
    if (choice->one_box)
        return take(ONE_BOX, staged, to);
    if (choice->resident)
        take_last(RESIDENT, 0);
    else if (choice->in_place)
        take_last(IN_PLACE, overlap ? LEAST_COLUMN_SLOTS : 0);
    else
        take_last(BUFFERS, 0);
    return fits;
}

/*
 * The same without stages. Best is to keep a block's weights, but with buffers enough to load beside them; a second turn of
 * staged sums is worth more than a ring of more than four slots, but less than boxes under way where warps copy them in pieces.
 */
bool take_transposed_buffers(int64_t staged, bool in_pieces, tconv_wgmma_parameters *to)
{
    const int slots = to->chunks * to->max_chunk_slots;
    const int ways[][3] = {{slots, 2, 3}, {slots, 1, 2}, {4, 2, 3},
                           {3, 2, 2},     {4, 1, 3},     {2, 1, 2}}; /* slots, turns, boxes */
    for (const int *way : ways) {
        if (in_pieces && way[1] > 1)
            continue;
        const int64_t left = TCONV_WGMMA_SHARED_MEMORY - way[0] * (int64_t)to->slot_bytes - way[1] * staged;
        const int64_t boxes = tconv_min(left / to->box_bytes, TCONV_WGMMA_STAGES);
        if (way[0] > TCONV_WGMMA_STAGES || left <= 0 || boxes < way[2])
            continue;
        to->stages = 1;
        to->boxes = (int)boxes;
        to->slots = way[0];
        to->staged_turns = way[1];
        to->resident = way[0] == slots;
        return true;
    }
    return false;
}

} // namespace

bool tconv_wgmma_weights_overlap(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice)
{
    return choice->in_place && choice->stack > 1 && choice->steps == 1 && layer->columns.count == 1;
}

bool tconv_wgmma_lay_out_buffers(const tconv_layer *layer, const tconv_wgmma_tile_choice *choice,
                                 tconv_wgmma_plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const int planes = tconv_wgmma_planes(made->mode), element = (int)layer->problem.element_size;
    const int product = planes * TCONV_WGMMA_M * 2 * TCONV_WGMMA_QUAD, product_rows = product / TCONV_WGMMA_QUAD;
    const bool own_weights = layer->rows.count == 2 || choice->channel_groups; /* each warpgroup */
    const bool column_phases = layer->columns.count == 2;
    const int taps = to->column_taps[0] + (column_phases ? to->column_taps[1] : 0);
    to->steps = choice->steps;
    to->chunk_channels = choice->steps * 2 * TCONV_WGMMA_QUAD / element;
    to->chunks = (int)tconv_ceil_div(layer->problem.group_in, to->chunk_channels);
    to->step_weights = taps * product_rows;
    to->step_pixels = 2 * to->patch;
    to->pixels_leading = (uint32_t)to->patch * TCONV_WGMMA_QUAD;
    to->unit_weights = column_phases ? to->column_taps[0] * product_rows : 0;
    to->group_weights = own_weights ? to->steps * to->step_weights : 0;
    to->slot_bytes = (uint32_t)((own_weights ? 2 : 1) * to->steps * taps * product);
    to->box_bytes = (uint32_t)(to->chunk_channels * to->box_patch * element);
    to->stage_bytes = (uint32_t)(planes * 2 * to->steps * to->patch * TCONV_WGMMA_QUAD);
    /* Two warps on each of two quads, or one on each of four; a lane takes pairs of 16-bit pixels. */
    to->convert_step = (to->steps == 1 ? 2 : 1) * WARP * (4 / element);
    to->convert_columns = to->convert_step % to->box_pitch;
    to->convert_pixels = to->convert_step / to->box_pitch * to->pitch + to->convert_columns;
    if (made->transposed) {
        const int row = TCONV_WGMMA_BOX * element; /* of a box, which has one for each channel */
        to->pixels_leading = (uint32_t)(to->chunk_channels * row);
        to->step_pixels = to->chunk_channels / to->steps * row / TCONV_WGMMA_QUAD;
        to->box_bytes = to->box_copies * to->pixels_leading;
        to->stage_bytes = 0;
        for (int group = 0; group < TCONV_WGMMA_GROUPS; group++)
            for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
                to->unit_pixel[group][unit] =
                    (int)(to->unit_column[group][unit] / TCONV_WGMMA_BOX * to->pixels_leading / TCONV_WGMMA_QUAD);
    }
    for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
        to->order[unit] = order_of(to, to->column_taps[unit], product_rows);
    to->weights_leading = TCONV_WGMMA_M * TCONV_WGMMA_QUAD;
    if (tconv_wgmma_weights_overlap(layer, choice))
        lay_out_overlapping(choice, made);
    to->same_order = to->column_taps[0] == to->column_taps[1];
    const int64_t staged = (int64_t)staged_bytes(layer, &made->shape);
    /* A chunk must not reach into the next group. */
    return (layer->problem.groups == 1 || layer->problem.group_in % to->chunk_channels == 0) &&
           (made->transposed ? take_transposed_buffers(staged, made->piece_bytes < TCONV_HOPPER_BOX_ALIGNMENT, to)
                             : take_buffers(staged, choice, tconv_wgmma_weights_overlap(layer, choice), to));
}
