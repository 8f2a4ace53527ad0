/*
 * What a plan of cuda_rows does: see work.h. A tile is what one block does: 16 output channels of a strip of rows; a K-block is
 * a quotient of rows, all its row residues. rows.cu keeps how it cuts a layer to itself, so that this file cuts it again, to
 * what counts here: the warps of a block, blocks on a multiprocessor, rows of a strip.
 */
#include <cmath>

#include "../../core/checked.h"
#include "../rows_kernels.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES =
    2700;                            /* of a row of dst: staging it, two barriers, and the bulk copies of 16 channels */
constexpr double STRICT_CYCLES = 36; /* of a product in strict f32, in place of the machine's mma_chain */
constexpr double TILE_CYCLES = 2400; /* of a strip: weights, tables of taps */

constexpr int64_t CHANNELS = TCONV_CUDA_ROWS_CHANNELS, RESERVED = 1024, MAX_TURNS = 8, SECTOR = 32;
constexpr double UNALIGNED_LOADS = 4; /* for a channel's row, where it is no vectors of 16 bytes; else 1 */

struct rows_cut {
    int64_t steps, positions, warps, columns, column_tiles, resident, row_back, strip_rows, turns;
    double blocks;
};

bool is_narrow(const tconv_layer *layer, int64_t steps, bool *direct)
{
    *direct = layer->problem.dtype != TCONV_F32 &&
              layer->rows.max_taps * layer->columns.max_taps * steps <= TCONV_CUDA_ROWS_DIRECT_STEPS;
    return *direct && layer->problem.group_in <= TCONV_CUDA_ROWS_NARROW_CHANNELS;
}

int64_t column_taps(const tconv_layer *layer)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < layer->columns.count; i++)
        taps += layer->columns.phases[i].taps;
    return taps;
}

/* Shared memory of a block of so many warps, about. */
int64_t shared_bytes_of(const tconv_layer *layer, const rows_cut *cut, int64_t warps)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, vector = TCONV_MODEL_VECTOR / element;
    const int64_t columns = warps * cut->positions,
                  back = (problem->w.kernel - 1) * problem->w.dilation / problem->w.stride;
    const int64_t loaded = tconv_ceil_div(columns + back + vector - 1, vector) * vector;
    bool direct;
    const int64_t channels =
        is_narrow(layer, cut->steps, &direct) ? TCONV_CUDA_ROWS_NARROW_CHANNELS : cut->steps * (SECTOR / element);
    const int64_t weights = problem->h.kernel * column_taps(layer) * cut->steps *
                            (tconv_cuda_is_strict(layer) ? 2 : 1) * TCONV_CUDA_ROWS_PLANE_BYTES;
    return weights + CHANNELS * SECTOR +
           ((cut->row_back + 2) * channels * (tconv_ceil_div(loaded, 8) * 8 + 8) +
            CHANNELS * (columns * problem->w.stride + 64 / element)) *
               element;
}

/* As many warps as two blocks leave room for, else one. */
void cut_columns(const tconv_layer *layer, int64_t shared_limit, rows_cut *cut)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t stride = problem->w.stride;
    const int64_t columns = (problem->w.pad + problem->w.out - 1) / stride + 1 - problem->w.pad / stride;
    const int64_t all = tconv_ceil_div(columns, cut->positions);
    int64_t shared = shared_limit;
    cut->warps = 1;
    for (int blocks = TCONV_CUDA_ROWS_BLOCKS; blocks >= 1; blocks--) {
        const int64_t limit = (shared_limit + RESERVED) / blocks - RESERVED;
        int64_t most = TCONV_CUDA_ROWS_WARPS;
        for (; most > 0; most--) {
            cut->warps = tconv_ceil_div(all, tconv_ceil_div(all, most));
            if ((shared = shared_bytes_of(layer, cut, cut->warps)) <= limit)
                break;
        }
        if (most > 0)
            break;
    }
    bool direct;
    is_narrow(layer, cut->steps, &direct);
    cut->columns = cut->warps * cut->positions;
    cut->column_tiles = tconv_ceil_div(columns, cut->columns);
    const int64_t by_registers =
        TCONV_CUDA_ROWS_MOST_BLOCKS((int)problem->element_size, direct, stride) * TCONV_CUDA_ROWS_WARPS / cut->warps;
    cut->resident = tconv_max(1, tconv_min((shared_limit + RESERVED) / (shared + RESERVED), by_registers));
}

/* The strips that rows.cu takes: a few whole turns in the least time. */
void cut_rows(const tconv_layer *layer, int multiprocessors, rows_cut *cut)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t stride = problem->h.stride;
    const int64_t rows = (problem->h.pad + problem->h.out - 1) / stride + 1 - problem->h.pad / stride;
    const int64_t places = multiprocessors * cut->resident;
    const int64_t others = tconv_max(1, problem->batch * problem->groups * cut->column_tiles *
                                            tconv_ceil_div(problem->group_out, CHANNELS));
    int64_t best = INT64_MAX;
    for (int64_t turns = 1; turns <= MAX_TURNS; turns++) {
        const int64_t strips = tconv_min(tconv_max(places * turns / others, 1), rows);
        const int64_t strip_rows = tconv_ceil_div(rows, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
        const int64_t time = taken * (strip_rows + cut->row_back + 1);
        if (time < best) {
            best = time;
            cut->strip_rows = strip_rows;
            cut->turns = taken;
        }
    }
    cut->blocks = (double)others * (double)tconv_ceil_div(rows, cut->strip_rows);
}

} // namespace

void tconv_cuda_rows_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double element = (double)problem->element_size;
    const bool strict = tconv_cuda_is_strict(layer);
    rows_cut cut = {};
    cut.steps = tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, TCONV_CUDA_ROWS_STEP_BYTES);
    cut.positions = TCONV_CUDA_ROWS_TILES(problem->w.stride) * TCONV_CUDA_ROWS_TILE;
    cut.row_back = (problem->h.kernel - 1) * problem->h.dilation / problem->h.stride;
    cut_columns(layer, machine->shared_bytes, &cut);
    cut_rows(layer, machine->multiprocessors, &cut);

    const double columns = (double)cut.columns, warps = (double)cut.warps;
    const double products = columns / TCONV_CUDA_ROWS_TILE * (double)cut.steps * (strict ? 3 : 1) *
                            (double)(problem->h.kernel * column_taps(layer));
    const double outputs = (double)CHANNELS * columns * (double)(problem->w.stride * problem->h.stride);
    *work = tconv_cuda_work_begin(layer);
    work->k_blocks = (double)cut.strip_rows;
    work->prologue = (double)cut.row_back + 1;
    work->mma_sync = products;
    work->mma_chain = strict ? 0 : products / warps;
    work->issues = (double)layer->rows.count;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = strict ? products / warps : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->shared_bytes = products * 256 + outputs * element * 2;
    work->box_bytes = (double)problem->group_in * columns * element;
    work->chain_loads =
        fmax(1, (double)problem->group_in / warps) * (tconv_cuda_reads_vectors(layer) ? 1 : UNALIGNED_LOADS);
    work->stages = 2;
    work->bulk_stores = (double)(CHANNELS * problem->h.stride * cut.strip_rows);
    work->store_warps = warps;
    work->sectors = outputs * element / TCONV_MODEL_SECTOR * (double)cut.strip_rows;
    work->overlaps = true;
    work->rounds = (double)cut.turns;
    work->resident = fmin((double)cut.resident, fmax(1, cut.blocks / machine->multiprocessors));
}
