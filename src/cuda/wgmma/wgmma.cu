/*
 * cuda_wgmma: NCHW layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products of
 * TF32), f16 and bf16; strides 1 and 2.
 *
 * A phase (src/core/phases.h) is a matrix product for each of its taps: output channels by positions, over input
 * channels. A tile of positions loads its patch of src, halo included, once for each K-block; taps are offsets into it.
 * Both column phases of stride 2 are in one tile, so that rows are written whole, and so are both row phases. Few
 * output channels share the 64 rows of an MMA among neighbouring output rows (a stack), or columns (space-to-depth
 * along W). In f16 and bf16, where each pixel is read at its own position alone, planes of src are an MN-major B
 * operand as they lie.
 *
 * parameters.h has the words. The plan is made by plan.cu (the choice of the tile), tile.cu (where it lies in the
 * layer) and stages.cu (shared memory and the order of weights); work.cu counts what it does; pack.cu packs the
 * weights. kernel.cuh is the kernel and has the numeric order; its roles are load.cuh (TMA), transpose.cuh (to
 * K-major), realign.cuh, mainloop.cuh, and epilogue.cuh with store.cuh. configs_f32.cu and configs_half.cu have its
 * instances.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <cstdio>
#include <cstring>
#include <utility>

namespace tconv::wgmma
{

namespace
{

constexpr int MAX_REALIGNED = 8; /* bytes that a lane realigns at once */
constexpr int MAX_VECTOR = 16;   /* bytes that are stored at once */
constexpr int SECTOR = 32;       /* bytes that the second-level cache and the memory write at once */

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = tconv_cuda_why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (layer->rows.stride > 2 || layer->columns.stride > 2)
        return "needs strides of 1 or 2";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    return NULL;
}

/* -----------------------------------------------------------------------------------------------------------
 * planning */

/*
 * Describes planes that are realigned, from a multiple of 16 bytes on: a row is all pixels of map_row_channels
 * channels, as they follow one another. A box that begins in one of them may end in the next, but what is beyond the
 * tile's columns goes to accumulators that are not stored.
 */
tensor_map_recipe describe_misaligned_src(const tconv_layer *layer, const parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, row = params->map_row_channels * problem->src.c;
    return {problem->dtype,
            CU_TENSOR_MAP_SWIZZLE_NONE,
            NULL,
            {(cuuint64_t)(row - problem->src.c + params->in_columns), 1,
             (cuuint64_t)(problem->in_channels / params->map_row_channels), (cuuint64_t)problem->batch},
            {(cuuint64_t)(row * element), (cuuint64_t)(row * element), (cuuint64_t)(problem->src.n * element)},
            {(cuuint32_t)params->part_pitch, 1, (cuuint32_t)(params->k_block_channels / params->map_row_channels), 1}};
}

/* Describes src with the tile's box. */
tensor_map_recipe describe_src(const tconv_layer *layer, const plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &made->params;
    const cuuint64_t element = problem->element_size;
    if (made->realigned)
        return describe_misaligned_src(layer, params);
    /* From a row to the next; where there is but one, a number that TMA takes. */
    const int64_t row = params->in_rows > 1 ? problem->src.h : problem->src.c;
    tensor_map_recipe planes = {
        problem->dtype,
        made->mn_major ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        NULL,
        {(cuuint64_t)params->in_columns, (cuuint64_t)params->in_rows, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)row * element, (cuuint64_t)problem->src.c * element, (cuuint64_t)problem->src.n * element},
        {(cuuint32_t)(made->mn_major ? SWIZZLE_PIXELS : params->box_pitch), (cuuint32_t)made->patch_rows,
         (cuuint32_t)params->k_block_channels, 1}};
    if (params->in_place) { /* rows outside of channels, those of a core */
        std::swap(planes.extents[1], planes.extents[2]);
        std::swap(planes.strides[0], planes.strides[1]);
        planes.box[1] = (cuuint32_t)(CORE_ROW_BYTES / element);
        planes.box[2] = (cuuint32_t)made->patch_rows;
        planes.rounds = made->mode == arithmetic::TF32;
    }
    return planes;
}

/* Returns the widest store, in elements, that every row of every tile allows. */
int store_vector(const tconv_problem *problem, const parameters *params)
{
    const int64_t tile = (int64_t)params->tile_columns * params->position_columns,
                  mma_tile = params->mma_tile_columns * params->position_columns;
    const int64_t staged =
        params->mma_tile_rows == 1 ? 0 : (int64_t)params->pitch * params->position_columns; /* from a row to the next */
    int64_t vector = MAX_VECTOR / (int64_t)problem->element_size;
    while (vector > 1 &&
           (problem->dst.n % vector != 0 || problem->dst.c % vector != 0 || params->out_columns % vector != 0 ||
            tile % vector != 0 || mma_tile % vector != 0 || staged % vector != 0))
        vector /= 2;
    return (int)vector;
}

/* Tells whether staged rows and the rows of dst that they go to lie alike modulo 16 bytes, all of them as the first. */
bool rows_keep_alignment(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = (int64_t)params->out_columns * params->stride_h;
    const int64_t staged = (params->flat_columns > 0 ? params->flat_columns : params->pitch) * params->position_columns;
    const bool one_row = params->flat_columns > 0 ? params->out_rows == 1 : params->mma_tile_rows == 1;
    return one_row || (row - staged) * (int64_t)layer->problem.element_size % BOX_ALIGNMENT == 0;
}

/* Returns the channels after which rows of dst lie alike modulo 16 bytes. */
int alignment_period(const tconv_problem *problem)
{
    const int64_t beyond = problem->dst.c * (int64_t)problem->element_size % BOX_ALIGNMENT;
    return (int)(BOX_ALIGNMENT / tconv_gcd(BOX_ALIGNMENT, beyond));
}

/*
 * Tells whether bulk copies can write the rows: they begin at multiples of two elements, as they are staged, and all
 * rows of an MMA tile equally far past a multiple of 16 bytes, all channels too unless there is room to stage them at
 * offsets of their own.
 */
bool can_store_bulk(const tconv_layer *layer, const parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    return (params->bulk_period == 1 || problem->element_size == 2) && problem->dst.c % 2 == 0 &&
           problem->dst.n % 2 == 0 && params->out_columns % 2 == 0 &&
           params->tile_columns * params->position_columns % 2 == 0 &&
           params->mma_tile_columns * params->position_columns % 2 == 0 && rows_keep_alignment(layer, params);
}

/*
 * Tells whether the same epilogue warps should store both row phases of a flat layer, if not by bulk copies: the
 * warpgroups have the rows of dst in turn, and these end within sectors, which are written at half the speed where each
 * part comes by itself. Not where a tile has less than two rows, of which the first and the last may be cut.
 */
bool store_row_phases_together(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = params->out_columns * (int64_t)layer->problem.element_size;
    return params->flat_columns > 0 && params->stride_h == 2 && params->column_phases == 2 &&
           params->row_residue[0] == 0 && params->row_residue[1] == 1 && row % SECTOR != 0 &&
           params->mma_tile_columns >= 2 * params->flat_columns;
}

/* Fills in how src is read and dst is stored, as far as addresses do not matter. */
void plan_addressing(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &made->params;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t columns =
        params->flat_columns > 0 ? tconv_min(params->flat_columns, params->mma_tile_columns) : params->tile_columns;
    made->src = describe_src(layer, made);
    if (made->realigned)
        params->channel_alignment = (int)tconv_gcd(MAX_REALIGNED, problem->src.c * element);
    params->store_vector = store_vector(problem, params);
    params->bulk_period = alignment_period(problem);
    params->bulk_store = can_store_bulk(layer, params);
    params->row_phases_together = store_row_phases_together(layer, params);
    made->long_rows = columns * params->position_columns * element >= LEAST_BULK;
}

tconv_status plan_layer(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *to = static_cast<planned_layer *>(made);
    const search in = begin_search(layer);
    const char *why = why_not(layer);
    if (why == NULL && !make_plans(&in, to))
        why = "no tile fits in shared memory, or sums are too long for strict f32";
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const parameters *params = &to->plans[0].params;
    int64_t size;
    if (!tconv_checked_mul((int64_t)params->m_blocks * params->k_blocks,
                           (int64_t)params->max_k_block_a_stages * params->a_stage_bytes, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    for (int i = 0; i < to->count; i++)
        plan_addressing(layer, &to->plans[i]);
    to->packing = packing_of(layer, &to->plans[0]);
    plan_packing(to);
    const tconv_cuda_work work = work_of(&in, &to->plans[0]);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

void describe(const tconv_layer *, const void *made, char *text, size_t capacity)
{
    constexpr const char *ARITHMETICS[] = {"tf32", "strict", "f16", "bf16"};
    const plan *chosen = &static_cast<const planned_layer *>(made)->plans[0];
    const parameters *params = &chosen->params;
    const char *src = chosen->realigned  ? "realigned"
                      : chosen->mn_major ? "mn_major"
                      : params->in_place ? "in_place"
                      : params->tight    ? "tight"
                                         : "k_major";
    snprintf(text, capacity,
             "arithmetic=%s N=%d tile=%dx%dx%d k_block=%d b_stages=%d raw_stages=%d a_stages=%d staging_buffers=%d "
             "src=%s stack=%d%s%s%s",
             ARITHMETICS[(int)chosen->mode], chosen->config.N, params->tile_channels, params->tile_rows,
             params->tile_columns, params->k_block_channels, params->b_stages, params->raw_stages, params->a_stages,
             params->staging_buffers, src, params->stack, params->resident ? " resident=1" : "",
             params->flat_columns > 0 ? " flat=1" : "", params->space_to_depth_log2 > 0 ? " space_to_depth=1" : "");
}

/* -----------------------------------------------------------------------------------------------------------
 * executing */

tconv_status pack(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const planned_layer *planned = static_cast<const planned_layer *>(made);
    return on_device(layer->target.device, issue,
                     [&] { return pack_weights(planned, weights, packed, stream, issue); });
}

/* Returns the elements by which src begins past a multiple of 16 bytes, of planes that are realigned; else 0. */
int misalignment_of(const tconv_problem *problem, const plan *made, const void *src)
{
    return made->realigned ? (int)((uintptr_t)src % BOX_ALIGNMENT / problem->element_size) : 0;
}

/* Makes the tensor map of src with the tile's box; false where TMA cannot read src as it lies. */
bool make_map(const tconv_problem *problem, const plan *made, const void *src, CUtensorMap *map)
{
    const size_t before = (size_t)misalignment_of(problem, made, src);
    tensor_map_recipe planes = made->src;
    planes.data = static_cast<const char *>(src) - before * problem->element_size;
    planes.extents[0] += before;
    return tconv_encode_tensor_map(&planes, map);
}

/*
 * Decides how rows are stored at dst. Bulk copies that can write them do, but short rows are faster by the widest
 * vectors, if those can.
 *
 * release_early: whether an epilogue warp should wait for its bulk copies to have read the last staging buffer while
 * there is no other to store. Not where there are two buffers and rows are whole vectors: there, and in strict f32,
 * that delayed the next one by more than it won.
 */
void decide_stores(const plan *made, size_t element, const void *dst, parameters *params)
{
    const uintptr_t address = (uintptr_t)dst;
    while (params->store_vector > 1 && address % ((size_t)params->store_vector * element) != 0)
        params->store_vector /= 2;
    const bool misaligned = params->store_vector < MAX_VECTOR / (int)element;
    params->bulk_store = params->bulk_store && address % (2 * element) == 0 && (misaligned || made->long_rows);
    params->row_phases_together = params->row_phases_together && !params->bulk_store;
    params->staged_misaligned = params->bulk_store && misaligned;
    params->release_early =
        made->mode != arithmetic::STRICT && (params->staging_buffers == 1 || params->staged_misaligned);
}

tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const planned_layer *planned = static_cast<const planned_layer *>(made);
    const plan *taken = planned->plans, *last = taken + planned->count - 1;
    CUtensorMap map;
    memset(&map, 0, sizeof map);
    bool by_tma = make_map(problem, taken, arguments->src, &map);
    while (!by_tma && taken < last)
        by_tma = make_map(problem, ++taken, arguments->src, &map);
    parameters params = taken->params;
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.by_tma = by_tma;
    params.src_misalignment = misalignment_of(problem, taken, arguments->src);
    if (taken->realigned)
        params.channel_alignment =
            (int)tconv_gcd(params.channel_alignment, (int64_t)((uintptr_t)arguments->src % BOX_ALIGNMENT));
    decide_stores(taken, problem->element_size, arguments->dst, &params);
    void *kernel_arguments[] = {&params, &map};
    const launch_grid grid = {(const void *)taken->config.kernel, taken->thread_blocks, threads_of(taken->mode),
                              SHARED_MEMORY_BYTES, arguments->packs};
    return tconv_launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_wgmma = {"cuda_wgmma",
                                                          TCONV_BACKEND_CUDA,
                                                          TCONV_DTYPES_TO_F32,
                                                          sizeof(planned_layer),
                                                          plan_layer,
                                                          pack,
                                                          execute,
                                                          describe,
                                                          false,
                                                          NULL};

} // namespace tconv::wgmma
