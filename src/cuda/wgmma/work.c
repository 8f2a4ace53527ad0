/* The work of a plan of cuda_wgmma, see ../model/work.h. A K-block is that of parameters.h: it has all taps. */
#include "plan.h"

#include <math.h>

#include "../../core/checked.h"

/* The corrections. */
static const double ISSUE_CYCLES = 317;  /* of a warpgroup, for each commit group that it waits for, and each K-block */
static const double STRICT_CYCLES = 657; /* the same in strict f32, with what clears and adds partial sums */
static const double TILE_CYCLES = 2720;  /* until a tile's sums are staged for those that store them */

static const double GATHERED_CORES = 4; /* whose elements are loaded together, whether a K-block has as many or not */

/* Of a pass of epilogue warps over staged outputs for a post-op, beside its arithmetic: instructions that load, store and
 * find an output, and cycles of an instruction of a warp (measured: docs/log/2026-11-29-lists.md). */
static const double STAGED_POST_INSTRUCTIONS = 6, STAGED_POST_CYCLES = 1.9;
static const double POST_CYCLES = 40; /* until consumers have the numbers of a post-op's channels */

static const double TIGHT_TIMES = 1.55; /* that transposing takes longer into a patch whose pitch is not the box's */

static void count_main_loop(const tile_search *search, const tile_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const bool strict = plan->arithmetic == NUMERICS_STRICT, direct = plan->choice.mn_major && !plan->choice.realigned;
    const double N = plan->N;
    const int taps =
        params->schedule[0].outer * params->schedule[0].inner + params->schedule[1].outer * params->schedule[1].inner;
    const double products = (params->k_block_a_stages[0] + params->k_block_a_stages[1]) * taps * (strict ? 3.0 : 1.0);
    const double weights = params->resident ? 0 : (double)params->a_stage_bytes * params->max_k_block_a_stages;
    const bool together = params->same_schedule && !strict; /* both MMA tiles of a warpgroup commit at once */
    const double groups =
        (double)(tconv_wgmma_commit_groups(params, 0) + (together ? 0 : tconv_wgmma_commit_groups(params, 1))) /
        params->k_blocks;
    const double transposed = direct ? 0
                                     : 2.0 * params->k_steps * params->box_patch * CORE_ROW_BYTES * (strict ? 2 : 1) *
                                           (params->tight ? TIGHT_TIMES : 1);
    const bool gathers =
        (!plan->aligned && !plan->choice.mn_major) || (params->flat_columns == 0 && !search->reads_vectors);
    work->k_blocks = params->k_blocks;
    work->wgmma = products * N / 8;
    work->wgmma_chain = products * N / 16;
    work->shared_bytes =
        products * (MMA_M + N) * 2 * CORE_ROW_BYTES + 2.0 * params->raw_stage_bytes + params->b_stage_bytes + weights;
    work->adds = strict ? groups * N / 2 : 0;
    work->issues = strict ? 0 : groups + 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = strict ? groups + 1 : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->conversions = direct ? 0 : 1;
    work->convert_bytes = transposed;
    work->gather_bytes = gathers ? transposed * fmax(1, GATHERED_CORES / (2 * params->k_steps)) : 0;
    work->box_bytes = params->raw_stage_bytes;
    work->box_rows =
        direct ? 0 : (double)params->k_block_channels * plan->patch_rows * (double)tconv_max(params->box_parts, 1);
    work->weight_bytes = weights;
    work->stages = direct || !params->in_place ? params->raw_stages : params->b_stages;
    work->converted_stages = direct || params->in_place ? 0 : params->b_stages;
    work->weight_stages = params->resident ? 0 : params->a_stages;
    work->weight_waits = params->max_k_block_a_stages;
}

/* Tells whether rows are stored by bulk copies, as wgmma.c decides it for an aligned dst. */
static bool stores_bulk(const tile_search *search, const parameters *params)
{
    const tconv_problem *problem = &search->layer->problem;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t columns =
        params->flat_columns > 0 ? tconv_min(params->flat_columns, params->mma_tile_columns) : params->tile_columns;
    return (element == 2 || problem->dst.c * element % BOX_ALIGNMENT == 0) && problem->w.out % 2 == 0 &&
           params->tile_columns * params->position_columns % 2 == 0 &&
           (search->vector < VECTOR_BYTES / element || columns * params->position_columns * element >= LEAST_BULK);
}

static void count_stores(const tile_search *search, const tile_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const int64_t element = (int64_t)search->layer->problem.element_size;
    const double rows =
        (double)MMA_M * WARPGROUPS * (params->position_columns == 2 ? 1 : MMA_TILES) * params->mma_tile_rows;
    const double row = (double)params->position_columns * params->mma_tile_columns; /* elements */
    const double pieces = params->flat_columns > 0 ? 1 + (double)params->mma_tile_columns / params->flat_columns : 1;
    if (stores_bulk(search, params))
        work->bulk_stores = rows * pieces;
    else
        work->stores = rows * fmax(1, row / WARP / (double)search->vector);
    work->store_warps = WARPGROUPS * epilogue_warps_of(plan->arithmetic);
    work->overlaps = true;
    work->exposed = params->staging_buffers == 1 ? 1 : 0;
    work->sectors = rows * row * (double)element / SECTOR_BYTES;
    const int64_t piece =
        tconv_gcd(params->out_columns * element, (int64_t)params->position_columns * params->tile_columns * element);
    work->part_sectors =
        params->column_tiles == 1 ? 0 : rows * tconv_cuda_part_ends(piece, params->dst_channel * element);
}

/* Counts post-ops to the tile's own cycles: those of epilogue warps, too, which share the schedulers with the warps that
 * transpose, and delay the next tile by about as much as they take. */
static void count_posts(const tile_search *search, const tile_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const post_steps steps = tconv_cuda_planned_steps(&search->layer->problem);
    const shared_posts_cost cost = tconv_cuda_shared_posts_cost(&steps, plan->arithmetic == NUMERICS_STRICT);
    const double of_staged = cost.staged + cost.steps_of_staged * STAGED_POST_INSTRUCTIONS;
    const double rows =
        (double)MMA_M * WARPGROUPS * (params->position_columns == 2 ? 1 : MMA_TILES) * params->mma_tile_rows;
    const double vectors = ceil((double)params->position_columns * params->mma_tile_columns / WARP);
    if (cost.steps_of_sums > 0)
        work->tile_cycles +=
            cost.sums * MMA_M * WARPGROUPS * MMA_TILES * plan->N / 128 + cost.steps_of_sums * POST_CYCLES;
    if (cost.steps_of_staged > 0)
        work->tile_cycles += rows * vectors * of_staged * STAGED_POST_CYCLES / work->store_warps;
}

tile_search tconv_wgmma_begin_search(const tconv_layer *layer, double limit, tile_plan *best)
{
    return (tile_search){layer, tconv_cuda_row_vector(layer), tconv_cuda_reads_vectors(layer),
                         tconv_search_begin(layer, limit, best, sizeof *best), tconv_cuda_begin_work(layer)};
}

tconv_cuda_work tconv_wgmma_work(const tile_search *search, const tile_plan *plan)
{
    tconv_cuda_work work = search->begun;
    count_main_loop(search, plan, &work);
    count_stores(search, plan, &work);
    count_posts(search, plan, &work);
    work.rounds = tconv_cuda_rounds(plan->params.tiles, plan->thread_blocks);
    return work;
}
