/*
 * Transposed convolution on the tensor cores by mma.sync, for any device from compute capability 8.0 on: f32 (as TF32
 * where the layer allows it, else as 3xTF32, which keeps the accuracy of f32), f16 and bf16, in either layout, every
 * dilation, strides up to 16 x 8, layers with a fair number of channels per group.
 *
 * The warps of a block share its row phases, and one thread's registers hold the accumulators of all column phases, so
 * that a patch of src is read once for all phases and neighbouring outputs are stored together, those without a tap
 * too. parameters.h says how a layer is tiled and what the words mean, plan.cu chooses the tiling (layer.cu and tile.cu
 * fill in what it implies, cost.cu is the cost model), kernel.cuh is the kernel and gives the numeric order (load.cuh,
 * schedule.cuh, mainloop.cuh and epilogue.cuh are its parts), pack.cu packs the weights.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/work.h"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::mma
{

namespace
{

constexpr int MIN_COMPUTE_CAPABILITY = 80; /* TF32, bf16 and asynchronous copies */

/* Fewer channels of a group leave most of an MMA empty (16 output channels by 8 or 16 input channels). */
constexpr int64_t MIN_GROUP_OUT = 8;
constexpr int64_t MIN_GROUP_IN = 8;

/* The cost model against other implementations, in cycles. Fitted to 306 times of 51 layers on an H200 (off by 26
 * %). */
constexpr double OUTPUT_CYCLES = 0.38; /* of a multiprocessor for an output */
constexpr double SPLIT_CYCLES = 0.35; /* and more where rows of dst in NCHW are no whole vectors, or stores cannot be */
constexpr double STEP_CYCLES =
    0.037; /* of a multiprocessor for an output's step, of STEP_BYTES of input channels at a tap */
constexpr double STRICT_STEPS = 2.1;    /* steps that one in strict f32 is worth */
constexpr double LAUNCH_CYCLES = 18000; /* of the device for a launch */
constexpr double STEP_LATENCY = 380;    /* of the device, until the operands of one of an output's steps are there */
constexpr int64_t STEP_BYTES = 32;      /* the K of an MMA */
constexpr int64_t VECTOR_BYTES = 16;    /* of a store */

bool supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    if (layer->target.compute_capability < MIN_COMPUTE_CAPABILITY) {
        snprintf(reason, TCONV_REASON_SIZE, "a device of compute capability 8.0 or more");
        return false;
    }
    if (problem->group_out < MIN_GROUP_OUT || problem->group_in < MIN_GROUP_IN) {
        snprintf(reason, TCONV_REASON_SIZE, "at least %d input and output channels per group", (int)MIN_GROUP_IN);
        return false;
    }
    return choose(layer, reason);
}

bool stores_vectors(const tconv_problem *problem)
{
    return (problem->w.stride & (problem->w.stride - 1)) == 0 &&
           (problem->layout == TCONV_NHWC || problem->w.out * (int64_t)problem->element_size % VECTOR_BYTES == 0);
}

bool suits(const tconv_layer *layer, double *cycles, char[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    const bool strict = problem->dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
    const double outputs = padded_outputs(problem, MMA_M);
    const double steps = mean_taps(layer) *
                         (double)tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, STEP_BYTES) *
                         (strict ? STRICT_STEPS : 1);
    const double output = OUTPUT_CYCLES + (stores_vectors(problem) ? 0 : SPLIT_CYCLES) + STEP_CYCLES * steps;
    *cycles = outputs * output / multiprocessors_of(layer->target.device) + LAUNCH_CYCLES + STEP_LATENCY * steps;
    return true;
}

int64_t a_tiles_of(const parameters *params)
{
    return (int64_t)params->groups * params->m_tiles * params->phase_sets * params->k_blocks;
}

tconv_status memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    parameters params;
    const kernel_config *config;
    int64_t size;
    parameters_of(layer, NULL, &params, &config);
    if (!tconv_checked_mul(a_tiles_of(&params), (int64_t)params.a_tile_words * 4, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    parameters params;
    const kernel_config *config;
    parameters_of(layer, NULL, &params, &config);
    return on_device(layer->target.device, issue,
                     [&] { return launch_packing(layer, &params, weights, packed, stream, issue); });
}

/* Launches the persistent kernel. A block keeps its weights throughout, so the number of blocks is a multiple of the
 * distinct block tiles of weights. */
tconv_status launch(const parameters *params, const kernel_config *config, int device, bool packs, void *stream,
                    tconv_issue *issue)
{
    const int warps = params->m_warps * params->phase_warps * params->n_warps;
    const int64_t distinct = (int64_t)params->groups * params->m_tiles * params->phase_sets;
    const device_limits limits = limits_of(device);
    int resident = 1;
    tconv_status status = allow_shared((const void *)config->function, limits.shared_bytes, issue);
    if (status == TCONV_SUCCESS)
        status = check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, config->function, warps * 32,
                                                                          (size_t)params->shared_bytes),
                            "cudaOccupancyMaxActiveBlocksPerMultiprocessor", issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t waves = tconv_max(1, (int64_t)limits.multiprocessors * tconv_max(1, resident) / distinct);
    const int64_t blocks = distinct * tconv_min(params->n_tiles, waves);
    void *arguments[] = {const_cast<parameters *>(params)};
    const launch_grid grid = {(const void *)config->function, blocks, warps * 32, params->shared_bytes, packs};
    return launch_kernel(&grid, arguments, stream, issue);
}

tconv_status execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    parameters params;
    const kernel_config *config;
    parameters_of(layer, arguments, &params, &config);
    params.src = arguments->src;
    params.packed = arguments->packed;
    params.bias = arguments->bias;
    params.dst = arguments->dst;
    return on_device(layer->target.device, issue, [&] {
        return launch(&params, config, layer->target.device, arguments->packs, arguments->stream, issue);
    });
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_mma = {
    "cuda_mma", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, supports, memory, pack, execute, suits, NULL, 0};

} // namespace tconv::mma
