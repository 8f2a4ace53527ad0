/*
 * What a plan of cuda_rows does: see work.h. A tile is the strip of a block, at BLOCK_M output channels; a K-block is
 * one row position of it, at all row phases.
 */
#include "../../core/checked.h"
#include "../model/planned.h"
#include "plan.h"

#include <cmath>

namespace tconv::rows
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 1810;  /* of a row of dst: staging it, two barriers, bulk stores of 16 channels */
constexpr double MMA_CYCLES = 70;      /* of an MMA, in place of the machine's mma_chain */
constexpr double STRICT_CYCLES = 42.6; /* the same in strict f32 */

constexpr double UNALIGNED_LOADS = 4; /* for a channel's row, where it is no vectors of 16 bytes; else 1 */

} // namespace

tconv_cuda_work work_of(const tconv_layer *layer, const planned_layer *made)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const double element = (double)problem->element_size, multiprocessors = layer->target.multiprocessors;
    const bool strict = model::is_strict(layer);
    const double columns = params->tile_columns, warps = made->grid.threads / model::WARP;
    const double mmas =
        columns / MMA_N * params->steps * (strict ? 3 : 1) * (double)(problem->h.kernel * params->column_taps);
    const double outputs = BLOCK_M * columns * (double)(problem->w.stride * problem->h.stride);
    tconv_cuda_work work = model::begin_work(layer);
    work.k_blocks = params->strip_rows;
    work.prologue = params->max_row_back + 1;
    work.mma_sync = mmas;
    work.issues = (double)layer->rows.count;
    work.issue_cycles = ISSUE_CYCLES;
    work.slow_issues = mmas / warps;
    work.slow_issue_cycles = strict ? STRICT_CYCLES : MMA_CYCLES;
    work.shared_bytes = mmas * 256 + outputs * element * 2;
    work.box_bytes = (double)problem->group_in * columns * element;
    work.chain_loads = fmax(1, (double)problem->group_in / warps) * (model::reads_vectors(layer) ? 1 : UNALIGNED_LOADS);
    work.stages = 2;
    work.bulk_stores = (double)(BLOCK_M * problem->h.stride * params->strip_rows);
    work.store_warps = warps;
    work.sectors = outputs * element / model::SECTOR_BYTES * params->strip_rows;
    work.overlaps = true;
    work.rounds = (double)tconv_ceil_div(made->grid.blocks, layer->target.multiprocessors * made->resident);
    work.resident = fmin((double)made->resident, fmax(1, (double)made->grid.blocks / multiprocessors));
    return work;
}

} // namespace tconv::rows
