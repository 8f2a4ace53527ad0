/*
 * GEMM + col2im on CUDA: layers with few output channels and many input channels per group, on tensor cores. Each pixel
 * of src is multiplied once with all weights of its group, and the outputs are gathered from the partial results by
 * overlap-add: src is read about once, in any phase, and dst is written once. f32 (strict by 3xTF32, or TF32), f16 and
 * bf16; strides up to 16, up to 88 weights per input channel; any padding, dilation, slice and alignment (kernel.cu).
 * Hopper has kernels of its own (row_sums_cp_async.cu, row_sums_tma.cu), for up to 168 weights, for layers whose kernel
 * rows are neighbours and fit one of their configs; the layer's choice says which config.
 *
 * The numeric order is said with the kernels; it depends on the layer alone.
 */
#include "../implementations.h"
#include "../maps/small_axis.h"
#include "../runtime/launch.h"
#include "plan.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

bool supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    parameters unused = {};
    const char *why = refusal(layer, &unused);
    if (why == NULL) {
        layer->choice = row_sums::choose(layer);
        why = layer->choice == MMA_KERNEL ? mma_refusal(layer, &unused) : NULL;
    }
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    return why == NULL;
}

tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    (void)issue; /* so few weights per input channel cannot overflow */
    sizes->packed =
        (size_t)(layer->choice != MMA_KERNEL ? row_sums::packed_bytes(layer) : mma_packed_bytes(&layer->problem));
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int steps = (int)steps_of(problem);
    return on_device(layer->target.device, issue, [&] {
        return layer->choice == MMA_KERNEL
                   ? pack_fragments(problem, steps, n_tiles_of(problem), weights, packed, stream, issue)
                   : row_sums::pack_weights(problem, layer->target.math == TCONV_MATH_TF32, steps,
                                            &row_sums::configs[layer->choice - 1], weights, packed, stream, issue);
    });
}

/* Completes parameters that refusal began, but for those that differ between the kernels. */
void complete(const tconv_layer *layer, const tconv_arguments *arguments, parameters *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t length = ACCESS / (int64_t)problem->element_size;
    const bool nhwc = problem->layout == TCONV_NHWC;
    made->src = arguments->src;
    made->weights = arguments->packed;
    made->bias = arguments->bias;
    made->dst = arguments->dst;
    made->rows = make_small_axis(&problem->h, &layer->rows);
    made->columns = make_small_axis(&problem->w, &layer->columns);
    made->src_strides = problem->src;
    made->dst_strides = problem->dst;
    made->group_in = (int)problem->group_in;
    made->group_out = (int)problem->group_out;
    made->groups = (int)problem->groups;
    made->images = (int)problem->batch;
    made->steps = made->k_blocks = (int)steps_of(problem);
    made->nhwc = nhwc;
    made->src_aligned = (uintptr_t)arguments->src % ACCESS == 0 && problem->src.n % length == 0 &&
                        problem->src.h % length == 0 && (nhwc ? problem->src.w : problem->src.c) % length == 0 &&
                        (nhwc ? problem->group_in : problem->w.in) % length == 0;
    made->tap_step = made->columns.kernel_step * PITCH - made->columns.shift_step;
}

tconv_status launch(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    parameters parameters = {};
    CUtensorMap map = {};
    void *kernel_arguments[] = {&parameters, &map};
    int multiprocessors = 0;
    refusal(layer, &parameters);
    tconv_status status =
        check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, layer->target.device),
                   "cudaDeviceGetAttribute", issue);
    if (status != TCONV_SUCCESS)
        return status;
    complete(layer, arguments, &parameters);
    const planned_launch made = layer->choice == MMA_KERNEL
                                    ? mma_launch(layer, multiprocessors, &parameters)
                                    : row_sums::plan_launch(layer, multiprocessors, &parameters, &map);

    status = allow_shared(made.kernel, max_shared(layer->target.compute_capability), issue);
    if (status != TCONV_SUCCESS)
        return status;
    const launch_grid grid = {made.kernel, made.blocks, made.threads, made.shared_bytes, arguments->packs};
    return launch_kernel(&grid, kernel_arguments, arguments->stream, issue);
}

tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] { return launch(layer, arguments, issue); });
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_col2im = {
    "cuda_col2im", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, supports, memory, pack, execute, NULL, NULL, 0};

} // namespace tconv::col2im
