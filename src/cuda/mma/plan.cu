/*
 * How a layer is cut for the tensor-core kernels: all ways that fit are compared by a model of their time, and the least is
 * taken. The model counts, for a tile, the cycles of the matrix units, of shared memory and of copies, and how many rounds
 * of blocks the device takes. Nothing depends on pointers, so that weights packed once fit every call; what was chosen is
 * kept in the plan as a number (tconv_layer's choice), since comparing takes up to 25 microseconds.
 */
#include "../../core/checked.h"
#include "packed.cuh"
#include "parameters.h"

#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>

namespace tconv::mma
{

namespace
{

constexpr int64_t MAX_EXTENT = (int64_t)1
                               << 29; /* of images, channels, rows and columns: coordinates are 32-bit ones */
/* Steps that the tensor cores sum by themselves, which loses bits: of like terms in three products each, 8 may be 30 units
 * off, 4 no more than 16. */
constexpr int STRICT_FLUSH_STEPS = 4, FLUSH_STEPS = 16;
constexpr int64_t MAX_BLOCKS = (int64_t)1 << 30;
constexpr int64_t MAX_LONG_STRIDE = 5;       /* of columns, that there are kernels for sums of any length for */
constexpr int SHARED_RESERVED = 1024;        /* bytes that a block takes beside what it asks for, */
constexpr int SHARED_BARRIERS = 128;         /* of which these count towards its limit */
constexpr int MAX_SHARED_WORDS = 232448 / 4; /* of a block on any device; less where the device says so */

/* What the model knows of a multiprocessor; measured on an H200, and their ratios matter more than they. */
constexpr double MATRIX_CYCLES = 8;    /* of a matrix instruction, on one of 4 matrix units */
constexpr double COPY_BYTES = 32;      /* a cycle, from the level-2 cache */
constexpr double MEMORY_BYTES = 19;    /* a cycle, of device memory */
constexpr double CHUNK_CYCLES = 250;   /* barrier, and what a warp waits for at the start of a chunk */
constexpr double TILE_CYCLES = 2500;   /* the latency of a tile's stores and first products */
constexpr double LAUNCH_CYCLES = 3000; /* the first copies */

bool refuse(char reason[TCONV_REASON_SIZE], const char *text)
{
    snprintf(reason, TCONV_REASON_SIZE, "%s", text);
    return false;
}

int round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

int ceil_div(int value, int by)
{
    return (value + by - 1) / by;
}

/* -------------------------------------------------------------------------------------------------------- phase tables */

void fill_rows(const tconv_layer *layer, tconv_cuda_mma_parameters *made)
{
    made->row_residues = (int)tconv_min(layer->problem.h.stride, layer->problem.h.out);
    for (int i = 0; i < made->row_residues; i++)
        made->rows[i] = {0, 0, 0};
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        made->rows[phase->residue] = {(int)phase->taps, (int)phase->first_kernel,
                                      (int)(phase->first_shift - layer->rows.min_shift)};
    }
}

/* The place of a shift in the sorted list, made if it is not there; -1 where the list is full. */
int place_of_shift(tconv_cuda_mma_parameters *made, int shift)
{
    int at = 0;
    while (at < made->shifts && made->columns[at].shift < shift)
        at++;
    if (at < made->shifts && made->columns[at].shift == shift)
        return at;
    if (made->shifts == TCONV_CUDA_MMA_SHIFTS)
        return -1;
    memmove(&made->columns[at + 1], &made->columns[at], (size_t)(made->shifts - at) * sizeof made->columns[0]);
    memset(&made->columns[at], 0, sizeof made->columns[at]);
    made->columns[at].shift = (short)shift;
    made->shifts++;
    return at;
}

bool fill_columns(const tconv_layer *layer, tconv_cuda_mma_parameters *made)
{
    made->shifts = made->column_taps = 0;
    for (int64_t i = 0; i < layer->columns.count; i++) {
        const tconv_phase *phase = &layer->columns.phases[i];
        for (int64_t tap = 0; tap < phase->taps; tap++) {
            const int at = place_of_shift(
                made, (int)(phase->first_shift - tap * layer->columns.shift_step - layer->columns.min_shift));
            if (at < 0)
                return false;
            made->columns[at].residues = (short)(made->columns[at].residues | 1 << phase->residue);
            made->columns[at].kernel[phase->residue] = (short)(phase->first_kernel + tap * layer->columns.kernel_step);
        }
    }
    for (int i = 0; i < made->shifts; i++) {
        made->columns[i].before = (short)made->column_taps;
        made->column_taps += __builtin_popcount((unsigned int)made->columns[i].residues);
    }
    return true;
}

bool fill_layer(const tconv_layer *layer, tconv_cuda_mma_parameters *made, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->batch, problem->in_channels, problem->out_channels,
                               problem->h.in,  problem->w.in,        problem->h.out,
                               problem->w.out, problem->h.kernel,    problem->w.kernel};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] > MAX_EXTENT)
            return refuse(reason, "an extent of 2^29 or more");
    if (problem->h.stride > TCONV_CUDA_MMA_ROW_RESIDUES || problem->w.stride > TCONV_CUDA_MMA_COLUMN_RESIDUES)
        return refuse(reason, "strides of at most 16 x 8");
    if (layer->rows.max_shift - layer->rows.min_shift > TCONV_CUDA_MMA_EXTENT ||
        layer->columns.max_shift - layer->columns.min_shift > TCONV_CUDA_MMA_EXTENT ||
        layer->rows.max_taps > TCONV_CUDA_MMA_EXTENT || problem->w.kernel > TCONV_CUDA_MMA_EXTENT)
        return refuse(reason, "taps that lie too far apart for a patch in shared memory");
    memset(made, 0, sizeof *made);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->nhwc = problem->layout == TCONV_NHWC;
    made->batch = (int)problem->batch;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->src_rows = (int)problem->h.in;
    made->src_columns = (int)problem->w.in;
    made->dst_rows = (int)problem->h.out;
    made->dst_columns = (int)problem->w.out;
    made->stride_rows = (int)problem->h.stride;
    made->row_kernel_step = (int)layer->rows.kernel_step;
    made->row_shift_step = (int)layer->rows.shift_step;
    made->min_row_shift = (int)layer->rows.min_shift;
    made->min_column_shift = (int)layer->columns.min_shift;
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return refuse(reason, "outputs that are only bias");
    fill_rows(layer, made);
    made->most_row_taps = (int)layer->rows.max_taps;
    return fill_columns(layer, made) || refuse(reason, "at most 32 different column shifts");
}

/* ----------------------------------------------------------------------------------------------------------------- cut */

struct search {
    const tconv_layer *layer;
    tconv_cuda_mma_limits limits;
    int element_size, products; /* matrix instructions a product takes */
    int row_spread, column_spread, position_rows, position_columns;
    const tconv_cuda_mma_kernel *best_kernel;
    tconv_cuda_mma_parameters best;
    double best_cycles;
};

/* Row taps of the residues of a set; -1: the most of any set. */
int set_taps(const tconv_cuda_mma_parameters *cut, int set)
{
    if (set < 0) {
        int most = 0;
        for (int i = 0; i < cut->residue_sets; i++)
            most = (int)tconv_max(most, set_taps(cut, i));
        return most;
    }
    int taps = 0;
    for (int i = 0; i < cut->residue_parts; i++)
        if (set * cut->residue_parts + i < cut->row_residues)
            taps += cut->rows[set * cut->residue_parts + i].taps;
    return taps;
}

/* Shared memory for chunks of so many words. */
void lay_out_shared(const search *in, tconv_cuda_mma_parameters *cut, int chunk_words, int stages)
{
    const int vector = 16 / in->element_size, per_word = 4 / in->element_size;
    const int cells = cut->tile_images * cut->patch_rows * cut->patch_columns;
    const bool halves = !cut->nhwc && per_word == 2;
    cut->halves = halves;
    cut->chunk_words = chunk_words;
    cut->chunks = ceil_div(cut->group_in, chunk_words * per_word);
    cut->stages = stages;
    cut->steps = cut->shifts * (chunk_words / TCONV_CUDA_MMA_STEP_WORDS);
    /* Threads of a step's 4 words and 8 columns must meet 32 banks: 8 or 24 banks from a word to the next (NCHW), 4 times
     * an odd number from a cell to the next (NHWC). */
    const int plane = round_up(cells - 8, 16) + 8;
    cut->word_step = cut->nhwc ? 1 : halves ? 2 * plane : plane;
    cut->cell_step = cut->nhwc ? chunk_words + 4 : 1;
    cut->weights_at = cut->nhwc ? cells * cut->cell_step : chunk_words * plane;
    cut->blob_words = cut->channel_parts * set_taps(cut, -1) * cut->column_taps *
                      (chunk_words / TCONV_CUDA_MMA_STEP_WORDS) * (cut->part_channels / UNIT_ROWS) * cut->planes *
                      PLANE_WORDS;
    cut->stage_words = cut->weights_at + cut->blob_words;
    cut->table_at = stages * cut->stage_words;
    cut->steps_at = cut->table_at + cut->positions;
    cut->run_at = cut->steps_at + cut->most_row_taps * cut->steps + 2;
    cut->staged = !cut->nhwc && in->layer->problem.w.stride > 2 && in->layer->problem.w.stride < 7 &&
                  in->layer->problem.w.stride != 4 && cut->tile_columns % 8 == 0 && cut->flat_columns % 8 == 0;
    const int staging = cut->staged ? 64 * (int)in->layer->problem.w.stride * cut->channel_parts * cut->residue_parts *
                                          cut->position_warps
                                    : 0;
    cut->cells_at = round_up(cut->run_at + staging, 2);
    cut->shared_bytes = (cut->cells_at + 2 * cells / (cut->nhwc ? 1 : vector)) * 4;
}

double cycles_of(const search *in, const tconv_cuda_mma_parameters *cut, const tconv_cuda_mma_kernel *kernel)
{
    const double steps = cut->chunk_words / TCONV_CUDA_MMA_STEP_WORDS, row_taps = set_taps(cut, -1);
    const double warps = cut->channel_parts * cut->position_warps; /* of a row residue */
    const double per_row_tap =
        (double)cut->column_taps * kernel->channel_blocks * kernel->position_blocks * steps * in->products;
    int most_taps = 0;
    for (int i = 0; i < cut->row_residues; i++)
        most_taps = (int)tconv_max(most_taps, cut->rows[i].taps);
    const int computing = cut->channel_parts * cut->residue_parts * cut->position_warps;
    const double uneven = ceil_div(computing, 4) * 4.0 / computing; /* among the 4 parts of a multiprocessor */
    const int by_registers = kernel->warps / (computing);
    const int by_shared = (in->limits.shared_bytes + SHARED_RESERVED) / (cut->shared_bytes + SHARED_RESERVED);
    const double resident = (double)tconv_min(by_registers, by_shared);
    const double matrix = per_row_tap * MATRIX_CYCLES *
                          (row_taps * warps / 4 * uneven > most_taps ? row_taps * warps / 4 * uneven : most_taps);
    const double shared =
        row_taps * warps * steps *
        (cut->shifts * 2.0 * kernel->position_blocks + cut->column_taps * kernel->channel_blocks * cut->planes * 4.0);
    const bool weights_stay = cut->chunks == 1;
    const double copied = 4.0 * (cut->weights_at + (weights_stay ? 0 : cut->blob_words)) / COPY_BYTES;
    double chunk = matrix > shared ? matrix : shared;
    chunk = (chunk > copied ? chunk : copied) + CHUNK_CYCLES;
    const double outputs = (double)cut->part_channels * cut->channel_parts * cut->tile_images * cut->tile_rows *
                           cut->tile_columns * cut->residue_parts * kernel->stride;
    const double stores = outputs * in->element_size / MEMORY_BYTES;
    const double busy = cut->chunks * chunk + stores;

    const double tiles =
        (double)cut->position_tiles * cut->groups * cut->channel_tiles * cut->residue_sets / in->limits.multiprocessors;
    const double rounds = (double)(int64_t)(tiles / resident + 0.999);
    const double together = tiles < resident ? (double)(int64_t)(tiles + 0.999) : resident;
    const double round = together * busy > busy + TILE_CYCLES ? together * busy : busy + TILE_CYCLES;
    return rounds * round + LAUNCH_CYCLES;
}

/* Chooses chunk and stages for a cut whose tile and warps are given, and keeps it if it is the best. */
void consider(search *in, tconv_cuda_mma_parameters *cut, const tconv_cuda_mma_kernel *kernel)
{
    const int per_word = 4 / in->element_size;
    const int all_words = round_up(ceil_div(cut->group_in, per_word), TCONV_CUDA_MMA_STEP_WORDS);
    for (int words = 32; words >= TCONV_CUDA_MMA_STEP_WORDS; words /= 2) {
        if (words >= 2 * all_words)
            continue;
        const int chunk = words < all_words ? words : all_words;
        const int warps = cut->channel_parts * cut->residue_parts * cut->position_warps;
        const int resident = kernel->warps / warps;
        if (resident == 0)
            continue;
        const int share = (in->limits.shared_bytes + SHARED_RESERVED) / resident - SHARED_RESERVED;
        int stages = TCONV_CUDA_MMA_STAGES;
        do
            lay_out_shared(in, cut, chunk, stages);
        while (cut->shared_bytes > share && --stages >= 2);
        if (cut->shared_bytes > in->limits.shared_bytes)
            continue;
        const double cycles = cycles_of(in, cut, kernel);
        if (in->best_kernel == NULL || cycles < in->best_cycles) {
            in->best = *cut;
            in->best_kernel = kernel;
            in->best_cycles = cycles;
        }
    }
}

/* Lays out the tile for so many positions whose rows have so many columns. Returns false where there is none. */
bool lay_out_tile(const search *in, tconv_cuda_mma_parameters *cut, const tconv_cuda_mma_kernel *kernel, int columns)
{
    const int vector = 16 / in->element_size;
    cut->positions = cut->position_warps * kernel->position_blocks * 8;
    if (columns > cut->positions || columns > TCONV_CUDA_MMA_EXTENT)
        return false;
    cut->tile_columns = columns;
    cut->tile_rows = (int)tconv_min(cut->positions / columns, in->position_rows);
    cut->tile_rows = ceil_div(in->position_rows, ceil_div(in->position_rows, cut->tile_rows)); /* even ones */
    cut->tile_images = cut->tile_rows == in->position_rows && columns >= in->position_columns
                           ? (int)tconv_min(cut->positions / (columns * cut->tile_rows), tconv_max(cut->batch, 1))
                           : 1;
    cut->patch_rows = cut->tile_rows + in->row_spread;
    cut->patch_columns = columns + in->column_spread;
    if (!cut->nhwc)
        cut->patch_columns = round_up(cut->patch_columns + vector - 1, vector);
    if (cut->patch_rows > TCONV_CUDA_MMA_EXTENT || cut->patch_columns > TCONV_CUDA_MMA_EXTENT ||
        (int64_t)cut->tile_images * cut->patch_rows * cut->patch_columns > MAX_SHARED_WORDS)
        return false;
    cut->row_tiles = ceil_div(in->position_rows, cut->tile_rows);
    cut->column_tiles = ceil_div(in->position_columns, columns);
    const int64_t tiles =
        (int64_t)ceil_div((int)tconv_max(cut->batch, 1), cut->tile_images) * cut->row_tiles * cut->column_tiles;
    if (tiles >= MAX_BLOCKS)
        return false;
    cut->position_tiles = (unsigned int)tiles;
    return true;
}

void consider_tile(search *in, tconv_cuda_mma_parameters *cut, const tconv_cuda_mma_kernel *kernel, int columns)
{
    if (lay_out_tile(in, cut, kernel, columns))
        consider(in, cut, kernel);
}

void share_warps(tconv_cuda_mma_parameters *cut, int residue_parts, int channel_parts, int position_warps)
{
    cut->residue_parts = residue_parts;
    cut->residue_sets = ceil_div(cut->row_residues, residue_parts);
    cut->channel_parts = channel_parts;
    cut->channel_tiles = ceil_div(cut->group_out, cut->part_channels * channel_parts);
    cut->position_warps = position_warps;
}

/* Ways to share out a block's warps. */
void consider_warps(search *in, tconv_cuda_mma_parameters *cut, const tconv_cuda_mma_kernel *kernel, int residue_parts)
{
    const int full = round_up(in->position_columns, 2);
    for (int channel_parts = 1; channel_parts * residue_parts <= TCONV_CUDA_MMA_WARPS; channel_parts *= 2) {
        if (channel_parts > 1 && cut->part_channels * channel_parts >= 2 * cut->group_out)
            break;
        for (int warps = 1; warps * channel_parts * residue_parts <= TCONV_CUDA_MMA_WARPS; warps++) {
            if (warps * channel_parts * residue_parts * 2 < TCONV_CUDA_MMA_WARPS / 2)
                continue;
            const int positions = warps * kernel->position_blocks * 8;
            share_warps(cut, residue_parts, channel_parts, warps);
            consider_tile(in, cut, kernel, full);
            const int width = positions < full ? positions : full;
            for (int columns = width >= 64 ? 64 : 32; columns >= 16; columns /= 2)
                if (columns < full)
                    consider_tile(in, cut, kernel, columns);
            if (positions < full && positions > 64)
                consider_tile(in, cut, kernel, positions);
        }
    }
}

/* The most elements, up to those of 16 bytes, that every one of the numbers is a multiple of. */
int common_vector(size_t element_size, const int64_t *numbers, size_t count)
{
    int vector = (int)(16 / element_size);
    for (size_t i = 0; i < count; i++)
        while (vector > 1 && numbers[i] % vector != 0)
            vector /= 2;
    return vector;
}

void fill_vectors(const tconv_problem *problem, const tconv_arguments *arguments, tconv_cuda_mma_parameters *made,
                  int stride, int channel_blocks, int position_blocks)
{
    const size_t size = problem->element_size;
    const int64_t src = arguments != NULL ? (int64_t)((uintptr_t)arguments->src / size) : 0;
    const int64_t dst = arguments != NULL ? (int64_t)((uintptr_t)arguments->dst / size) : 0;
    const int64_t src_columns[] = {src, problem->src.n, problem->src.c, made->flat_columns != 0 ? 0 : problem->src.h,
                                   made->src_columns};
    const int64_t src_pixels[] = {src, problem->src.n, problem->src.h, problem->src.w,
                                  made->groups > 1 ? problem->group_in : 0};
    made->src_vector = made->nhwc ? common_vector(size, src_pixels, 5) : common_vector(size, src_columns, 5);
    const int64_t dst_columns[] = {dst, problem->dst.n, problem->dst.c, problem->dst.h, 2 * stride};
    const int run = tconv_cuda_mma_run(channel_blocks, size);
    const int64_t dst_pixels[] = {dst, problem->dst.n, problem->dst.h, problem->dst.w,
                                  made->groups > 1 ? problem->group_out : 0};
    made->store_vector = made->nhwc ? common_vector(size, dst_pixels, 5) : common_vector(size, dst_columns, 5);
    made->channel_run = made->nhwc ? run : 1;
    made->linear = !made->nhwc && made->tile_columns % (8 * position_blocks) == 0;
}

tconv_cuda_mma_mode mode_of(const tconv_layer *layer)
{
    const bool nchw = layer->problem.layout == TCONV_NCHW;
    if (layer->problem.dtype == TCONV_F16)
        return nchw ? TCONV_CUDA_MMA_F16_PLANES : TCONV_CUDA_MMA_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return nchw ? TCONV_CUDA_MMA_BF16_PLANES : TCONV_CUDA_MMA_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? TCONV_CUDA_MMA_TF32 : TCONV_CUDA_MMA_STRICT;
}

/* Where every position reads its own pixel alone (kernel = stride, nothing cut off), rows need not be told apart: an image
 * is one row of pixels, which tiles cut without rest. */
void flatten(search *in, tconv_cuda_mma_parameters *made)
{
    const tconv_problem *problem = &in->layer->problem;
    if (in->row_spread != 0 || in->column_spread != 0 || made->min_row_shift != 0 || made->min_column_shift != 0 ||
        in->position_rows != made->src_rows || in->position_columns != made->src_columns ||
        made->src_columns % 2 != 0 || problem->h.in * problem->w.in > MAX_EXTENT)
        return;
    made->flat_columns = made->src_columns;
    made->src_columns *= made->src_rows;
    made->src_rows = 1;
    in->position_columns = made->src_columns;
    in->position_rows = 1;
}

} // namespace

tconv_cuda_mma_limits tconv_cuda_mma_limits_of(int device)
{
    tconv_cuda_mma_limits limits = {1, 0};
    if (cudaDeviceGetAttribute(&limits.multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
        limits = {1, 48 * 1024};
    limits.shared_bytes -= SHARED_BARRIERS;
    return limits;
}

const tconv_cuda_mma_kernel *tconv_cuda_mma_kernels(tconv_cuda_mma_mode mode)
{
    static const tconv_cuda_mma_kernel *const kernels[TCONV_CUDA_MMA_MODES] = {
        tconv_cuda_mma_tf32_kernels, tconv_cuda_mma_strict_kernels,     tconv_cuda_mma_f16_kernels,
        tconv_cuda_mma_bf16_kernels, tconv_cuda_mma_f16_planes_kernels, tconv_cuda_mma_bf16_planes_kernels};
    return kernels[mode];
}

/* How often what the tensor cores summed is added to an output; steps without a tap included. */
static int64_t additions_of(const tconv_layer *layer, const tconv_cuda_mma_parameters *cut)
{
    const int64_t steps = tconv_ceil_div(layer->problem.group_in, TCONV_CUDA_MMA_STEP_WORDS);
    return tconv_ceil_div(layer->rows.max_taps * cut->shifts * steps, cut->flush_steps);
}

/* Begins a search, and the cut that all of its cuts have in common. */
static bool begin(const tconv_layer *layer, search *in, tconv_cuda_mma_parameters *cut, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cuda_mma_mode mode = mode_of(layer);
    if (!fill_layer(layer, cut, reason))
        return false;
    *in = {};
    in->layer = layer;
    in->element_size = (int)problem->element_size;
    in->products = mode == TCONV_CUDA_MMA_STRICT ? 3 : 1;
    in->row_spread = (int)(layer->rows.max_shift - layer->rows.min_shift);
    in->column_spread = (int)(layer->columns.max_shift - layer->columns.min_shift);
    in->position_rows = (int)tconv_ceil_div(problem->h.out, problem->h.stride);
    in->position_columns = (int)tconv_ceil_div(problem->w.out, problem->w.stride);
    cut->planes = mode == TCONV_CUDA_MMA_STRICT ? 2 : 1;
    cut->skew_mask = cut->nhwc ? 0 : 16 / in->element_size - 1;
    flatten(in, cut);
    cut->flush_steps = mode == TCONV_CUDA_MMA_STRICT ? STRICT_FLUSH_STEPS : FLUSH_STEPS;
    return true;
}

/* What tells a layer's cuts apart, in the order of a choice's bits; tile_columns is the only one above 255. */
enum { KERNEL, RESIDUE_PARTS, CHANNEL_PARTS, POSITION_WARPS, TILE_COLUMNS, CHUNK_WORDS, CUT_STAGES, CUT_NUMBERS };
static constexpr int CUT_BITS[CUT_NUMBERS] = {8, 4, 4, 4, 10, 6, 3};

static int64_t choice_of(const tconv_layer *layer, const tconv_cuda_mma_parameters *cut,
                         const tconv_cuda_mma_kernel *kernel)
{
    const int64_t numbers[CUT_NUMBERS] = {kernel - tconv_cuda_mma_kernels(mode_of(layer)),
                                          cut->residue_parts,
                                          cut->channel_parts,
                                          cut->position_warps,
                                          cut->tile_columns,
                                          cut->chunk_words,
                                          cut->stages};
    int64_t choice = 0;
    for (int i = CUT_NUMBERS - 1; i >= 0; i--)
        choice = choice << CUT_BITS[i] | numbers[i];
    return choice;
}

bool tconv_cuda_mma_choose(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    const int stride = (int)layer->problem.w.stride;
    const tconv_cuda_mma_mode mode = mode_of(layer);
    tconv_cuda_mma_parameters cut;
    search in;
    if (!begin(layer, &in, &cut, reason))
        return false;
    in.limits = tconv_cuda_mma_limits_of(layer->target.device);
    const bool long_sums = mode == TCONV_CUDA_MMA_STRICT && additions_of(layer, &cut) > TCONV_CUDA_MMA_MAX_ADDITIONS;
    for (const tconv_cuda_mma_kernel *each = tconv_cuda_mma_kernels(mode); each->function != NULL; each++) {
        if (each->stride != stride || each->any_length != long_sums)
            continue;
        cut.part_channels = UNIT_ROWS * each->channel_blocks;
        if (each->channel_blocks > 1 && cut.part_channels >= 2 * cut.group_out)
            continue;
        consider_warps(&in, &cut, each, (int)tconv_min(cut.row_residues, TCONV_CUDA_MMA_WARPS));
        if (cut.row_residues > 1)
            consider_warps(&in, &cut, each, 1);
    }
    if (in.best_kernel == NULL && long_sums && stride > MAX_LONG_STRIDE)
        return refuse(reason, "strict f32 sums of more than 48 times 64 terms, whose rounding would have to be "
                              "compensated, in columns of a stride above 5");
    if (in.best_kernel == NULL)
        return refuse(reason, "no tile of this stride and kernel fits in shared memory");
    layer->choice = choice_of(layer, &in.best, in.best_kernel);
    return true;
}

void tconv_cuda_mma_chosen(const tconv_layer *layer, const tconv_arguments *arguments,
                           tconv_cuda_mma_parameters *parameters, const tconv_cuda_mma_kernel **kernel)
{
    char unused[TCONV_REASON_SIZE];
    int numbers[CUT_NUMBERS];
    int64_t choice = layer->choice;
    search in;
    for (int i = 0; i < CUT_NUMBERS; i++) {
        numbers[i] = (int)(choice & ((1 << CUT_BITS[i]) - 1));
        choice >>= CUT_BITS[i];
    }
    begin(layer, &in, parameters, unused);
    const tconv_cuda_mma_kernel *chosen = tconv_cuda_mma_kernels(mode_of(layer)) + numbers[KERNEL];
    parameters->part_channels = UNIT_ROWS * chosen->channel_blocks;
    share_warps(parameters, numbers[RESIDUE_PARTS], numbers[CHANNEL_PARTS], numbers[POSITION_WARPS]);
    lay_out_tile(&in, parameters, chosen, numbers[TILE_COLUMNS]);
    lay_out_shared(&in, parameters, numbers[CHUNK_WORDS], numbers[CUT_STAGES]);
    fill_vectors(&layer->problem, arguments, parameters, chosen->stride, chosen->channel_blocks,
                 chosen->position_blocks);
    *kernel = chosen;
}

} // namespace tconv::mma
