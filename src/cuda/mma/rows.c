/*
 * The rows algorithm on CUDA: NCHW layers with few input channels per group, whose time is that of writing dst, on
 * tensor cores: f32 (strict by 3xTF32, or TF32), f16 and bf16; row strides up to 16, column strides 1 to 6 and 8; any
 * padding, dilation, slice and alignment. row_parameters.h says what the words mean, row_plan.c cuts the layer up;
 * row_kernel.cuh is the kernel and gives the numeric order, which depends on the layer alone; row_mode.cuh has its
 * arithmetic, row_epilogue.cuh stores the rows, row_pack.cu packs the weights.
 */
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../runtime/guard.h"
#include "plan.h"

#include <math.h>
#include <stdio.h>

/* The corrections. */
static const double ISSUE_CYCLES = 1460;  /* of a row of dst: staging it, two barriers, bulk stores of 16 channels */
static const double MMA_CYCLES = 73;      /* of an MMA, in place of the machine's mma_chain */
static const double STRICT_CYCLES = 44.3; /* the same in strict f32 */

static const double POST_CYCLES = 40;    /* of a step of the post-ops and a row of dst; not measured */
enum { LANES = 128 };                    /* values of which a multiprocessor issues an instruction in a cycle */
static const double UNALIGNED_LOADS = 4; /* for a channel's row, where it is no vectors of 16 bytes; else 1 */

/* Counts the work of a plan: see work.h. A tile is the strip of a block, at BLOCK_M output channels; a K-block is one row
 * position of the strip, at all row phases. */
static tconv_cuda_work count_work(const tconv_layer *layer, const row_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const row_parameters *params = &plan->params;
    const double element = (double)problem->element_size,
                 multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const bool strict = tconv_cuda_is_strict(layer);
    const double columns = params->tile_columns;
    const int warps = plan->grid.threads / WARP;
    const double mmas =
        columns / MMA_SYNC_N * params->steps * (strict ? 3 : 1) * (double)(problem->h.kernel * params->column_taps);
    const double outputs = BLOCK_M * columns * (double)(problem->w.stride * problem->h.stride);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    work.k_blocks = params->strip_rows;
    work.prologue = params->max_row_back + 1;
    work.mma_sync = mmas;
    work.issues = (double)layer->rows.count;
    work.issue_cycles = ISSUE_CYCLES;
    work.slow_issues = mmas / warps;
    work.slow_issue_cycles = strict ? STRICT_CYCLES : MMA_CYCLES;
    work.shared_bytes = mmas * 256 + outputs * element * 2;
    work.box_bytes = (double)problem->group_in * columns * element;
    work.chain_loads =
        fmax(1, (double)problem->group_in / warps) * (tconv_cuda_reads_vectors(layer) ? 1 : UNALIGNED_LOADS);
    const double rows = (double)(params->strip_rows * problem->h.stride);
    work.tile_cycles =
        rows * (BLOCK_M * columns * (double)problem->w.stride * tconv_cuda_post_instructions(problem) / LANES +
                POST_CYCLES * problem->desc.post_count);
    work.stages = 2;
    work.bulk_stores = (double)(BLOCK_M * problem->h.stride * params->strip_rows);
    work.store_warps = warps;
    work.sectors = outputs * element / SECTOR_BYTES * params->strip_rows;
    work.overlaps = true;
    work.rounds = (double)tconv_ceil_div(plan->grid.blocks,
                                         tconv_cuda_target_of(&layer->target).multiprocessors * plan->resident);
    work.resident = fmin((double)plan->resident, fmax(1, (double)plan->grid.blocks / multiprocessors));
    return work;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    row_plan *plan = memory;
    const row_parameters *params = &plan->params;
    const tconv_status posts = tconv_cuda_check_posts(&layer->problem, issue);
    if (posts != TCONV_SUCCESS)
        return posts;
    const char *why = tconv_mma_plan_rows(layer, plan);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)((int64_t)params->groups * params->m_tiles * params->weight_vectors * VECTOR_BYTES);
    const tconv_cuda_work work = count_work(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const row_plan *plan = memory;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(
            &guard, tconv_mma_launch_row_packing(layer, &plan->params, weights, packed, stream, issue), issue);
    return status;
}

static const void *kernel_of(const tconv_layer *layer, row_sums sums)
{
    const int64_t stride = layer->problem.w.stride;
    switch (numerics_of(layer)) {
    case NUMERICS_TF32: return tconv_mma_tf32_row_kernel(stride);
    case NUMERICS_STRICT: return tconv_mma_strict_row_kernel(stride);
    case NUMERICS_F16: return tconv_mma_f16_row_kernel(sums, stride);
    case NUMERICS_BF16: return tconv_mma_bf16_row_kernel(sums, stride);
    }
    return NULL;
}

/* Launches the kernel on the current device. */
static tconv_status launch(const tconv_layer *layer, const launch_grid *grid, row_parameters *params, void *stream,
                           tconv_issue *issue)
{
    void *arguments[] = {params};
    const tconv_status status =
        tconv_allow_shared(grid->kernel, tconv_cuda_target_of(&layer->target).shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(grid, arguments, stream, issue) : status;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const row_plan *plan = memory;
    row_parameters params = plan->params;
    launch_grid grid = plan->grid;
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.posts = tconv_cuda_post_steps(&layer->problem, arguments->post);
    params.src_aligned = params.src_aligned && (uintptr_t)arguments->src % VECTOR_BYTES == 0;
    grid.kernel = kernel_of(layer, plan->sums);
    grid.overlaps = grid.overlaps && arguments->packs;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(&guard, launch(layer, &grid, &params, arguments->stream, issue), issue);
    return status;
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const row_plan *plan = memory;
    const row_parameters *params = &plan->params;
    const bool half = layer->problem.dtype != TCONV_F32;
    const char *mode = half ? "half" : numerics_name(numerics_of(layer));
    const char *sums = !half || plan->sums == ADDED ? "" : plan->sums == NARROW ? " sums=narrow" : " sums=direct";
    snprintf(text, capacity, "mode=%s%s tile_columns=%d warps=%d strip_rows=%d stages=%d bias_rows=%d%s", mode, sums,
             params->tile_columns, plan->grid.threads / WARP, params->strip_rows, params->stages, params->bias_rows,
             params->src_aligned ? "" : " src=unaligned");
}

const tconv_implementation tconv_cuda_rows = {.name = "cuda_rows",
                                              .backend = TCONV_BACKEND_CUDA,
                                              .dtypes = TCONV_DTYPES_TO_F32,
                                              .plan_bytes = sizeof(row_plan),
                                              .plan = plan_layer,
                                              .pack = pack,
                                              .execute = execute,
                                              .describe = describe,
                                              .applies_posts = true};
