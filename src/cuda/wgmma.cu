/*
 * The wgmma algorithm: NCHW layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products
 * of TF32), f16 and bf16; strides 1 and 2.
 *
 * A phase (../core/phases.h) is a matrix product for each of its taps: output channels by positions, over input channels.
 * A tile of positions takes its input, borders included, once for each chunk of channels; taps are offsets into it. Both
 * column phases of stride 2 are in one tile, so that rows are written whole, and so are both row phases; few output
 * channels share the tensor cores' 64 rows among neighbouring output rows. The kernel is in wgmma_kernel.cuh, the packed
 * weights in wgmma_pack.cu. Here the tile is chosen, by an estimate of cycles, and described to the kernel.
 */
#include "wgmma.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "../core/checked.h"
#include "../core/status.h"
#include "guard.h"
#include "wgmma_kernels.h"

namespace
{

constexpr int64_t MAX_EXTENT = (int64_t)1 << 28; /* of what a kernel computes in 32 bits */
constexpr int SHARED_MEMORY = 227 * 1024 - 1024; /* what a block may have, less the barriers */
constexpr int MAX_BOX = 256;                     /* the copy engine's, of each axis */
constexpr int MAX_PATCH = 16383;                 /* pixels: of an operand's field for half of K */
constexpr int MAX_UNIT_ROWS = 16, MAX_STEPS = 4;
constexpr int BOX_ALIGNMENT = 16; /* bytes */
constexpr int MAX_VECTOR = 4;
constexpr int LEAST_BULK = 384; /* bytes of a row; a bulk copy takes 28 cycles, however short */

/* Buffers, from the least to what there is no use beyond: stages, boxes, slots, turns that are staged at once. The last that
 * fits is taken. */
constexpr int BUFFERS[][4] = {{2, 1, 2, 1}, {2, 2, 2, 1}, {2, 2, 3, 1}, {2, 2, 4, 1}, {2, 2, 4, 2},
                              {2, 2, 6, 2}, {2, 3, 6, 2}, {3, 3, 6, 2}, {3, 4, 8, 2}, {4, 4, 8, 2}};

/*
 * For the estimate, in cycles and bytes a cycle: from the asking for a box or a slot to its being there; of the second-level
 * cache to each multiprocessor when all load, measured, and of a row of a box, however short; of shared memory; of a warp to
 * convert 32 pixels of a quad; of a stroke that its warpgroup cannot hide, and for each of its sums where they are added in
 * f32; for handing over a chunk; at the end of a tile; of a bulk copy of a row.
 */
constexpr double LATENCY = 1500, L2_BYTES = 22, BOX_ROW_CYCLES = 8, SHARED_BYTES = 128, CONVERT_CYCLES = 60,
                 STROKE_CYCLES = 120, ADD_CYCLES = 1.5, CHUNK_CYCLES = 250, TILE_CYCLES = 1500, ROW_CYCLES = 28;
/* With less than this share of the tensor cores' rate, by the estimate, other implementations are faster. */
constexpr double LEAST_USE = 0.15;

struct tile_choice {
    int shape; /* of the mode's */
    int stack, unit_rows, steps;
};

struct plan {
    tconv_wgmma_mode mode;
    tconv_wgmma_shape shape;
    tconv_wgmma_parameters parameters; /* without addresses */
    int patch_rows;
    double cycles; /* of the fullest multiprocessor */
};

tconv_wgmma_mode mode_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return TCONV_WGMMA_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return TCONV_WGMMA_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? TCONV_WGMMA_TF32 : TCONV_WGMMA_STRICT;
}

const tconv_wgmma_shape *shapes_of(tconv_wgmma_mode mode)
{
    const tconv_wgmma_shape *const shapes[] = {tconv_wgmma_tf32_shapes, tconv_wgmma_strict_shapes,
                                               tconv_wgmma_f16_shapes, tconv_wgmma_bf16_shapes};
    return shapes[mode];
}

int planes_of(tconv_wgmma_mode mode)
{
    return mode == TCONV_WGMMA_STRICT ? 2 : 1;
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

/* Positions, and how units share a tile of them. */
void lay_out_units(const tconv_layer *layer, const tile_choice *choice, tconv_wgmma_parameters *made)
{
    const bool row_phases = layer->rows.count == 2, column_phases = layer->columns.count == 2;
    const int group_rows = (column_phases ? 1 : TCONV_WGMMA_UNITS) * choice->unit_rows * choice->stack;
    made->stack = choice->stack;
    made->block_channels = TCONV_WGMMA_M / choice->stack;
    made->unit_rows = choice->unit_rows;
    made->tile_rows = (row_phases ? 1 : TCONV_WGMMA_GROUPS) * group_rows;
    made->column_phases = column_phases ? 2 : 1;
    made->first_phase = first_column_phase(&layer->columns);
    made->stride_h = (int)layer->rows.stride;
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++) {
        made->row_residue[group] = (int)row_phase(layer, group)->residue;
        made->row_taps[group] = (int)row_phase(layer, group)->taps + choice->stack - 1;
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
            made->unit_row[group][unit] =
                (row_phases ? 0 : group * group_rows) + (column_phases ? 0 : unit * choice->unit_rows * choice->stack);
    }
    for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
        made->column_taps[unit] = (int)column_phase(layer, unit)->taps;
    made->max_row_taps = (int)tconv_max(made->row_taps[0], made->row_taps[1]);
}

/* Columns of a tile: as many as a unit's rows of the patch allow, made even over the tiles of a row. */
bool lay_out_patch(const tconv_layer *layer, const tile_choice *choice, plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const tconv_problem *problem = &layer->problem;
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const int64_t alignment = BOX_ALIGNMENT / (int64_t)problem->element_size;
    const int64_t positions = tconv_ceil_div(problem->w.out, columns->stride);
    const int64_t border = columns->max_shift - columns->min_shift, skip = alignment - 1;
    const int64_t N = made->shape.N, unit_rows = choice->unit_rows;
    /* N covers unit_rows - 1 rows of the pitch, which is a multiple of the alignment, and the columns of the last. */
    int64_t most = unit_rows == 1 ? N : 0;
    for (int64_t pitch = round_up(border + skip + 1, alignment); unit_rows > 1 && (unit_rows - 1) * pitch < N;
         pitch += alignment)
        most = tconv_max(most, tconv_min(pitch - border - skip, N - (unit_rows - 1) * pitch));
    if (most <= 0)
        return false;
    const int64_t tiles = tconv_ceil_div(positions, most);
    int64_t tile_columns = tconv_ceil_div(positions, tiles);
    if (tiles > 1 && round_up(tile_columns, alignment) <= most)
        tile_columns = round_up(tile_columns, alignment);
    to->tile_columns = (int)tile_columns;
    to->column_tiles = (int)tconv_ceil_div(positions, tile_columns);
    to->column_alignment = (int)alignment;
    to->first_row = (int)rows->min_shift;
    to->first_column = (int)columns->min_shift;
    to->pitch = (int)round_up(tile_columns + border + skip, alignment);
    made->patch_rows = (int)(to->tile_rows + rows->max_shift - rows->min_shift);
    to->patch = made->patch_rows * to->pitch;
    to->row_step = (int)rows->shift_step * to->pitch;
    to->column_step = (int)columns->shift_step;
    for (int group = 0; group < TCONV_WGMMA_GROUPS; group++)
        for (int unit = 0; unit < TCONV_WGMMA_UNITS; unit++)
            to->unit_pixel[group][unit] = (int)(to->unit_row[group][unit] + choice->stack - 1 +
                                                row_phase(layer, group)->first_shift - rows->min_shift) *
                                              to->pitch +
                                          (int)(column_phase(layer, unit)->first_shift - columns->min_shift);
    return to->pitch <= MAX_BOX && made->patch_rows <= MAX_BOX && to->patch <= MAX_PATCH &&
           (unit_rows - 1) * to->pitch + tile_columns <= N;
}

size_t staged_bytes(const tconv_layer *layer, const tconv_wgmma_shape *shape)
{
    constexpr size_t WARPS = 4 * TCONV_WGMMA_GROUPS;
    return WARPS * tconv_wgmma_staged_bytes(shape->N, (int)layer->problem.element_size);
}

bool lay_out_buffers(const tconv_layer *layer, const tile_choice *choice, plan *made)
{
    tconv_wgmma_parameters *to = &made->parameters;
    const int planes = planes_of(made->mode), element = (int)layer->problem.element_size;
    const int product = planes * TCONV_WGMMA_M * 2 * TCONV_WGMMA_QUAD;
    const bool row_phases = layer->rows.count == 2, column_phases = layer->columns.count == 2;
    const int taps = to->column_taps[0] + (column_phases ? to->column_taps[1] : 0);
    to->steps = choice->steps;
    to->chunk_channels = choice->steps * 2 * TCONV_WGMMA_QUAD / element;
    to->chunks = (int)tconv_ceil_div(layer->problem.group_in, to->chunk_channels);
    to->step_weights = taps * product / TCONV_WGMMA_QUAD;
    to->unit_weights = column_phases ? to->column_taps[0] * product / TCONV_WGMMA_QUAD : 0;
    to->group_weights = row_phases ? to->steps * to->step_weights : 0;
    to->slot_bytes = (uint32_t)((row_phases ? 2 : 1) * to->steps * taps * product);
    to->box_bytes = (uint32_t)(to->chunk_channels * to->patch * element);
    to->stage_bytes = (uint32_t)(planes * 2 * to->steps * to->patch * TCONV_WGMMA_QUAD);
    /* A chunk must not reach into the next group. */
    if (layer->problem.groups > 1 && layer->problem.group_in % to->chunk_channels != 0)
        return false;
    const int64_t staged = (int64_t)staged_bytes(layer, &made->shape);
    to->stages = 0;
    for (size_t i = 0; i < sizeof BUFFERS / sizeof BUFFERS[0]; i++)
        if ((int64_t)BUFFERS[i][0] * to->stage_bytes + (int64_t)BUFFERS[i][1] * to->box_bytes +
                (int64_t)BUFFERS[i][2] * to->slot_bytes + BUFFERS[i][3] * staged <=
            SHARED_MEMORY) {
            to->stages = BUFFERS[i][0];
            to->boxes = BUFFERS[i][1];
            to->slots = BUFFERS[i][2];
            to->staged_turns = BUFFERS[i][3];
        }
    return to->stages > 0;
}

size_t shared_bytes(const tconv_layer *layer, const plan *made)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    return of->stages * of->stage_bytes + of->boxes * of->box_bytes + of->slots * of->slot_bytes +
           of->staged_turns * staged_bytes(layer, &made->shape);
}

/* Groups of products that a sum is made of. */
int64_t strokes_of(const tconv_wgmma_parameters *of)
{
    const bool along_steps = of->column_taps[0] == 1;
    const int64_t runs = along_steps ? 1 : of->steps, count = along_steps ? of->steps : of->column_taps[1];
    const int64_t odd = of->column_taps[0] - of->column_taps[1];
    return (int64_t)of->chunks * of->max_row_taps * runs * (tconv_ceil_div(count, TCONV_WGMMA_STROKE) + odd);
}

/*
 * Cycles of the multiprocessor with most tiles. The roles work side by side: the slowest of them counts, and each needs
 * its buffers for as long as it and its neighbour take with one.
 */
double estimate(const plan *made, int multiprocessors)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const bool strict = made->mode == TCONV_WGMMA_STRICT;
    const double N = made->shape.N, units = TCONV_WGMMA_UNITS, times = strict ? 3 : 1;
    const double row_taps = of->row_taps[0] + of->row_taps[1];
    const double taps = of->column_taps[0] + of->column_taps[1];
    /* Of a chunk: the tensor cores; the shared memory that they, boxes and converting read and write; one warpgroup by
     * itself, which in strict f32 adds while it does not multiply. */
    const double products = of->steps * row_taps * taps * times;
    const double weights = (double)of->slot_bytes * of->max_row_taps;
    const double operands = products * (TCONV_WGMMA_M + N) * 2 * TCONV_WGMMA_QUAD;
    const double memory = (operands + 2.0 * of->box_bytes + of->stage_bytes + weights) / SHARED_BYTES;
    const double strokes = (double)strokes_of(of) / of->chunks;
    const double add = strict ? N * units / 2 * ADD_CYCLES : 0;
    const double alone = products * N / 4 + strokes * ((strict ? units : 1) * STROKE_CYCLES + add);
    const double multiply = fmax(fmax(products * N / 2, memory), alone);
    const double convert = 2.0 * of->steps * of->patch / (4 * 32) * CONVERT_CYCLES * planes_of(made->mode);
    const double box = fmax(of->box_bytes / L2_BYTES, of->chunk_channels * made->patch_rows * BOX_ROW_CYCLES);
    const double traffic = box + weights / L2_BYTES;
    const double load = (LATENCY + box + convert) / of->boxes;
    const double slot = of->max_row_taps * (LATENCY + of->slot_bytes / L2_BYTES) / of->slots;
    const double stage = (convert + multiply) / of->stages;
    const double chunk = fmax(fmax(fmax(multiply, convert), fmax(load, slot)), fmax(stage, traffic));
    const double store =
        TCONV_WGMMA_M * TCONV_WGMMA_GROUPS * (of->column_phases == 2 ? 1 : units) * of->unit_rows * ROW_CYCLES;
    const double wait = of->staged_turns == 2 ? 0 : store / 4;
    const double tile = fmax(of->chunks * (chunk + CHUNK_CYCLES) + TILE_CYCLES + wait, store);
    return tile * (double)tconv_ceil_div(of->tiles, multiprocessors);
}

/* Describes the layer in tiles of this choice; false where that does not fit. */
bool describe(const tconv_layer *layer, const tile_choice *choice, int multiprocessors, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    tconv_wgmma_parameters *to = &made->parameters;
    memset(to, 0, sizeof *to);
    made->mode = mode_of(layer);
    made->shape = shapes_of(made->mode)[choice->shape];
    lay_out_units(layer, choice, to);
    if (!lay_out_patch(layer, choice, made) || !lay_out_buffers(layer, choice, made) ||
        (made->mode == TCONV_WGMMA_STRICT && strokes_of(to) > TCONV_WGMMA_MAX_STROKES))
        return false;
    to->src_image = problem->src.n;
    to->src_channel = problem->src.c;
    to->dst_image = problem->dst.n;
    to->dst_channel = problem->dst.c;
    to->in_rows = (int)problem->h.in;
    to->in_columns = (int)problem->w.in;
    to->out_rows = (int)problem->h.out;
    to->out_columns = (int)problem->w.out;
    to->group_in = (int)problem->group_in;
    to->group_out = (int)problem->group_out;
    to->group_blocks = (int)tconv_ceil_div(problem->group_out, to->block_channels);
    to->blocks = (int)problem->groups * to->group_blocks;
    to->row_tiles = (int)tconv_ceil_div(tconv_ceil_div(problem->h.out, layer->rows.stride), to->tile_rows);
    const int64_t tiles = problem->batch * to->blocks * to->row_tiles * to->column_tiles;
    if (tiles >= MAX_EXTENT)
        return false;
    to->tiles = (int)tiles;
    made->cycles = estimate(made, multiprocessors);
    return true;
}

/* Takes the choice with the least estimated time; false where none fits. */
bool choose(const tconv_layer *layer, int multiprocessors, tile_choice *best, plan *best_plan)
{
    const tconv_wgmma_shape *shapes = shapes_of(mode_of(layer));
    const bool can_stack = layer->rows.stride == 1 && layer->rows.shift_step == 1;
    bool found = false;
    tile_choice choice;
    plan made;
    for (choice.shape = 0; choice.shape < TCONV_WGMMA_SHAPES && shapes[choice.shape].N > 0; choice.shape++)
        for (choice.steps = 1; choice.steps <= MAX_STEPS; choice.steps *= 2)
            for (choice.unit_rows = 1; choice.unit_rows <= MAX_UNIT_ROWS; choice.unit_rows++)
                for (choice.stack = 1; choice.stack <= (can_stack && choice.unit_rows == 1 ? 2 : 1); choice.stack++)
                    if (describe(layer, &choice, multiprocessors, &made) &&
                        (!found || made.cycles < best_plan->cycles)) {
                        *best = choice;
                        *best_plan = made;
                        found = true;
                    }
    return found;
}

/* A choice as the number that the layer keeps. */
int64_t number_of(const tile_choice *choice)
{
    return choice->shape | choice->stack << 8 | choice->unit_rows << 16 | choice->steps << 24;
}

/* What was chosen when the plan was made. */
void describe_chosen(const tconv_layer *layer, int multiprocessors, plan *made)
{
    const tile_choice choice = {(int)(layer->choice & 0xff), (int)(layer->choice >> 8 & 0xff),
                                (int)(layer->choice >> 16 & 0xff), (int)(layer->choice >> 24 & 0xff)};
    describe(layer, &choice, multiprocessors, made);
}

int multiprocessors_of(int device)
{
    int count = 0;
    if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || count < 1)
        return 1;
    return count;
}

/* Multiply-adds of the layer, borders included, over what all multiprocessors can do in the estimated time. */
double use_of(const tconv_layer *layer, const plan *made, int multiprocessors)
{
    const tconv_problem *problem = &layer->problem;
    const double taps = (double)problem->h.kernel * (double)problem->w.kernel * (double)problem->h.out *
                        (double)problem->w.out / ((double)layer->rows.stride * (double)layer->columns.stride);
    const double rate = problem->element_size == 2 ? 2048 : 1024, times = made->mode == TCONV_WGMMA_STRICT ? 3 : 1;
    return times * taps * (double)problem->batch * (double)problem->in_channels * (double)problem->group_out /
           (rate * multiprocessors * made->cycles);
}

/* Whether the build has the kernels' code for the device: elsewhere they are made for one warp. */
bool has_code(const tconv_layer *layer)
{
    cudaFuncAttributes attributes;
    tconv_cuda_guard guard;
    if (tconv_cuda_enter(&guard, layer->target.device, NULL) != TCONV_SUCCESS)
        return false;
    const bool has =
        cudaFuncGetAttributes(&attributes, (const void *)shapes_of(mode_of(layer))[0].kernel) == cudaSuccess &&
        attributes.maxThreadsPerBlock >= TCONV_WGMMA_THREADS;
    tconv_cuda_leave(&guard);
    return has;
}

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->h.in,
                               problem->w.in,
                               problem->h.out,
                               problem->w.out,
                               problem->in_channels,
                               problem->out_channels,
                               problem->h.kernel * problem->h.dilation,
                               problem->w.kernel * problem->w.dilation,
                               problem->batch};
    if (layer->target.compute_capability != 90)
        return "needs compute capability 9.0";
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (problem->dtype == TCONV_F64)
        return "has no products of f64";
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] >= MAX_EXTENT)
            return "needs extents below 2^28";
    if (layer->rows.stride > 2 || layer->columns.stride > 2)
        return "needs strides of 1 or 2";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    if (!has_code(layer))
        return "the build has no sm_90a code";
    return NULL;
}

bool wgmma_supports(const tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tile_choice choice;
    plan made;
    const char *why = why_not(layer);
    if (why == NULL && !choose(layer, multiprocessors_of(layer->target.device), &choice, &made))
        why = "no tile fits in shared memory, or sums are too long for strict f32";
    if (why != NULL) {
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
        return false;
    }
    return true;
}

bool wgmma_suits(const tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tile_choice choice;
    plan made;
    const tconv_problem *problem = &layer->problem;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    const int64_t element = (int64_t)problem->element_size;
    const double use = choose(layer, multiprocessors, &choice, &made) ? use_of(layer, &made, multiprocessors) : 0;
    if (problem->src.h * element % BOX_ALIGNMENT != 0 || problem->src.c * element % BOX_ALIGNMENT != 0) {
        snprintf(reason, TCONV_REASON_SIZE, "rows and channels of src are no multiples of %d bytes", BOX_ALIGNMENT);
        return false;
    }
    if (use < LEAST_USE) {
        snprintf(reason, TCONV_REASON_SIZE, "would use %.0f %% of the tensor cores, less than %.0f %%", 100 * use,
                 100 * LEAST_USE);
        return false;
    }
    return true;
}

tconv_wgmma_packing packing_of(const tconv_layer *layer, const plan *made)
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
    packing.stack = of->stack;
    packing.chunks = of->chunks;
    packing.chunk_channels = of->chunk_channels;
    packing.steps = of->steps;
    packing.max_row_taps = of->max_row_taps;
    packing.groups = (int)layer->rows.count;
    packing.units = (int)layer->columns.count;
    for (int i = 0; i < 2; i++) {
        packing.row_taps[i] = (int)row_phase(layer, i)->taps;
        packing.first_kernel_row[i] = (int)row_phase(layer, i)->first_kernel;
        packing.column_taps[i] = of->column_taps[i];
        packing.first_kernel_column[i] = (int)column_phase(layer, i)->first_kernel;
    }
    packing.kernel_row_step = (int)layer->rows.kernel_step;
    packing.kernel_column_step = (int)layer->columns.kernel_step;
    packing.rows =
        (int64_t)of->blocks * of->chunks * of->max_row_taps * of->slot_bytes / TCONV_WGMMA_QUAD / planes_of(made->mode);
    return packing;
}

tconv_status wgmma_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tile_choice choice;
    plan made;
    int64_t size;
    choose(layer, multiprocessors_of(layer->target.device), &choice, &made);
    const tconv_wgmma_parameters *of = &made.parameters;
    if (!tconv_checked_mul((int64_t)of->blocks * of->chunks, (int64_t)of->max_row_taps * of->slot_bytes, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    sizes->choice = number_of(&choice);
    return TCONV_SUCCESS;
}

tconv_status wgmma_pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue)
{
    plan made;
    tconv_cuda_guard guard;
    describe_chosen(layer, multiprocessors_of(layer->target.device), &made);
    const tconv_wgmma_packing packing = packing_of(layer, &made);
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_wgmma_pack(&packing, made.mode, weights, packed, stream, issue);
    tconv_cuda_leave(&guard);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- executing */

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

encode_function *encode_tiled; /* NULL where the driver has none */
pthread_once_t encode_looked_up = PTHREAD_ONCE_INIT;

/* The library is not linked to the driver, so that it loads where there is none. */
void look_up_encode()
{
    constexpr unsigned int FIRST_VERSION = 12000; /* of the driver's that has it */
    cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, FIRST_VERSION, cudaEnableDefault, &result) ==
            cudaSuccess &&
        result == cudaDriverEntryPointSuccess)
        encode_tiled = (encode_function *)found;
}

/* Describes src and the tile's box to the copy engine; false where it cannot read src as it lies. */
bool make_map(const tconv_layer *layer, const plan *made, const void *src, CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const cuuint64_t element = problem->element_size;
    const cuuint64_t extents[] = {(cuuint64_t)problem->w.in, (cuuint64_t)problem->h.in,
                                  (cuuint64_t)problem->in_channels, (cuuint64_t)problem->batch};
    const cuuint64_t strides[] = {(cuuint64_t)problem->src.h * element, (cuuint64_t)problem->src.c * element,
                                  (cuuint64_t)problem->src.n * element};
    const cuuint32_t box[] = {(cuuint32_t)made->parameters.pitch, (cuuint32_t)made->patch_rows,
                              (cuuint32_t)made->parameters.chunk_channels, 1};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    const CUtensorMapDataType types[] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                         CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16};
    if ((uintptr_t)src % BOX_ALIGNMENT != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (strides[i] % BOX_ALIGNMENT != 0)
            return false;
    pthread_once(&encode_looked_up, look_up_encode);
    return encode_tiled != NULL &&
           encode_tiled(map, types[made->mode], 4, (void *)src, extents, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* The widest store that every row of every tile allows. */
int store_vector(const tconv_layer *layer, const plan *made, const void *dst)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t first_columns = (int64_t)made->parameters.tile_columns * made->parameters.column_phases;
    int vector = MAX_VECTOR;
    while (vector > 1 &&
           (problem->dst.n % vector != 0 || problem->dst.c % vector != 0 || problem->w.out % vector != 0 ||
            first_columns % vector != 0 || (uintptr_t)dst % (vector * problem->element_size) != 0))
        vector /= 2;
    return vector;
}

/*
 * Whether bulk copies can write the rows: all channels of a tile, and all rows of a unit, begin equally far past a multiple
 * of 16 bytes, by a multiple of two elements, as sums are staged. Short rows are faster by the widest vectors, if those can write them.
 */
bool can_store_bulk(const tconv_layer *layer, const plan *made, const void *dst, int vector)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, row = problem->w.out * element;
    const int64_t pair = 2 * element;
    return problem->dst.c * element % BOX_ALIGNMENT == 0 && problem->dst.n * element % pair == 0 && row % pair == 0 &&
           (uintptr_t)dst % (size_t)pair == 0 &&
           made->parameters.tile_columns * made->parameters.column_phases % 2 == 0 &&
           (vector < MAX_VECTOR ||
            made->parameters.tile_columns * made->parameters.column_phases * element >= LEAST_BULK) &&
           (made->parameters.unit_rows == 1 || row * layer->rows.stride % BOX_ALIGNMENT == 0);
}

tconv_status launch(const tconv_layer *layer, const plan *made, const tconv_wgmma_parameters *parameters,
                    const CUtensorMap *map, int multiprocessors, void *stream, tconv_issue *issue)
{
    const void *kernel = (const void *)made->shape.kernel;
    tconv_wgmma_parameters parameters_copy = *parameters;
    CUtensorMap map_copy = *map;
    void *arguments[] = {&parameters_copy, &map_copy};
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, layer->target.device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes(layer, made)),
        "cudaFuncSetAttribute", issue);
    if (status == TCONV_SUCCESS)
        status = tconv_cuda_check(
            cudaLaunchKernel(kernel, dim3((unsigned int)tconv_min(parameters->tiles, multiprocessors)),
                             dim3(TCONV_WGMMA_THREADS), arguments, shared_bytes(layer, made), (cudaStream_t)stream),
            "cudaLaunchKernel", issue);
    tconv_cuda_leave(&guard);
    return status;
}

tconv_status wgmma_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    plan made;
    CUtensorMap map;
    const int multiprocessors = multiprocessors_of(layer->target.device);
    describe_chosen(layer, multiprocessors, &made);
    tconv_wgmma_parameters parameters = made.parameters;
    memset(&map, 0, sizeof map);
    parameters.src = arguments->src;
    parameters.weights = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.by_boxes = make_map(layer, &made, arguments->src, &map);
    parameters.store_vector = store_vector(layer, &made, arguments->dst);
    parameters.store_bulk = can_store_bulk(layer, &made, arguments->dst, parameters.store_vector);
    return launch(layer, &made, &parameters, &map, multiprocessors, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_wgmma = {
    "cuda_wgmma", TCONV_BACKEND_CUDA, wgmma_supports, wgmma_memory, wgmma_pack_weights, wgmma_execute, wgmma_suits};
