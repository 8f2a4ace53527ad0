/* The work of a plan, see ../model/work.h. A K-block is a K-tile of a block; a tile is a block's tile of sums, with the K-tiles
 * of the block's slice. The search for the plan has a formula of its own (cost.h). */
#include "work.h"

#include <math.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../gemm/shape.h"
#include "../model/planned.h"
#include "cost.h"

/* The corrections, fitted to the times of bench/results/h200_ablation.csv.gz. */

/* Cycles of a K-tile, for barriers and addresses: of a kernel by mma.sync, and of one by wgmma. */
static const double MMA_TF32_CYCLES = 4000; /* with the rounding of the operands to TF32 */
static const double MMA_STRICT_CYCLES = 1100;
static const double MMA_HALF_CYCLES = 1820;
static const double WGMMA_CYCLES = 930; /* in f32 */
static const double WGMMA_HALF_CYCLES = 120;
static const double TILE_CYCLES = 3850; /* of a block, until its first product */

/* A kernel by wgmma, but not by boxes. */
static const double L2_TIMES = 1.75;      /* a load takes so many times as long as one of a long row by TMA */
static const double SHARED_TIMES = 1.55;  /* shared memory takes so many times as long: warps read single words */
static const double TF32_FRAGMENTS = 0.6; /* a fragment of TF32 takes this part of the machine's cycles for one */
static const double ROW_PART = 0.4;       /* a row of a box takes this part of the machine's cycles for one, */
static const double HALF_ROW_PART = 0.75; /* and a row of lines of 16 bits takes this part */
static const double ELEMENT_WAITS = 0.66; /* a producer waits for this part of its loads of single elements */
static const double HALF_UNIT_WAITS = 3;  /* a unit of a line of 16 bits is waited for as long as so many loads */
static const double RATE_WARPS = 4;       /* the machine's rate of splitting is of so many warps */

/* A kernel by mma.sync. */
static const double TF32_WAITS = 0.62;    /* a thread waits for this part of its loads of single elements of TF32 */
static const double GATHERED_BYTES = 1.8; /* another single element takes as long as so many gathered bytes */

static const double SLICE_TIMES = 1.8; /* the pass that adds slices takes so many times as long as one that copies */

enum { COPY_LAUNCHES = 2 }; /* of a chunk: of src, and of the gradient of dst */

static bool is_half(const planned_layer *plan)
{
    return numerics_bytes(plan->math) == 2;
}

/* Counts the products of a K-tile by mma.sync, and the reading of their operands. */
static void count_mma(const planned_layer *plan, tconv_cuda_work *work)
{
    const bool half = is_half(plan), strict = plan->math == NUMERICS_STRICT;
    const double warps = plan->threads / (double)WARP, uneven = ceil(warps / 4) * 4 / warps;
    const double height = plan->kernel->channels / 16.0, width = plan->kernel->pairs / 8.0;
    const double steps = plan->params.k_pixels / (half ? 16.0 : 8.0);
    const double mmas = steps * height * width * (strict ? WGRAD_STRICT_PRODUCTS : 1);
    work->mma_sync = mmas * warps * uneven;
    work->mma_chain = plan->math == NUMERICS_TF32 ? 0 : mmas;
    work->shared_bytes = steps * warps * (height * 16 + width * 8) * MMA_K_BYTES;
    work->loads = work->shared_bytes / (WARP * (half ? VECTOR_BYTES : 4.0));
    work->issue_cycles = half ? MMA_HALF_CYCLES : strict ? MMA_STRICT_CYCLES : MMA_TF32_CYCLES;
}

/* Counts the same by wgmma. */
static void count_wgmma(const planned_layer *plan, tconv_cuda_work *work)
{
    const bool half = is_half(plan), strict = plan->math == NUMERICS_STRICT;
    const double channels = plan->kernel->channels;
    const double steps = plan->params.k_pixels * numerics_bytes(plan->math) / (double)MMA_K_BYTES;
    const double mmas = steps * plan->kernel->pairs / MMA_M, products = mmas * (strict ? WGRAD_STRICT_PRODUCTS : 1);
    const double reads = plan->load == LINES ? tconv_wgrad_line_loads(&plan->params, half) : 1;
    work->wgmma = products * channels / 8;
    work->wgmma_chain = work->wgmma / WARPGROUPS;
    if (plan->kernel->family == BY_WGMMA)
        work->fragments = mmas / WARPGROUPS * (plan->math == NUMERICS_TF32 ? TF32_FRAGMENTS : 1);
    work->shared_bytes = mmas * MMA_A_BYTES * reads + products * channels * MMA_K_BYTES;
    work->issue_cycles = half ? WGMMA_HALF_CYCLES : WGMMA_CYCLES;
}

/* The elements of a K-tile, and how a block brings them: by TMA, or by copies of its warps. */
typedef struct tile_copies {
    double src, dst;        /* elements */
    double rows;            /* of boxes that TMA brings */
    double vector_bytes;    /* copied by vectors */
    double unit_bytes;      /* copied by units that are transposed in registers */
    double elements, units; /* loads of single elements, and of units of lines */
} tile_copies;

static tile_copies find_copies(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const line_layout *lines = &params->lines;
    const bool by_lines = plan->load == LINES, half = is_half(plan);
    const double size = numerics_bytes(plan->math);
    tile_copies copies = {.src = (double)params->k_pixels * params->tiles.block_m};
    copies.dst =
        by_lines ? (params->stage_bytes - params->src_bytes) / size : (double)plan->slots * (double)params->tiles.chunk;
    if (plan->load == BOXES)
        return copies;
    if (by_lines && lines->src_box_pixels > 0)
        copies.rows += copies.src / lines->src_box_pixels;
    else if (plan->load == CHANNELS || plan->load == SRC_CHANNELS || (by_lines && lines->src_vectors))
        copies.vector_bytes += copies.src * size;
    else if (by_lines && half && params->src_unit > 1)
        copies.unit_bytes += copies.src * size;
    else
        copies.elements += copies.src / (half ? 1 : params->src_unit);
    if (params->box_bytes > 0)
        copies.rows += by_lines ? copies.dst / lines->length / params->sharers : (double)plan->slots;
    else if (by_lines)
        copies.units += copies.dst / lines->unit;
    else if (plan->load == CHANNELS)
        copies.vector_bytes += copies.dst * size;
    else
        copies.elements += copies.dst;
    return copies;
}

/* Returns the bytes of the sectors that a K-tile's elements move. */
static double moved_bytes(const tconv_layer *layer, const planned_layer *plan, const tile_copies *copies)
{
    const double size = (double)layer->problem.element_size;
    if (plan->load == BOXES)
        return (copies->src + copies->dst) * size;
    const double dst = plan->load == LINES ? 1.0 / plan->params.sharers
                                           : tconv_wgrad_sector_part(layer, plan, plan->params.columns.stride);
    return (copies->src * tconv_wgrad_sector_part(layer, plan, 1) + copies->dst * dst) * size;
}

/* Counts how a block by mma.sync loads a K-tile. */
static void count_mma_loads(const planned_layer *plan, const tile_copies *copies, tconv_cuda_work *work)
{
    work->shared_bytes += (copies->src + copies->dst) * numerics_bytes(plan->math);
    work->convert_bytes = copies->vector_bytes;
    if (plan->math == NUMERICS_TF32)
        work->chain_loads = copies->elements / plan->threads * TF32_WAITS;
    else
        work->gather_bytes = copies->elements * GATHERED_BYTES;
}

/* Counts the same by wgmma. */
static void count_wgmma_loads(const planned_layer *plan, const tile_copies *copies, tconv_cuda_work *work)
{
    const bool half = is_half(plan), strict = plan->math == NUMERICS_STRICT;
    const double size = numerics_bytes(plan->math), producers = WARPGROUP_PRODUCERS / (double)WARP;
    const shared_passes passes = tconv_wgrad_shared_passes(plan);
    const double waits = copies->elements * ELEMENT_WAITS + copies->units * (half ? HALF_UNIT_WAITS : 1);
    work->shared_bytes += (copies->src * passes.src + copies->dst * passes.dst) * size;
    work->shared_bytes *= SHARED_TIMES;
    work->box_bytes *= L2_TIMES;
    work->box_rows = copies->rows * (half && plan->load == LINES ? HALF_ROW_PART : ROW_PART);
    work->convert_bytes = copies->vector_bytes;
    work->transpose_bytes = copies->unit_bytes;
    work->split_bytes = strict ? copies->src * size * RATE_WARPS / producers : 0;
    work->chain_loads = waits / WARPGROUP_PRODUCERS;
}

/* Counts the launches beside the kernel: those that add slices, and those that make copies, chunk by chunk. */
static void count_passes(const planned_layer *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    if (!plan->writes_weights) {
        work->passes += 1;
        work->pass_bytes += params->splits * (double)tconv_wgrad_slice_sums(&params->tiles) * sizeof(float) *
                            (keeps_lost(plan, params->splits) ? 2 : 1) * SLICE_TIMES;
    }
    if (plan->copies.images > 0) {
        const double chunks = (double)chunks_of(&plan->copies);
        work->rounds *= chunks;
        work->passes += chunks * COPY_LAUNCHES + chunks - 1;
        work->pass_bytes += 2 * (double)copied_bytes(&plan->copies) * chunks; /* read and written */
    }
}

tconv_cuda_work tconv_wgrad_work(const tconv_layer *layer, const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const double sums = params->tiles.block_m * (double)params->tiles.block_n;
    const double blocks = (double)plan->blocks / tconv_cuda_target_of(&layer->target).multiprocessors;
    const tile_copies copies = find_copies(plan);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.issues = 1;
    work.tile_cycles = TILE_CYCLES;
    work.box_bytes = moved_bytes(layer, plan, &copies);
    switch (plan->kernel->family) {
    case BY_MMA:
        count_mma(plan, &work);
        count_mma_loads(plan, &copies, &work);
        break;
    case BY_WGMMA:
        count_wgmma(plan, &work);
        count_wgmma_loads(plan, &copies, &work);
        break;
    case BY_BOXES:
        count_wgmma(plan, &work);
        work.shared_bytes += work.box_bytes;
        break;
    }
    work.stages = params->stages;
    work.k_blocks = (double)tconv_ceil_div(params->k_tiles, params->splits);
    work.prologue = fmin(work.k_blocks, params->stages - 1);
    work.rounds = tconv_cuda_rounds(blocks, plan->resident);
    work.resident = fmin(plan->resident, fmax(blocks, 1));
    work.stores = sums / WARP;
    work.store_warps = plan->threads / (double)WARP;
    work.sectors = sums * sizeof(float) / SECTOR_BYTES;
    count_passes(plan, &work);
    return work;
}
