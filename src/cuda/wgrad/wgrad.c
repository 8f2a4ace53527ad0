/*
 * cuda_wgrad: the gradients of weights and bias on tensor cores (mma.sync, compute capability 8.0 and later). For each
 * input channel c, output channel o and tap k of a channel group
 *
 *     diff_weights[c, o, k] = sum over images n and inputs i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p],
 *
 * and so for each kernel plane of a layer with depth, whose images are pairs of planes (parameters.h, image_axis):
 * an implicit GEMM with an input channel for each row of M, a tap and an output channel for each column of N, and
 * pixels along K (kernel.cuh). A block has a tile of the GEMM and some of the pixels, and writes its sums to a split-K
 * slice of the workspace; a second kernel adds the slices in order (sums.cu). On Hopper a block that has all pixels may
 * write the weights itself. The gradient of the bias has kernels of its own (bias.cu), or the blocks sum it of the
 * outputs that they read (plan_bias.c): those that multiply boxes, by products with ones (output_sums.cuh), producers of
 * others (slot_bias.cuh). Such a plan gives the same bits at any address, and for the bias alone (slot_pass.cu).
 *
 * Numeric order, by layer and number of multiprocessors alone: pixels of a slice by steps of MMAs, in f32, up to
 * FLUSH_TERMS; in 3xTF32 STRICT_STEPS of them, which join a compensated sum; slices in double, one rounding.
 */
#include <stdio.h>

#include "../../core/checked.h"
#include "../../core/space_to_depth.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "launch.h"
#include "plan.h"
#include "sums.h"
#include "vectors.h"
#include "work.h"

/* A layer as it is, or one that space-to-depth makes of it, or some of its taps, and its plan. */
typedef struct sub_layer {
    tconv_depth_layer depth;
    planned_layer plan;
} sub_layer;

enum { MOST_LAYERS = 4 }; /* of a plan */

typedef struct wgrad_plan {
    int count;
    sub_layer layers[MOST_LAYERS];
} wgrad_plan;

_Static_assert(sizeof(wgrad_plan) <= TCONV_CUDA_MAX_NHWC_PLAN, "cuda_nhwc has room for the plan");

/* Returns a layer that space-to-depth has made, on the device of the layer that it has made it of. */
static tconv_layer layer_of(const tconv_layer *layer, const tconv_problem *problem)
{
    tconv_layer sub = *layer;
    sub.problem = *problem;
    sub.rows = (tconv_phase_table){0};
    sub.columns = (tconv_phase_table){0};
    sub.rows.kernel_step = problem->h.stride / tconv_gcd(problem->h.stride, problem->h.dilation);
    sub.columns.kernel_step = problem->w.stride / tconv_gcd(problem->w.stride, problem->w.dilation);
    return sub;
}

/* Returns whether space-to-depth is worth it along an axis: one with a single input or too many taps, or one without
 * which channels are no vectors. */
static bool is_worth(const tconv_problem *before, const tconv_problem *after, bool columns)
{
    const tconv_axis *axis = columns ? &before->w : &before->h;
    return axis->in == 1 || axis->kernel > MAX_TAPS ||
           (!has_vectors(before, &before->dst, before->group_out) &&
            has_vectors(after, &after->dst, after->group_out) && has_vectors(after, &after->src, after->group_in));
}

/* Plans the layer as it is. */
static bool choose_whole(const tconv_layer *layer, wgrad_plan *plan)
{
    *plan = (wgrad_plan){.count = 1, .layers = {{.depth = {.problem = layer->problem, .count = 1}}}};
    return tconv_wgrad_choose(layer, &plan->layers[0].plan);
}

/* Cuts layers with more taps along an axis than tables hold into layers with some of them, whose first tap reaches further outputs:
 * their padding is less by as much, below 0 too. Returns how many layers there are then; 0: too many. */
static int cut_taps(tconv_depth_layer layers[MOST_LAYERS], int count, bool columns)
{
    int made = count;
    for (int i = 0; i < count; i++) {
        const tconv_axis whole = columns ? layers[i].problem.w : layers[i].problem.h;
        const tconv_weight_strides *weight = &layers[i].problem.weight;
        const int64_t step = columns ? weight->w : weight->h;
        const int64_t taps = tconv_ceil_div(whole.kernel, tconv_ceil_div(whole.kernel, MAX_TAPS));
        for (int64_t first = 0; first < whole.kernel; first += taps) {
            if (first > 0 && made == MOST_LAYERS)
                return 0;
            tconv_depth_layer *piece = first > 0 ? &layers[made++] : &layers[i];
            tconv_axis *axis = columns ? &piece->problem.w : &piece->problem.h;
            const int64_t weights = layers[i].weights;
            *piece = layers[i];
            piece->weights = weights + first * step;
            axis->kernel = tconv_min(taps, whole.kernel - first);
            axis->pad = whole.pad - first * whole.dilation;
        }
    }
    return made;
}

/* Plans the layer by space-to-depth and parts of its taps, or as it is; false where there is no plan. Several layers read src
 * several times, and are taken only where there is no plan for the layer as it is. */
static bool choose(const tconv_layer *layer, wgrad_plan *plan)
{
    tconv_depth_layer layers[MOST_LAYERS];
    const int made = tconv_space_to_depth(&layer->problem, MAX_TAPS, is_worth, layers);
    if (made == 0)
        layers[0] = (tconv_depth_layer){.problem = layer->problem, .count = 1};
    int count = cut_taps(layers, made > 0 ? made : 1, true);
    count = cut_taps(layers, count, false);
    const bool several = count != 1 || layers[0].count > 1;
    if (made == 0 && !several)
        return choose_whole(layer, plan);
    if (several && choose_whole(layer, plan))
        return true;
    *plan = (wgrad_plan){.count = count};
    bool planned = count > 0;
    for (int i = 0; i < count && planned; i++) {
        const tconv_layer sub = layer_of(layer, &layers[i].problem);
        plan->layers[i].depth = layers[i];
        planned = tconv_wgrad_choose(&sub, &plan->layers[i].plan);
        plan->layers[i].plan.bias_parts = 0; /* the bias has the channels of the layer */
        plan->layers[i].plan.bias_apart = false;
    }
    return planned ? true : choose_whole(layer, plan);
}

/* Returns the work of all layers that the plan has made of one, which are launched one after another. */
static tconv_cuda_work work_of(const tconv_layer *layer, const wgrad_plan *plan)
{
    const tconv_layer first = layer_of(layer, &plan->layers[0].depth.problem);
    const double layers = (double)(plan->layers[0].depth.count + plan->count - 1);
    tconv_cuda_work work = tconv_wgrad_work(&first, &plan->layers[0].plan);
    work.rounds *= layers;
    work.passes += (work.passes + 1) * (layers - 1);
    work.pass_bytes *= layers;
    work.dram_bytes *= layers;
    return work;
}

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    wgrad_plan *plan = memory;
    if (!choose(layer, plan))
        return tconv_decline(
            issue, "needs compute capability 8.0, at most %d layers of %d taps along an axis and smaller extents",
            (int)MOST_LAYERS, (int)MAX_TAPS);
    int64_t scratch = (int64_t)tconv_wgrad_bias_scratch(layer);
    for (int i = 0; i < plan->count; i++)
        scratch = tconv_max(scratch, tconv_wgrad_scratch(layer, &plan->layers[i].plan));
    planned->sizes.scratch = (size_t)scratch;
    const tconv_cuda_work work = work_of(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Computes the gradient of the weights, sub-layer by sub-layer. */
static tconv_status sum_weights(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                                wgrad_slices *slices, tconv_issue *issue)
{
    const wgrad_plan *plan = memory;
    const int64_t size = (int64_t)layer->problem.element_size;
    tconv_status status = TCONV_SUCCESS;
    slices->are_added = true;
    for (const sub_layer *sub = plan->layers; sub < plan->layers + plan->count; sub++) {
        const tconv_depth_layer *depth = &sub->depth;
        const tconv_layer inner = layer_of(layer, &depth->problem);
        for (int64_t i = 0; i < depth->count && status == TCONV_SUCCESS; i++) {
            tconv_arguments shifted = *arguments;
            shifted.dst = (char *)arguments->dst + (depth->dst + i * depth->dst_step) * size;
            shifted.weights = (char *)arguments->weights + (depth->weights + i * depth->weights_step) * size;
            status = tconv_wgrad_launch(&inner, &sub->plan, &shifted, slices, issue);
        }
    }
    return status;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const wgrad_plan *plan = memory;
    if (arguments->weights == NULL && arguments->bias != NULL && has_bias_parts(&plan->layers[0].plan))
        return tconv_wgrad_execute_bias(layer, &plan->layers[0].plan, arguments, issue);
    return tconv_wgrad_execute_gradients(layer, plan, arguments, sum_weights, issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    static const char *const loads[LOAD_MODES] = {"elements", "lines", "channels", "src_channels", "boxes"};
    static const char *const families[] = {"mma", "wgmma", "boxes"};
    const wgrad_plan *plan = memory;
    const tconv_depth_layer *depth = &plan->layers[0].depth;
    const planned_layer *first = &plan->layers[0].plan;
    const parameters *params = &first->params;
    const long long layers = depth->count + plan->count - 1;
    int begun = 0;
    if (layers > 1 || depth->problem.out_channels != layer->problem.out_channels)
        begun = snprintf(text, capacity, "layers=%lld channels=%lld ", layers, (long long)depth->problem.out_channels);
    if (tconv_has_depth(&layer->problem))
        begun += snprintf(text + begun, capacity - (size_t)begun, "planes=%lld volumes=%d ",
                          (long long)params->tiles.planes, params->images.volumes);
    snprintf(text + begun, capacity - (size_t)begun,
             "by=%s reads=%s block_tile=%dx%lld tile=%dx%d taps=%dx%d chunk=%lld k_tile=%dx%dx%d k_tiles=%d stages=%d "
             "stage_bytes=%d splits=%d blocks=%lld sharers=%d resident=%d parts=%lld writes=%s bias=%s%s",
             families[first->kernel->family], loads[first->load], params->tiles.block_m,
             (long long)params->tiles.block_n, first->kernel->channels, first->kernel->pairs,
             params->tiles.rows.group_taps, params->tiles.columns.group_taps, (long long)params->tiles.chunk,
             1 << params->images.tile_log2, 1 << params->rows.tile_log2, 1 << params->columns.tile_log2,
             params->k_tiles, params->stages, params->stage_bytes, params->splits, (long long)first->blocks,
             params->sharers, first->resident, (long long)chunks_of(&first->copies),
             first->writes_weights ? "weights" : "slices", first->bias_parts > 0 ? "products" : "pass",
             chunks_of(&first->copies) > 0 && !copies_src(&first->copies) ? " copies=dst" : "");
}

const tconv_implementation tconv_cuda_wgrad = {.name = "cuda_wgrad",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F32,
                                               .plan_bytes = sizeof(wgrad_plan),
                                               .plan = plan_layer,
                                               .pack = tconv_wgrad_pack_nothing,
                                               .execute = execute,
                                               .describe = describe,
                                               .accumulates = true,
                                               .sums_planes = true};
