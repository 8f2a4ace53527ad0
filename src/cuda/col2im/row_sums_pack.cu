/* Packs the weights for Hopper's kernels in the order that parameters.h gives. */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cuda_runtime_api.h>

namespace tconv::col2im::row_sums
{

namespace
{

constexpr int THREADS = 256;
constexpr int HALF_BYTES = MMA_K_BYTES / 2; /* of K: a row of a core matrix */

struct packing {
    tconv_weight_strides from;
    int64_t elements; /* packed, of one part */
    int group_in, group_out, kernel_rows, kernel_columns, stride, steps, band_n, gemm_n;
    bool strict;
};

template <class Element>
__device__ __forceinline__ Element find_weight(const packing &packing, const Element *weights, int64_t group,
                                               int channel, int n)
{
    const int row_n = packing.group_out * packing.kernel_columns;
    const int band = n / packing.band_n, in_band = n - band * packing.band_n;
    const int in_row = in_band % row_n, row = in_band / row_n, kernel_row = band * packing.stride + row;
    if (row >= packing.stride || kernel_row >= packing.kernel_rows || channel >= packing.group_in)
        return Element(0.0f);
    return weights[(group * packing.group_in + channel) * packing.from.in +
                   in_row / packing.kernel_columns * packing.from.out + kernel_row * packing.from.h +
                   in_row % packing.kernel_columns * packing.from.w];
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_weights_kernel(const __grid_constant__ packing packing, const Element *weights, Element *packed)
{
    constexpr int HALF = HALF_BYTES / (int)sizeof(Element);
    launch_dependents();
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    const int part = packing.gemm_n * 2 * HALF;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packing.elements; i += stride) {
        const int64_t group_step = i / part;
        int rest = (int)(i - group_step * part);
        const int element = rest % HALF;
        rest /= HALF;
        const int n = rest % packing.gemm_n, half = rest / packing.gemm_n;
        const int64_t group = group_step / packing.steps;
        const int step_channel = sizeof(Element) == sizeof(float) ? element * 2 + half : half * HALF + element;
        const int channel = (int)(group_step - group * packing.steps) * 2 * HALF + step_channel;
        const Element value = find_weight(packing, weights, group, channel, n);
        if constexpr (sizeof(Element) == sizeof(float)) {
            uint32_t *to = reinterpret_cast<uint32_t *>(packed) + i + (packing.strict ? group_step * part : 0);
            if (packing.strict)
                split_to_tf32(__float_as_uint(value), to, to + part);
            else
                *to = round_to_tf32(__float_as_uint(value));
        } else {
            packed[i] = value;
        }
    }
}

} // namespace

tconv_status pack_weights(const tconv_problem *problem, bool tf32, int steps, const config *config, const void *weights,
                          void *packed, void *stream, tconv_issue *issue)
{
    packing packing = {};
    packing.from = problem->weight;
    packing.group_in = (int)problem->group_in;
    packing.group_out = (int)problem->group_out;
    packing.kernel_rows = (int)problem->h.kernel;
    packing.kernel_columns = (int)problem->w.kernel;
    packing.stride = (int)problem->h.stride;
    packing.steps = steps;
    packing.band_n = config->band_tiles * TILE_N;
    packing.gemm_n = config->n_tiles * TILE_N;
    packing.strict = problem->dtype == TCONV_F32 && !tf32;
    packing.elements = problem->groups * steps * packing.gemm_n * (MMA_K_BYTES / (int64_t)problem->element_size);
    void *arguments[] = {&packing, &weights, &packed};
    const void *kernel = problem->dtype == TCONV_F32   ? (const void *)pack_weights_kernel<float>
                         : problem->dtype == TCONV_F16 ? (const void *)pack_weights_kernel<__half>
                                                       : (const void *)pack_weights_kernel<__nv_bfloat16>;
    const launch_grid grid = {kernel, tconv_min(tconv_ceil_div(packing.elements, THREADS), INT32_MAX), THREADS, 0,
                              false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::col2im::row_sums
