/* Widens. A thread takes neighbours of a line, as many as both tensors have at multiples of so many: time is that of memory. */
#include "pass.h"

#include <cuda_runtime_api.h>

#include "../numeric/element.cuh"
#include "place.cuh"

namespace tconv::finish
{

namespace
{

template <class From, int count> __global__ void __launch_bounds__(THREADS) walk_kernel(const __grid_constant__ walk of)
{
    const int64_t vectors = of.elements / count;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < of.images * of.lines * vectors;
         i += gridDim.x * (int64_t)THREADS) {
        const place at = place_of(of, i, vectors, count);
        const From *from = from_at<From>(of, at);
        const auto values = *reinterpret_cast<const element_vector<From, count> *>(from);
        element_vector<float, count> results;
#pragma unroll
        for (int e = 0; e < count; e++)
            results.at[e] = to_compute(values.at[e]);
        *reinterpret_cast<element_vector<float, count> *>(to_at<float>(of, at)) = results;
    }
}

template <class From> const void *kernel_of(bool vectors)
{
    static_assert(alignof(element_vector<float, VECTOR>) == 16 && alignof(element_vector<__half, VECTOR>) == 8,
                  "C asks for these alignments");
    return vectors ? (const void *)walk_kernel<From, VECTOR> : (const void *)walk_kernel<From, 1>;
}

} // namespace

extern "C" const void *tconv_finish_widen_kernel(tconv_dtype dtype, bool vectors)
{
    return dtype == TCONV_F16 ? kernel_of<__half>(vectors) : kernel_of<__nv_bfloat16>(vectors);
}

} // namespace tconv::finish
