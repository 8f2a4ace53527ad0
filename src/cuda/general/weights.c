/*
 * The gradients of weights and bias for every layer: any dtype, layout, slice, group, stride and dilation, any number
 * of taps, on any device.
 *
 * A block has a square of WEIGHTS_SIDE input channels of a group by as many pairs of a tap and an output channel, and a
 * part of the pixels; each thread multiplies a few of both, whose factors a K-block brings to shared memory
 * (weights.cu). The sums of a part are a split-K slice (wgrad/tiles.h), and wgrad/sums.cu adds the slices. Terms whose
 * output does not exist are products with zero, and left out where src has Inf or NaN.
 *
 * Numeric order, by layer and number of multiprocessors alone: segments of 48 terms from zero, which join a compensated
 * sum; slices in order, in double; one rounding.
 */
#include "weights.h"
#include "../cuda_target.h"

#include <math.h>
#include <stdio.h>

#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "../wgrad/sums.h"

enum {
    MOST_SLICES_BYTES = 32 << 20,
    LEAST_PIXELS = 1024, /* of a part */
    MAX_KERNEL = 1 << 30
};

typedef struct weights_plan {
    weights_parameters params;
    int64_t blocks;
} weights_plan;

/* The corrections. */
static const double ISSUE_CYCLES = 14680; /* of a K-block: indices in 64 bits, barriers, the compensated sum */
static const double TILE_CYCLES = 1800;   /* of a block, until its first product */

static const double OPERAND_TIMES = 2; /* an operand takes so many times as long to load as a value of another kernel */
static const double LOAD_WAITS = 0.81; /* loads that a thread waits for, of each that it makes of a value that exists */
static const double SLICE_TIMES = 6.4; /* the pass that adds slices takes so many times as long as one that copies */
enum { RESIDENT = 2 /* blocks of a multiprocessor, by their registers */ };

/* Returns the work of a plan, see ../model/work.h. A K-block is the kernel's, of WEIGHTS_PIXELS pixels. */
static tconv_cuda_work work_of(const tconv_layer *layer, const weights_plan *plan)
{
    const weights_parameters *params = &plan->params;
    const sum_tiles *tiles = &params->tiles;
    const double warps = WEIGHTS_THREADS / (double)WARP, sums = (double)WEIGHTS_SIDE * WEIGHTS_SIDE;
    const double channels = (double)tiles->group_in / (double)tiles->m_tiles; /* of a block, that exist, on average */
    const double pairs = (double)tiles->block_n / (double)params->pair_tiles;
    const double blocks = (double)plan->blocks / tconv_cuda_target_of(&layer->target).multiprocessors;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = ceil((double)params->part_pixels / WEIGHTS_PIXELS);
    work.ffma = sums * WEIGHTS_PIXELS;
    work.loads = OPERAND_TIMES * WEIGHTS_PIXELS * (2 * WEIGHTS_THREAD_SIDE * warps + 2.0 * WEIGHTS_SIDE / WARP);
    work.box_bytes = 2.0 * WEIGHTS_SIDE * WEIGHTS_PIXELS * (double)layer->problem.element_size;
    work.chain_loads = LOAD_WAITS * (channels + pairs) * WEIGHTS_PIXELS / WEIGHTS_THREADS / 2;
    work.issues = 1;
    work.issue_cycles = ISSUE_CYCLES;
    work.tile_cycles = TILE_CYCLES;
    work.stores = sums / WARP;
    work.store_warps = warps;
    work.sectors = sums * sizeof(double) / SECTOR_BYTES;
    work.rounds = tconv_cuda_rounds(blocks, RESIDENT);
    work.resident = fmin(RESIDENT, fmax(blocks, 1));
    work.passes = 1;
    work.pass_bytes = SLICE_TIMES * (double)params->splits * (double)tconv_wgrad_slice_sums(tiles) * sizeof(double);
    return work;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    weights_plan *plan = memory;
    weights_parameters *params = &plan->params;
    if (problem->h.kernel >= MAX_KERNEL || problem->w.kernel >= MAX_KERNEL)
        return tconv_decline(issue, "takes kernels below 2^30 along an axis");
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->h = problem->h;
    params->w = problem->w;
    params->pixels = problem->batch * problem->h.in * problem->w.in;
    params->tiles = tconv_wgrad_tiles_of_all_pairs(problem, WEIGHTS_SIDE);
    params->pair_tiles = tconv_ceil_div(params->tiles.block_n, WEIGHTS_SIDE);
    int64_t bytes;
    if (!tconv_checked_mul(params->tiles.count, WEIGHTS_SIDE * (int64_t)sizeof(double), &bytes) ||
        !tconv_checked_mul(bytes, params->tiles.block_n, &bytes))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "workspace: its size does not fit in 63 bits");
    const int64_t places = 2 * (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors;
    int64_t splits = tconv_ceil_div(places, params->tiles.count * params->pair_tiles);
    splits = tconv_min(splits, tconv_min(MOST_SLICES_BYTES / bytes, params->pixels / LEAST_PIXELS));
    params->part_pixels = tconv_ceil_div(params->pixels, tconv_max(1, splits));
    params->splits = params->pixels > 0 ? tconv_ceil_div(params->pixels, params->part_pixels) : 0;
    plan->blocks = params->splits * params->tiles.count * params->pair_tiles;
    planned->sizes.scratch = (size_t)tconv_max(params->splits * bytes, (int64_t)tconv_wgrad_bias_scratch(layer));
    const tconv_cuda_work work = work_of(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status sum_weights(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                                wgrad_slices *slices, tconv_issue *issue)
{
    const weights_plan *plan = memory;
    weights_parameters params = plan->params;
    const void *src = arguments->src, *diff_dst = arguments->dst;
    void *scratch = arguments->scratch, *kernel_arguments[] = {&params, &src, &diff_dst, &scratch};
    slices->tiles = params.tiles;
    slices->count = params.splits;
    slices->are_double = true;
    if (plan->blocks == 0)
        return TCONV_SUCCESS;
    return tconv_launch_blocks(tconv_general_sum_weights_kernel(layer->problem.dtype), plan->blocks, WEIGHTS_THREADS,
                               kernel_arguments, arguments->stream, issue, false);
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    return tconv_wgrad_execute_gradients(layer, memory, arguments, sum_weights, issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    (void)layer;
    const weights_plan *plan = memory;
    snprintf(text, capacity, "block_tile=%dx%d splits=%lld blocks=%lld", WEIGHTS_SIDE, WEIGHTS_SIDE,
             (long long)plan->params.splits, (long long)plan->blocks);
}

const tconv_implementation tconv_cuda_general_weights = {.name = "cuda_general",
                                                         .backend = TCONV_BACKEND_CUDA,
                                                         .dtypes = TCONV_DTYPES_TO_F64,
                                                         .plan_bytes = sizeof(weights_plan),
                                                         .plan = plan_layer,
                                                         .pack = tconv_wgrad_pack_nothing,
                                                         .execute = execute,
                                                         .describe = describe,
                                                         .accumulates = true};
