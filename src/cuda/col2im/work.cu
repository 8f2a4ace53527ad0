/*
 * What a plan of cuda_col2im does: see model/work.h. A tile is a block tile, BLOCK_M pixels of one row of a strip.
 * Strips are cut here as for so many blocks on a multiprocessor, whatever the plan's own.
 */
#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

#include <cmath>

namespace tconv::col2im
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 182;     /* of a K-block: barriers, operands to registers */
constexpr double TILE_CYCLES = 643;      /* of a row of Hopper's kernel: barriers between the GEMM and col2im */
constexpr double MMA_TILE_CYCLES = 4440; /* of a row of the kernel for any device, whose copies end at barriers */

constexpr int RESIDENT = 2;        /* blocks on a multiprocessor */
constexpr int ROW_SUMS_STAGES = 5; /* pipeline stages of Hopper's kernel, which has 4 to 6 */
constexpr int STORE_WARPS = 4;
constexpr double GATHERED = 4; /* partials that a thread gathers in the time of a store: runs of neighbours */

/* Counts the rows that a block works off in all waves together, and blocks that share a multiprocessor. */
void count_rows(const tconv_layer *layer, const plan *made, tconv_cuda_work *work)
{
    parameters strips = made->any_src.parameters;
    const int64_t multiprocessors = layer->target.multiprocessors, places = multiprocessors * RESIDENT;
    cut_rows(&layer->problem, &made->cut, places, &strips);
    const int64_t blocks = made->cut.others * strips.strips;
    work->rounds =
        (double)(tconv_ceil_div(blocks, places) * tconv_ceil_div(strips.strip_rows + strips.row_back, made->cut.step));
    work->resident = fmin(RESIDENT, fmax(1, (double)blocks / (double)multiprocessors));
}

} // namespace

tconv_cuda_work work_of(const tconv_layer *layer, const plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const bool any_device = made->config == MMA_KERNEL;
    const double element = (double)problem->element_size, times = model::is_strict(layer) ? 3 : 1;
    const double gemm_n = (double)(problem->group_out * problem->h.kernel * problem->w.kernel);
    const double n_tiles = ceil(gemm_n / TILE_N), k_steps = any_device ? 1 : row_sums::K_STEPS;
    const double stage_bytes = BLOCK_M * MMA_K_BYTES * k_steps;
    const double pixels = (double)problem->batch * (double)problem->groups * (double)(problem->h.in * problem->w.in);
    const double outputs =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    const bool vectors = model::reads_vectors(layer);
    tconv_cuda_work work = model::begin_work(layer);
    count_rows(layer, made, &work);
    work.k_blocks = made->any_src.parameters.k_blocks;
    work.wgmma = any_device ? 0 : n_tiles * 2 * k_steps * times;
    work.wgmma_chain = any_device ? 0 : n_tiles * 2 * times;
    work.mma_sync = any_device ? n_tiles * 8 * times : 0;
    work.mma_chain = any_device ? n_tiles * 2 * times : 0;
    work.issues = 1;
    work.issue_cycles = ISSUE_CYCLES;
    work.tile_cycles = any_device ? MMA_TILE_CYCLES : TILE_CYCLES;
    work.box_bytes = vectors ? stage_bytes : 0;
    work.gather_bytes = vectors ? 0 : stage_bytes;
    work.shared_bytes = 2 * stage_bytes + n_tiles * TILE_N * MMA_K_BYTES * k_steps;
    work.stages = any_device ? STAGES : ROW_SUMS_STAGES;
    work.stores = BLOCK_M * gemm_n / model::WARP / GATHERED;
    work.store_warps = STORE_WARPS;
    work.sectors = BLOCK_M * outputs * element / model::SECTOR_BYTES / fmax(1, pixels);
    return work;
}

} // namespace tconv::col2im
