/*
 * The implicit GEMM: layers with many channels on Hopper's tensor cores, in f32 (TF32, or strict as three products of
 * TF32), f16 and bf16, of any kernel, stride and dilation that give an axis up to 16 phases; NHWC, and NCHW where
 * images are small. A launch before fills outputs without a tap.
 *
 * A phase (src/core/phases.h) is a GEMM for each of its taps: output channels by positions, over input channels. In
 * NHWC src lies as wgmma takes a K-major B operand, so that TMA brings it as it is: the input of a block tile once for
 * all taps, which are then offsets into it, or once for each tap, which wastes nothing at halos; a block tile may span
 * images. A small src in NCHW is transposed to NHWC in the workspace first, by the launch that packs the weights,
 * which execute then does itself, where the cost model finds that faster than raw stages of channel planes that the
 * kernel transposes for each tile.
 *
 * Where phases are those of src (cuda_dgrad's layers) a tile sums over all of them: the box of a phase is of every
 * stride-th pixel, which TMA brings as if they were neighbours.
 *
 * Layers of few tiles have the K-blocks of a tile shared out to the blocks of a cluster, which add their sums through each
 * other's shared memory (split-K in one launch, cluster.cuh). These layers have no post-ops.
 *
 * Affine post-ops with which a list begins are run on accumulators, others on what is staged in f32 before it is stored
 * (posts.cuh); with these, what dst holds where the layer accumulates.
 *
 * parameters.h has the words, plan.h the choice of tiles, kernel.cuh the kernel, pack.cu the packed weights, and view.h
 * the layers that are computed in place of others: images of one pixel as one GEMM, groups of few channels fused.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../epilogue/layer_posts.h"
#include "../general/fill.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/guard.h"
#include "plan.h"
#include "sums.h"

#include <stdio.h>
#include <string.h>

/* The time of a view by filled runs, to that of another view, has to be below this by prediction. */
static const double WORTH_FILLING = 0.97;

/* Returns why no kernel takes the layer, or NULL. */
static const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = tconv_cuda_why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (layer->rows.count > MAX_PHASES || layer->columns.count > MAX_PHASES)
        return "needs at most 16 phases of an axis";
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "needs outputs with taps";
    if (tconv_igemm_src_groups(problem) > 1 && problem->group_in * (int64_t)problem->element_size % 128 != 0)
        return "needs groups that make whole K-blocks of 128 bytes of channels";
    return NULL;
}

static bool has_bias_only(const tconv_layer *layer)
{
    return layer->rows.bias_only > 0 || layer->columns.bias_only > 0;
}

/* Returns the bytes of the phase tables that lie after the packed weights, for the launch that fills outputs without a
 * tap. */
static int64_t phase_bytes(const tconv_layer *layer)
{
    return has_bias_only(layer) ? (layer->rows.count + layer->columns.count) * (int64_t)sizeof(tconv_phase) : 0;
}

static int64_t packed_bytes(const parameters *params)
{
    return params->group_a_tiles * params->src_groups * (int64_t)params->a_tile_bytes;
}

/* The plan of a view is predicted to take so many seconds, for this work. */
typedef struct view_cost {
    double seconds;
    tconv_cuda_work work;
} view_cost;

/* Returns the seconds that views are compared by: the prediction, and writing the packed weights where each call does.
 * */
static double compared_seconds(const tconv_layer *layer, const view_cost *cost, const parameters *params)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const double written = layer->packed_before ? 0 : (double)packed_bytes(params);
    return cost->seconds + written / (machine.pass * machine.multiprocessors * machine.hz);
}

/* Plans a view of the layer, to take less than a limit. Returns why not, or NULL. */
static const char *plan_view(const tconv_layer *layer, const layer_view *view, bool sums, double limit,
                             layer_plan *plan, view_cost *cost)
{
    tile_search tiles = tconv_igemm_begin_search(layer, view, sums, limit, plan);
    const char *why = why_not(&view->layer);
    if (why == NULL)
        tconv_igemm_offer_candidates(&tiles);
    *cost = (view_cost){.seconds = tiles.best.limit, .work = tiles.best.work};
    return why != NULL ? why : tconv_search_refusal(&tiles.best, "no tile fits in shared memory");
}

/* Plans the layer as the better of two views. */
static tconv_status plan_outputs(const tconv_layer *layer, bool sums, planned_layer *planned, tconv_planned *result,
                                 tconv_issue *issue)
{
    layer_plan *plan = &planned->plan;
    parameters *params = &plan->params;
    layer_view views[2];
    view_cost cost, filled_cost;
    int64_t size;
    tconv_igemm_init_view(&views[0], layer);
    const layer_view *view = &views[0];
    const char *why = plan_view(layer, view, sums, result->limit, plan, &cost);
    if (tconv_igemm_init_filled_view(&views[1], layer)) {
        layer_plan filled;
        if (plan_view(layer, &views[1], sums, cost.seconds, &filled, &filled_cost) == NULL &&
            (why != NULL || compared_seconds(layer, &filled_cost, &filled.params) <
                                WORTH_FILLING * compared_seconds(layer, &cost, params))) {
            view = &views[1];
            why = NULL;
            *plan = filled;
            cost = filled_cost;
        }
    }
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    tconv_igemm_describe_divisors(params);
    if (!tconv_checked_mul(params->group_a_tiles * params->src_groups, (int64_t)params->a_tile_bytes, &size) ||
        !tconv_checked_add(size, phase_bytes(layer), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    result->sizes.packed = (size_t)size;
    result->sizes.scratch = params->src_transposed ? (size_t)tconv_igemm_transposed_bytes(&layer->problem) : 0;
    params->runs = view->runs;
    params->run_vector = tconv_igemm_run_vector(&params->runs, &layer->problem, plan->output_bytes);
    planned->bias_outputs = view->channels_inside ? 1 : (int)view->outputs;
    tconv_igemm_describe_operands(layer, view, planned);
    result->sizes.reads_unpacked = tconv_igemm_reads_weights(planned);
    result->sizes.execute_packs = params->src_transposed || result->sizes.reads_unpacked;
    tconv_cuda_predict(layer, &cost.work, result);
    return TCONV_SUCCESS;
}

static tconv_status plan_layer(const tconv_layer *layer, void *planned, tconv_planned *result, tconv_issue *issue)
{
    tconv_status status = tconv_cuda_check_steps(&layer->problem, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_cuda_check_addend(&layer->problem, issue);
    return status == TCONV_SUCCESS ? plan_outputs(layer, false, planned, result, issue) : status;
}

static tconv_status plan_sums(const tconv_layer *layer, void *planned, tconv_planned *result, tconv_issue *issue)
{
    return plan_outputs(layer, true, planned, result, issue);
}

/* Packs the weights, unless they are NULL, and transposes src, unless there is nothing to transpose. */
static tconv_status prepare(const tconv_layer *layer, const planned_layer *planned, const src_transpose *transpose,
                            const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_igemm_pack(planned, transpose, weights, packed, stream, issue);
    if (status == TCONV_SUCCESS && weights != NULL && has_bias_only(layer))
        status = tconv_general_pack_phases(layer, (tconv_phase *)((char *)packed + packed_bytes(&planned->plan.params)),
                                           stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static tconv_status pack_weights(const tconv_layer *layer, const void *planned, const void *weights, void *packed,
                                 void *stream, tconv_issue *issue)
{
    const src_transpose none = {.src = NULL};
    return prepare(layer, planned, &none, weights, packed, stream, issue);
}

/* Packs the weights, where the plan does not hold them packed, and transposes src into the workspace. */
static tconv_status transpose_src(const tconv_layer *layer, const planned_layer *planned,
                                  const tconv_arguments *arguments, tconv_issue *issue)
{
    src_transpose transpose = planned->transpose;
    transpose.src = arguments->src;
    transpose.to = arguments->scratch;
    transpose.vectors = transpose.vectors && (uintptr_t)arguments->src % VECTOR_BYTES == 0;
    return prepare(layer, planned, &transpose, arguments->weights, (void *)arguments->packed, arguments->stream, issue);
}

/* Writes the bias to all outputs without a tap. */
static tconv_status fill_bias_only(const tconv_layer *layer, const parameters *params, const tconv_arguments *arguments,
                                   tconv_issue *issue)
{
    const tconv_phase *phases = (const tconv_phase *)((const char *)arguments->packed + packed_bytes(params));
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_general_fill_bias_only(layer, phases, arguments, issue), issue);
}

/* Tells the kernel of the layer's post-ops, if there are any. Before, params have how dst is stored. */
static void describe_posts(const tconv_layer *layer, const tconv_arguments *arguments, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    if (tconv_cuda_count_steps(problem) == 0)
        return;
    const layer_posts posts = tconv_cuda_layer_posts(problem, arguments);
    params->posts = tconv_cuda_share_posts(&posts.steps, posts.addend);
    params->posts_of_sums = params->posts.of_sums.count > 0;
    params->posts_of_staged = params->posts.of_staged.count > 0;
    params->addend_by_vectors =
        params->dst_channels_last && params->store_vectors && (uintptr_t)params->posts.addend % VECTOR_BYTES == 0;
}

static void leave_out_epilogue_warps(const fewer_stages *with, parameters *params)
{
    params->epilogue_warps = false;
    params->tables = with->tables;
    params->b_stages = with->b_stages;
    params->a_stages = with->a_stages;
}

static tconv_status execute(const tconv_layer *layer, const void *implementation_plan, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const planned_layer *planned = implementation_plan;
    parameters params = planned->plan.params;
    launch_grid grid = planned->grid;
    tensor_map map = {{0}}, weights_map = {{0}};
    tconv_status status = TCONV_SUCCESS;
    params.weights_in_place = tconv_igemm_reads_weights(planned) && arguments->weights != NULL &&
                              tconv_encode_tensor_map(&planned->map_of_weights, arguments->weights, &weights_map);
    const bool packs = arguments->weights != NULL && !params.weights_in_place; /* else it was done before */
    if (params.src_transposed)
        status = transpose_src(layer, planned, arguments, issue);
    else if (packs)
        status = pack_weights(layer, planned, arguments->weights, (void *)arguments->packed, arguments->stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    params.src = params.src_transposed ? arguments->scratch : arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.by_bias_outputs = divisor_of(planned->bias_outputs);
    params.by_bias_channels = divisor_of((int)layer->problem.out_channels);
    params.by_tma = params.by_tma && tconv_encode_tensor_map(&planned->src, params.src, &map);
    params.gathers_pairs = params.gathers_pairs && (uintptr_t)arguments->src % (2 * layer->problem.element_size) == 0;
    params.store_vectors = planned->vector_bytes > 0 && (uintptr_t)arguments->dst % planned->vector_bytes == 0;
    params.run_vector = params.store_vectors ? params.run_vector : 1;
    describe_posts(layer, arguments, &params);
    if (params.epilogue_warps && !(params.by_tma && (params.store_vectors || !params.paired)))
        leave_out_epilogue_warps(&planned->plan.without_epilogue_warps, &params);
    if (has_bias_only(layer))
        status = fill_bias_only(layer, &params, arguments, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const bool packed_before = arguments->packs && !tconv_igemm_reads_weights(planned); /* just before, by this call */
    /* Else the kernel begins while the one ahead, of whatever call, still runs, and waits for its end. */
    params.begins = has_bias_only(layer) || !(packed_before || packs || params.src_transposed);
    grid.overlaps = true;
    void *kernel_arguments[] = {&params, &map, &weights_map};
    return tconv_launch_on_device(&grid, kernel_arguments, tconv_cuda_target_of(&layer->target).device,
                                  arguments->stream, issue);
}

static void describe(const tconv_layer *layer, const void *planned, char *text, size_t capacity)
{
    const layer_plan *plan = &((const planned_layer *)planned)->plan;
    const parameters *params = &plan->params;
    char runs[32] = "", volumes[32] = "", cluster[32] = "";
    if (params->cluster_blocks > 1)
        snprintf(cluster, sizeof cluster, " cluster=%d", params->cluster_blocks);
    if (params->runs.rows > 1)
        snprintf(runs, sizeof runs, " runs=%dof%d", params->runs.columns, params->runs.rows);
    else if (params->dst_channels_last && (int64_t)params->groups * params->group_out > layer->problem.out_channels)
        snprintf(runs, sizeof runs, " columns=%d",
                 params->groups * params->group_out / (int)layer->problem.out_channels);
    if (params->volumes > 1)
        snprintf(volumes, sizeof volumes, " volumes=%d", params->volumes);
    snprintf(text, capacity,
             "mode=%s mma_tile=%dx%d block_tile=%dx%d positions=%dx%dx%d k_block=%d b_stages=%d a_stages=%d "
             "src=%s%s%s%s%s%s%s%s",
             numerics_name(plan->arithmetic), MMA_M, plan->config.N, params->m_tiles * MMA_M, params->block_n,
             params->tile_images, params->tile_rows, params->tile_columns, params->k_block_channels, params->b_stages,
             params->a_stages,
             params->src_transposed ? "transposed"
             : !params->by_tma      ? params->gathers_pairs ? "gathered_in_pairs" : "gathered"
             : params->raw_stages   ? "raw_stages"
                                    : "tma",
             params->im2col    ? " im2col=1"
             : params->per_tap ? " per_tap=1"
                               : "",
             volumes, runs, params->flat && !params->im2col ? " flat=1" : "", params->paired ? " paired=1" : "",
             params->epilogue_warps ? " epilogue_warps=1" : "", cluster);
}

const tconv_implementation tconv_cuda_igemm = {.name = "cuda_igemm",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F32,
                                               .plan_bytes = sizeof(planned_layer),
                                               .plan = plan_layer,
                                               .pack = pack_weights,
                                               .execute = execute,
                                               .describe = describe,
                                               .accumulates = true,
                                               .sums_planes = true,
                                               .takes_volumes = true,
                                               .stacks_rows = true,
                                               .applies_posts = true};

const tconv_implementation tconv_igemm_sums = {.name = "cuda_igemm",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F32,
                                               .plan_bytes = sizeof(planned_layer),
                                               .plan = plan_sums,
                                               .pack = pack_weights,
                                               .execute = execute,
                                               .describe = describe,
                                               .sums_planes = true,
                                               .takes_volumes = true};
