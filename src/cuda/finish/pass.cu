/* A thread takes neighbours of a line, as many as both tensors have at multiples of so many: time is that of memory. */
#include "pass.h"

#include <cuda_runtime_api.h>

#include "../epilogue/finish.cuh"
#include "place.cuh"

namespace tconv::finish
{

namespace
{

template <class From, class To, bool adds, int count>
__global__ void __launch_bounds__(THREADS) walk_kernel(const __grid_constant__ walk of)
{
    const int64_t vectors = of.elements / count;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < of.images * of.lines * vectors;
         i += gridDim.x * (int64_t)THREADS) {
        const place at = place_of(of, i, vectors, count);
        const From *from = from_at<From>(of, at);
        To *to = to_at<To>(of, at);
        const auto values = *reinterpret_cast<const element_vector<From, count> *>(from);
        element_vector<To, count> results;
        if (adds)
            results = *reinterpret_cast<element_vector<To, count> *>(to);
#pragma unroll
        for (int e = 0; e < count; e++) {
            const auto sum = to_compute(values.at[e]);
            if (adds)
                results.at[e] =
                    finish_total<To>(add_bias<To>(sum, of.bias, of.lines_are_channels ? at.line : at.element + e) +
                                     to_compute(results.at[e]));
            else
                results.at[e] = from_compute<To>(sum);
        }
        *reinterpret_cast<element_vector<To, count> *>(to) = results;
    }
}

template <class From, class To, bool adds> const void *kernel_of(bool vectors)
{
    static_assert(alignof(element_vector<double, VECTOR>) == 16 && alignof(element_vector<float, VECTOR>) == 16 &&
                      alignof(element_vector<__half, VECTOR>) == 8,
                  "C asks for these alignments");
    return vectors ? (const void *)walk_kernel<From, To, adds, VECTOR> : (const void *)walk_kernel<From, To, adds, 1>;
}

} // namespace

extern "C" const void *tconv_finish_widen_kernel(tconv_dtype dtype, bool vectors)
{
    return dtype == TCONV_F16 ? kernel_of<__half, float, false>(vectors)
                              : kernel_of<__nv_bfloat16, float, false>(vectors);
}

extern "C" const void *tconv_finish_add_kernel(tconv_dtype dtype, bool vectors)
{
    return with_element(dtype, [=](auto element) {
        using To = decltype(element);
        return kernel_of<compute_type<To>, To, true>(vectors);
    });
}

} // namespace tconv::finish
