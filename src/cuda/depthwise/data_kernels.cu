/* The kernels of the gradient of src (data.c), one column of whose elements a thread sums, and the instances by dtype. */
#include "../epilogue/finish.cuh"
#include "../ptx/dependent_launch.cuh"
#include "kernels.h"
#include "spans.cuh"

namespace tconv::depthwise::data
{

namespace
{

/* vector: outputs of a row that are loaded at once; inside of dst are all of them, or none. */
template <class Element, bool channels_last, int vector>
__global__ void __launch_bounds__(THREADS) correlate(const __grid_constant__ parameters of)
{
    using Compute = compute_type<Element>;
    wait_for_weights();
    for (int64_t item = blockIdx.x * (int64_t)THREADS + threadIdx.x; item < of.items;
         item += gridDim.x * (int64_t)THREADS) {
        const place at = find<channels_last>(of, (int)item);
        const Element *weights = static_cast<const Element *>(of.weights) + at.channel * of.weight_in;
        const Element *dst = static_cast<const Element *>(of.dst) + at.image * of.dst_strides.n +
                             (int64_t)at.channel * of.group_out * of.dst_strides.c;
        const int x0 = of.columns.stride * at.column - of.columns.pad;
        Compute sums[ROWS] = {};
        for (int kernel_row = 0; kernel_row < of.rows.kernel; kernel_row++) {
            const Element *lines[ROWS];
            bool there[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int y = of.rows.stride * (at.row + r) + of.rows.dilation * kernel_row - of.rows.pad;
                there[r] = (unsigned)y < (unsigned)of.rows.out;
                lines[r] = dst + (there[r] ? y : 0) * of.dst_strides.h;
            }
            for (int o = 0; o < of.group_out; o++) {
                Compute parts[ROWS] = {};
#pragma unroll(MAX_VECTOR / vector)
                for (int k = 0; k < of.columns.kernel; k += vector) {
                    const int x = x0 + of.columns.dilation * k;
                    const bool inside = (unsigned)x < (unsigned)of.columns.out;
                    const int64_t from = (inside ? x : 0) * of.dst_strides.w + o * of.dst_strides.c;
                    Compute weight[vector];
#pragma unroll
                    for (int i = 0; i < vector; i++)
                        weight[i] = to_compute(
                            weights[o * of.weight_out + kernel_row * of.weight_row + (k + i) * of.weight_column]);
                    element_vector<Element, vector> values[ROWS];
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
                        values[r] = *reinterpret_cast<const element_vector<Element, vector> *>(lines[r] + from);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        Compute sum = parts[r];
#pragma unroll
                        for (int i = 0; i < vector; i++)
                            sum = fma(to_compute(values[r].at[i]), weight[i], sum);
                        parts[r] = inside && there[r] ? sum : parts[r];
                    }
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    sums[r] += parts[r];
            }
        }
        Element *src = static_cast<Element *>(of.src) + at.image * of.src_strides.n + at.channel * of.src_strides.c +
                       at.row * of.src_strides.h + at.column * of.src_strides.w;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (at.row + r < of.rows.in)
                src[r * of.src_strides.h] = finish_total<Element>(sums[r]);
    }
}

/* Sums as correlate does, in NHWC, `channels` neighbouring channels, which a thread loads and stores at once. */
template <class Element, int channels>
__global__ void __launch_bounds__(THREADS) correlate_channels(const __grid_constant__ parameters of)
{
    using Compute = compute_type<Element>;
    using Vector = element_vector<Element, channels>;
    wait_for_weights();
    for (int64_t item = blockIdx.x * (int64_t)THREADS + threadIdx.x; item < of.items;
         item += gridDim.x * (int64_t)THREADS) {
        const place at = find<true>(of, (int)item);
        const int channel = at.channel * channels, x0 = of.columns.stride * at.column - of.columns.pad;
        const Element *weights = static_cast<const Element *>(of.weights) + channel;
        const Element *dst = static_cast<const Element *>(of.dst) + at.image * of.dst_strides.n + channel;
        Compute sums[ROWS][channels] = {};
        for (int kernel_row = 0; kernel_row < of.rows.kernel; kernel_row++) {
            const Element *lines[ROWS];
            bool there[ROWS];
            Compute parts[ROWS][channels] = {};
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int y = of.rows.stride * (at.row + r) + of.rows.dilation * kernel_row - of.rows.pad;
                there[r] = (unsigned)y < (unsigned)of.rows.out;
                lines[r] = dst + (there[r] ? y : 0) * of.dst_strides.h;
            }
#pragma unroll 1
            for (int k = 0; k < of.columns.kernel; k++) {
                const int x = x0 + of.columns.dilation * k;
                if ((unsigned)x >= (unsigned)of.columns.out)
                    continue;
                const Vector weight =
                    *reinterpret_cast<const Vector *>(weights + kernel_row * of.weight_row + k * of.weight_column);
                Vector values[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    values[r] = *reinterpret_cast<const Vector *>(lines[r] + x * of.dst_strides.w);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int c = 0; c < channels; c++) {
                        const Compute sum = fma(to_compute(values[r].at[c]), to_compute(weight.at[c]), parts[r][c]);
                        parts[r][c] = there[r] ? sum : parts[r][c];
                    }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < channels; c++)
                    sums[r][c] += parts[r][c];
        }
        Element *src = static_cast<Element *>(of.src) + at.image * of.src_strides.n + channel +
                       at.row * of.src_strides.h + at.column * of.src_strides.w;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            Vector row;
#pragma unroll
            for (int c = 0; c < channels; c++)
                row.at[c] = finish_total<Element>(sums[r][c]);
            if (at.row + r < of.rows.in)
                *reinterpret_cast<Vector *>(src + r * of.src_strides.h) = row;
        }
    }
}

template <class Element> const void *find_kernel(bool channels_last, int vector)
{
    constexpr int MOST = sizeof(Element) == 8 ? 2 : MAX_VECTOR;
    if constexpr (sizeof(Element) > 2)
        if (channels_last && vector > 1)
            return (const void *)correlate_channels<Element, MOST>;
    return channels_last   ? (const void *)correlate<Element, true, 1>
           : channels_last ? (const void *)correlate<Element, true, 1>
           : vector > 2    ? (const void *)correlate<Element, false, MOST>
           : vector > 1    ? (const void *)correlate<Element, false, 2>
                           : (const void *)correlate<Element, false, 1>;
}

template <class Element, int stride> const void *find_spans_kernel(int before)
{
    static_assert(COLUMNS % 4 == 0, "spans of all threads begin alike");
    if constexpr (SPAN_VECTOR<Element> == 2)
        return before == 0 ? (const void *)correlate_spans<Element, stride, 0>
                           : (const void *)correlate_spans<Element, stride, 1>;
    else
        return before == 0   ? (const void *)correlate_spans<Element, stride, 0>
               : before == 1 ? (const void *)correlate_spans<Element, stride, 1>
               : before == 2 ? (const void *)correlate_spans<Element, stride, 2>
                             : (const void *)correlate_spans<Element, stride, 3>;
}

} // namespace

} // namespace tconv::depthwise::data

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_data_kernel(tconv_dtype dtype, tconv_layout layout, int vector)
{
    return with_element(
        dtype, [&](auto element) { return data::find_kernel<decltype(element)>(layout == TCONV_NHWC, vector); });
}

extern "C" const void *tconv_depthwise_spans_kernel(tconv_dtype dtype, int stride, int before)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        return stride == 1 ? data::find_spans_kernel<Element, 1>(before) : data::find_spans_kernel<Element, 2>(before);
    });
}

} // namespace tconv::depthwise
