/*
 * The rows algorithm on CUDA: NCHW layers with few input channels per group, whose time is that of writing dst, on
 * tensor cores: f32 (strict by 3xTF32, or TF32), f16 and bf16; row strides up to 16, column strides 1 to 6 and 8; any
 * padding, dilation, slice and alignment. parameters.h says what the words mean, plan.cu cuts the layer up; kernel.cuh
 * is the kernel and gives the numeric order, which depends on the layer alone; modes.cuh has its arithmetic,
 * epilogue.cuh stores the rows, pack.cu packs the weights.
 */
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "plan.h"

#include <cstdio>

namespace tconv::rows
{

namespace
{

tconv_status plan(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    planned_layer *made = (planned_layer *)memory;
    const parameters *params = &made->params;
    const char *why = plan_layer(layer, made);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    planned->sizes.packed = (size_t)((int64_t)params->groups * params->m_tiles * params->weight_vectors * ACCESS);
    const tconv_cuda_work work = work_of(layer, made);
    model::predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)memory;
    return on_device(layer->target.device, issue,
                     [&] { return launch_packing(layer, &made->params, weights, packed, stream, issue); });
}

tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)memory;
    parameters params = made->params;
    launch_grid grid = made->grid;
    void *kernel_arguments[] = {&params};
    params.src = arguments->src;
    params.weights = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.src_aligned = params.src_aligned && (uintptr_t)arguments->src % ACCESS == 0;
    grid.overlaps = grid.overlaps && arguments->packs;
    return on_device(layer->target.device, issue, [&] {
        const tconv_status status = allow_shared(grid.kernel, layer->target.shared_bytes, issue);
        return status == TCONV_SUCCESS ? launch_kernel(&grid, kernel_arguments, arguments->stream, issue) : status;
    });
}

void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    const planned_layer *made = (const planned_layer *)memory;
    const parameters *params = &made->params;
    const char *mode = layer->problem.dtype != TCONV_F32 ? "half" : model::is_strict(layer) ? "strict" : "tf32";
    const char *sums = is_narrow(layer) ? " sums=narrow" : is_direct(layer) ? " sums=direct" : "";
    snprintf(text, capacity, "mode=%s%s tile_columns=%d warps=%d strip_rows=%d stages=%d bias_rows=%d%s", mode, sums,
             params->tile_columns, made->grid.threads / model::WARP, params->strip_rows, params->stages,
             params->bias_rows, params->src_aligned ? "" : " src=unaligned");
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_rows = {
    "cuda_rows", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(planned_layer), plan, pack, execute, describe};

} // namespace tconv::rows
