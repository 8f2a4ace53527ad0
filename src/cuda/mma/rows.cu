/*
 * The rows algorithm on CUDA: NCHW layers with few input channels per group, whose time is that of writing dst, on
 * tensor cores: f32 (strict by 3xTF32, or TF32), f16 and bf16; row strides up to 16, column strides 1 to 6 and 8; any
 * padding, dilation, slice and alignment. row_parameters.h says what the words mean, row_plan.cu cuts the layer up;
 * row_kernel.cuh is the kernel and gives the numeric order, which depends on the layer alone; row_mode.cuh has its
 * arithmetic, row_epilogue.cuh stores the rows, row_pack.cu packs the weights.
 */
#include "../../core/status.h"
#include "../implementations.h"
#include "plan.h"

#include <cmath>
#include <cstdio>

namespace tconv::mma
{

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 1460;  /* of a row of dst: staging it, two barriers, bulk stores of 16 channels */
constexpr double MMA_CYCLES = 73;      /* of an MMA, in place of the machine's mma_chain */
constexpr double STRICT_CYCLES = 44.3; /* the same in strict f32 */

constexpr double UNALIGNED_LOADS = 4; /* for a channel's row, where it is no vectors of 16 bytes; else 1 */

/* Counts what a plan does: see work.h. A tile is the strip of a block, at BLOCK_M output channels; a K-block is one row
 * position of it, at all row phases. */
tconv_cuda_work work_of(const tconv_layer *layer, const planned_rows *made)
{
    const tconv_problem *problem = &layer->problem;
    const row_parameters *params = &made->params;
    const double element = (double)problem->element_size, multiprocessors = layer->target.multiprocessors;
    const bool strict = tconv_cuda_is_strict(layer);
    const double columns = params->tile_columns, warps = made->grid.threads / WARP;
    const double mmas =
        columns / MMA_N * params->steps * (strict ? 3 : 1) * (double)(problem->h.kernel * params->column_taps);
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
    work.stages = 2;
    work.bulk_stores = (double)(BLOCK_M * problem->h.stride * params->strip_rows);
    work.store_warps = warps;
    work.sectors = outputs * element / SECTOR_BYTES * params->strip_rows;
    work.overlaps = true;
    work.rounds = (double)tconv_ceil_div(made->grid.blocks, layer->target.multiprocessors * made->resident);
    work.resident = fmin((double)made->resident, fmax(1, (double)made->grid.blocks / multiprocessors));
    return work;
}

tconv_status plan(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    planned_rows *made = (planned_rows *)memory;
    const row_parameters *params = &made->params;
    const char *why = plan_rows(layer, made);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)((int64_t)params->groups * params->m_tiles * params->weight_vectors * VECTOR_BYTES);
    const tconv_cuda_work work = work_of(layer, made);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const planned_rows *made = (const planned_rows *)memory;
    return on_device(layer->target.device, issue,
                     [&] { return launch_packing(layer, &made->params, weights, packed, stream, issue); });
}

tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_rows *made = (const planned_rows *)memory;
    row_parameters params = made->params;
    launch_grid grid = made->grid;
    void *kernel_arguments[] = {&params};
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.src_aligned = params.src_aligned && (uintptr_t)arguments->src % VECTOR_BYTES == 0;
    grid.overlaps = grid.overlaps && arguments->packs;
    return on_device(layer->target.device, issue, [&] {
        const tconv_status status = tconv_allow_shared(grid.kernel, layer->target.shared_bytes, issue);
        return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue)
                                       : status;
    });
}

void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const planned_rows *made = (const planned_rows *)memory;
    const row_parameters *params = &made->params;
    const bool half = layer->problem.dtype != TCONV_F32;
    const char *mode = half ? "half" : tconv_cuda_is_strict(layer) ? "strict" : "tf32";
    const char *sums = !half || made->sums == ADDED ? "" : made->sums == NARROW ? " sums=narrow" : " sums=direct";
    snprintf(text, capacity, "mode=%s%s tile_columns=%d warps=%d strip_rows=%d stages=%d bias_rows=%d%s", mode, sums,
             params->tile_columns, made->grid.threads / WARP, params->strip_rows, params->stages, params->bias_rows,
             params->src_aligned ? "" : " src=unaligned");
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_rows = {
    "cuda_rows", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(planned_rows), plan, pack, execute, describe, false,
    NULL};

} // namespace tconv::mma
