/*
 * GEMM + col2im on CUDA: layers with few output channels and many input channels per group, on tensor cores. Each pixel
 * of src is multiplied once with all weights of its group, and the outputs are gathered from the partial results by
 * overlap-add: src is read about once, in any phase, and dst is written once. f32 (strict by 3xTF32, or TF32), f16 and
 * bf16; strides up to 16, up to 88 weights per input channel; any padding, dilation, slice and alignment (kernel.cu).
 * Hopper has kernels of its own (row_sums_cp_async.cu, row_sums_tma.cu), for layers whose kernel rows are neighbours
 * and fit one of their configs: up to 168 weights, in each of up to four blocks of output channels, which share src.
 *
 * The numeric order is said with the kernels; it depends on the layer alone.
 */
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    plan *made = static_cast<plan *>(to);
    const char *why = make_plan(layer, made);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)made->packed_bytes; /* so few weights per input channel cannot overflow */
    const tconv_cuda_work work = work_of(layer, made);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *from, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const plan *made = static_cast<const plan *>(from);
    const parameters *parameters = &made->any_src.parameters;
    return on_device(layer->target.device, issue, [&] {
        return made->config == MMA_KERNEL
                   ? pack_fragments(problem, parameters->steps, made->n_tiles, weights, packed, stream, issue)
                   : row_sums::pack_weights(problem, layer->target.math == TCONV_MATH_TF32, parameters,
                                            &row_sums::configs[made->config], weights, packed, stream, issue);
    });
}

tconv_status launch(const tconv_layer *layer, const plan *made, const tconv_arguments *arguments, tconv_issue *issue)
{
    CUtensorMap map = {};
    tensor_map_recipe src = made->src;
    src.data = arguments->src;
    const bool by_tma = made->by_tma.kernel != NULL && tconv_encode_tensor_map(&src, &map);
    const planned_launch *taken = by_tma ? &made->by_tma : &made->any_src;

    parameters parameters = taken->parameters;
    const uintptr_t dst_run = (uintptr_t)parameters.columns.stride * layer->problem.element_size;
    parameters.src = arguments->src;
    parameters.weights = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    parameters.src_aligned = parameters.src_aligned && (uintptr_t)arguments->src % VECTOR_BYTES == 0;
    parameters.src_words = parameters.src_words && (uintptr_t)arguments->src % WORD_BYTES == 0;
    parameters.dst_runs = parameters.dst_runs && (uintptr_t)arguments->dst % dst_run == 0;
    void *kernel_arguments[] = {&parameters, &map};

    const tconv_status status = tconv_allow_shared(taken->kernel, layer->target.shared_bytes, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const launch_grid grid = {taken->kernel, taken->blocks, taken->threads, taken->shared_bytes,
                              arguments->packs && layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY};
    return tconv_launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
}

tconv_status execute(const tconv_layer *layer, const void *made, const tconv_arguments *arguments, tconv_issue *issue)
{
    return on_device(layer->target.device, issue,
                     [&] { return launch(layer, static_cast<const plan *>(made), arguments, issue); });
}

void describe(const tconv_layer *layer, const void *from, char *text, size_t capacity)
{
    const plan *made = static_cast<const plan *>(from);
    const bool by_tma = made->by_tma.kernel != NULL, any_device = made->config == MMA_KERNEL;
    const parameters *parameters = by_tma ? &made->by_tma.parameters : &made->any_src.parameters;
    const char *kernel = any_device ? "mma" : by_tma ? "rows_by_tma" : "rows_by_cp_async";
    const int stages = any_device ? STAGES
                       : by_tma   ? row_sums::TMA_STAGES
                                  : row_sums::cp_async_stages(tconv_cuda_is_strict(layer), layer->problem.element_size);
    snprintf(text, capacity,
             "kernel=%s n_tiles=%d out_blocks=%d row_pixels=%d k_blocks=%d stages=%d strips=%d strip_rows=%d", kernel,
             made->n_tiles, parameters->out_blocks, 1 << parameters->row_pixels_log2, parameters->k_blocks, stages,
             parameters->strips, parameters->strip_rows);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_col2im = {
    "cuda_col2im", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(plan), plan_layer, pack, execute, describe, false,
    NULL};

} // namespace tconv::col2im
