/*
 * cuda_cells: NCHW layers of f32 with many channels on Hopper's tensor cores, strided ones above all; in TF32 or, in
 * strict f32, as 3xTF32. Of 16 bits it takes layers of cuda_dgrad's with even column strides, as words (words.c).
 *
 * A cell is the outputs (the N tile) that one position of the GEMM's pixel side, M, computes: a block of rows and
 * columns of some channels. For each shift of the input, wgmma adds to the window of the cell's accumulators that have
 * a tap there (parameters.h defines these words). Where phases are those of src (cuda_dgrad's layers) a cell has
 * channels of one output, or of some rows, whose taps are all of the kernel's, and positions are strides apart.
 *
 * wgmma reads pixels from registers, to which they come from the planes of src by single loads: no layout transform of
 * src is made, and where outputs share an input it is read once.
 *
 * plan.c chooses the tile by the cost model of model/, tap_schedule.c writes the tap schedules, stages.c the
 * pipeline stages; pack.cu packs weights. The kernel in kernel.cuh streams weights. Where each pixel is read at its own
 * position alone and the weights of all input channels fit in shared memory, kernel_stationary.cuh has a
 * weight-stationary one for TF32.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/guard.h"
#include "plan.h"

#include <stdio.h>

static const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = tconv_cuda_why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (problem->element_size == 2 && !layer->phases_of_src)
        return "needs f32, but for gradients of src";
    if (layer->phases_of_src && layer->rows.stride > MAX_BOX_STEP)
        return "needs a row stride of at most 8";
    if (layer->phases_of_src)
        return NULL;
    if (layer->columns.stride != 1 && layer->columns.stride != 2 && layer->columns.stride != 4)
        return "needs column strides of 1, 2 or 4";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    return NULL;
}

/* Returns the recipe of src's tensor map, with boxes of so many columns, rows and images of a K-block's
 * channels. */
static tensor_map_recipe describe_map(const tconv_layer *layer, const parameters *params, int columns, int rows,
                                      int images)
{
    const tconv_problem *problem = &layer->problem;
    const uint64_t element = problem->element_size;
    /* The stride of a single row is not used, but TMA must accept it. */
    const int64_t row = params->in_rows > 1 ? problem->src.h : problem->src.c;
    const uint32_t row_step = (uint32_t)params->src_row_step;
    return (tensor_map_recipe){
        .dtype = problem->dtype,
        .swizzle = SWIZZLE_NONE,
        .extents = {(uint64_t)params->in_columns, (uint64_t)params->in_rows, (uint64_t)problem->in_channels,
                    (uint64_t)problem->batch},
        .strides = {(uint64_t)row * element, (uint64_t)problem->src.c * element, (uint64_t)problem->src.n * element},
        .box = {(uint32_t)columns, (uint32_t)(rows - 1) * row_step + 1, (uint32_t)params->block_k, (uint32_t)images},
        .rounds = params->stationary,
        .steps = {1, row_step, 1, 1}};
}

/* Describes the launch of the chosen plan. */
static void describe_launch(const tconv_layer *layer, planned_layer *planned)
{
    const tconv_strides *dst = &layer->problem.dst;
    const layer_plan *plan = &planned->plan;
    const parameters *params = &plan->params;
    const int64_t clusters = tconv_max(1, tconv_cuda_target_of(&layer->target).multiprocessors / CLUSTER_BLOCKS);
    const int64_t pair_columns = 2 * params->cell_columns;
    planned->vector_rows = tconv_rows_begin_at_multiples(dst, params->cell_columns);
    /* The columns of two cells, where they lie in one vector in one channel and row, do so in all. */
    planned->pair_stores =
        params->neighbours && dst->c % pair_columns == 0 && (params->cell_rows == 1 || dst->h % pair_columns == 0);
    planned->grid.shared_bytes = SHARED_MEMORY;
    if (params->stationary) {
        const int64_t blocks = (int64_t)params->set_step * params->tile_step * params->set_blocks;
        planned->grid.kernel = tconv_cells_stationary_kernel(params->cell_columns);
        planned->grid.blocks = tconv_min(tconv_ceil_div(blocks, CLUSTER_BLOCKS), clusters) * CLUSTER_BLOCKS;
        planned->grid.threads = STATIONARY_THREADS;
        planned->boxes[0] = describe_map(layer, params, BOX_PITCH, 1, 1);
        planned->boxes[1] = describe_map(layer, params, params->tail_pitch, 1, BOX_PITCH / params->tail_pitch);
    } else {
        planned->grid.kernel = tconv_cells_streaming_kernel(plan->numerics, plan->straddle, plan->config_number);
        planned->grid.blocks = tconv_min(params->tiles, clusters) * CLUSTER_BLOCKS;
        planned->grid.threads = STREAMING_THREADS;
        planned->boxes[0] = describe_map(layer, params, params->row_pitch, plan->box_rows, params->tile_images);
    }
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *result = memory;
    layer_plan *plan = &result->plan;
    const char *why = why_not(layer);
    int64_t size;
    word_layer words = {0};
    const tconv_layer *planned_as = layer; /* the layer itself, or the layer of words */
    const tconv_status posts = tconv_cuda_check_posts(&layer->problem, issue);
    if (posts != TCONV_SUCCESS)
        return posts;
    if (why == NULL && layer->problem.element_size == 2) {
        why = tconv_cells_describe_words(layer, &words);
        planned_as = &words.layer;
    }
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const tconv_search search =
        tconv_cells_choose(planned_as, numerics_of(layer), words.straddle, planned->limit, plan);
    why = tconv_search_refusal(
        &search, "no tile fits in shared memory, there are too many taps, or sums are too long for strict f32");
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    if (!tconv_checked_mul(plan->packing.core_rows,
                           (numerics_split(plan->numerics) ? 2 : 1) * 4 * (int64_t)sizeof(float), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    if (planned_as != layer) {
        plan->packing.word_column = words.word_column;
        plan->packing.first_column = words.first_column;
        plan->packing.end_column = words.end_column;
    }
    describe_launch(planned_as, result);
    tconv_cuda_predict(layer, &search.work, planned);
    return TCONV_SUCCESS;
}

static tconv_status pack_weights(const tconv_layer *layer, const void *memory, const void *weights, void *packed,
                                 void *stream, tconv_issue *issue)
{
    const layer_plan *plan = &((const planned_layer *)memory)->plan;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cells_pack(&plan->params, &plan->packing, plan->numerics, weights, packed, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

/* Returns whether src, which is at an address, can be copied by so many words of 4 bytes at once. */
static bool can_copy_words(const void *src, const parameters *params, int64_t words)
{
    const tconv_strides *strides = &params->src_strides;
    return (uintptr_t)src % ((size_t)words * sizeof(uint32_t)) == 0 &&
           (words == 1 ||
            (strides->w == 1 && (strides->n | strides->c | strides->h | params->in_columns) % words == 0));
}

/* Describes the copies of a stage where TMA cannot read src, which is at an address. */
static void describe_copies(const void *src, parameters *params)
{
    params->copy_words = can_copy_words(src, params, 2) ? 2 : can_copy_words(src, params, 1) ? 1 : 0;
    const int columns = (int)tconv_ceil_div(params->used_columns, tconv_max(params->copy_words, 1));
    params->by_copy_columns = divisor_of(columns);
    params->by_copy_rows = divisor_of(params->used_rows);
    params->by_copy_channels = divisor_of(params->block_k / COPY_CHANNELS);
    params->copies = columns * params->used_rows * (params->block_k / COPY_CHANNELS) * params->tile_images;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const planned_layer *planned = memory;
    parameters params = planned->plan.params;
    launch_grid grid = planned->grid;
    tensor_map maps[2] = {0}; /* the second for tails of images */
    const size_t vector_bytes = (size_t)params.cell_columns * sizeof(float);
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.posts = tconv_cuda_affine_posts(&layer->problem, arguments->post);
    params.by_tma = !params.copied && tconv_encode_tensor_map(&planned->boxes[0], arguments->src, &maps[0]) &&
                    (!params.stationary || tconv_encode_tensor_map(&planned->boxes[1], arguments->src, &maps[1]));
    if (!params.by_tma && !params.stationary)
        describe_copies(arguments->src, &params);
    params.multicast_pixels = params.by_tma && params.set_blocks > 1;
    params.vector_stores = planned->vector_rows && (uintptr_t)arguments->dst % vector_bytes == 0;
    params.pair_stores = planned->pair_stores;
    grid.overlaps = arguments->packs;
    void *kernel_arguments[] = {&params, &maps[0], &maps[1]};
    return tconv_launch_on_device(&grid, kernel_arguments, tconv_cuda_target_of(&layer->target).device,
                                  arguments->stream, issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const layer_plan *plan = &((const planned_layer *)memory)->plan;
    const parameters *params = &plan->params;
    (void)layer;
    snprintf(text, capacity,
             "kernel=%s cell=%dx%dx%d tile=%dx%dx%d block_k=%d mma_n=%d straddle=%d schedules=%d pixel_stages=%d "
             "weight_stages=%d "
             "segment_k_blocks=%d flat=%d",
             params->stationary ? "stationary" : "streaming", params->cell_rows, params->cell_columns,
             params->cell_channels, params->tile_images, params->tile_rows, params->tile_columns, params->block_k,
             plan->config.mma_n, plan->straddle, params->schedule_count, params->pixel_stages, params->weight_stages,
             params->segment_k_blocks, params->flat_columns > 0);
}

const tconv_implementation tconv_cuda_cells = {.name = "cuda_cells",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPE_BIT(TCONV_F32) | TCONV_DTYPE_BIT(TCONV_F16) |
                                                         TCONV_DTYPE_BIT(TCONV_BF16),
                                               .plan_bytes = sizeof(planned_layer),
                                               .plan = plan_layer,
                                               .pack = pack_weights,
                                               .execute = execute,
                                               .describe = describe,
                                               .applies_posts = true};
