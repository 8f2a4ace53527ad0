/* A thread takes neighbours of a line, as many as both tensors have at multiples of so many: time is that of memory. */
#include "add.h"

#include <cstdint>

#include "../../core/checked.h"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../runtime/launch.h"

namespace tconv::accumulate
{

namespace
{

constexpr int THREADS = 256;
constexpr int VECTOR = 4; /* neighbours that a thread takes at once, where they lie so; else one */

template <class From, class To, bool adds, int count>
__global__ void __launch_bounds__(THREADS) walk_kernel(const __grid_constant__ walk of)
{
    const int64_t vectors = of.elements / count;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < of.images * of.lines * vectors;
         i += gridDim.x * (int64_t)THREADS) {
        const int64_t all_lines = divide(i, vectors), element = (i - all_lines * vectors) * count;
        const int64_t image = divide(all_lines, of.lines), line = all_lines - image * of.lines;
        const From *from = static_cast<const From *>(of.from) + image * of.from_image + line * of.from_line + element;
        To *to = static_cast<To *>(of.to) + image * of.to_image + line * of.to_line + element;
        const auto values = *reinterpret_cast<const element_vector<From, count> *>(from);
        element_vector<To, count> results;
        if (adds)
            results = *reinterpret_cast<element_vector<To, count> *>(to);
#pragma unroll
        for (int e = 0; e < count; e++) {
            auto value = to_compute(values.at[e]);
            if (adds) {
                if (of.bias != NULL)
                    value += to_compute(static_cast<const To *>(of.bias)[of.lines_are_channels ? line : element + e]);
                value += to_compute(results.at[e]);
            }
            results.at[e] = from_compute<To>(value);
        }
        *reinterpret_cast<element_vector<To, count> *>(to) = results;
    }
}

template <class From, class To, bool adds> tconv_status launch(const walk *of, void *stream, tconv_issue *issue)
{
    const int64_t strides = of->elements | of->from_image | of->from_line | of->to_image | of->to_line;
    const bool vectors = strides % VECTOR == 0 && (uintptr_t)of->from % alignof(element_vector<From, VECTOR>) == 0 &&
                         (uintptr_t)of->to % alignof(element_vector<To, VECTOR>) == 0;
    const void *kernel =
        vectors ? (const void *)walk_kernel<From, To, adds, VECTOR> : (const void *)walk_kernel<From, To, adds, 1>;
    const int64_t count = of->images * of->lines * (of->elements / (vectors ? VECTOR : 1));
    walk own = *of;
    void *arguments[] = {&own};
    return tconv_launch_blocks(kernel, tconv_ceil_div(count, THREADS), THREADS, arguments, stream, issue, false);
}

} // namespace

tconv_status widen(tconv_dtype dtype, const walk *of, void *stream, tconv_issue *issue)
{
    return dtype == TCONV_F16 ? launch<__half, float, false>(of, stream, issue)
                              : launch<__nv_bfloat16, float, false>(of, stream, issue);
}

tconv_status add(tconv_dtype dtype, const walk *of, void *stream, tconv_issue *issue)
{
    return with_element(dtype, [=](auto element) {
        using To = decltype(element);
        return launch<compute_type<To>, To, true>(of, stream, issue);
    });
}

} // namespace tconv::accumulate
