/*
 * The rows algorithm on CUDA: NCHW layers with few input channels per group, whose time is that of writing dst, on tensor
 * cores: f32 (strict by 3xTF32, or TF32), f16 and bf16; row strides up to 16, column strides 1 to 6 and 8; any padding,
 * dilation, slice and alignment. The kernel is in rows_kernel.cuh.
 *
 * Numeric order: see the kernel; it depends on the layer alone.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::rows
{

namespace
{

constexpr int MIN_COMPUTE_CAPABILITY = 80; /* TF32, bf16 and asynchronous copies */
constexpr int64_t ACCESS = 16;             /* bytes that a thread copies at once */
constexpr int64_t RESERVED = 1024;         /* of shared memory, for each block */
constexpr int64_t CHANNELS = TCONV_CUDA_ROWS_CHANNELS;
constexpr int64_t MAX_TURNS = 8; /* of blocks, that are tried: with more, the last one is a small part of all */

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16. */
constexpr int64_t MAX_ADDITIONS = 48;

constexpr int BULK_COMPUTE_CAPABILITY = 90;

/* What it takes, in cycles: of a multiprocessor for a byte of dst, output channels of a group padded, for each of an output's
 * steps of products, which are worth so many in strict f32, and for a byte of src that a block reads; of the device for a launch.
 * Fitted to 46 times of 20 layers on an H200 (off by 18 %), where a block has MIN_WARPS, unless a row has fewer columns, and
 * shares its multiprocessor with as many as it should. */
constexpr double DST_CYCLES = 0.057, STEP_CYCLES = 0.043, STRICT_STEPS = 2.4, SRC_CYCLES = 0.036;
constexpr double LAUNCH_CYCLES = 25000;
constexpr int64_t MIN_WARPS = 4;

constexpr int64_t LEAST_ZEROS = 256; /* where a row of them does not fit: a few bulk copies a row */

/* Channels of src in shared memory begin in different banks for the lanes of a fragment. */
constexpr int64_t BANKS = 32, BANK_BYTES = 4, CHANNEL_SKEW = 8; /* an odd multiple, in elements */

/* Shared memory that a block may ask for, by compute capability. */
int64_t max_shared(int compute_capability)
{
    return compute_capability >= 90                               ? 227 * 1024
           : compute_capability == 80 || compute_capability == 87 ? 163 * 1024
                                                                  : 99 * 1024;
}

int64_t round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

bool is_strict(const tconv_layer *layer)
{
    return layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
}

int64_t steps_of(const tconv_problem *problem)
{
    return tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, TCONV_CUDA_ROWS_STEP_BYTES);
}

/* Steps of the longest sum. */
int64_t additions_of(const tconv_layer *layer)
{
    return layer->rows.max_taps * layer->columns.max_taps * steps_of(&layer->problem);
}

/* f16 and bf16: sums that are left to the tensor cores; and those of channels that are half a step. */
bool is_direct(const tconv_layer *layer)
{
    return layer->problem.dtype != TCONV_F32 && additions_of(layer) <= TCONV_CUDA_ROWS_DIRECT_STEPS;
}

bool is_narrow(const tconv_layer *layer)
{
    return is_direct(layer) && layer->problem.group_in <= TCONV_CUDA_ROWS_NARROW_CHANNELS;
}

int64_t taps_of(const tconv_phase_table *table)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < table->count; i++)
        taps += table->phases[i].taps;
    return taps;
}

int64_t weight_quads_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return problem->h.kernel * taps_of(&layer->columns) * steps_of(problem) * (is_strict(layer) ? 2 : 1) *
           (TCONV_CUDA_ROWS_PLANE_BYTES / ACCESS);
}

/* Positions of a warp. */
int64_t positions_of(const tconv_layer *layer)
{
    return TCONV_CUDA_ROWS_TILES(layer->problem.w.stride) * TCONV_CUDA_ROWS_TILE;
}

bool has_kernel(int64_t column_stride)
{
    return column_stride <= 6 || column_stride == 8;
}

/* Of a padded coordinate of outputs. */
int64_t first_quotient(const tconv_axis *axis)
{
    return axis->pad / axis->stride;
}

int64_t end_quotient(const tconv_axis *axis)
{
    return (axis->pad + axis->out - 1) / axis->stride + 1;
}

/* How far the taps of a phase read back from its padded quotient: the first tap. */
int64_t back_of(const tconv_axis *axis, const tconv_phase *phase)
{
    return (phase->residue + axis->pad) / axis->stride - phase->first_shift;
}

int64_t most_back(const tconv_axis *axis, const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, back_of(axis, &table->phases[i]) + (table->phases[i].taps - 1) * table->shift_step);
    return most;
}

int64_t shared_bytes_of(const tconv_layer *layer, const tconv_cuda_rows_parameters *made)
{
    const int64_t src = (int64_t)made->slots * made->slot_channels * made->src_pitch;
    return weight_quads_of(layer) * ACCESS +
           (src + CHANNELS * made->staged_pitch + made->zeros) * (int64_t)layer->problem.element_size +
           CHANNELS * TCONV_CUDA_ROWS_SECTOR_BYTES;
}

/* How many lanes meet in one bank when sums are staged: lane l has channel l / 4, from output 2 * (l % 4) * stride on. */
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
    const int64_t sector = TCONV_CUDA_ROWS_SECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t least = elements + (problem->dst.c % sector - elements % sector + sector) % sector;
    int64_t best = least;
    for (int64_t pitch = least; pitch < least + BANKS * BANK_BYTES / (int64_t)problem->element_size; pitch += sector)
        if (conflicts_of(problem, pitch) < conflicts_of(problem, best))
            best = pitch;
    return best;
}

/* Fills in what depends on the columns of a tile: those of so many warps. */
void cut_columns(const tconv_layer *layer, int64_t warps, tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const int64_t positions = positions_of(layer);
    made->columns = (int)(warps * positions);
    made->column_tiles = (int)tconv_ceil_div(made->end_column - made->first_column, made->columns);
    const int64_t loaded = round_up(made->columns + made->most_column_back + length - 1, length);
    made->src_loaded = (int)loaded;
    made->src_pitch = (int)round_up(loaded, CHANNEL_SKEW);
    if (made->src_pitch % (2 * CHANNEL_SKEW) == 0)
        made->src_pitch += (int)CHANNEL_SKEW;
    const int64_t sector = TCONV_CUDA_ROWS_SECTOR_BYTES / (int64_t)problem->element_size;
    made->staged_pitch = (int)choose_pitch(problem, made->columns * problem->w.stride + sector);
    made->zeros = layer->rows.bias_only > 0 ? (int)round_up(made->columns * problem->w.stride, sector) : 0;
    const int64_t unit = problem->dtype == TCONV_F32 ? 1 : 2; /* channels that are copied together */
    const int64_t unit_warps = tconv_max(warps / tconv_ceil_div(problem->group_in, unit), 1);
    made->unit_warps = (int)unit_warps;
    made->unit_step = (int)(warps / unit_warps * unit);
    made->piece_step = (int)(unit_warps * 32 * length);
    made->joins_rows = made->column_tiles == 1 && problem->w.out >= 2 * sector;
}

/* Shared memory of a block where enough of them share a multiprocessor. */
int64_t shared_of_block(const tconv_layer *layer)
{
    return (max_shared(layer->target.compute_capability) + RESERVED) / TCONV_CUDA_ROWS_BLOCKS - RESERVED;
}

/* Warps of a block: as many as there are columns for, but so that enough blocks share a multiprocessor, if they can. */
bool choose_columns(const tconv_layer *layer, tconv_cuda_rows_parameters *made)
{
    const int64_t positions = positions_of(layer);
    const int64_t all = tconv_ceil_div(made->end_column - made->first_column, positions);
    const int64_t limit = max_shared(layer->target.compute_capability);
    for (int tried = 0; tried < 2; tried++)
        /* Tiles as even as can be: each number of warps that they may then have. */
        for (int64_t most = TCONV_CUDA_ROWS_WARPS; most > 0; most--) {
            const int64_t warps = tconv_ceil_div(all, tconv_ceil_div(all, most));
            const int64_t bytes = tried == 0 ? shared_of_block(layer) : limit;
            cut_columns(layer, warps, made);
            if (shared_bytes_of(layer, made) > bytes)
                made->zeros = (int)tconv_min(made->zeros, LEAST_ZEROS);
            if (shared_bytes_of(layer, made) <= bytes)
                return true;
        }
    return false;
}

const char *refusal_of_kind(const tconv_layer *layer)
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
    if (most_back(&problem->w, &layer->columns) >= TCONV_CUDA_ROWS_BACKS)
        return "taps that read more than 16 columns";
    if (problem->h.kernel * problem->w.kernel * problem->group_in >= SMALL_AXIS_EXTENT ||
        most_back(&problem->h, &layer->rows) * problem->group_in >= SMALL_AXIS_EXTENT ||
        problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
        return "too many weights or channels for 32-bit numbers";
    if (is_strict(layer) && additions_of(layer) > MAX_ADDITIONS)
        return "strict f32 sums of more than 48 taps by 8 channels";
    return NULL;
}

/* Why the layer is not taken, or NULL and how it is cut into columns. */
const char *refusal(const tconv_layer *layer, tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = refusal_of_kind(layer);
    if (why != NULL)
        return why;
    const int64_t step = TCONV_CUDA_ROWS_STEP_BYTES / (int64_t)problem->element_size;
    made->most_row_back = (int)most_back(&problem->h, &layer->rows);
    made->most_column_back = (int)most_back(&problem->w, &layer->columns);
    made->first_column = (int)first_quotient(&problem->w);
    made->end_column = (int)end_quotient(&problem->w);
    made->first_row = (int)first_quotient(&problem->h);
    made->end_row = (int)end_quotient(&problem->h);
    made->slots = made->most_row_back + 2; /* and the next row, which is on its way */
    made->steps = (int)steps_of(problem);
    made->slot_channels = is_narrow(layer) ? TCONV_CUDA_ROWS_NARROW_CHANNELS : (int)(made->steps * step);
    made->channel_blocks = (int)tconv_ceil_div(problem->group_out, CHANNELS);
    if (!choose_columns(layer, made))
        return "weights, or rows of src, too many for shared memory";
    const int64_t blocks = (int64_t)made->column_tiles * made->channel_blocks;
    return problem->batch * problem->groups > INT32_MAX / (made->end_row - made->first_row) / blocks
               ? "too many images for 32-bit numbers of blocks"
               : NULL;
}

bool rows_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_cuda_rows_parameters unused = {};
    const char *why = refusal(layer, &unused);
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    return why == NULL;
}

const char *slowness(const tconv_layer *layer)
{
    tconv_cuda_rows_parameters made = {};
    if (layer->target.compute_capability < BULK_COMPUTE_CAPABILITY)
        return "stores without bulk copies";
    refusal(layer, &made);
    const int64_t columns = made.end_column - made.first_column, positions = positions_of(layer);
    if (columns < positions || made.columns < tconv_min(columns, MIN_WARPS * positions))
        return "few columns, or room for few in shared memory beside the weights";
    return shared_bytes_of(layer, &made) > shared_of_block(layer) ? "room for one block in shared memory" : NULL;
}

bool rows_suits(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    const char *why = slowness(layer);
    if (why != NULL) {
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
        return false;
    }
    const int64_t blocks = tconv_ceil_div(problem->group_out, CHANNELS);
    const double channels = (double)(blocks * CHANNELS * problem->groups), element = (double)problem->element_size;
    const double outputs = channels * (double)problem->batch * (double)problem->h.out * (double)problem->w.out;
    const double src = (double)(blocks * problem->in_channels) * (double)problem->batch *
                       (double)(problem->h.in * problem->w.in) * element;
    const double taps =
        (double)(problem->h.kernel * problem->w.kernel) / ((double)layer->rows.stride * (double)layer->columns.stride);
    const double steps = taps * (double)steps_of(problem) * (is_strict(layer) ? STRICT_STEPS : 1);
    *cycles = (outputs * (DST_CYCLES * element + STEP_CYCLES * steps) + SRC_CYCLES * src) /
                  multiprocessors_of(layer->target.device) +
              LAUNCH_CYCLES;
    return true;
}

tconv_status rows_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    (void)issue; /* a block's weights fit in shared memory */
    sizes->packed =
        (size_t)(problem->groups * tconv_ceil_div(problem->group_out, CHANNELS) * weight_quads_of(layer) * ACCESS);
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

/* The parameters that depend on the layer alone. */
void describe(const tconv_layer *layer, tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    refusal(layer, made);
    made->src_image = problem->src.n;
    made->src_channel = problem->src.c;
    made->dst_image = problem->dst.n;
    made->dst_channel = problem->dst.c;
    made->in_rows = (int)problem->h.in;
    made->in_columns = (int)problem->w.in;
    made->out_rows = (int)problem->h.out;
    made->out_columns = (int)problem->w.out;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->row_stride = (int)problem->h.stride;
    made->row_pad = (int)problem->h.pad;
    made->column_pad = (int)problem->w.pad;
    made->row_kernel_step = (int)layer->rows.kernel_step;
    made->row_back_step = (int)layer->rows.shift_step;
    made->column_taps = (int)taps_of(&layer->columns);
    made->weight_quads = (int)weight_quads_of(layer);
    made->kernel_row_quads = (int)(weight_quads_of(layer) / problem->h.kernel);
    made->slot_size = made->slot_channels * made->src_pitch;
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        const int64_t residue = (phase->residue + problem->h.pad) % problem->h.stride;
        made->row_taps[residue] = (int)phase->taps;
        made->row_kernel[residue] = (int)phase->first_kernel;
        made->row_back[residue] = (int)back_of(&problem->h, phase);
    }
    for (int64_t i = 0; i < layer->columns.count; i++) {
        const tconv_phase *phase = &layer->columns.phases[i];
        const int64_t residue = (phase->residue + problem->w.pad) % problem->w.stride;
        for (int64_t tap = 0; tap < phase->taps; tap++) {
            const int64_t back = back_of(&problem->w, phase) + tap * layer->columns.shift_step;
            made->column_residues[back] |= 1 << residue;
            made->kernel_column[back][residue] = (short)(phase->first_kernel + tap * layer->columns.kernel_step);
        }
    }
    const int tap_quads = made->column_taps > 0 ? made->kernel_row_quads / made->column_taps : 0;
    for (int back = 1; back < TCONV_CUDA_ROWS_BACKS; back++) {
        int residues = 0;
        for (int bits = made->column_residues[back - 1]; bits != 0; bits &= bits - 1)
            residues++;
        made->column_quads[back] = made->column_quads[back - 1] + residues * tap_quads;
    }
}

tconv_status rows_pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    tconv_cuda_rows_parameters parameters = {};
    describe(layer, &parameters);
    return on_device(layer->target.device, issue,
                     [&] { return tconv_cuda_pack_rows(layer, &parameters, weights, packed, stream, issue); });
}

/* Blocks that share a multiprocessor. */
int64_t blocks_of(const tconv_layer *layer, const tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t warps = made->columns / positions_of(layer);
    return tconv_min((max_shared(layer->target.compute_capability) + RESERVED) /
                         (shared_bytes_of(layer, made) + RESERVED),
                     TCONV_CUDA_ROWS_MOST_BLOCKS((int)problem->element_size, is_direct(layer), problem->w.stride) *
                         TCONV_CUDA_ROWS_WARPS / warps);
}

/* Rows without taps that follow those of a residue. */
int blanks_after(const tconv_cuda_rows_parameters *made, int residue)
{
    int blanks = 0;
    while (blanks < made->row_stride && made->row_taps[(residue + blanks + 1) % made->row_stride] == 0)
        blanks++;
    return blanks;
}

/* Has rows without taps written together with the row before, where room for them costs no block. */
void join_blank_rows(const tconv_layer *layer, tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t sector = TCONV_CUDA_ROWS_SECTOR_BYTES / (int64_t)problem->element_size;
    tconv_cuda_rows_parameters joined = *made;
    for (int residue = 0; residue < made->row_stride; residue++) {
        joined.row_blanks[residue] = made->row_taps[residue] > 0 ? blanks_after(made, residue) : 0;
        joined.blank_rows = (int)tconv_max(joined.blank_rows, joined.row_blanks[residue]);
    }
    joined.staged_pitch =
        (int)choose_pitch(problem, made->columns * problem->w.stride * (joined.blank_rows + 1) + 2 * sector);
    joined.zeros = (int)tconv_min(made->zeros, LEAST_ZEROS);
    if (made->joins_rows && joined.blank_rows > 0 && blocks_of(layer, &joined) >= tconv_max(blocks_of(layer, made), 1))
        *made = joined;
}

/* Cuts the rows into strips, so that the multiprocessors work off all blocks in a few whole turns and the least time. */
void cut_rows(const tconv_layer *layer, int multiprocessors, tconv_cuda_rows_parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t rows = made->end_row - made->first_row;
    const int64_t places = multiprocessors * tconv_max(blocks_of(layer, made), 1);
    const int64_t others = problem->batch * problem->groups * made->column_tiles * made->channel_blocks;
    int64_t best = INT64_MAX;
    for (int64_t turns = 1; turns <= MAX_TURNS; turns++) {
        const int64_t strips = tconv_min(tconv_max(places * turns / others, 1), rows);
        const int64_t strip_rows = tconv_ceil_div(rows, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
        const int64_t time = taken * (strip_rows + made->most_row_back + 1);
        if (time < best) {
            best = time;
            made->strip_rows = (int)strip_rows;
        }
    }
    made->strips = (int)tconv_ceil_div(rows, made->strip_rows);
}

tconv_status launch(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    tconv_cuda_rows_parameters parameters = {};
    void *kernel_arguments[] = {&parameters};
    int multiprocessors = 0;
    tconv_status status =
        check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, layer->target.device),
                   "cudaDeviceGetAttribute", issue);
    if (status != TCONV_SUCCESS)
        return status;
    describe(layer, &parameters);
    join_blank_rows(layer, &parameters);
    cut_rows(layer, multiprocessors, &parameters);
    parameters.src = arguments->src;
    parameters.weights = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.src_aligned = (uintptr_t)arguments->src % ACCESS == 0 && problem->src.n % length == 0 &&
                             problem->src.c % length == 0 && problem->w.in % length == 0;

    parameters.stage_pairs = problem->dst.c % 2 == 0;

    const void *kernel =
        problem->dtype == TCONV_F32
            ? (const void *)tconv_cuda_rows_f32(!is_strict(layer), problem->w.stride)
            : (const void *)tconv_cuda_rows_half(problem->dtype, is_direct(layer), is_narrow(layer), problem->w.stride);
    status = allow_shared(kernel, max_shared(layer->target.compute_capability), issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t blocks =
        problem->batch * problem->groups * parameters.strips * parameters.column_tiles * parameters.channel_blocks;
    const int64_t positions = positions_of(layer);
    const bool has_weights = parameters.weight_quads > 0; /* else packing launches nothing */
    const launch_grid grid = {kernel, blocks, (int)(parameters.columns / positions * 32),
                              shared_bytes_of(layer, &parameters), arguments->packs && has_weights};
    return launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
}

tconv_status rows_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] { return launch(layer, arguments, issue); });
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_rows = {
    "cuda_rows", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, rows_supports, rows_memory,
    rows_pack,   rows_execute,       rows_suits,          NULL,          0};

} // namespace tconv::rows
