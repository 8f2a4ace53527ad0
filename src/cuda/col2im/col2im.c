/*
 * GEMM + col2im on CUDA: layers with few output channels and many input channels per group, on tensor cores. Each pixel
 * of src is multiplied once with all weights of its group, and the outputs are gathered from the partial results by
 * overlap-add: src is read about once, in any phase, and dst is written once. f32 (strict by 3xTF32, or TF32), f16 and
 * bf16; strides up to 16, up to 88 weights per input channel; any padding, dilation, slice and alignment (kernel.cu).
 * Hopper has kernels of its own (row_sums_cp_async.cu, row_sums_tma.cu), for layers whose kernel rows are neighbours
 * and fit one of their configs: up to 168 weights, in each of up to four blocks of output channels, which share src.
 *
 * Post-ops of any kind, and what dst holds, are applied where outputs are gathered, on values in f32.
 *
 * The numeric order is said with the kernels; it depends on the layer alone.
 */
#include "../../core/impl.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <stdio.h>

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    col2im_plan *plan = memory;
    const tconv_status steps = tconv_cuda_check_steps(&layer->problem, issue);
    if (steps != TCONV_SUCCESS)
        return steps;
    const char *why = tconv_col2im_make_plan(layer, plan);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)plan->packed_bytes; /* so few weights per input channel cannot overflow */
    const tconv_cuda_work work = tconv_col2im_work_of(layer, plan);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const col2im_plan *plan = memory;
    const parameters *params = &plan->any_src.params;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = plan->config == MMA_KERNEL
                 ? tconv_col2im_pack_fragments(problem, params->steps, plan->n_tiles, weights, packed, stream, issue)
                 : tconv_col2im_pack_row_sums(problem, tconv_cuda_is_strict(layer), params, plan->config, weights,
                                              packed, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static const void *find_kernel(const tconv_layer *layer, const col2im_plan *plan, bool by_tma)
{
    const numerics kind = numerics_of(layer);
    const bool nhwc = layer->problem.layout == TCONV_NHWC;
    return plan->config == MMA_KERNEL ? tconv_col2im_mma_kernel(kind, nhwc, plan->n_tiles)
           : by_tma                   ? tconv_col2im_tma_kernel(kind, plan->config)
                                      : tconv_col2im_cp_async_kernel(kind, nhwc, plan->config);
}

/* Launches the plan's kernel on the current device. */
static tconv_status launch(const tconv_layer *layer, const col2im_plan *plan, const tconv_arguments *arguments,
                           tconv_issue *issue)
{
    tensor_map map = {{0}};
    const bool by_tma = plan->has_tma && tconv_encode_tensor_map(&plan->src, arguments->src, &map);
    const planned_launch *taken = by_tma ? &plan->by_tma : &plan->any_src;

    parameters params = taken->params;
    const uintptr_t dst_run = (uintptr_t)params.columns.stride * layer->problem.element_size;
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    if (params.has_round)
        params.round = tconv_cuda_affine_posts(&layer->problem, arguments->post).rounds[0];
    else
        params.posts = tconv_cuda_layer_posts(&layer->problem, arguments);
    params.src_aligned = params.src_aligned && (uintptr_t)arguments->src % VECTOR_BYTES == 0;
    params.src_words = params.src_words && (uintptr_t)arguments->src % WORD_BYTES == 0;
    params.dst_runs = params.dst_runs && (uintptr_t)arguments->dst % dst_run == 0;
    void *kernel_arguments[] = {&params, &map};

    const launch_grid grid = {
        .kernel = find_kernel(layer, plan, by_tma),
        .blocks = taken->blocks,
        .threads = taken->threads,
        .shared_bytes = taken->shared_bytes,
        .overlaps =
            arguments->packs && tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY,
    };
    const tconv_status status =
        tconv_allow_shared(grid.kernel, tconv_cuda_target_of(&layer->target).shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue) : status;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, launch(layer, memory, arguments, issue), issue);
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const col2im_plan *plan = memory;
    const bool by_tma = plan->has_tma, any_device = plan->config == MMA_KERNEL;
    const parameters *params = by_tma ? &plan->by_tma.params : &plan->any_src.params;
    const char *kernel = any_device ? "mma" : by_tma ? "rows_by_tma" : "rows_by_cp_async";
    const int stages = any_device ? MMA_STAGES
                       : by_tma   ? TMA_STAGES
                                  : cp_async_stages(tconv_cuda_is_strict(layer), layer->problem.element_size);
    snprintf(text, capacity,
             "kernel=%s n_tiles=%d out_blocks=%d row_pixels=%d k_blocks=%d stages=%d strips=%d strip_rows=%d", kernel,
             plan->n_tiles, params->out_blocks, 1 << params->row_pixels_log2, params->k_blocks, stages, params->strips,
             params->strip_rows);
}

const tconv_implementation tconv_cuda_col2im = {
    .name = "cuda_col2im",
    .backend = TCONV_BACKEND_CUDA,
    .dtypes = TCONV_DTYPES_TO_F32,
    .plan_bytes = sizeof(col2im_plan),
    .plan = plan_layer,
    .pack = pack,
    .execute = execute,
    .describe = describe,
    .accumulates = true,
    .applies_posts = true,
};
