/* How a layer is cut up for the kernels: tiles of columns as wide as shared memory allows, and strips of rows that end
 * together; and the tables of taps. */
#include "plan.h"

#include "../../core/checked.h"
#include "../model/planned.h"

namespace tconv::rows
{

namespace
{

constexpr int MIN_COMPUTE_CAPABILITY = 80; /* TF32, bf16 and asynchronous copies */
constexpr int64_t RESERVED = 1024;         /* bytes of shared memory that CUDA takes for each block */
constexpr int64_t MAX_WAVES = 8;           /* that are tried: of more, the last one is a small part */

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16. */
constexpr int64_t MAX_ADDITIONS = 48;

constexpr int64_t LEAST_ZEROS = 256; /* elements, where a row of them does not fit: a few bulk stores a row */

/* Channels of src in shared memory begin in different banks for the lanes of a fragment. */
constexpr int64_t BANKS = 32;
constexpr int64_t BANK_BYTES = 4;
constexpr int64_t CHANNEL_SKEW = 8; /* elements: their pitch is an odd multiple */

int64_t round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

int64_t taps_of(const tconv_phase_table *table)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < table->count; i++)
        taps += table->phases[i].taps;
    return taps;
}

int64_t steps_of(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, MMA_K_BYTES);
}

/* Steps of the longest sum. */
int64_t additions_of(const tconv_layer *layer)
{
    return layer->rows.max_taps * layer->columns.max_taps * steps_of(&layer->problem);
}

bool has_kernel(int64_t column_stride)
{
    return column_stride <= 6 || column_stride == 8;
}

/* The positions of the padded outputs that exist. */
int64_t first_position(const tconv_axis *axis)
{
    return axis->pad / axis->stride;
}

int64_t end_position(const tconv_axis *axis)
{
    return (axis->pad + axis->out - 1) / axis->stride + 1;
}

/* How far the first tap of a phase reads back from its position. */
int64_t back_of(const tconv_axis *axis, const tconv_phase *phase)
{
    return (phase->residue + axis->pad) / axis->stride - phase->first_shift;
}

int64_t max_back(const tconv_axis *axis, const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, back_of(axis, &table->phases[i]) + (table->phases[i].taps - 1) * table->shift_step);
    return most;
}

int64_t weight_vectors_of(const tconv_layer *layer, const parameters *params)
{
    return layer->problem.h.kernel * params->column_taps * params->steps * (model::is_strict(layer) ? 2 : 1) *
           (FRAGMENT_BYTES / ACCESS);
}

int64_t shared_bytes_of(const tconv_layer *layer, const parameters *params)
{
    const int64_t src = (int64_t)params->stages * params->stage_channels * params->src_pitch;
    return weight_vectors_of(layer, params) * ACCESS +
           (src + BLOCK_M * params->staging_pitch + params->zeros) * (int64_t)layer->problem.element_size +
           BLOCK_M * SECTOR_BYTES;
}

/* How many lanes meet in one bank when sums are staged: lane l has channel l / 4, from output 2 * (l % 4) * stride
 * on. */
int64_t conflicts_of(const tconv_problem *problem, int64_t pitch)
{
    const int64_t bytes = (int64_t)problem->element_size * (problem->dst.c % 2 == 0 ? 2 : 1);
    const int64_t access = tconv_max(bytes, BANK_BYTES), accesses = BANKS * BANK_BYTES / access;
    int64_t lanes[BANKS] = {}, most = 0;
    for (int64_t lane = 0; lane < 32; lane++) {
        const int64_t at = (lane / 4 * pitch + lane % 4 * 2 * problem->w.stride) * (int64_t)problem->element_size;
        most = tconv_max(most, ++lanes[at / access % accesses]);
    }
    return most;
}

/* The pitch of at least so many elements that goes with dst and has the fewest bank conflicts. */
int64_t choose_pitch(const tconv_problem *problem, int64_t elements)
{
    const int64_t sector = SECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t least = elements + (problem->dst.c % sector - elements % sector + sector) % sector;
    int64_t best = least;
    for (int64_t pitch = least; pitch < least + BANKS * BANK_BYTES / (int64_t)problem->element_size; pitch += sector)
        if (conflicts_of(problem, pitch) < conflicts_of(problem, best))
            best = pitch;
    return best;
}

/* Fills in what depends on the columns of a tile: those of so many warps. */
void divide_columns(const tconv_layer *layer, int64_t warps, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const int64_t positions = positions_of(layer);
    params->tile_columns = (int)(warps * positions);
    params->column_tiles = (int)tconv_ceil_div(params->end_column - params->first_column, params->tile_columns);
    const int64_t loaded = round_up(params->tile_columns + params->max_column_back + length - 1, length);
    params->src_loaded = (int)loaded;
    params->src_pitch = (int)round_up(loaded, CHANNEL_SKEW);
    if (params->src_pitch % (2 * CHANNEL_SKEW) == 0)
        params->src_pitch += (int)CHANNEL_SKEW;
    const int64_t sector = SECTOR_BYTES / (int64_t)problem->element_size;
    params->staging_pitch = (int)choose_pitch(problem, params->tile_columns * problem->w.stride + sector);
    params->zeros = layer->rows.bias_only > 0 ? (int)round_up(params->tile_columns * problem->w.stride, sector) : 0;
    const int64_t together = problem->dtype == TCONV_F32 ? 1 : 2; /* channels that are copied together */
    const int64_t copy_warps = tconv_max(warps / tconv_ceil_div(problem->group_in, together), 1);
    params->copy_warps = (int)copy_warps;
    params->copy_channel_step = (int)(warps / copy_warps * together);
    params->copy_column_step = (int)(copy_warps * 32 * length);
    params->joins_rows = params->column_tiles == 1 && problem->w.out >= 2 * sector;
}

/* Shared memory of a block where enough of them share a multiprocessor. */
int64_t shared_of_block(const tconv_layer *layer)
{
    return (layer->target.shared_bytes + RESERVED) / MIN_BLOCKS - RESERVED;
}

/* Warps of a block: as many as there are columns for, but so that enough blocks share a multiprocessor, if they can. */
bool choose_columns(const tconv_layer *layer, parameters *params)
{
    const int64_t positions = positions_of(layer);
    const int64_t all = tconv_ceil_div(params->end_column - params->first_column, positions);
    const int64_t limit = layer->target.shared_bytes;
    for (int tried = 0; tried < 2; tried++)
        /* Tiles as even as can be: each number of warps that they may then have. */
        for (int64_t most = MAX_WARPS; most > 0; most--) {
            const int64_t warps = tconv_ceil_div(all, tconv_ceil_div(all, most));
            const int64_t bytes = tried == 0 ? shared_of_block(layer) : limit;
            divide_columns(layer, warps, params);
            if (shared_bytes_of(layer, params) > bytes)
                params->zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
            if (shared_bytes_of(layer, params) <= bytes)
                return true;
        }
    return false;
}

const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    if (layer->target.compute_capability < MIN_COMPUTE_CAPABILITY)
        return "needs compute capability 8.0";
    if (problem->layout != TCONV_NCHW)
        return "NHWC";
    if (!is_small_axis(&problem->h) || !is_small_axis(&problem->w))
        return "a stride above 16, or an extent too large for 32-bit coordinates";
    if (!has_kernel(problem->w.stride))
        return "a column stride of 7, or above 8";
    if (max_back(&problem->w, &layer->columns) >= MAX_BACKS)
        return "taps that read more than 16 columns";
    if (problem->h.kernel * problem->w.kernel * problem->group_in >= SMALL_AXIS_EXTENT ||
        max_back(&problem->h, &layer->rows) * problem->group_in >= SMALL_AXIS_EXTENT ||
        problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many weights or channels for 32-bit numbers";
    if (model::is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 taps by 8 channels";
    return NULL;
}

/* Fills in what depends neither on tiles nor on taps one by one. */
void fill_layer(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t step = MMA_K_BYTES / (int64_t)problem->element_size;
    params->src_image = problem->src.n;
    params->src_channel = problem->src.c;
    params->dst_image = problem->dst.n;
    params->dst_channel = problem->dst.c;
    params->in_rows = (int)problem->h.in;
    params->in_columns = (int)problem->w.in;
    params->out_rows = (int)problem->h.out;
    params->out_columns = (int)problem->w.out;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->groups = (int)problem->groups;
    params->m_tiles = (int)tconv_ceil_div(problem->group_out, BLOCK_M);
    params->row_stride = (int)problem->h.stride;
    params->row_pad = (int)problem->h.pad;
    params->column_pad = (int)problem->w.pad;
    params->row_kernel_step = (int)layer->rows.kernel_step;
    params->row_back_step = (int)layer->rows.shift_step;
    params->max_row_back = (int)max_back(&problem->h, &layer->rows);
    params->max_column_back = (int)max_back(&problem->w, &layer->columns);
    params->first_row = (int)first_position(&problem->h);
    params->end_row = (int)end_position(&problem->h);
    params->first_column = (int)first_position(&problem->w);
    params->end_column = (int)end_position(&problem->w);
    params->column_taps = (int)taps_of(&layer->columns);
    params->steps = (int)steps_of(problem);
    params->stages = params->max_row_back + 2; /* and the next row, which is on its way */
    params->stage_channels = is_narrow(layer) ? NARROW_CHANNELS : (int)(params->steps * step);
}

/* Fills in the taps of rows and columns, and how much their weights and inputs are. */
void fill_taps(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    params->weight_vectors = (int)weight_vectors_of(layer, params);
    params->kernel_row_vectors = (int)(params->weight_vectors / problem->h.kernel);
    params->stage_elements = params->stage_channels * params->src_pitch;
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        const int64_t row_phase = (phase->residue + problem->h.pad) % problem->h.stride;
        params->row_taps[row_phase] = (int)phase->taps;
        params->row_kernel[row_phase] = (int)phase->first_kernel;
        params->row_back[row_phase] = (int)back_of(&problem->h, phase);
    }
    for (int64_t i = 0; i < layer->columns.count; i++) {
        const tconv_phase *phase = &layer->columns.phases[i];
        const int64_t column_phase = (phase->residue + problem->w.pad) % problem->w.stride;
        for (int64_t tap = 0; tap < phase->taps; tap++) {
            const int64_t back = back_of(&problem->w, phase) + tap * layer->columns.shift_step;
            params->column_phases[back] |= 1 << column_phase;
            params->kernel_column[back][column_phase] = (short)(phase->first_kernel + tap * layer->columns.kernel_step);
        }
    }
    const int tap_vectors = params->column_taps > 0 ? params->kernel_row_vectors / params->column_taps : 0;
    for (int back = 1; back < MAX_BACKS; back++) {
        int phases = 0;
        for (int bits = params->column_phases[back - 1]; bits != 0; bits &= bits - 1)
            phases++;
        params->column_vectors[back] = params->column_vectors[back - 1] + phases * tap_vectors;
    }
}

/* Counts the blocks that share a multiprocessor. */
int64_t resident_of(const tconv_layer *layer, const parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t warps = params->tile_columns / positions_of(layer);
    return tconv_min((layer->target.shared_bytes + RESERVED) / (shared_bytes_of(layer, params) + RESERVED),
                     TCONV_ROWS_MAX_BLOCKS((int)problem->element_size, is_direct(layer), problem->w.stride) *
                         MAX_WARPS / warps);
}

/* Rows without taps that follow those of a row phase. */
int bias_rows_behind(const parameters *params, int row_phase)
{
    int bias_rows = 0;
    while (bias_rows < params->row_stride && params->row_taps[(row_phase + bias_rows + 1) % params->row_stride] == 0)
        bias_rows++;
    return bias_rows;
}

/* Has rows without taps written together with the row before, where room for them costs no block. */
void join_bias_rows(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t sector = SECTOR_BYTES / (int64_t)problem->element_size;
    parameters joined = *params;
    for (int row_phase = 0; row_phase < params->row_stride; row_phase++) {
        joined.bias_rows_after[row_phase] = params->row_taps[row_phase] > 0 ? bias_rows_behind(params, row_phase) : 0;
        joined.bias_rows = (int)tconv_max(joined.bias_rows, joined.bias_rows_after[row_phase]);
    }
    joined.staging_pitch =
        (int)choose_pitch(problem, params->tile_columns * problem->w.stride * (joined.bias_rows + 1) + 2 * sector);
    joined.zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
    if (params->joins_rows && joined.bias_rows > 0 && resident_of(layer, &joined) >= resident_of(layer, params))
        *params = joined;
}

/* Divides the rows into strips, so that the multiprocessors compute all blocks in a few whole waves and the least
 * time. */
void divide_rows(const tconv_layer *layer, int64_t places, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t rows = params->end_row - params->first_row;
    const int64_t others = tconv_max(problem->batch, 1) * problem->groups * params->column_tiles * params->m_tiles;
    int64_t best = INT64_MAX;
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / others, 1), rows);
        const int64_t strip_rows = tconv_ceil_div(rows, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
        const int64_t time = taken * (strip_rows + params->max_row_back + 1);
        if (time < best) {
            best = time;
            params->strip_rows = (int)strip_rows;
        }
    }
    params->strips = (int)tconv_ceil_div(rows, params->strip_rows);
}

const void *kernel_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return problem->dtype == TCONV_F32
               ? (const void *)f32_kernel(!model::is_strict(layer), problem->w.stride)
               : (const void *)half_kernel(problem->dtype, is_direct(layer), is_narrow(layer), problem->w.stride);
}

} // namespace

int64_t positions_of(const tconv_layer *layer)
{
    return TCONV_ROWS_MMAS_N(layer->problem.w.stride) * MMA_N;
}

bool is_direct(const tconv_layer *layer)
{
    return layer->problem.dtype != TCONV_F32 && additions_of(layer) <= DIRECT_STEPS;
}

bool is_narrow(const tconv_layer *layer)
{
    return is_direct(layer) && layer->problem.group_in <= NARROW_CHANNELS;
}

const char *plan_layer(const tconv_layer *layer, planned_layer *made)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &made->params;
    const char *why = refusal(layer);
    if (why != NULL)
        return why;
    fill_layer(layer, params);
    if (!choose_columns(layer, params))
        return "weights, or rows of src, too many for shared memory";
    const int64_t tiles = (int64_t)params->column_tiles * params->m_tiles;
    if (problem->batch * problem->groups > INT32_MAX / (params->end_row - params->first_row) / tiles)
        return "too many images for 32-bit numbers of blocks";
    fill_taps(layer, params);
    join_bias_rows(layer, params);
    made->resident = resident_of(layer, params);
    divide_rows(layer, layer->target.multiprocessors * made->resident, params);

    const int64_t length = ACCESS / (int64_t)problem->element_size;
    params->src_aligned = problem->src.n % length == 0 && problem->src.c % length == 0 && problem->w.in % length == 0;
    params->staging_pairs = problem->dst.c % 2 == 0;
    made->grid.kernel = kernel_of(layer);
    made->grid.blocks = problem->batch * problem->groups * params->strips * tiles;
    made->grid.threads = (int)(params->tile_columns / positions_of(layer) * 32);
    made->grid.shared_bytes = shared_bytes_of(layer, params);
    /* Without weights packing launches nothing. */
    made->grid.overlaps = params->weight_vectors > 0 && layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    return NULL;
}

} // namespace tconv::rows
