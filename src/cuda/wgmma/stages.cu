/* How shared memory is shared out among a tile's buffers, in which order weights lie in a slot and are multiplied. */
#include "../../core/checked.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

namespace tconv::wgmma
{

namespace
{

constexpr int WARP = 32;
constexpr int MAX_BOX = 256;            /* the copy engine's, of each axis */
constexpr int64_t COPY_ALIGNMENT = 128; /* bytes, of where the copy engine puts what it copies */
constexpr int64_t BOX_ALIGNMENT = 1024; /* bytes, of buffers before a swizzled one */
constexpr int SHIFTED_STEPS = 2;        /* steps that are moved at once */

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

int64_t round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

size_t staged_bytes(const tconv_layer *layer, const tconv_wgmma_shape *shape)
{
    constexpr size_t WARPS = 4 * TCONV_WGMMA_GROUPS;
    return WARPS * tconv_wgmma_staged_bytes(shape->N, (int)layer->problem.element_size);
}

/* In which order a unit with so many taps in a row multiplies. */
tconv_wgmma_order order_of(const tconv_wgmma_parameters *of, int taps, int product_rows)
{
    tconv_wgmma_order order;
    const int steps = of->steps << of->fold_log2, step_weights = of->step_weights, step_pixels = of->step_pixels;
    const bool pairs = taps == 2 && steps % 2 == 0, along_steps = taps == 1;
    order.runs = pairs || along_steps ? 1 : steps;
    order.count = pairs || along_steps ? steps * taps : taps;
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
 * The same where planes are operands, as boxes or moved into stages. Best is to keep a block's weights, but with buffers enough
 * to load beside them; a second turn of staged sums is worth more than a ring of more than four slots.
 */
bool take_transposed_buffers(int64_t staged, tconv_wgmma_parameters *to)
{
    const int slots = to->chunks * to->max_chunk_slots;
    const int ways[][3] = {{slots, 2, 3}, {slots, 1, 3}, {slots, 1, 2}, {4, 2, 3},
                           {3, 2, 2},     {4, 1, 3},     {2, 1, 2}}; /* slots, turns, boxes and stages */
    for (const int *way : ways) {
        const int stages = way[2];
        const int64_t left = TCONV_WGMMA_SHARED_MEMORY - way[0] * (int64_t)to->slot_bytes - way[1] * staged -
                             stages * (int64_t)to->stage_bytes;
        const int64_t boxes = tconv_min(left / to->box_bytes, TCONV_WGMMA_STAGES);
        if (way[0] > TCONV_WGMMA_STAGES || left <= 0 || boxes < way[2])
            continue;
        to->stages = stages;
        to->boxes = (int)boxes;
        to->slots = way[0];
        to->staged_turns = way[1];
        to->resident = way[0] == slots;
        return true;
    }
    return false;
}

/* What is copied where planes are operands, which have a swizzled box of 64 pixels after another. */
void lay_out_operands(const tconv_layer *layer, tconv_wgmma_plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const int64_t row = TCONV_WGMMA_BOX * (int64_t)layer->problem.element_size; /* of a channel */
    const int64_t boxes = tconv_ceil_div(to->tile_columns, TCONV_WGMMA_BOX);
    to->pixels_leading = (uint32_t)(to->chunk_channels * row);
    to->step_pixels = (int)(to->chunk_channels / to->steps * row / TCONV_WGMMA_QUAD);
    to->box_copies = (int)boxes;
    to->box_bytes = (uint32_t)(boxes * to->pixels_leading);
    to->stage_bytes = 0;
    if (made->shifted) {
        /* Rows begin at a multiple of 16 bytes before the first pixel, so that they are longer. */
        const int64_t beside = to->column_alignment, element = (int64_t)layer->problem.element_size;
        const int64_t pixels = tconv_min(to->tile_columns, to->in_columns), most = MAX_BOX / TCONV_WGMMA_BOX - 1;
        const int64_t parts = pixels + beside <= MAX_BOX ? 1 : tconv_ceil_div(boxes, most);
        to->box_parts = (int)parts;
        to->part_pixels = (int)(tconv_ceil_div(boxes, parts) * TCONV_WGMMA_BOX);
        to->part_pitch = (int)round_up(tconv_min(pixels, to->part_pixels) + beside - 1, beside);
        to->row_channels = tconv_wgmma_aligned_channels(&layer->problem);
        to->copied_bytes = (uint32_t)(parts * to->chunk_channels * to->part_pitch * element);
        to->copy_bytes =
            (uint32_t)round_up(to->chunk_channels / to->row_channels * to->part_pitch * element, COPY_ALIGNMENT);
        to->stage_bytes = to->box_bytes;
        to->box_bytes = (uint32_t)round_up(parts * to->row_channels * to->copy_bytes, BOX_ALIGNMENT);
    }
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++)
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
            to->unit_pixel[group][unit] =
                (int)(to->unit_column[group][unit] / TCONV_WGMMA_BOX * to->pixels_leading / TCONV_WGMMA_QUAD);
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
    const int fold = choice->folded ? 2 : 1;
    const int taps = to->column_taps[0] + (column_phases ? to->column_taps[1] : 0);
    to->steps = choice->steps;
    to->chunk_channels = choice->steps * 2 * TCONV_WGMMA_QUAD / element;
    to->chunks = (int)tconv_ceil_div(layer->problem.group_in, to->chunk_channels);
    to->step_weights = taps * product_rows;
    to->step_pixels = 2 * to->patch;
    if (choice->folded) /* from the pairs' first columns to the second ones */
        to->step_pixels = tconv_wgmma_fold_first(layer) == 0 ? to->pitch / 2 : 1 - to->pitch / 2;
    to->pixels_leading = (uint32_t)to->patch * TCONV_WGMMA_QUAD;
    to->unit_weights = column_phases ? to->column_taps[0] * product_rows : 0;
    to->group_weights = own_weights ? fold * to->steps * to->step_weights : 0;
    to->slot_bytes = (uint32_t)((own_weights ? 2 : 1) * fold * to->steps * taps * product);
    to->box_bytes = (uint32_t)(to->chunk_channels * to->box_patch * element);
    to->stage_bytes = (uint32_t)(planes * 2 * to->steps * to->patch * TCONV_WGMMA_QUAD);
    /* Two warps on each of two quads, or one on each of four; a lane takes pairs of 16-bit pixels. */
    to->convert_step = (to->steps == 1 ? 2 : 1) * WARP * (4 / element);
    to->convert_columns = to->convert_step % to->box_pitch;
    to->convert_pixels = to->convert_step / to->box_pitch * to->pitch + to->convert_columns;
    if (made->transposed)
        lay_out_operands(layer, made);
    for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
        to->order[unit] = order_of(to, to->column_taps[unit], product_rows);
    to->weights_leading = TCONV_WGMMA_M * TCONV_WGMMA_QUAD;
    if (tconv_wgmma_weights_overlap(layer, choice))
        lay_out_overlapping(choice, made);
    to->same_order = to->column_taps[0] == to->column_taps[1];
    const int64_t staged = (int64_t)staged_bytes(layer, &made->shape);
    /* A chunk must not reach into the next group. */
    return (layer->problem.groups == 1 || layer->problem.group_in % to->chunk_channels == 0) &&
           (!made->shifted || to->steps % SHIFTED_STEPS == 0) &&
           (made->transposed ? take_transposed_buffers(staged, to)
                             : take_buffers(staged, choice, tconv_wgmma_weights_overlap(layer, choice), to));
}

} // namespace tconv::wgmma
