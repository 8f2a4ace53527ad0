/*
 * What a plan of cuda_rows does: see work.h. A tile is the strip of a block, at BLOCK_M output channels; a K-block is
 * one row position of it, at all row phases. rows.cu keeps its tiling to itself, so that this file makes it again as
 * far as it is counted here: the warps of a block, blocks on a multiprocessor, rows of a strip.
 */
#include "../../core/checked.h"
#include "../rows/parameters.h"
#include "planned.h"

#include <cmath>

namespace tconv::rows
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 2700; /* of a row of dst: staging it, two barriers, bulk stores of 16 channels */
constexpr double STRICT_CYCLES = 36;  /* of an MMA in strict f32, in place of the machine's mma_chain */
constexpr double TILE_CYCLES = 2400;  /* of a strip: weights, tables of taps */

constexpr int64_t RESERVED = 1024;    /* bytes of shared memory that CUDA takes for each block */
constexpr int64_t MAX_WAVES = 8;      /* that are tried, as in rows.cu */
constexpr double UNALIGNED_LOADS = 4; /* for a channel's row, where it is no vectors of 16 bytes; else 1 */

/* Padding in shared memory, about that of rows.cu. */
constexpr int64_t CHANNEL_SKEW = 8;   /* elements from a channel of a stage to the next, beside its row */
constexpr int64_t STAGING_BYTES = 64; /* of a channel of the staging, beside its row */

struct tiling {
    int64_t steps;     /* of MMAs along the channels of a group */
    int64_t positions; /* columns of a warp */
    int64_t warps;     /* of a block */
    int64_t columns;   /* positions of a block */
    int64_t column_tiles;
    int64_t resident; /* blocks on a multiprocessor */
    int64_t row_back; /* rows of src that outputs reach back over */
    int64_t strip_rows;
    int64_t waves;
    double blocks;
};

bool is_direct(const tconv_layer *layer, int64_t steps)
{
    return layer->problem.dtype != TCONV_F32 && layer->rows.max_taps * layer->columns.max_taps * steps <= DIRECT_STEPS;
}

int64_t column_taps(const tconv_layer *layer)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < layer->columns.count; i++)
        taps += layer->columns.phases[i].taps;
    return taps;
}

/* Shared memory of a block of so many warps, about. */
int64_t shared_bytes_of(const tconv_layer *layer, const tiling *made, int64_t warps)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, vector = model::VECTOR_BYTES / element;
    const int64_t columns = warps * made->positions,
                  back = (problem->w.kernel - 1) * problem->w.dilation / problem->w.stride;
    const int64_t loaded = tconv_ceil_div(columns + back + vector - 1, vector) * vector;
    const bool narrow = is_direct(layer, made->steps) && problem->group_in <= NARROW_CHANNELS;
    const int64_t stage_channels = narrow ? NARROW_CHANNELS : made->steps * (MMA_K_BYTES / element);
    const int64_t src_pitch = tconv_ceil_div(loaded, CHANNEL_SKEW) * CHANNEL_SKEW + CHANNEL_SKEW;
    const int64_t weights =
        problem->h.kernel * column_taps(layer) * made->steps * (model::is_strict(layer) ? 2 : 1) * FRAGMENT_BYTES;
    return weights + BLOCK_M * SECTOR_BYTES +
           ((made->row_back + 2) * stage_channels * src_pitch +
            BLOCK_M * (columns * problem->w.stride + STAGING_BYTES / element)) *
               element;
}

/* Chooses as many warps as two blocks leave room for, else one. */
void choose_columns(const tconv_layer *layer, int64_t max_shared, tiling *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t stride = problem->w.stride;
    const int64_t columns = (problem->w.pad + problem->w.out - 1) / stride + 1 - problem->w.pad / stride;
    const int64_t all = tconv_ceil_div(columns, made->positions);
    int64_t shared = max_shared;
    made->warps = 1;
    for (int blocks = MIN_BLOCKS; blocks >= 1; blocks--) {
        const int64_t limit = (max_shared + RESERVED) / blocks - RESERVED;
        int64_t most = MAX_WARPS;
        for (; most > 0; most--) {
            made->warps = tconv_ceil_div(all, tconv_ceil_div(all, most));
            if ((shared = shared_bytes_of(layer, made, made->warps)) <= limit)
                break;
        }
        if (most > 0)
            break;
    }
    made->columns = made->warps * made->positions;
    made->column_tiles = tconv_ceil_div(columns, made->columns);
    const bool direct = is_direct(layer, made->steps);
    const int64_t by_registers =
        TCONV_ROWS_MAX_BLOCKS((int)problem->element_size, direct, stride) * MAX_WARPS / made->warps;
    made->resident = tconv_max(1, tconv_min((max_shared + RESERVED) / (shared + RESERVED), by_registers));
}

/* Chooses the strips that rows.cu takes: a few whole waves in the least time. */
void choose_strips(const tconv_layer *layer, int multiprocessors, tiling *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t stride = problem->h.stride;
    const int64_t rows = (problem->h.pad + problem->h.out - 1) / stride + 1 - problem->h.pad / stride;
    const int64_t places = multiprocessors * made->resident;
    const int64_t others = tconv_max(1, problem->batch * problem->groups * made->column_tiles *
                                            tconv_ceil_div(problem->group_out, BLOCK_M));
    int64_t best = INT64_MAX;
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / others, 1), rows);
        const int64_t strip_rows = tconv_ceil_div(rows, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
        const int64_t time = taken * (strip_rows + made->row_back + 1);
        if (time < best) {
            best = time;
            made->strip_rows = strip_rows;
            made->waves = taken;
        }
    }
    made->blocks = (double)others * (double)tconv_ceil_div(rows, made->strip_rows);
}

} // namespace

extern "C" void tconv_cuda_rows_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const bool strict = model::is_strict(layer);
    tiling made = {};
    made.steps = tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, MMA_K_BYTES);
    made.positions = TCONV_ROWS_MMAS_N(problem->w.stride) * MMA_N;
    made.row_back = (problem->h.kernel - 1) * problem->h.dilation / problem->h.stride;
    choose_columns(layer, machine->shared_bytes, &made);
    choose_strips(layer, machine->multiprocessors, &made);

    const double columns = (double)made.columns, warps = (double)made.warps;
    const double mmas =
        columns / MMA_N * (double)made.steps * (strict ? 3 : 1) * (double)(problem->h.kernel * column_taps(layer));
    const double outputs = (double)BLOCK_M * columns * (double)(problem->w.stride * problem->h.stride);
    *work = model::begin_work(layer);
    work->k_blocks = (double)made.strip_rows;
    work->prologue = (double)made.row_back + 1;
    work->mma_sync = mmas;
    work->mma_chain = strict ? 0 : mmas / warps;
    work->issues = (double)layer->rows.count;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = strict ? mmas / warps : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->shared_bytes = mmas * 256 + outputs * element * 2;
    work->box_bytes = (double)problem->group_in * columns * element;
    work->chain_loads =
        fmax(1, (double)problem->group_in / warps) * (model::reads_vectors(layer) ? 1 : UNALIGNED_LOADS);
    work->stages = 2;
    work->bulk_stores = (double)(BLOCK_M * problem->h.stride * made.strip_rows);
    work->store_warps = warps;
    work->sectors = outputs * element / model::SECTOR_BYTES * (double)made.strip_rows;
    work->overlaps = true;
    work->rounds = (double)made.waves;
    work->resident = fmin((double)made.resident, fmax(1, made.blocks / machine->multiprocessors));
}

} // namespace tconv::rows
