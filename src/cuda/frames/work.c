/* What a plan of cuda_frames does: see model/work.h. A K-block is a step of every slice; a tile is a block. */
#include <math.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

static const double DEPTH_BYTES = 128;    /* of weights that a lane has under way */
static const double RESIDENT_FEW = 2;     /* blocks of a multiprocessor, of the kernel for few columns */
static const double FOLD_LOADS = 1.0 / 2; /* of a product, beside its SLICES: addresses, divisions */

tconv_cuda_work tconv_frames_work_of(const tconv_layer *layer, const frames_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const double size = (double)problem->element_size, columns = plan->columns, warps = plan->threads / WARP;
    const double rows = params->row_tiles * tile_rows((int)size);
    const double multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const double times = tconv_cuda_is_strict(layer) ? 3 : 1;
    const double step_bytes = STEP_WORDS * 4;
    const double resident = plan->many_columns ? 1 : RESIDENT_FEW;
    const double outputs =
        (double)params->tile_images * params->block_out * params->row_outs.divisor * params->strip_outs.divisor;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.rounds = tconv_cuda_rounds((double)plan->blocks, multiprocessors * resident);
    work.resident = fmin(resident, fmax(1, (double)plan->blocks / multiprocessors));
    work.k_blocks = params->slice_steps * params->row_tiles;
    work.prologue = fmin(DEPTH_BYTES / (size * LANE_BYTES / 2), work.k_blocks);
    work.stages = work.prologue;
    work.mma_sync = SLICES * rows / 16 * ceil(columns / TILE_N) * times;
    work.mma_chain = work.mma_sync / warps;
    work.box_bytes = SLICES * step_bytes * columns;
    work.weight_bytes = SLICES * step_bytes * params->block_out * params->taps;
    work.shared_bytes = 3 * work.box_bytes;
    work.stores = rows * columns * (SLICES + 1) / WARP * (1 + FOLD_LOADS) / warps;
    work.sectors = outputs * size / SECTOR_BYTES;
    work.tile_cycles = tconv_cuda_post_cycles(problem, outputs);
    return work;
}
