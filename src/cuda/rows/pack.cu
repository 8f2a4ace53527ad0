/* Packs weights for the rows algorithm, in the order of rows_kernels.h: a thread writes one lane's 16 bytes of one plane. */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cstring>
#include <cuda_runtime_api.h>

namespace tconv::rows
{

namespace
{

constexpr int THREADS = 256;
constexpr int64_t MAX_GRID = 1 << 20; /* blocks; threads go on to the next lane of another */

struct packing {
    tconv_weight_strides from;
    int64_t quads;
    int kernel_rows, planes;
};

/* A part of f32: plane 0 of one is rounded to TF32, planes 0 and 1 of two are big and small. */
__device__ __forceinline__ float part_of(float value, int plane)
{
    uint32_t big, small;
    split_to_tf32(__float_as_uint(value), &big, &small);
    return __uint_as_float(plane == 0 ? big : small);
}

/* The kernel column of a tap, in the order of packed weights. */
__device__ __forceinline__ int kernel_column_of(const tconv_cuda_rows_parameters &layer, int tap)
{
    int back = 0;
    while (tap >= __popc(layer.column_residues[back]))
        tap -= __popc(layer.column_residues[back++]);
    for (int residue = 0;; residue++)
        if ((layer.column_residues[back] >> residue & 1) != 0 && tap-- == 0)
            return layer.kernel_column[back][residue];
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_rows(const __grid_constant__ tconv_cuda_rows_parameters layer, const __grid_constant__ packing packing,
              const Element *weights, uint4 *packed)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element), WORDS = TCONV_CUDA_ROWS_STEP_BYTES / 4;
    launch_dependents();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packing.quads;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t rest = i;
        const int lane = (int)(rest % 32);
        rest /= 32;
        const int plane = (int)(rest % packing.planes);
        rest /= packing.planes;
        const int step = (int)(rest % layer.steps);
        rest /= layer.steps;
        const int column = kernel_column_of(layer, (int)(rest % layer.column_taps));
        rest /= layer.column_taps;
        const int row = (int)(rest % packing.kernel_rows);
        rest /= packing.kernel_rows;
        const int block = (int)(rest % layer.channel_blocks);
        const int64_t group = rest / layer.channel_blocks;
        element_vector<Element, 4 * PER_WORD> quad;
        for (int e = 0; e < 4 * PER_WORD; e++) {
            const int word = e / PER_WORD;
            const int out = block * TCONV_CUDA_ROWS_CHANNELS + lane / 4 + word % 2 * 8;
            const int in = (step * WORDS + lane % 4 + word / 2 * 4) * PER_WORD + e % PER_WORD;
            Element value = Element(0.0f);
            if (in < layer.group_in && out < layer.group_out)
                value = weights[(group * layer.group_in + in) * packing.from.in + out * packing.from.out +
                                row * packing.from.h + column * packing.from.w];
            if constexpr (PER_WORD == 1)
                value = packing.planes == 1 ? __uint_as_float(round_to_tf32(__float_as_uint(value)))
                                            : part_of(value, plane);
            quad.at[e] = value;
        }
        memcpy(&packed[i], &quad, sizeof quad);
    }
}

} // namespace

tconv_status tconv_cuda_pack_rows(const tconv_layer *layer, const tconv_cuda_rows_parameters *parameters,
                                  const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    packing packing;
    packing.from = problem->weight;
    packing.kernel_rows = (int)problem->h.kernel;
    packing.planes = problem->dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32 ? 2 : 1;
    packing.quads = (int64_t)parameters->groups * parameters->channel_blocks * parameters->weight_quads;
    void *arguments[] = {const_cast<tconv_cuda_rows_parameters *>(parameters), &packing, &weights, &packed};
    const void *kernel = problem->dtype == TCONV_F32   ? (const void *)pack_rows<float>
                         : problem->dtype == TCONV_F16 ? (const void *)pack_rows<__half>
                                                       : (const void *)pack_rows<__nv_bfloat16>;
    if (packing.quads == 0) /* no column has a tap */
        return TCONV_SUCCESS;
    const launch_grid grid = {kernel, tconv_min(tconv_ceil_div(packing.quads, THREADS), MAX_GRID), THREADS, 0, false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::rows
