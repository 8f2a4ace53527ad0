/* What a plan of cuda_frames does: see model/work.h. A K-block is a step of every slice; a tile is a block. */
#include <math.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

/* Fitted to 63 times on an H200, replayed, of layers of frames, of latent pixels and of images of 4 x 4 and 8 x 8. */
static const double STAGE_CYCLES = 1.35;     /* of 4 bytes of src of a bank, with what waits for them */
static const double LINE_BANKS = 0.41;       /* that a cache line of src costs, as many */
static const double FOLD_LOADS = 1.16;       /* of a product, beside its slices': addresses, divisions */
static const double BANKS_MET = 1.0 / 4;     /* lanes of neighbouring pixels that store to the same bank */
static const double HALF_STAGE_CYCLES = 700; /* estimated: of loads of 16 bits that are under way together */

/* Returns the bytes of weights that a lane has under way: see depth_of in kernel.cuh. */
static double depth_bytes(const frames_plan *plan)
{
    return plan->many_columns ? 64 : 128;
}

static double warps_of(const frames_plan *plan)
{
    return (double)plan->threads / WARP;
}

/* Counts how src comes to shared memory, which warps wait for. */
static void count_staging(const tconv_layer *layer, const frames_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const double pixels = 1 << params->stage_lanes_log2, channels = WARP / pixels; /* of a load of a warp */
    const double images = fmax(1, pixels / (double)params->image_pixels.divisor);
    const double words = STEP_WORDS / channels * ceil(fmin(plan->columns, PART_COLUMNS) / pixels); /* of a lane */
    if (layer->problem.element_size < 4) {
        work->slow_issues = words / (plan->many_columns ? MANY_HALF_AT_ONCE : FEW_AT_ONCE);
        work->slow_issue_cycles = HALF_STAGE_CYCLES;
    } else {
        work->issues = warps_of(plan) * words * (pixels * BANKS_MET + fmax(images, channels) * LINE_BANKS);
        work->issue_cycles = STAGE_CYCLES;
    }
}

tconv_cuda_work tconv_frames_work_of(const tconv_layer *layer, const frames_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const double size = (double)problem->element_size, columns = plan->columns, warps = warps_of(plan);
    const double rows = params->row_tiles * tile_rows((int)size);
    const double multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const double times = tconv_cuda_is_strict(layer) ? 3 : 1;
    const double step_bytes = STEP_WORDS * 4, depth = depth_bytes(plan) / (step_bytes / size / 4 * LANE_BYTES);
    const double resident = tconv_frames_resident(plan);
    const double outputs =
        (double)params->tile_images * params->block_out * params->row_outs.divisor * params->strip_outs.divisor;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.rounds = tconv_cuda_rounds((double)plan->blocks, multiprocessors * resident);
    work.resident = fmin(resident, fmax(1, (double)plan->blocks / multiprocessors));
    work.k_blocks = params->slice_steps * params->row_tiles;
    work.prologue = fmin(depth, work.k_blocks);
    work.stages =
        work.k_blocks > depth ? depth : 0; /* weights that are all under way from the first are not waited for */
    work.mma_sync = SLICES * rows / 16 * ceil(columns / TILE_N) * times;
    work.mma_chain = work.mma_sync / warps;
    work.box_bytes = SLICES * step_bytes * columns;
    work.weight_bytes = SLICES * step_bytes * params->block_out * params->taps;
    work.shared_bytes = 3 * work.box_bytes;
    count_staging(layer, plan, &work);
    work.stores = (double)params->block_out * params->taps * columns * (SLICES + 1) / WARP * (1 + FOLD_LOADS) / warps;
    work.sectors = outputs * size / SECTOR_BYTES;
    work.tile_cycles = tconv_cuda_post_cycles(problem, outputs);
    return work;
}
