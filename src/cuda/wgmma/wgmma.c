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
 * parameters.h has the words. plan.c chooses the tile, tile.c lays it out in the layer, stages.c shares out shared
 * memory, and work.c counts what the plan does. packing.c lays out the packed weights, and pack.cu packs them.
 * kernel.cuh is the kernel and has the numeric order; its roles are load.cuh (TMA), transpose.cuh (to K-major),
 * realign.cuh, mainloop.cuh, and epilogue.cuh with store.cuh. configs_f32.cu and configs_half.cu have its instances.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/post.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "plan.h"

enum { MAX_REALIGNED = 8 }; /* bytes that a lane realigns at once */

static const char *why_not(const tconv_layer *layer)
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
static tensor_map_recipe describe_misaligned_src(const tconv_layer *layer, const parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, row = params->map_row_channels * problem->src.c;
    return (tensor_map_recipe){
        .dtype = problem->dtype,
        .swizzle = SWIZZLE_NONE,
        .extents = {(uint64_t)(row - problem->src.c + params->in_columns), 1,
                    (uint64_t)(problem->in_channels / params->map_row_channels), (uint64_t)problem->batch},
        .strides = {(uint64_t)(row * element), (uint64_t)(row * element), (uint64_t)(problem->src.n * element)},
        .box = {(uint32_t)params->part_pitch, 1, (uint32_t)(params->k_block_channels / params->map_row_channels), 1}};
}

/* Describes src with the tile's box. */
static tensor_map_recipe describe_src(const tconv_layer *layer, const tile_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const uint64_t element = problem->element_size;
    if (plan->choice.realigned)
        return describe_misaligned_src(layer, params);
    /* From a row to the next; where there is but one, a number that TMA takes. */
    const uint64_t row_stride = (uint64_t)(params->in_rows > 1 ? problem->src.h : problem->src.c) * element;
    const uint64_t rows = (uint64_t)params->in_rows, channels = (uint64_t)tconv_src_channels(problem);
    const uint64_t channel_stride = (uint64_t)problem->src.c * element;
    const bool in_place = params->in_place; /* rows are outside of channels, those of a core */
    return (tensor_map_recipe){.dtype = problem->dtype,
                               .swizzle = plan->choice.mn_major ? SWIZZLE_128B : SWIZZLE_NONE,
                               .extents = {(uint64_t)params->in_columns, in_place ? channels : rows,
                                           in_place ? rows : channels, (uint64_t)tconv_src_images(problem)},
                               .strides = {in_place ? channel_stride : row_stride,
                                           in_place ? row_stride : channel_stride, (uint64_t)problem->src.n * element},
                               .box = {(uint32_t)(plan->choice.mn_major ? SWIZZLE_PIXELS : params->box_pitch),
                                       in_place ? (uint32_t)(CORE_ROW_BYTES / element) : (uint32_t)plan->patch_rows,
                                       (uint32_t)(in_place ? plan->patch_rows : params->k_block_channels), 1},
                               .rounds = in_place && plan->arithmetic == NUMERICS_TF32};
}

/* Returns the widest store, in elements, that every row of every tile allows. */
static int store_vector(const tconv_problem *problem, const parameters *params)
{
    const int64_t tile = (int64_t)params->tile_columns * params->position_columns,
                  mma_tile = params->mma_tile_columns * params->position_columns;
    const int64_t staged =
        params->mma_tile_rows == 1 ? 0 : (int64_t)params->pitch * params->position_columns; /* from a row to the next */
    int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    while (vector > 1 &&
           (problem->dst.n % vector != 0 || problem->dst.c % vector != 0 || params->out_columns % vector != 0 ||
            tile % vector != 0 || mma_tile % vector != 0 || staged % vector != 0))
        vector /= 2;
    return (int)vector;
}

/* Tells whether staged rows and the rows of dst that they go to lie alike modulo 16 bytes, all of them as the first. */
static bool rows_keep_alignment(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = (int64_t)params->out_columns * params->stride_h;
    const int64_t staged = (params->flat_columns > 0 ? params->flat_columns : params->pitch) * params->position_columns;
    const bool one_row = params->flat_columns > 0 ? params->out_rows == 1 : params->mma_tile_rows == 1;
    return one_row || (row - staged) * (int64_t)layer->problem.element_size % BOX_ALIGNMENT == 0;
}

/* Returns the channels after which rows of dst lie alike modulo 16 bytes. */
static int alignment_period(const tconv_problem *problem)
{
    const int64_t beyond = problem->dst.c * (int64_t)problem->element_size % BOX_ALIGNMENT;
    return (int)(BOX_ALIGNMENT / tconv_gcd(BOX_ALIGNMENT, beyond));
}

/*
 * Tells whether bulk copies can write the rows: they begin at multiples of two elements, as they are staged, and all
 * rows of an MMA tile equally far past a multiple of 16 bytes, all channels too unless there is room to stage them at
 * offsets of their own.
 */
static bool can_store_bulk(const tconv_layer *layer, const parameters *params)
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
static bool store_row_phases_together(const tconv_layer *layer, const parameters *params)
{
    const int64_t row = params->out_columns * (int64_t)layer->problem.element_size;
    return params->flat_columns > 0 && params->stride_h == 2 && params->column_phases == 2 &&
           params->row_residue[0] == 0 && params->row_residue[1] == 1 && row % SECTOR_BYTES != 0 &&
           params->mma_tile_columns >= 2 * params->flat_columns;
}

/* Fills in how src is read and dst is stored, as far as addresses do not matter. */
static void plan_addressing(const tconv_layer *layer, tile_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    const int64_t element = (int64_t)problem->element_size;
    const int64_t columns =
        params->flat_columns > 0 ? tconv_min(params->flat_columns, params->mma_tile_columns) : params->tile_columns;
    plan->src = describe_src(layer, plan);
    if (plan->choice.realigned)
        params->channel_alignment = (int)tconv_gcd(MAX_REALIGNED, problem->src.c * element);
    params->store_vector = store_vector(problem, params);
    params->bulk_period = alignment_period(problem);
    params->bulk_store = can_store_bulk(layer, params);
    params->row_phases_together = store_row_phases_together(layer, params);
    plan->long_rows = columns * params->position_columns * element >= LEAST_BULK;
}

/* Declines lists of post-ops that the kernels do not take: in 16 bits what is staged is rounded, and an addend is read
 * at the places of outputs in dst. Lists that are not affine are taken by name alone where they have an addend, which is
 * waited for too long, and in strict f32, where half as many warps store. */
static tconv_status check_posts(const tconv_layer *layer, const tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const bool slow = problem->desc.math != TCONV_MATH_TF32 || tconv_post_addend(&problem->desc) >= 0;
    if (problem->element_size == 2 || (slow && !planned->named))
        return tconv_cuda_check_posts(problem, issue);
    return tconv_cuda_check_addend(problem, issue);
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *own = memory;
    const tconv_status taken = check_posts(layer, planned, issue);
    if (taken != TCONV_SUCCESS)
        return taken;
    tile_search search = tconv_wgmma_begin_search(layer, planned->limit, &own->plans[0]);
    const char *why = why_not(layer);
    if (why == NULL)
        why = tconv_wgmma_make_plans(&search, own);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const parameters *params = &own->plans[0].params;
    int64_t size;
    if (!tconv_checked_mul((int64_t)params->m_blocks * params->k_blocks,
                           (int64_t)params->max_k_block_a_stages * params->a_stage_bytes, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    for (int i = 0; i < own->count; i++)
        plan_addressing(layer, &own->plans[i]);
    own->packing = tconv_wgmma_plan_packing(layer, &own->plans[0]);
    tconv_cuda_predict(layer, &search.best.work, planned);
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    (void)layer;
    const tile_plan *plan = ((const planned_layer *)memory)->plans;
    const parameters *params = &plan->params;
    const char *src = plan->choice.realigned  ? "realigned"
                      : plan->choice.mn_major ? "mn_major"
                      : params->in_place      ? "in_place"
                      : params->tight         ? "tight"
                                              : "k_major";
    snprintf(text, capacity,
             "arithmetic=%s N=%d tile=%dx%dx%d k_block=%d b_stages=%d raw_stages=%d a_stages=%d staging_buffers=%d "
             "src=%s stack=%d%s%s%s",
             numerics_name(plan->arithmetic), plan->N, params->tile_channels, params->tile_rows, params->tile_columns,
             params->k_block_channels, params->b_stages, params->raw_stages, params->a_stages, params->staging_buffers,
             src, params->stack, params->resident ? " resident=1" : "", params->flat_columns > 0 ? " flat=1" : "",
             params->space_to_depth_log2 > 0 ? " space_to_depth=1" : "");
}

/* -----------------------------------------------------------------------------------------------------------
 * executing */

static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const planned_layer *own = memory;
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard,
                              tconv_wgmma_pack_weights(&own->packing, &own->plans[0].params, own->plans[0].arithmetic,
                                                       weights, packed, stream, issue),
                              issue);
}

/* Returns the elements by which src begins past a multiple of 16 bytes, of planes that are realigned; else 0. */
static int misalignment_of(const tconv_problem *problem, const tile_plan *plan, const void *src)
{
    return plan->choice.realigned ? (int)((uintptr_t)src % BOX_ALIGNMENT / problem->element_size) : 0;
}

/* Makes the tensor map of src with the tile's box; false where TMA cannot read src as it lies. */
static bool make_map(const tconv_problem *problem, const tile_plan *plan, const void *src, tensor_map *map)
{
    const size_t before = (size_t)misalignment_of(problem, plan, src);
    tensor_map_recipe planes = plan->src;
    planes.extents[0] += before;
    return tconv_encode_tensor_map(&planes, (const char *)src - before * problem->element_size, map);
}

/*
 * Decides how rows are stored at dst. Bulk copies that can write them do, but short rows are faster by the widest
 * vectors, if those can.
 *
 * release_early: whether an epilogue warp should wait for its bulk copies to have read the last staging buffer while
 * there is no other to store. Not where there are two buffers and rows are whole vectors: there, and in strict f32,
 * that delayed the next one by more than it won.
 */
static void decide_stores(const tile_plan *plan, size_t element, const void *dst, parameters *params)
{
    const uintptr_t address = (uintptr_t)dst;
    while (params->store_vector > 1 && address % ((size_t)params->store_vector * element) != 0)
        params->store_vector /= 2;
    const bool misaligned = params->store_vector < VECTOR_BYTES / (int)element;
    params->bulk_store = params->bulk_store && address % (2 * element) == 0 && (misaligned || plan->long_rows);
    params->row_phases_together = params->row_phases_together && !params->bulk_store;
    params->staged_misaligned = params->bulk_store && misaligned;
    params->release_early =
        plan->arithmetic != NUMERICS_STRICT && (params->staging_buffers == 1 || params->staged_misaligned);
}

static const void *kernel_of(const tile_plan *plan)
{
    return numerics_bytes(plan->arithmetic) == 2
               ? tconv_wgmma_half_kernel(plan->arithmetic, plan->choice.mn_major, plan->choice.config)
               : tconv_wgmma_f32_kernel(plan->arithmetic, plan->choice.config);
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const planned_layer *own = memory;
    const tile_plan *plan = own->plans, *last = plan + own->count - 1;
    tensor_map map;
    memset(&map, 0, sizeof map);
    bool by_tma = make_map(problem, plan, arguments->src, &map);
    while (!by_tma && plan < last)
        by_tma = make_map(problem, ++plan, arguments->src, &map);
    parameters params = plan->params;
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.by_tma = by_tma;
    params.src_misalignment = misalignment_of(problem, plan, arguments->src);
    if (plan->choice.realigned)
        params.channel_alignment =
            (int)tconv_gcd(params.channel_alignment, (int64_t)((uintptr_t)arguments->src % BOX_ALIGNMENT));
    decide_stores(plan, problem->element_size, arguments->dst, &params);
    const int addend = tconv_post_addend(&problem->desc);
    const post_steps steps = tconv_cuda_post_steps(problem, arguments->post);
    params.posts = tconv_cuda_share_posts(&steps, addend >= 0 ? arguments->post[addend] : NULL);
    /* The warps that store both row phases have no text of post-ops. */
    params.row_phases_together = params.row_phases_together && params.posts.of_staged.count == 0;
    void *kernel_arguments[] = {&params, &map};
    const launch_grid grid = {.kernel = kernel_of(plan),
                              .blocks = plan->thread_blocks,
                              .threads = threads_of(plan->arithmetic),
                              .shared_bytes = SHARED_MEMORY_BYTES,
                              .overlaps = arguments->packs};
    return tconv_launch_on_device(&grid, kernel_arguments, tconv_cuda_target_of(&layer->target).device,
                                  arguments->stream, issue);
}

const tconv_implementation tconv_cuda_wgmma = {.name = "cuda_wgmma",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F32,
                                               .plan_bytes = sizeof(planned_layer),
                                               .plan = plan_layer,
                                               .pack = pack,
                                               .execute = execute,
                                               .describe = describe,
                                               .sums_planes = true,
                                               .applies_posts = true};
