/*
 * Transposed convolution on the tensor cores by mma.sync, for any device from compute capability 8.0 on: f32 (as TF32
 * where the layer allows it, else as 3xTF32, which keeps the accuracy of f32), f16 and bf16, in either layout, every
 * dilation, strides up to 16 x 8, layers with a fair number of channels per group.
 *
 * The warps of a block share its row phases, and one thread's registers hold the accumulators of all column phases, so
 * that a patch of src is read once for all phases and neighbouring outputs are stored together, those without a tap
 * too. parameters.h says how a layer is tiled and what the words mean, plan.cu chooses the tiling, work.cu counts what
 * it does; kernel.cuh is the kernel and gives the numeric order, load.cuh, schedule.cuh, mainloop.cuh and epilogue.cuh
 * are its parts; pack.cu packs the weights. rows.cu and row_* are another kernel, cuda_rows.
 */
#include "../../core/status.h"
#include "../implementations.h"
#include "plan.h"

#include <cstdio>

namespace tconv::mma
{

namespace
{

/* Fewer channels of a group leave most of an MMA empty (16 output channels by 8 or 16 input channels). */
constexpr int64_t MIN_GROUP_OUT = 8;
constexpr int64_t MIN_GROUP_IN = 8;

tconv_status plan(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer *made = (planned_layer *)memory;
    if (layer->target.compute_capability < MIN_COMPUTE_CAPABILITY)
        return tconv_decline(issue, "a device of compute capability 8.0 or more");
    if (problem->group_out < MIN_GROUP_OUT || problem->group_in < MIN_GROUP_IN)
        return tconv_decline(issue, "at least %d input and output channels per group", (int)MIN_GROUP_IN);
    tconv_cuda_work work = {};
    const char *why = choose(layer, made, &work);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    int64_t size;
    if (!tconv_checked_mul(weight_sets_of(&made->params) * made->params.k_blocks,
                           (int64_t)made->params.a_tile_words * 4, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    planned->sizes.packed = (size_t)size;
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)memory;
    return on_device(layer->target.device, issue,
                     [&] { return launch_packing(layer, &made->params, weights, packed, stream, issue); });
}

/* The most elements, up to those of a vector, that an address is a multiple of. */
int vector_at(const void *address, size_t element_size, int vector)
{
    while ((uintptr_t)address / element_size % (size_t)vector != 0)
        vector /= 2;
    return vector;
}

/* Launches the persistent kernel. A block keeps its weights throughout, so the number of blocks is a multiple of the
 * sets of weights. */
tconv_status launch(const tconv_layer *layer, const kernel_config *config, parameters *params, bool packs, void *stream,
                    tconv_issue *issue)
{
    const int threads = block_warps(params) * LANES;
    const int64_t sets = weight_sets_of(params);
    int resident = 1;
    tconv_status status = tconv_allow_shared((const void *)config->function, shared_limit(layer), issue);
    if (status == TCONV_SUCCESS)
        status = tconv_cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, config->function, threads,
                                                                                (size_t)params->shared_bytes),
                                  "cudaOccupancyMaxActiveBlocksPerMultiprocessor", issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t waves = tconv_max(1, (int64_t)layer->target.multiprocessors * tconv_max(1, resident) / sets);
    void *arguments[] = {params};
    const launch_grid grid = {(const void *)config->function, sets * tconv_min(params->n_tiles, waves), threads,
                              params->shared_bytes,
                              packs && layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY};
    return tconv_launch_kernel(&grid, arguments, stream, issue);
}

tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)memory;
    const size_t size = layer->problem.element_size;
    parameters params = made->params;
    params.src = arguments->src;
    params.packed = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    params.src_vector = vector_at(arguments->src, size, params.src_vector);
    params.store_vector = vector_at(arguments->dst, size, params.store_vector);
    return on_device(layer->target.device, issue,
                     [&] { return launch(layer, made->config, &params, arguments->packs, arguments->stream, issue); });
}

void describe(const tconv_layer *, const void *memory, char *text, size_t capacity)
{
    static const char *const modes[MODES] = {"tf32",      "strict",   "strict",   "f16_nhwc",
                                             "bf16_nhwc", "f16_nchw", "bf16_nchw"};
    const planned_layer *made = (const planned_layer *)memory;
    const parameters *params = &made->params;
    snprintf(text, capacity, "mode=%s mmas=%dx%d warps=%dx%dx%d tile=%dx%dx%d k_block_words=%d stages=%d%s%s%s",
             modes[made->arithmetic], made->config->mmas_m, made->config->mmas_n, params->m_warps, params->phase_warps,
             params->n_warps, params->tile_images, params->tile_rows, params->tile_columns, params->block_k_words,
             params->stages, params->flat_columns != 0 ? " rows=flat" : "", params->staged ? " stores=staged" : "",
             made->arithmetic == COMPENSATED ? " sums=compensated" : "");
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_mma = {
    "cuda_mma", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, sizeof(planned_layer), plan, pack, execute, describe, false,
    NULL};

} // namespace tconv::mma
