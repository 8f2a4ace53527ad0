/*
 * Transposed convolution on the tensor cores by mma.sync, for any device from compute capability 8.0 on: f32 (as TF32 where
 * the layer allows it, else as 3xTF32, which keeps the accuracy of f32), f16 and bf16, in either layout, every dilation,
 * strides up to 16 x 8, layers with a fair number of channels per group.
 *
 * Every residue of rows is a part of a block, all residues of columns are in one thread's registers, so that a patch of
 * src is read once for all phases and neighbouring outputs are written together, those without a tap too. mma_kernels.h
 * says how a layer is cut, mma_plan.cu chooses, mma_device.cuh is the kernel and gives the numeric order.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cstdio>
#include <cuda_runtime_api.h>

namespace tconv::mma
{

namespace
{

constexpr int MIN_COMPUTE_CAPABILITY = 80; /* TF32, bf16 and asynchronous copies */

/* Fewer channels of a group leave most of a matrix operand empty (16 outputs by 8 or 16 inputs). */
constexpr int64_t MIN_GROUP_OUT = 8, MIN_GROUP_IN = 8;

/* What it takes, in cycles: of a multiprocessor for an output, output channels of a group padded to 16, and more where rows of
 * dst in NCHW are no whole vectors or phases of columns no power of two; for each of its steps, of 32 bytes of input channels, which are
 * worth so many in strict f32; of the device for a launch, and until a step's operands have come. Fitted to 306 times of 51
 * layers on an H200 (off by 26 %). */
constexpr double OUTPUT_CYCLES = 0.38, SPLIT_CYCLES = 0.35, STEP_CYCLES = 0.037, STRICT_STEPS = 2.1;
constexpr double LAUNCH_CYCLES = 18000, STEP_LATENCY = 380;
constexpr int64_t PADDED_CHANNELS = 16, STEP_BYTES = 32, VECTOR_BYTES = 16;

bool mma_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
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
    return tconv_cuda_mma_choose(layer, reason);
}

bool stores_vectors(const tconv_problem *problem)
{
    return (problem->w.stride & (problem->w.stride - 1)) == 0 &&
           (problem->layout == TCONV_NHWC || problem->w.out * (int64_t)problem->element_size % VECTOR_BYTES == 0);
}

bool mma_suits(const tconv_layer *layer, double *cycles, char[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    const bool strict = problem->dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
    const double channels =
        (double)(tconv_ceil_div(problem->group_out, PADDED_CHANNELS) * PADDED_CHANNELS * problem->groups);
    const double outputs = channels * (double)problem->batch * (double)problem->h.out * (double)problem->w.out;
    const double taps =
        (double)(problem->h.kernel * problem->w.kernel) / ((double)layer->rows.stride * (double)layer->columns.stride);
    const double steps = taps * (double)tconv_ceil_div(problem->group_in * (int64_t)problem->element_size, STEP_BYTES) *
                         (strict ? STRICT_STEPS : 1);
    const double output = OUTPUT_CYCLES + (stores_vectors(problem) ? 0 : SPLIT_CYCLES) + STEP_CYCLES * steps;
    *cycles = outputs * output / multiprocessors_of(layer->target.device) + LAUNCH_CYCLES + STEP_LATENCY * steps;
    return true;
}

int64_t blobs_of(const tconv_cuda_mma_parameters *parameters)
{
    return (int64_t)parameters->groups * parameters->channel_tiles * parameters->residue_sets * parameters->chunks;
}

tconv_status mma_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_cuda_mma_parameters parameters;
    const tconv_cuda_mma_kernel *kernel;
    int64_t size;
    tconv_cuda_mma_chosen(layer, NULL, &parameters, &kernel);
    if (!tconv_checked_mul(blobs_of(&parameters), (int64_t)parameters.blob_words * 4, &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status mma_pack(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    tconv_cuda_mma_parameters parameters;
    const tconv_cuda_mma_kernel *kernel;
    tconv_cuda_mma_chosen(layer, NULL, &parameters, &kernel);
    return on_device(layer->target.device, issue,
                     [&] { return tconv_cuda_mma_pack(layer, &parameters, weights, packed, stream, issue); });
}

/* Each block has its weights throughout, so their number is a multiple of the different ones. */
tconv_status launch(const tconv_cuda_mma_parameters *parameters, const tconv_cuda_mma_kernel *kernel, int device,
                    bool packs, void *stream, tconv_issue *issue)
{
    const int warps = parameters->channel_parts * parameters->residue_parts * parameters->position_warps;
    const int64_t different = (int64_t)parameters->groups * parameters->channel_tiles * parameters->residue_sets;
    const tconv_cuda_mma_limits limits = tconv_cuda_mma_limits_of(device);
    int resident = 1;
    tconv_status status = allow_shared((const void *)kernel->function, limits.shared_bytes, issue);
    if (status == TCONV_SUCCESS)
        status = check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel->function, warps * 32,
                                                                          (size_t)parameters->shared_bytes),
                            "cudaOccupancyMaxActiveBlocksPerMultiprocessor", issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t rounds = tconv_max(1, (int64_t)limits.multiprocessors * tconv_max(1, resident) / different);
    const int64_t blocks = different * tconv_min(parameters->position_tiles, rounds);
    void *arguments[] = {const_cast<tconv_cuda_mma_parameters *>(parameters)};
    const launch_grid grid = {(const void *)kernel->function, blocks, warps * 32, parameters->shared_bytes, packs};
    return launch_kernel(&grid, arguments, stream, issue);
}

tconv_status mma_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cuda_mma_parameters parameters;
    const tconv_cuda_mma_kernel *kernel;
    tconv_cuda_mma_chosen(layer, arguments, &parameters, &kernel);
    parameters.src = arguments->src;
    parameters.packed = arguments->packed;
    parameters.bias = arguments->bias;
    parameters.dst = arguments->dst;
    return on_device(layer->target.device, issue, [&] {
        return launch(&parameters, kernel, layer->target.device, arguments->packs, arguments->stream, issue);
    });
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_mma = {
    "cuda_mma", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F32, mma_supports, mma_memory,
    mma_pack,   mma_execute,        mma_suits,           NULL,         0};

} // namespace tconv::mma
