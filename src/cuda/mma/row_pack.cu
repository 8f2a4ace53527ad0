/* Packs the weights, in the order of row_parameters.h: a thread writes one lane's 16 bytes of one fragment. */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "row_parameters.h"

#include <cstring>
#include <cuda_runtime_api.h>

namespace tconv::mma
{

namespace
{

constexpr int THREADS = 256;          /* of a block */
constexpr int64_t MAX_GRID = 1 << 20; /* blocks; with more to pack, threads go on to other lanes */

struct packing {
    tconv_weight_strides from;
    int64_t vectors; /* 16-byte vectors of all packed weights */
    int kernel_rows, fragments;
};

/* A factor of f32 as 3xTF32 has it: fragment 0 is big, fragment 1 small. */
__device__ __forceinline__ float part_of(float value, int fragment)
{
    uint32_t big, small;
    split_to_tf32(__float_as_uint(value), &big, &small);
    return __uint_as_float(fragment == 0 ? big : small);
}

/* The kernel column of a tap, in the order of packed weights. */
__device__ __forceinline__ int kernel_column_of(const row_parameters &params, int tap)
{
    int back = 0;
    while (tap >= __popc(params.column_phases[back]))
        tap -= __popc(params.column_phases[back++]);
    for (int phase = 0;; phase++)
        if ((params.column_phases[back] >> phase & 1) != 0 && tap-- == 0)
            return params.kernel_column[back][phase];
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_weights(const __grid_constant__ row_parameters params, const __grid_constant__ packing packing,
                 const Element *weights, uint4 *packed)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Element), WORDS = MMA_K_BYTES / 4;
    launch_dependents();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packing.vectors;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t rest = i;
        const int lane = (int)(rest % 32);
        rest /= 32;
        const int fragment = (int)(rest % packing.fragments);
        rest /= packing.fragments;
        const int step = (int)(rest % params.steps);
        rest /= params.steps;
        const int column = kernel_column_of(params, (int)(rest % params.column_taps));
        rest /= params.column_taps;
        const int row = (int)(rest % packing.kernel_rows);
        rest /= packing.kernel_rows;
        const int m_tile = (int)(rest % params.m_tiles);
        const int64_t group = rest / params.m_tiles;
        element_vector<Element, 4 * PER_WORD> vector;
        for (int e = 0; e < 4 * PER_WORD; e++) {
            const int word = e / PER_WORD;
            const int out = m_tile * BLOCK_M + lane / 4 + word % 2 * 8;
            const int in = (step * WORDS + lane % 4 + word / 2 * 4) * PER_WORD + e % PER_WORD;
            Element value = Element(0.0f);
            if (in < params.group_in && out < params.group_out)
                value = weights[(group * params.group_in + in) * packing.from.in + out * packing.from.out +
                                row * packing.from.h + column * packing.from.w];
            if constexpr (PER_WORD == 1)
                value = packing.fragments == 1 ? __uint_as_float(round_to_tf32(__float_as_uint(value)))
                                               : part_of(value, fragment);
            vector.at[e] = value;
        }
        memcpy(&packed[i], &vector, sizeof vector);
    }
}

} // namespace

tconv_status launch_packing(const tconv_layer *layer, const row_parameters *params, const void *weights, void *packed,
                            void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    packing packing;
    packing.from = problem->weight;
    packing.kernel_rows = (int)problem->h.kernel;
    packing.fragments = problem->dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32 ? 2 : 1;
    packing.vectors = (int64_t)params->groups * params->m_tiles * params->weight_vectors;
    void *arguments[] = {const_cast<row_parameters *>(params), &packing, &weights, &packed};
    const void *kernel = problem->dtype == TCONV_F32   ? (const void *)pack_weights<float>
                         : problem->dtype == TCONV_F16 ? (const void *)pack_weights<__half>
                                                       : (const void *)pack_weights<__nv_bfloat16>;
    if (packing.vectors == 0) /* no column has a tap */
        return TCONV_SUCCESS;
    const launch_grid grid = {kernel, tconv_min(tconv_ceil_div(packing.vectors, THREADS), MAX_GRID), THREADS, 0, false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::mma
