/*
 * The tap schedules of a layer and the weight tiles that they read.
 *
 * An output o of an axis has taps from inputs at shifts from its cell (src/core/phases.h): with o = cell * outputs + r,
 * the shift of a tap depends on r alone, since a cell is a whole number of strides; where phases are those of src
 * (tconv_layer), o has the taps of all of them: columns of all phases are in a stage, rows of one. For each shift, the
 * outputs that have a tap there are found, and among their channels on N the longest runs: the windows. Weights that
 * stand in the same order in two windows of a weight tile are stored once: all rows of a stack at stride 1 share theirs.
 * Where a cell has one row and rows have phases, each row phase has a schedule; those of src are one after another in
 * one.
 */
#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "plan.h"

#include <string.h>

enum {
    MAX_OUTPUTS = 16,      /* of a cell: 128 / 8 channels */
    MAX_TILE_B_ROWS = 2048 /* the descriptor's field for half of MMA_K has room for eight times as many */
};

/* A window of a shift, in outputs of the cell, and their taps in the order of N. */
typedef struct tap_window {
    int first, count;
    int row[MAX_OUTPUTS], column[MAX_OUTPUTS]; /* of the kernel */
} tap_window;

/* Finds the next window of a shift at or after output `from`; false where there is none. */
static bool find_window(const axis_taps *rows, const axis_taps *columns, int row_shift, int column_shift, int from,
                        tap_window *window)
{
    const int outputs = rows->outputs * columns->outputs;
    window->count = 0;
    for (int output = from; output < outputs; output++) {
        const int row = rows->kernel[output % rows->outputs][row_shift];
        const int column = columns->kernel[output / rows->outputs][column_shift];
        if (row >= 0 && column >= 0) {
            if (window->count == 0)
                window->first = output;
            window->row[window->count] = row;
            window->column[window->count++] = column;
        } else if (window->count > 0) {
            break;
        }
    }
    return window->count > 0;
}

/* Returns where the window's taps stand in the weight tile that begins with tap `first`, and appends them to *end
 * where they do not; -1 where there is no room. */
static int place_taps(const tap_window *window, int first, int *end, packing *order)
{
    for (int at = first; at + window->count <= *end; at++) {
        bool same = true;
        for (int i = 0; i < window->count; i++)
            same = same && order->taps[at + i].row == window->row[i] && order->taps[at + i].column == window->column[i];
        if (same)
            return at - first;
    }
    if (*end + window->count > MAX_TAPS)
        return -1;
    const int at = *end - first;
    for (int i = 0; i < window->count; i++) {
        order->taps[*end].row = (int16_t)window->row[i];
        order->taps[*end].column = (int16_t)window->column[i];
        ++*end;
    }
    return at;
}

/* A plan and how much of its tables is full. */
typedef struct schedule_writer {
    layer_plan *plan;
    int weight_tiles, entries, taps;
} schedule_writer;

/* Writes one weight tile, for the windows of these shifts; the longest windows are placed first. False where
 * something is full. */
static bool write_weight_tile(schedule_writer *writer, const axis_taps *rows, const axis_taps *columns,
                              int first_row_shift, int end_row_shift, int column_shift)
{
    parameters *params = &writer->plan->params;
    packing *order = &writer->plan->packing;
    const int first_entry = writer->entries, first_tap = writer->taps;
    const int output_mma_tiles = params->cell_channels / writer->plan->config.mma_n;
    unsigned counts = 0; /* a bit for each length of a window */
    for (int row_shift = first_row_shift; row_shift < end_row_shift; row_shift++) {
        tap_window window;
        for (int from = 0; find_window(rows, columns, row_shift, column_shift, from, &window);
             from = window.first + window.count) {
            if (writer->entries == MAX_ENTRIES)
                return false;
            schedule_entry *entry = &params->entries[writer->entries++];
            entry->pixel = (uint16_t)(row_shift * params->row_pitch + column_shift);
            entry->window = (uint8_t)(window.first * output_mma_tiles * 16 + window.count * output_mma_tiles);
            entry->flags = 0;
            counts |= 1u << window.count;
        }
    }
    if (writer->entries == first_entry)
        return true;
    if (writer->weight_tiles == MAX_WEIGHT_TILES)
        return false;
    for (int count = rows->outputs * columns->outputs; count > 0; count--) {
        if ((counts >> count & 1) == 0)
            continue;
        int entry = first_entry;
        for (int row_shift = first_row_shift; row_shift < end_row_shift; row_shift++) {
            tap_window window;
            for (int from = 0; find_window(rows, columns, row_shift, column_shift, from, &window);
                 from = window.first + window.count, entry++) {
                if (window.count != count)
                    continue;
                const int at = place_taps(&window, first_tap, &writer->taps, order);
                if (at < 0)
                    return false;
                params->entries[entry].b_row = (uint16_t)(at * params->cell_channels);
            }
        }
    }
    weight_tile *tile = &params->weight_tiles[writer->weight_tiles];
    order->first_tap[writer->weight_tiles++] = (uint16_t)first_tap;
    tile->b_rows = (uint16_t)((writer->taps - first_tap) * params->cell_channels);
    for (int entry = first_entry; entry < writer->entries; entry++)
        params->entries[entry].b_rows = tile->b_rows;
    params->entries[writer->entries - 1].flags |= WEIGHT_TILE_ENDS;
    return (writer->taps - first_tap) * params->cell_channels <= MAX_TILE_B_ROWS;
}

/* Finds the taps of an output that has those of all phases of src, at shifts in its columns. */
static bool find_src_taps(const tconv_phase_table *table, axis_taps *taps)
{
    int64_t first = HOPPER_MAX_EXTENT, last = -HOPPER_MAX_EXTENT;
    for (int64_t i = 0; i < table->count; i++)
        for (int64_t t = 0; t < table->phases[i].taps; t++) {
            first = tconv_min(first, src_column(table, &table->phases[i], t));
            last = tconv_max(last, src_column(table, &table->phases[i], t));
        }
    if (last - first >= MAX_SHIFTS)
        return false;
    taps->outputs = 1;
    taps->min_shift = (int)first;
    taps->shifts = (int)(last - first + 1);
    memset(taps->kernel, -1, sizeof taps->kernel);
    for (int64_t i = 0; i < table->count; i++)
        for (int64_t t = 0; t < table->phases[i].taps; t++)
            taps->kernel[0][src_column(table, &table->phases[i], t) - first] =
                (int16_t)(table->phases[i].first_kernel + t * table->kernel_step);
    return true;
}

bool tconv_cells_find_taps(const tconv_layer *layer, const tconv_phase_table *table, int outputs, int only_phase,
                           axis_taps *taps)
{
    const int stride = (int)period_of(layer, table);
    const bool one_phase = layer->phases_of_src || outputs < stride;
    taps->outputs = outputs;
    taps->min_shift = (int)table->min_shift;
    const int64_t shifts = table->max_shift - table->min_shift + 1 + (outputs < stride ? 0 : outputs / stride - 1);
    if (outputs > MAX_CELL || shifts > MAX_SHIFTS || table->min_shift <= -HOPPER_MAX_EXTENT)
        return false;
    taps->shifts = (int)shifts;
    memset(taps->kernel, -1, sizeof taps->kernel);
    for (int r = 0; r < outputs; r++) {
        const tconv_phase *phase = &table->phases[one_phase ? only_phase : r % stride];
        for (int64_t t = 0; t < phase->taps; t++) {
            const int64_t shift = r / stride + phase->first_shift - t * table->shift_step - table->min_shift;
            taps->kernel[r][shift] = (int16_t)(phase->first_kernel + t * table->kernel_step);
        }
    }
    return true;
}

bool tconv_cells_find_column_taps(const tconv_layer *layer, int outputs, axis_taps *taps)
{
    return layer->phases_of_src ? find_src_taps(&layer->columns, taps)
                                : tconv_cells_find_taps(layer, &layer->columns, outputs, 0, taps);
}

bool tconv_cells_write_schedules(const tconv_layer *layer, const tile_choice *choice, const axis_taps *columns,
                                 layer_plan *plan)
{
    parameters *params = &plan->params;
    schedule_writer writer = {plan, 0, 0, 0};
    params->b_rows = 0;
    for (int p = 0; p < params->schedule_count; p++) {
        tap_schedule *schedule = &params->schedules[p];
        schedule->first_weight_tile = writer.weight_tiles;
        schedule->first_entry = writer.entries;
        for (int row_phase = 0; row_phase < params->row_phases; row_phase++) {
            axis_taps rows;
            if (!tconv_cells_find_taps(layer, &layer->rows, params->cell_rows, layer->phases_of_src ? row_phase : p,
                                       &rows))
                return false;
            for (int column_shift = 0; column_shift < columns->shifts; column_shift++)
                for (int row_shift = 0; row_shift < (choice->tile_per_shift ? rows.shifts : 1); row_shift++) {
                    const int end = choice->tile_per_shift ? row_shift + 1 : rows.shifts;
                    if (!write_weight_tile(&writer, &rows, columns, row_shift, end, column_shift))
                        return false;
                }
            params->entries[writer.entries - 1].flags |= STAGE_ENDS;
        }
        schedule->end_weight_tile = writer.weight_tiles;
        schedule->end_entry = writer.entries;
        params->entries[schedule->end_entry - 1].flags |= K_BLOCK_ENDS;
        schedule->first_b_row = params->b_rows;
        schedule->b_rows = 0;
        for (int t = schedule->first_weight_tile; t < schedule->end_weight_tile; t++) {
            params->weight_tiles[t].first_b_row = (uint16_t)schedule->b_rows;
            schedule->b_rows += params->weight_tiles[t].b_rows;
        }
        params->b_rows += schedule->b_rows;
        schedule->residue = params->schedule_count > 1 ? (int)layer->rows.phases[p].residue : 0;
    }
    return params->b_rows <= UINT16_MAX;
}
