/*
 * What a plan of cuda_col2im does: see model/work.h. A tile is a block tile, BLOCK_M pixels of one row of a strip.
 */
#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "plan.h"

#include <math.h>

/* The corrections, fitted to 680 plans of Hopper's kernels on an H100 (docs/log/2026-11-25-col2im-blocks.md). */
/* Cycles of a multiprocessor for an output that goes through post-ops: where they are one round, seven instructions, counted
 * in machine code; else, beside the list, it is found by itself, where others lie in runs (measured on an H200: 1.3 to
 * 1.5). */
static const double ROUND_CYCLES = 7.0 / 128, POST_OUTPUT_CYCLES = 1.4;

static const double ISSUE_CYCLES = 88;     /* of a K-block: barriers, operands to registers */
static const double CP_ASYNC_CYCLES = 171; /* of a K-block that warps copy for themselves */
static const double SPLIT_FFMA = 29;       /* instructions, of a value that strict f32 splits in registers and adds */
static const double TILE_CYCLES = 1148;    /* of a row: barriers between the GEMM and col2im */
static const double BLOCK_CYCLES = 4530;   /* of a block after the first: it waits for copies, and fills its tables */
static const double WORD_SHARE = 0.32;     /* of what elements that are copied one by one cost, where it is words */
static const double RUN_GATHERED = 5;      /* partials that a thread gathers in the time of a store, by runs */
static const double COLUMN_GATHERED = 1.2; /* and by single columns */
static const double STORE_SHARE = 1.4;     /* of a store's time that storing an output or a run takes */

enum {
    ROW_SUMS_STAGES = 5, /* pipeline stages of Hopper's kernel, which has 4 to 6 */
    STORE_WARPS = 4,
    MMA_RESIDENT = 2 /* blocks on a multiprocessor, by which rows are counted, whatever the plan's own */
};

/* The same of the kernel for any device, whose copies end at barriers. */
static const double MMA_ISSUE_CYCLES = 182, MMA_TILE_CYCLES = 4440, MMA_GATHERED = 4;

/* Counts the rows that a block works off in all waves together, and blocks that share a multiprocessor. */
static void count_rows(const tconv_layer *layer, const col2im_plan *plan, const planned_launch *launch,
                       tconv_cuda_work *work)
{
    const bool any_device = plan->config == MMA_KERNEL;
    const int64_t multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const int64_t resident = any_device ? MMA_RESIDENT : launch->resident, places = multiprocessors * resident;
    parameters strips = launch->params;
    tconv_col2im_cut_rows(&layer->problem, &plan->cut, places, &strips);
    const int64_t blocks = plan->cut.others * strips.strips, waves = tconv_ceil_div(blocks, places);
    work->rounds = (double)(waves * tconv_ceil_div(strips.strip_rows + strips.row_back, plan->cut.step));
    work->resident = fmin((double)resident, fmax(1, (double)blocks / (double)multiprocessors));
    work->k_blocks = launch->params.k_blocks;
    work->tile_cycles = MMA_TILE_CYCLES;
    if (any_device)
        return;
    const int64_t weights = plan->packed_bytes / (layer->problem.groups * launch->params.out_blocks);
    work->tile_cycles = TILE_CYCLES + BLOCK_CYCLES * (double)(waves - 1) / work->rounds;
    work->weight_bytes = (double)(weights * waves) / work->rounds / work->k_blocks;
}

/* Counts what a row of Hopper's kernel gathers and stores. Each of `stores` takes the time of a store. */
static void count_outputs(const tconv_layer *layer, const col2im_plan *plan, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->any_src.params;
    const double lines = (double)(params->block_out * problem->h.stride) * BLOCK_M / WARP;
    const double outputs = lines * (double)problem->w.stride; /* warps of them */
    /* With steps that are more than a round outputs are found one by one, though they may lie in runs. */
    const bool alone = tconv_cuda_count_steps(problem) > 0 && !params->has_round;
    const bool runs = params->gather >= FIRST_RUNS && !alone, nhwc = problem->layout == TCONV_NHWC;
    work->stores = lines * (double)problem->w.kernel / (runs ? RUN_GATHERED : COLUMN_GATHERED) +
                   STORE_SHARE * (runs && params->dst_runs ? lines : outputs);
    if (nhwc) /* a warp stores a channel of neighbouring pixels */
        work->sectors = outputs * fmin(SECTOR_BYTES, (double)problem->out_channels * (double)problem->element_size);
}

tconv_cuda_work tconv_col2im_work_of(const tconv_layer *layer, const col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const bool any_device = plan->config == MMA_KERNEL, by_tma = plan->has_tma;
    const bool strict = tconv_cuda_is_strict(layer);
    const planned_launch *launch = by_tma ? &plan->by_tma : &plan->any_src;
    const parameters *params = &launch->params;
    const double element = (double)problem->element_size, times = strict ? 3 : 1;
    const double gemm_n = (double)(params->block_out * problem->h.kernel * problem->w.kernel);
    const double n_tiles = any_device ? ceil(gemm_n / TILE_N) : plan->n_tiles;
    const double k_steps = any_device ? 1 : K_STEPS, stage_bytes = BLOCK_M * MMA_K_BYTES * k_steps;
    const double pixels = (double)problem->batch * (double)problem->groups * (double)(problem->h.in * problem->w.in);
    const double outputs =
        (double)problem->batch * (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    const bool vectors = by_tma || params->src_aligned;
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    count_rows(layer, plan, launch, &work);
    work.wgmma = any_device ? 0 : n_tiles * 2 * k_steps * times;
    work.wgmma_chain = any_device ? 0 : n_tiles * 2 * times;
    work.mma_sync = any_device ? n_tiles * 8 * times : 0;
    work.mma_chain = any_device ? n_tiles * 2 * times : 0;
    work.ffma = any_device || !strict ? 0 : SPLIT_FFMA * stage_bytes / element;
    work.issues = 1;
    work.issue_cycles = any_device ? MMA_ISSUE_CYCLES : ISSUE_CYCLES + (by_tma ? 0 : CP_ASYNC_CYCLES);
    work.box_bytes = vectors ? stage_bytes : 0;
    work.gather_bytes = vectors ? 0 : stage_bytes * (params->src_words ? WORD_SHARE : 1);
    work.shared_bytes = 2 * stage_bytes + n_tiles * TILE_N * MMA_K_BYTES * k_steps;
    work.stages = any_device ? MMA_STAGES : ROW_SUMS_STAGES;
    work.stores = BLOCK_M * gemm_n / WARP / MMA_GATHERED;
    work.store_warps = STORE_WARPS;
    work.sectors = BLOCK_M * outputs * element / SECTOR_BYTES / fmax(1, pixels * params->out_blocks);
    if (tconv_cuda_count_steps(problem) > 0) {
        const double finished = (double)params->block_out * BLOCK_M * (double)(problem->h.stride * problem->w.stride);
        work.tile_cycles += params->has_round
                                ? finished * ROUND_CYCLES
                                : tconv_cuda_post_cycles(problem, finished) + finished * POST_OUTPUT_CYCLES;
    }
    if (!any_device)
        count_outputs(layer, plan, &work);
    return work;
}
