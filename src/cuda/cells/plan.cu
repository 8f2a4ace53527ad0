/*
 * The tile and the programs of a layer for the cells kernels.
 *
 * An output o of an axis has taps from inputs at shifts from its cell (../core/phases.h): with o = cell * outputs + r, the
 * shift of a tap depends on r alone, since a cell is a whole number of strides. For each shift, the outputs that have a tap
 * there are found, and of their blocks of sums the longest runs: the windows. Weights that stand in the same order in two
 * windows of a slot are there once: all rows of a stack at stride 1 share theirs. Where a cell has one row and rows have
 * phases, there is a program for each row phase.
 */
#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "plan.h"

#include <cmath>
#include <cstring>

namespace tconv::cells
{

namespace
{

constexpr int MAX_BOX = 256;        /* the copy engine's, of each axis */
constexpr int MAX_CELL = 8;         /* outputs of an axis */
constexpr int MAX_BLOCKS = 16;      /* of channels, of a cell */
constexpr int MAX_SHIFTS = 64;      /* of an axis */
constexpr int MAX_SLOT_ROWS = 2048; /* of N: an operand's field for half of K has room for eight times as many */
constexpr int LEAST_COLUMNS = 8;    /* of a tile that is narrower than the image */

/*
 * For the estimate, in cycles and bytes a cycle, fitted to times of 106 layers on an H200 (docs/performance-log.md): what a
 * warpgroup does for an entry beside its products, for each of its steps, and there for each cycle more of a load; in strict
 * f32 all of that; at the end of a tile, for each sum of a position; a store of a register by a warp; what is in cells_plan.h.
 */
constexpr double ENTRY_CYCLES = 485, WHOLE_ENTRY_CYCLES = 225, STEP_CYCLES = 73, CONFLICT_CYCLES = 45,
                 STRICT_ENTRY_CYCLES = 1200, L2_BYTES = TCONV_CELLS_L2_BYTES, TILE_CYCLES = 26, STORE_CYCLES = 36,
                 LATENCY = TCONV_CELLS_LATENCY;

/* One axis of a cell: the kernel's index of the tap that output r has at a shift, or -1. */
struct axis_taps {
    int outputs, min_shift, shifts;
    int16_t kernel[MAX_CELL][MAX_SHIFTS];
};

/* Of cells of `outputs` outputs, whole strides; or, where they are fewer, of the phase alone. False where they do not fit. */
bool find_taps(const tconv_phase_table *table, int outputs, int only_phase, axis_taps *taps)
{
    const int stride = (int)table->stride;
    taps->outputs = outputs;
    taps->min_shift = (int)table->min_shift;
    const int64_t shifts = table->max_shift - table->min_shift + 1 + (outputs < stride ? 0 : outputs / stride - 1);
    if (outputs > MAX_CELL || shifts > MAX_SHIFTS || table->min_shift <= -HOPPER_MAX_EXTENT)
        return false;
    taps->shifts = (int)shifts;
    memset(taps->kernel, -1, sizeof taps->kernel);
    for (int r = 0; r < outputs; r++) {
        const tconv_phase *phase = &table->phases[outputs < stride ? only_phase : r % stride];
        for (int64_t t = 0; t < phase->taps; t++) {
            const int64_t shift = r / stride + phase->first_shift - t * table->shift_step - table->min_shift;
            taps->kernel[r][shift] = (int16_t)(phase->first_kernel + t * table->kernel_step);
        }
    }
    return true;
}

/* A window of a shift, and its taps in the order of its blocks. */
struct window_taps {
    int first, count; /* blocks of channels */
    int row[MAX_BLOCKS], column[MAX_BLOCKS];
};

/* The next window of a shift at or after block `from`; false where there is none. */
bool find_window(const axis_taps *rows, const axis_taps *columns, int row_shift, int column_shift, int from,
                 window_taps *window)
{
    const int blocks = rows->outputs * columns->outputs;
    window->count = 0;
    for (int block = from; block < blocks; block++) {
        const int row = rows->kernel[block % rows->outputs][row_shift];
        const int column = columns->kernel[block / rows->outputs][column_shift];
        if (row >= 0 && column >= 0) {
            if (window->count == 0)
                window->first = block;
            window->row[window->count] = row;
            window->column[window->count++] = column;
        } else if (window->count > 0) {
            break;
        }
    }
    return window->count > 0;
}

/* Where the window's taps stand among those of the slot that begins with tap `first`; they are added where they do not. -1
 * where there is no room. */
int place_taps(const window_taps *window, int first, int *end, tconv_cells_packing *packing)
{
    for (int at = first; at + window->count <= *end; at++) {
        bool same = true;
        for (int i = 0; i < window->count; i++)
            same =
                same && packing->tap[at + i].row == window->row[i] && packing->tap[at + i].column == window->column[i];
        if (same)
            return at - first;
    }
    if (*end + window->count > TCONV_CELLS_TAPS)
        return -1;
    const int at = *end - first;
    for (int i = 0; i < window->count; i++) {
        packing->tap[*end].row = (int16_t)window->row[i];
        packing->tap[*end].column = (int16_t)window->column[i];
        ++*end;
    }
    return at;
}

struct program_writer {
    tconv_cells_plan *plan;
    int slots, entries, taps;
};

/* One slot: the windows of these shifts, longest windows placed first. False where something is full. */
bool write_slot(program_writer *to, const axis_taps *rows, const axis_taps *columns, int first_row_shift,
                int end_row_shift, int column_shift)
{
    tconv_cells_parameters *of = &to->plan->parameters;
    tconv_cells_packing *packing = &to->plan->packing;
    const int first_entry = to->entries, first_tap = to->taps, blocks = of->channels / to->plan->shape.block;
    for (int row_shift = first_row_shift; row_shift < end_row_shift; row_shift++) {
        window_taps window;
        for (int from = 0; find_window(rows, columns, row_shift, column_shift, from, &window);
             from = window.first + window.count) {
            if (to->entries == TCONV_CELLS_ENTRIES)
                return false;
            tconv_cells_entry *entry = &of->entry[to->entries++];
            entry->pixel = (uint16_t)(row_shift * of->row_pitch + column_shift);
            entry->window = (uint8_t)(window.first * blocks * 16 + window.count * blocks);
            entry->flags = 0;
        }
    }
    if (to->entries == first_entry)
        return true;
    if (to->slots == TCONV_CELLS_SLOTS)
        return false;
    for (int count = rows->outputs * columns->outputs; count > 0; count--) {
        int entry = first_entry;
        for (int row_shift = first_row_shift; row_shift < end_row_shift; row_shift++) {
            window_taps window;
            for (int from = 0; find_window(rows, columns, row_shift, column_shift, from, &window);
                 from = window.first + window.count, entry++) {
                if (window.count != count)
                    continue;
                const int at = place_taps(&window, first_tap, &to->taps, packing);
                if (at < 0)
                    return false;
                of->entry[entry].weights = (uint16_t)(at * of->channels);
            }
        }
    }
    tconv_cells_slot *slot = &of->slot[to->slots];
    packing->first_tap[to->slots++] = (uint16_t)first_tap;
    slot->rows = (uint16_t)((to->taps - first_tap) * of->channels);
    for (int entry = first_entry; entry < to->entries; entry++)
        of->entry[entry].rows = slot->rows;
    of->entry[to->entries - 1].flags |= TCONV_CELLS_SLOT_ENDS;
    return (to->taps - first_tap) * of->channels <= MAX_SLOT_ROWS;
}

bool write_programs(const tconv_layer *layer, const tconv_cells_choice *choice, const axis_taps *columns,
                    tconv_cells_plan *plan)
{
    tconv_cells_parameters *of = &plan->parameters;
    program_writer writer = {plan, 0, 0, 0};
    of->all_rows = 0;
    for (int p = 0; p < of->programs; p++) {
        axis_taps rows;
        tconv_cells_program *program = &of->program[p];
        find_taps(&layer->rows, of->cell_rows, p, &rows);
        program->first_slot = writer.slots;
        program->first_entry = writer.entries;
        for (int column_shift = 0; column_shift < columns->shifts; column_shift++)
            for (int row_shift = 0; row_shift < (choice->slot_per_shift ? rows.shifts : 1); row_shift++) {
                const int end = choice->slot_per_shift ? row_shift + 1 : rows.shifts;
                if (!write_slot(&writer, &rows, columns, row_shift, end, column_shift))
                    return false;
            }
        program->end_slot = writer.slots;
        program->end_entry = writer.entries;
        of->entry[program->end_entry - 1].flags |= TCONV_CELLS_STAGE_ENDS;
        program->first_row = of->all_rows;
        program->rows = 0;
        for (int s = program->first_slot; s < program->end_slot; s++) {
            of->slot[s].first_row = (uint16_t)program->rows;
            program->rows += of->slot[s].rows;
        }
        of->all_rows += program->rows;
        program->residue = of->programs > 1 ? (int)layer->rows.phases[p].residue : 0;
    }
    return of->all_rows <= UINT16_MAX;
}

/* Whether each pixel of src is read at its own position alone, every output has its tap, and rows follow one another. */
bool is_flat(const tconv_layer *layer)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const tconv_axis *h = &layer->problem.h, *w = &layer->problem.w;
    return rows->max_taps == 1 && columns->max_taps == 1 && rows->min_shift == 0 && rows->max_shift == 0 &&
           columns->min_shift == 0 && columns->max_shift == 0 && h->out == h->in * rows->stride &&
           w->out == w->in * columns->stride && (h->in == 1 || layer->problem.src.h == w->in) &&
           h->in * w->out < HOPPER_MAX_EXTENT;
}

/* Cells of an image. */
struct cell_space {
    bool flat;
    int64_t rows, columns;
};

cell_space space_of(const tconv_layer *layer, int cell_rows)
{
    const tconv_problem *problem = &layer->problem;
    cell_space space;
    space.flat = is_flat(layer) && cell_rows <= layer->rows.stride;
    space.rows = tconv_ceil_div(problem->h.out, tconv_max(cell_rows, layer->rows.stride));
    space.columns = tconv_ceil_div(problem->w.out, layer->columns.stride);
    if (space.flat) {
        space.columns = problem->h.in * problem->w.in;
        space.rows = 1;
    }
    return space;
}

/* Cycles of a load from a stage, on average over the warps that have all of their positions: four channels of eight positions
 * are read at once, and addresses that share a bank one after another. */
double bank_cycles(const tconv_cells_parameters *of)
{
    constexpr int BANKS = 32, WARP_POSITIONS = 16;
    const int columns = of->tile_columns, rows = of->tile_rows, images = of->tile_images;
    /* Where they lie alike in all warps, one is enough. */
    const bool alike = (rows == 1 && images == 1) || columns % WARP_POSITIONS == 0 ||
                       (WARP_POSITIONS % columns == 0 && rows * columns % WARP_POSITIONS == 0);
    const int warps = alike ? 1 : (int)tconv_max(1, images * rows * columns / WARP_POSITIONS), loads = 2 * warps;
    int cycles = 0;
    for (int load = 0; load < loads; load++) {
        uint8_t taken[BANKS] = {0}, most = 0;
        bool missing = false; /* positions that the tile has not are all read at the same address */
        for (int row = 0; row < 8; row++) {
            const int position = load / 2 * WARP_POSITIONS + tconv_cells_position(of->neighbours, row, load % 2);
            const int pixel = tconv_cells_pixel(of, position);
            if (pixel == 0 && missing)
                continue;
            missing = missing || pixel == 0;
            for (int channel = 0; channel < 4; channel++)
                taken[(unsigned)(pixel + channel * of->plane) % BANKS]++;
        }
        for (int bank = 0; bank < BANKS; bank++)
            most = taken[bank] > most ? taken[bank] : most;
        cycles += most;
    }
    return (double)cycles / loads;
}

/* The box of a stage: wide enough, and with rows and planes that positions meet in few banks, if that costs little. */
void describe_box(int columns, int rows, tconv_cells_plan *plan)
{
    tconv_cells_parameters *of = &plan->parameters;
    const int least = (int)tconv_ceil_div(columns, 4) * 4;
    int best_pitch = least, best_rows = rows;
    double best_cost = 0;
    for (int pitch = least; pitch <= least + 12; pitch += 4)
        for (int more = 0; more <= 1; more++) {
            of->row_pitch = pitch;
            of->plane = pitch * (rows + more);
            of->image_pitch = of->chunk_channels * of->plane;
            if (best_cost > 0 && of->plane >= best_cost)
                continue;
            const double cycles = bank_cycles(of), cost = of->plane * (3 + cycles) / 4;
            if (best_cost == 0 || cost < best_cost) {
                best_cost = cost;
                best_pitch = pitch;
                best_rows = rows + more;
                plan->bank_cycles = cycles;
            }
        }
    plan->box_rows = best_rows;
    of->row_pitch = best_pitch;
    of->plane = best_pitch * best_rows;
    of->image_pitch = of->chunk_channels * of->plane;
}

/* A sum of n like terms may be off by n / 4 + 1 / 2 (compensated.cuh); one of segments by both together, and so by as much where
 * they have two terms less in all. */
constexpr int SEGMENTS_ROOM = 2;

/* In strict f32, the fewest segments of few enough strokes; false where even they would be too many. */
bool find_segments(const tconv_layer *layer, tconv_cells_plan *plan)
{
    tconv_cells_parameters *of = &plan->parameters;
    const int64_t taps = layer->rows.max_taps * layer->columns.max_taps;
    of->segment_chunks = of->chunks;
    if (!plan->strict || of->chunks * taps <= TCONV_CELLS_MAX_STROKES)
        return true;
    for (int segments = 2; segments < TCONV_CELLS_MAX_STROKES && segments <= of->chunks; segments++) {
        of->segment_chunks = (int)tconv_ceil_div(of->chunks, segments);
        if (of->segment_chunks * taps + segments + SEGMENTS_ROOM <= TCONV_CELLS_MAX_STROKES)
            return true;
    }
    return false;
}

bool describe_buffers(tconv_cells_plan *plan)
{
    tconv_cells_parameters *of = &plan->parameters;
    int most_rows = 0;
    for (int p = 0; p < of->programs; p++)
        for (int s = of->program[p].first_slot; s < of->program[p].end_slot; s++)
            most_rows = of->slot[s].rows > most_rows ? of->slot[s].rows : most_rows;
    const int64_t stage = (int64_t)of->image_pitch * of->tile_images * (int64_t)sizeof(float);
    of->row_bytes = (uint32_t)((plan->strict ? 2 : 1) * of->chunk_channels * sizeof(float));
    const int64_t slot = (int64_t)most_rows * of->row_bytes;
    const int64_t memory = TCONV_CELLS_SHARED_MEMORY - (of->segment_chunks < of->chunks ? TCONV_CELLS_ASIDE_BYTES : 0);
    if (2 * (stage + slot) > memory)
        return false;
    of->stage_bytes = (uint32_t)stage;
    of->slot_bytes = (uint32_t)slot;
    of->stages = of->slots = 2;
    const int slots = of->program[0].end_slot;
    for (;;) {
        const int64_t left = memory - of->stages * stage - of->slots * slot;
        const bool wants_slot = of->slots < of->stages * slots;
        if (wants_slot && of->slots < TCONV_CELLS_BUFFERS && slot <= left)
            of->slots++;
        else if (of->stages < TCONV_CELLS_BUFFERS && of->stages < 4 && stage <= left)
            of->stages++;
        else if (of->slots < TCONV_CELLS_BUFFERS && slot <= left)
            of->slots++;
        else
            return true;
    }
}

/* Cycles of the multiprocessor with most tiles. Two warpgroups multiply in turn: an entry takes the products of both, or its own
 * and what else it has to do. */
double estimate(const tconv_layer *layer, const tconv_cells_plan *plan, int multiprocessors)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cells_parameters *of = &plan->parameters;
    const int all = TCONV_CELLS_SUMS(plan->strict), times = plan->strict ? 3 : 1;
    const bool whole = plan->shape.block == all;
    const double step = STEP_CYCLES + (plan->bank_cycles - 1) * CONFLICT_CYCLES;
    const double other =
        plan->strict ? STRICT_ENTRY_CYCLES : (whole ? WHOLE_ENTRY_CYCLES : ENTRY_CYCLES) + of->steps * step;
    double tiles_cycles = 0; /* of a tile of each program */
    for (int p = 0; p < of->programs; p++) {
        const tconv_cells_program *program = &of->program[p];
        double entries = 0;
        for (int e = program->first_entry; e < program->end_entry; e++) {
            const int sums = whole ? all : of->entry[e].window % 16 * plan->shape.block;
            const double products = times * of->steps * sums / 2.0;
            entries += fmax(TCONV_CELLS_GROUPS * products, products + other);
        }
        /* A buffer is read, then filled again; as many take part as there are. */
        const double slots = program->end_slot - program->first_slot;
        const double weights = (double)program->rows * of->row_bytes / TCONV_CELLS_CLUSTER / L2_BYTES;
        const double box = of->stage_bytes / L2_BYTES;
        const double slot = (entries + slots * LATENCY + weights) / of->slots;
        const double stage = (entries + LATENCY + box) / of->stages;
        const double chunk = fmax(fmax(entries, weights + box), fmax(slot, stage));
        tiles_cycles += of->chunks * chunk + all * TILE_CYCLES + all / 2.0 / of->cell_columns * STORE_CYCLES;
    }
    const double rounds = (double)tconv_ceil_div(of->tiles, tconv_max(1, multiprocessors / TCONV_CELLS_CLUSTER));
    return HOPPER_LAUNCH_CYCLES + fmax(rounds * tiles_cycles / of->programs, tconv_cells_memory_cycles(problem));
}

/* Tries all tiles of cells of so many rows. */
void try_tiles(const tconv_layer *layer, int multiprocessors, tconv_cells_choice choice, tconv_cells_choice *best,
               tconv_cells_plan *best_plan, tconv_cells_plan *plan)
{
    const cell_space space = space_of(layer, choice.cell_rows);
    for (int64_t tiles = tconv_ceil_div(space.columns, TCONV_CELLS_POSITIONS);; tiles += 1 + tiles / 4) {
        const int64_t columns = tconv_ceil_div(space.columns, tiles);
        const int64_t fit = tconv_min(space.rows, TCONV_CELLS_POSITIONS / columns);
        const int64_t rows = tconv_ceil_div(space.rows, tconv_ceil_div(space.rows, fit));
        choice.columns = (int)columns;
        choice.rows = (int)rows;
        choice.images = 1;
        if (rows == space.rows && columns == space.columns)
            choice.images = (int)tconv_min(tconv_min(tconv_max(layer->problem.batch, 1), MAX_BOX),
                                           TCONV_CELLS_POSITIONS / (rows * columns));
        if (tconv_cells_describe(layer, &choice, multiprocessors, plan) &&
            (best_plan->cycles == 0 || plan->cycles < best_plan->cycles)) {
            *best = choice;
            *best_plan = *plan;
        }
        if (columns <= LEAST_COLUMNS)
            return;
    }
}

/* Tries cells of all rows of a stride or, where there is no room for eight channels then, of one. */
void try_resident(const tconv_layer *layer, int multiprocessors, tconv_cells_choice *best, tconv_cells_plan *best_plan,
                  tconv_cells_plan *plan)
{
    constexpr int LEAST_CHANNELS = 8, STEPS = 4;
    const tconv_strides *src = &layer->problem.src;
    const int64_t alignment = TCONV_CELLS_ALIGNMENT, columns = layer->columns.stride;
    const int64_t most = TCONV_CELLS_RESIDENT_SUMS / LEAST_CHANNELS / columns;
    if (layer->target.math == TCONV_MATH_STRICT || !is_flat(layer) ||
        layer->problem.h.in * layer->problem.w.in % alignment != 0 || src->c % alignment != 0 ||
        src->n % alignment != 0)
        return;
    /* Rows of pairs of cells, all of them vectors: else each element would be stored by itself. */
    const int64_t cells = columns < 4 ? 2 : 1;
    if (layer->problem.w.in % cells != 0 || !tconv_rows_begin_at_multiples(&layer->problem.dst, cells * columns))
        return;
    for (int rows = 1; rows <= most; rows *= 2) {
        const tconv_cells_choice choice = {true, rows, STEPS, false, 1, 1, TCONV_CELLS_UNIT};
        if ((rows == 1 || rows == layer->rows.stride) && tconv_cells_describe(layer, &choice, multiprocessors, plan) &&
            (best_plan->cycles == 0 || plan->cycles <= best_plan->cycles)) {
            *best = choice;
            *best_plan = *plan;
        }
    }
}

/* Whether each program is one entry, of all sums. */
bool has_whole_entries(const tconv_cells_parameters *of, int blocks)
{
    for (int p = 0; p < of->programs; p++) {
        const tconv_cells_program *program = &of->program[p];
        const tconv_cells_entry *entry = &of->entry[program->first_entry];
        if (program->end_entry - program->first_entry != 1 || entry->pixel != 0 || entry->window != blocks)
            return false;
    }
    return true;
}

/* The shape of so many steps whose blocks are the largest that fit in so many sums. */
bool find_shape(bool strict, int most, int steps, tconv_cells_shape *shape)
{
    const tconv_cells_shape *shapes = strict ? tconv_cells_strict_shapes : tconv_cells_tf32_shapes;
    shape->block = 0;
    for (int i = 0; i < TCONV_CELLS_SHAPES; i++) {
        const tconv_cells_shape *candidate = &shapes[i];
        if (candidate->steps == steps && candidate->block <= most && candidate->block > shape->block)
            *shape = *candidate;
    }
    return shape->block > 0;
}

} // namespace

bool tconv_cells_describe(const tconv_layer *layer, const tconv_cells_choice *choice, int multiprocessors,
                          tconv_cells_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    tconv_cells_parameters *of = &plan->parameters;
    memset(plan, 0, sizeof *plan);
    const int64_t stride = layer->rows.stride;
    const bool phases = choice->cell_rows < stride;
    of->cell_rows = choice->cell_rows;
    of->cell_columns = (int)layer->columns.stride;
    of->neighbours = of->cell_columns < 4; /* a cell of 4 columns is a vector by itself */
    plan->strict = layer->target.math == TCONV_MATH_STRICT;
    of->resident = choice->resident;
    const int all = of->resident ? TCONV_CELLS_RESIDENT_SUMS : TCONV_CELLS_SUMS(plan->strict);
    of->channels = all / (of->cell_rows * of->cell_columns);
    for (of->channel_shift = 0; 1 << of->channel_shift < of->channels; of->channel_shift++) {
    }
    if (phases && (of->cell_rows != 1 || stride > TCONV_CELLS_PROGRAMS))
        return false;
    if (of->resident)
        plan->shape = {of->channels, choice->steps, NULL}; /* its kernels have one window */
    else if (!find_shape(plan->strict, (int)tconv_min(of->channels, all / 2), choice->steps, &plan->shape))
        return false;
    of->programs = phases ? (int)stride : 1;
    of->row_step = phases ? 1 : (int)(of->cell_rows / stride);
    of->out_row_step = phases ? (int)stride : of->cell_rows;

    const cell_space space = space_of(layer, choice->cell_rows);
    axis_taps rows, columns;
    if (!find_taps(&layer->rows, of->cell_rows, 0, &rows) || !find_taps(&layer->columns, of->cell_columns, 0, &columns))
        return false;
    of->images = (int)problem->batch;
    of->in_rows = space.flat ? 1 : (int)problem->h.in;
    of->in_columns = (int)(space.flat ? problem->h.in * problem->w.in : problem->w.in);
    of->flat_columns = space.flat ? (int)problem->w.in : 0;
    of->out_rows = (int)problem->h.out;
    of->out_columns = (int)problem->w.out;
    of->first_row = rows.min_shift;
    of->first_column = columns.min_shift;
    of->tile_images = choice->images;
    of->tile_rows = choice->rows;
    of->tile_columns = choice->columns;
    of->steps = choice->steps;
    of->chunk_channels = choice->steps * TCONV_CELLS_STEP;
    of->groups = (int)problem->groups;
    of->group_in = (int)problem->group_in;
    of->group_out = (int)problem->group_out;
    of->chunks = (int)tconv_ceil_div(of->group_in, of->chunk_channels);
    /* A chunk must not reach into the next group. */
    if (of->groups > 1 && of->group_in % of->chunk_channels != 0)
        return false;
    if (!find_segments(layer, plan))
        return false;
    int skipped = 0; /* at most */
    for (int tile = 0; tile < TCONV_CELLS_ALIGNMENT && tile * (int64_t)of->tile_columns < space.columns; tile++)
        skipped = (int)tconv_max(skipped, (tile * of->tile_columns + of->first_column) & (TCONV_CELLS_ALIGNMENT - 1));
    describe_box(skipped + of->tile_columns + columns.shifts - 1, (of->tile_rows - 1) * of->row_step + rows.shifts,
                 plan);
    if (of->row_pitch > MAX_BOX || plan->box_rows > MAX_BOX || of->tile_images > MAX_BOX ||
        of->tile_images * of->tile_rows * of->tile_columns > TCONV_CELLS_POSITIONS)
        return false;

    of->channel_tiles = (int)tconv_ceil_div(of->group_out, of->channels);
    of->image_tiles = (int)tconv_ceil_div(of->images, of->tile_images);
    of->row_tiles = (int)tconv_ceil_div(space.rows, of->tile_rows);
    of->column_tiles = (int)tconv_ceil_div(space.columns, of->tile_columns);
    const double places = (double)of->image_tiles * of->row_tiles * of->column_tiles;
    const double tiles = ceil(places / TCONV_CELLS_CLUSTER) * of->groups * of->channel_tiles * of->programs;
    if (TCONV_CELLS_CLUSTER * tiles >= (double)HOPPER_MAX_EXTENT || !write_programs(layer, choice, &columns, plan))
        return false;
    of->place_tiles = (int)places;
    of->tiles = (int)tiles;
    if (!(of->resident ? tconv_cells_describe_resident(multiprocessors, plan) : describe_buffers(plan)))
        return false;
    if (!of->resident && has_whole_entries(of, all / plan->shape.block))
        find_shape(plan->strict, all, choice->steps, &plan->shape);
    of->from = problem->src;
    of->to = problem->dst;
    plan->packing.from = problem->weight;
    plan->packing.rows = (int64_t)of->groups * of->channel_tiles * of->all_rows * of->chunks * of->steps * 2;
    plan->cycles = of->resident ? tconv_cells_estimate_resident(layer, plan) : estimate(layer, plan, multiprocessors);
    return true;
}

bool tconv_cells_choose(const tconv_layer *layer, int multiprocessors, tconv_cells_choice *best,
                        tconv_cells_plan *best_plan)
{
    tconv_cells_plan plan;
    best_plan->cycles = 0;
    const int most_rows = TCONV_CELLS_SUMS(layer->target.math == TCONV_MATH_STRICT) / 32 / (int)layer->columns.stride;
    for (int rows = 1; rows <= most_rows; rows *= 2) {
        if (rows > 1 && rows % layer->rows.stride != 0)
            continue;
        for (int steps = 2; steps <= 4; steps += 2)
            for (int per_shift = 0; per_shift < 2; per_shift++) {
                const tconv_cells_choice choice = {false, rows, steps, per_shift == 1, 1, 1, 1};
                try_tiles(layer, multiprocessors, choice, best, best_plan, &plan);
            }
    }
    try_resident(layer, multiprocessors, best, best_plan, &plan);
    return best_plan->cycles > 0;
}

int64_t tconv_cells_number_of(const tconv_cells_choice *choice)
{
    return (int64_t)choice->cell_rows | (int64_t)choice->steps << 4 | (int64_t)choice->slot_per_shift << 8 |
           (int64_t)choice->resident << 9 | (int64_t)choice->images << 12 | (int64_t)choice->rows << 24 |
           (int64_t)choice->columns << 36;
}

tconv_cells_choice tconv_cells_choice_of(int64_t number)
{
    return {(number >> 9 & 1) != 0,     (int)(number & 15),         (int)(number >> 4 & 15),   (number >> 8 & 1) != 0,
            (int)(number >> 12 & 4095), (int)(number >> 24 & 4095), (int)(number >> 36 & 4095)};
}

} // namespace tconv::cells
