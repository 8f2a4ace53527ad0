/* The pass that makes outputs from sums, bias, what is held and the list of steps. Like pass.cu's kernels a thread takes
 * neighbours of a line; one kernel serves every list, and none. */
#include "pass.h"

#include <cuda_runtime_api.h>

#include "../epilogue/finish.cuh"
#include "../epilogue/posts.cuh"
#include "place.cuh"

namespace tconv::finish
{

namespace
{

/* The channels of a thread's values: the one of their line, or neighbours. */
template <class Compute, int count> struct channels_of_place {
    int64_t first;
    bool is_one;

    __device__ __forceinline__ element_vector<Compute, count> operator()(const void *array) const
    {
        const Compute *values = static_cast<const Compute *>(array) + first;
        if (!is_one)
            return *reinterpret_cast<const element_vector<Compute, count> *>(values);
        element_vector<Compute, count> all;
#pragma unroll
        for (int e = 0; e < count; e++)
            all.at[e] = *values;
        return all;
    }
};

template <class To, int count, class Functions>
__global__ void __launch_bounds__(THREADS) posts_kernel(const __grid_constant__ posts_walk of)
{
    using Compute = compute_type<To>;
    const walk &sums = of.sums;
    const int64_t vectors = sums.elements / count;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < sums.images * sums.lines * vectors;
         i += gridDim.x * (int64_t)THREADS) {
        const place at = place_of(sums, i, vectors, count);
        const auto vector = *reinterpret_cast<const element_vector<Compute, count> *>(from_at<Compute>(sums, at));
        auto *to = reinterpret_cast<element_vector<To, count> *>(to_at<To>(sums, at));
        Compute values[count];
#pragma unroll
        for (int e = 0; e < count; e++)
            values[e] = add_bias<To>(vector.at[e], sums.bias, sums.lines_are_channels ? at.line : at.element + e);
        if (of.holds) {
            const element_vector<To, count> held = *to;
#pragma unroll
            for (int e = 0; e < count; e++)
                values[e] += to_compute(held.at[e]);
        }
        const channels_of_place<Compute, count> channels = {sums.lines_are_channels ? at.line : at.element,
                                                            sums.lines_are_channels};
        const auto addend_of_values = [&]() {
            const To *addend =
                static_cast<const To *>(of.addend) + at.image * of.addend_image + at.line * of.addend_line + at.element;
            const auto elements = *reinterpret_cast<const element_vector<To, count> *>(addend);
            element_vector<Compute, count> terms;
#pragma unroll
            for (int e = 0; e < count; e++)
                terms.at[e] = to_compute(elements.at[e]);
            return terms;
        };
#pragma unroll 1
        for (int step = 0; step < of.steps.count; step++)
            run_post<Compute, Functions>(of.steps.of[step], values, channels, addend_of_values);
        *to = to_outputs<To, count>(values);
    }
}

template <class To, class Functions> const void *kernel_of(bool vectors)
{
    return vectors ? (const void *)posts_kernel<To, VECTOR, Functions> : (const void *)posts_kernel<To, 1, Functions>;
}

} // namespace

extern "C" const void *tconv_finish_posts_kernel(tconv_dtype dtype, bool exact, bool vectors)
{
    return with_element(dtype, [=](auto element) -> const void * {
        using To = decltype(element);
        if constexpr (std::is_same<To, double>::value)
            return (const void *)posts_kernel<To, 1, exact_functions>;
        else if constexpr (std::is_same<To, float>::value)
            return exact ? kernel_of<To, exact_functions>(vectors) : kernel_of<To, fast_functions>(vectors);
        else
            return kernel_of<To, fast_functions>(vectors);
    });
}

} // namespace tconv::finish
