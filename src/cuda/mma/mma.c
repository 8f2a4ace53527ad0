/*
 * Transposed convolution on the tensor cores by mma.sync, for any device from compute capability 8.0 on: f32 (as TF32
 * where the layer allows it, else as 3xTF32, which keeps the accuracy of f32), f16 and bf16, in either layout, every
 * dilation, strides up to 16 x 8, layers with a fair number of channels per group.
 *
 * The warps of a block share its row phases, and one thread's registers hold the accumulators of all column phases, so
 * that a patch of src is read once for all phases and neighbouring outputs are stored together, those without a tap
 * too. parameters.h says how a layer is tiled and what the words mean, plan.c chooses the tiling, work.c counts what
 * it does; kernel.cuh is the kernel and gives the numeric order, load.cuh, schedule.cuh, mainloop.cuh and epilogue.cuh
 * are its parts; pack.cu packs the weights. rows.c and row_* are another kernel, cuda_rows.
 */
#include "../../core/status.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../runtime/guard.h"
#include "plan.h"

#include <stdio.h>

/* Fewer channels of a group leave most of an MMA empty (16 output channels by 8 or 16 input channels). */
enum { MIN_GROUP_OUT = 8, MIN_GROUP_IN = 8 };

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    mma_plan *plan = memory;
    if (tconv_cuda_target_of(&layer->target).compute_capability < MIN_COMPUTE_CAPABILITY)
        return tconv_decline(issue, "a device of compute capability 8.0 or more");
    if (problem->group_out < MIN_GROUP_OUT || problem->group_in < MIN_GROUP_IN)
        return tconv_decline(issue, "at least %d input and output channels per group", MIN_GROUP_IN);
    const tconv_status posts = tconv_cuda_check_posts(problem, issue);
    if (posts != TCONV_SUCCESS)
        return posts;
    tconv_cuda_work work;
    const char *why = tconv_mma_choose(layer, planned->limit, plan, &work);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    int64_t size;
    if (!tconv_checked_mul(weight_sets_of(&plan->params) * plan->params.k_blocks,
                           (int64_t)plan->params.a_tile_words * 4, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const mma_plan *plan = memory;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(
            &guard, tconv_mma_launch_packing(layer, &plan->params, weights, packed, stream, issue), issue);
    return status;
}

/* Returns the most elements, up to those of a vector, that an address is a multiple of. */
static int vector_at(const void *address, size_t element_size, int vector)
{
    while ((uintptr_t)address / element_size % (size_t)vector != 0)
        vector /= 2;
    return vector;
}

static const void *kernel_of(const mma_plan *plan)
{
    const bool nhwc = plan->params.nhwc != 0;
    const int number = plan->config.number;
    switch (plan->numerics) {
    case NUMERICS_TF32: return tconv_mma_tf32_kernel(number);
    case NUMERICS_STRICT: return tconv_mma_strict_kernel(plan->compensated, number);
    case NUMERICS_F16: return tconv_mma_f16_kernel(nhwc, number);
    case NUMERICS_BF16: return tconv_mma_bf16_kernel(nhwc, number);
    }
    return NULL;
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const mma_plan *plan = memory;
    const size_t size = layer->problem.element_size;
    parameters params = plan->params;
    params.src = arguments->src;
    params.packed = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.posts = tconv_cuda_post_steps(&layer->problem, arguments->post);
    params.src_vector = vector_at(arguments->src, size, params.src_vector);
    params.store_vector = vector_at(arguments->dst, size, params.store_vector);
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(
            &guard, tconv_mma_launch(layer, kernel_of(plan), &params, arguments->packs, arguments->stream, issue),
            issue);
    return status;
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    (void)layer;
    const mma_plan *plan = memory;
    const parameters *params = &plan->params;
    const char *layout = numerics_bytes(plan->numerics) == 4 ? "" : params->nhwc ? "_nhwc" : "_nchw";
    snprintf(text, capacity, "mode=%s%s mmas=%dx%d warps=%dx%dx%d tile=%dx%dx%d k_block_words=%d stages=%d%s%s%s",
             numerics_name(plan->numerics), layout, plan->config.mmas_m, plan->config.mmas_n, params->m_warps,
             params->phase_warps, params->n_warps, params->tile_images, params->tile_rows, params->tile_columns,
             params->block_k_words, params->stages, params->flat_columns != 0 ? " rows=flat" : "",
             params->staged ? " stores=staged" : "", plan->compensated ? " sums=compensated" : "");
}

const tconv_implementation tconv_cuda_mma = {.name = "cuda_mma",
                                             .backend = TCONV_BACKEND_CUDA,
                                             .dtypes = TCONV_DTYPES_TO_F32,
                                             .plan_bytes = sizeof(mma_plan),
                                             .plan = plan_layer,
                                             .pack = pack,
                                             .execute = execute,
                                             .describe = describe,
                                             .applies_posts = true};
