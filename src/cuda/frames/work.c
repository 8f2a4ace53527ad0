/* What a plan of cuda_frames does: see model/work.h. A K-block is a step of every slice; a tile is a block. */
#include <math.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

/* Fitted to 104 times on an H200 of chosen plans and 400 of others, replayed (docs/log/2026-11-29-streams.md). */
static const double LINE_LOADS = 1.2;       /* loads of a warp that a line of src costs, which becomes words of f32 */
static const double HALF_LINE_LOADS = 0.49; /* the same of 16 bits: two loads a word */
static const double FOLD_LOADS = 2.9;       /* of a product and of each of its slices: both ways, with addresses */
static const double FOLD_AT_ONCE = 3.18;    /* that a warp has under way together */
static const double BLOCK_CYCLES = 900;     /* of a block's start and of its barrier */
static const double STAGE_CYCLES = 1300;    /* of a stage of src, which warps wait for */
static const double OUTPUT_CYCLES = 1.3, SCATTER = 2; /* of an output; as often where outputs do not lie side by side */

/* The wide kernel, fitted to 384 times on an H200, in cycles: of a step of all its rows, and more where pixels are
 * copied one by one; of a block; of an output, of each of its products or, in two dimensions, of a place's, whose taps are found by
 * divisions; and how much longer an output takes where they do not lie side by side. */
static const double WIDE_STEP = 670, WIDE_HALF_STEP = 725, WIDE_STRICT_STEP = 1290;
static const double WIDE_GATHER = 490, WIDE_HALF_GATHER = 1320;
static const double WIDE_BLOCK = 5000, WIDE_OUTPUT = 0.56, WIDE_ROW_TAP = 0.05, WIDE_TAP = 0.9, WIDE_SCATTER = 5.2;

/* Returns the bytes of weights that a lane has under way: see depth_of in kernel.cuh. */
static double depth_bytes(const frames_plan *plan)
{
    return plan->kernel == FRAMES_FEW ? 128 : 64;
}

/* Returns the outputs of a block. */
static double block_outputs(const frames_plan *plan)
{
    const parameters *params = &plan->params;
    return (double)params->tile_images * params->block_out * params->row_outs.divisor * params->strip_outs.divisor;
}

static double warps_of(const frames_plan *plan)
{
    return (double)plan->threads / WARP;
}

/* Returns the loads by which the warps of a block bring src to shared memory in a step. */
static double staging_loads(const tconv_layer *layer, const frames_plan *plan)
{
    const parameters *params = &plan->params;
    const bool half = layer->problem.element_size < sizeof(float);
    const double pixels = 1 << params->stage_lanes_log2, channels = WARP / pixels; /* of a load of a warp */
    const double images = fmax(1, pixels / (double)params->image_pixels.divisor);
    const double words = STEP_WORDS / channels * ceil(fmin(plan->columns, PART_COLUMNS) / pixels); /* of a lane */
    return half ? warps_of(plan) * words * 2 * fmax(images, 2 * channels) * HALF_LINE_LOADS
                : warps_of(plan) * words * fmax(images, channels) * LINE_LOADS;
}

/* Returns the cycles in which a block of the wide kernel sums and stores its outputs. */
static double wide_output_cycles(const tconv_problem *problem, const frames_plan *plan)
{
    const parameters *params = &plan->params;
    const double strides = (double)(problem->h.stride * problem->w.stride), outputs = block_outputs(plan);
    const double products = params->taps / strides, places = outputs / params->block_out;
    const double found = params->is_one_row ? outputs * products * WIDE_ROW_TAP : places * products * WIDE_TAP;
    return outputs * WIDE_OUTPUT * (problem->dst.w == 1 ? 1 : WIDE_SCATTER) + found +
           tconv_cuda_post_cycles(problem, outputs);
}

/* Counts the work of a plan of the wide kernel, whose K-block is a step. Its time is that of the instructions which warps issue:
 * those of a step, and those by which outputs are summed. */
static tconv_cuda_work work_of_wide(const tconv_layer *layer, const frames_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const double size = (double)problem->element_size, step_bytes = STEP_WORDS * 4, tile = tile_rows((int)size);
    const double taken = params->block_out * params->taps, filled = ceil(taken / tile) * tile / WIDE_ROWS;
    const bool is_half = size < sizeof(float), is_strict = tconv_cuda_is_strict(layer);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.rounds = tconv_cuda_rounds((double)plan->blocks, tconv_cuda_target_of(&layer->target).multiprocessors);
    work.resident = 1;
    work.k_blocks = ceil((double)params->group_in * size / step_bytes);
    work.prologue = fmin(work.k_blocks, WIDE_CHANNELS * size / step_bytes * (WIDE_BUFFERS - 1));
    work.stages = work.prologue;
    work.mma_sync = (double)WIDE_ROWS / MMA_ROWS * WIDE_COLUMNS / TILE_N * (is_strict ? 3 : 1) * filled;
    work.box_bytes = step_bytes * plan->columns;
    work.weight_bytes = step_bytes * taken;
    work.issues = 1;
    work.issue_cycles = is_strict ? WIDE_STRICT_STEP /* a warp's own chain, however many warps have rows */
                                  : filled * (is_half ? WIDE_HALF_STEP : WIDE_STEP);
    if (problem->src.w != 1 || (is_half && params->together == 1))
        work.issue_cycles += is_half ? WIDE_HALF_GATHER : WIDE_GATHER;
    work.sectors = block_outputs(plan) * size / SECTOR_BYTES;
    work.tile_cycles = WIDE_BLOCK + wide_output_cycles(problem, plan);
    return work;
}

tconv_cuda_work tconv_frames_work_of(const tconv_layer *layer, const frames_plan *plan)
{
    if (plan->kernel == FRAMES_WIDE)
        return work_of_wide(layer, plan);
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const double size = (double)problem->element_size, columns = plan->columns, warps = warps_of(plan);
    const double rows = params->row_tiles * tile_rows((int)size);
    const double multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const double times = tconv_cuda_is_strict(layer) ? 3 : 1;
    const double step_bytes = STEP_WORDS * 4, depth = depth_bytes(plan) / (step_bytes / size / 4 * LANE_BYTES);
    const double resident = tconv_frames_resident(plan);
    const double outputs = block_outputs(plan);
    const double stages = ceil(params->slice_steps / (double)params->stage_steps) * params->row_tiles;
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
    work.loads = staging_loads(layer, plan);
    work.stores = (double)params->block_out * params->taps * columns * (SLICES + 1) / WARP * FOLD_LOADS;
    work.store_warps = warps * FOLD_AT_ONCE;
    work.sectors = outputs * size / SECTOR_BYTES;
    work.tile_cycles = BLOCK_CYCLES + stages * STAGE_CYCLES +
                       outputs * OUTPUT_CYCLES * (problem->dst.w == 1 ? 1 : SCATTER) +
                       tconv_cuda_post_cycles(problem, outputs);
    return work;
}
