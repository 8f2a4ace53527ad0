/*
 * Packs the weights for the kernel for any device in the order of the lanes' fragments (parameters.h), and notes in the
 * header whether any is special. Lane l of an N tile has n l / 4; of the K step's channels it has l % 4 and l % 4 + 4
 * of f32, and pairs from 2 * (l % 4) and 2 * (l % 4) + 8 of f16 and bf16.
 */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

constexpr int THREADS = 256;
constexpr float TOO_LARGE = 0x1.ffep127f; /* f32 from here on are rounded up to Inf */

struct packing {
    tconv_weight_strides from;
    int64_t elements; /* packed */
    int group_in, group_out, kernel_rows, kernel_columns, steps, tiles;
};

template <class Element>
__global__ void __launch_bounds__(THREADS) pack_fragments_kernel(const __grid_constant__ packing packing,
                                                                 const Element *weights, Element *packed, int *special)
{
    constexpr int PER_LANE = FRAGMENT_BYTES / (int)sizeof(Element), PER_WORD = PER_LANE / 2;
    launch_dependents();
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packing.elements; i += stride) {
        int64_t rest = i;
        const int element = (int)(rest % PER_LANE);
        rest /= PER_LANE;
        const int lane = (int)(rest % 32);
        rest /= 32;
        const int n = (int)(rest % packing.tiles) * TILE_N + lane / 4;
        rest /= packing.tiles;
        const int step = (int)(rest % packing.steps);
        const int64_t group = rest / packing.steps;
        const int channel =
            step * 4 * PER_LANE + element / PER_WORD * 4 * PER_WORD + lane % 4 * PER_WORD + element % PER_WORD;
        const int taps = packing.kernel_rows * packing.kernel_columns;
        const int out = n / taps, tap = n - out * taps;
        Element value = Element(0.0f);
        if (channel < packing.group_in && out < packing.group_out)
            value =
                weights[(group * packing.group_in + channel) * packing.from.in + out * packing.from.out +
                        tap / packing.kernel_columns * packing.from.h + tap % packing.kernel_columns * packing.from.w];
        packed[i] = value;
        if (!(fabsf(to_compute(value)) < TOO_LARGE))
            *special = 1; /* all that write write the same */
    }
}

} // namespace

tconv_status pack_fragments(const tconv_problem *problem, int steps, int tiles, const void *weights, void *packed,
                            void *stream, tconv_issue *issue)
{
    packing packing = {};
    packing.from = problem->weight;
    packing.group_in = (int)problem->group_in;
    packing.group_out = (int)problem->group_out;
    packing.kernel_rows = (int)problem->h.kernel;
    packing.kernel_columns = (int)problem->w.kernel;
    packing.steps = steps;
    packing.tiles = tiles;
    packing.elements = problem->groups * steps * tiles * 32 * (FRAGMENT_BYTES / (int64_t)problem->element_size);
    tconv_status status =
        check_cuda(cudaMemsetAsync(packed, 0, HEADER_BYTES, (cudaStream_t)stream), "cudaMemsetAsync", issue);
    if (status != TCONV_SUCCESS)
        return status;
    void *elements = (char *)packed + HEADER_BYTES;
    void *arguments[] = {&packing, &weights, &elements, &packed};
    const void *kernel = problem->dtype == TCONV_F32   ? (const void *)pack_fragments_kernel<float>
                         : problem->dtype == TCONV_F16 ? (const void *)pack_fragments_kernel<__half>
                                                       : (const void *)pack_fragments_kernel<__nv_bfloat16>;
    const launch_grid grid = {kernel, tconv_min(tconv_ceil_div(packing.elements, THREADS), INT32_MAX), THREADS, 0,
                              false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::col2im
