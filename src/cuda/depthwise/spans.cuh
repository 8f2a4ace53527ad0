/* The gradient of src in NCHW for strides up to MAX_SPAN_STRIDE: a thread sums ROWS x COLUMNS elements, and loads the outputs
 * of their taps in a row, the span, by vectors. */
#ifndef TCONV_CUDA_DEPTHWISE_SPANS_CUH
#define TCONV_CUDA_DEPTHWISE_SPANS_CUH

#include "../epilogue/finish.cuh"
#include "../ptx/dependent_launch.cuh"
#include "places.cuh"

namespace tconv::depthwise::data
{

constexpr int ROWS_AT_ONCE = 2; /* whose spans are loaded before the first is multiplied */

/* Outputs of a vector of a span. */
template <class Element> constexpr int SPAN_VECTOR = span_vector(sizeof(Element));

/* Loads the outputs of a line from x on, by vectors that begin `before` earlier: zeros where they are not in dst. */
template <int before, class Element, int count>
__device__ __forceinline__ void load_span(const Element *line, int x, int columns, Element (&span)[count])
{
    constexpr int VECTOR = SPAN_VECTOR<Element>, VECTORS = (before + count + VECTOR - 1) / VECTOR;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const int at = x - before + i * VECTOR;
        element_vector<Element, VECTOR> values = {};
        if ((unsigned)at < (unsigned)columns)
            values = *reinterpret_cast<const element_vector<Element, VECTOR> *>(line + at);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            if (i * VECTOR + j >= before && i * VECTOR + j < before + count)
                span[i * VECTOR + j - before] = values.at[j];
    }
}

/* Adds the taps of spans to a thread's sums. plain: outputs that are not there are zeros, and weights finite, so that their
 * products add nothing; else those are left out, as are taps that the kernel has not. */
template <bool plain, int stride, class Compute, class Element, int count>
__device__ __forceinline__ void add_taps(const Element (&span)[count], const Compute (&weights)[SPAN_TAPS], int x,
                                         int columns, int taps, Compute (&sums)[COLUMNS])
{
#pragma unroll
    for (int i = 0; i < SPAN_TAPS; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const Compute sum = fma(to_compute(span[stride * c + i]), weights[i], sums[c]);
            sums[c] = plain || ((unsigned)(x + stride * c + i) < (unsigned)columns && i < taps) ? sum : sums[c];
        }
}

/* Of COLUMNS neighbouring columns. Rows of dst begin and end at multiples of vectors; spans begin `before` elements after one,
 * in all threads. */
template <class Element, int stride, int before>
__global__ void __launch_bounds__(THREADS) correlate_spans(const __grid_constant__ parameters of)
{
    using Compute = compute_type<Element>;
    constexpr int COUNT = stride * (COLUMNS - 1) + SPAN_TAPS;
    wait_for_weights();
    for (int64_t item = blockIdx.x * (int64_t)THREADS + threadIdx.x; item < of.items;
         item += gridDim.x * (int64_t)THREADS) {
        const place at = find<false, COLUMNS>(of, (int)item);
        const Element *dst = static_cast<const Element *>(of.dst) + at.image * of.dst_strides.n +
                             (int64_t)at.channel * of.group_out * of.dst_strides.c;
        const int x0 = stride * at.column - of.columns.pad;
        Compute sums[ROWS][COLUMNS] = {};
#pragma unroll 1
        for (int kernel_row = 0; kernel_row < of.rows.kernel; kernel_row++)
#pragma unroll 1
            for (int o = 0; o < of.group_out; o++) {
                const Element *weights = static_cast<const Element *>(of.weights) + at.channel * of.weight_in +
                                         o * of.weight_out + kernel_row * of.weight_row;
                Compute parts[ROWS][COLUMNS] = {};
#pragma unroll 1
                for (int k = 0; k < of.columns.kernel; k += SPAN_TAPS) {
                    const int taps = of.columns.kernel - k;
                    Compute weight[SPAN_TAPS];
                    bool plain = taps >= SPAN_TAPS;
#pragma unroll
                    for (int i = 0; i < SPAN_TAPS; i++) {
                        weight[i] = i < taps ? to_compute(weights[(k + i) * of.weight_column]) : Compute(0);
                        plain = plain && weight[i] - weight[i] == 0;
                    }
#pragma unroll
                    for (int first = 0; first < ROWS; first += ROWS_AT_ONCE) {
                        Element spans[ROWS_AT_ONCE][COUNT];
                        int columns[ROWS_AT_ONCE]; /* of dst's row, 0 where it is not there */
#pragma unroll
                        for (int r = 0; r < ROWS_AT_ONCE; r++) {
                            const int y =
                                of.rows.stride * (at.row + first + r) + of.rows.dilation * kernel_row - of.rows.pad;
                            columns[r] = (unsigned)y < (unsigned)of.rows.out ? of.columns.out : 0;
                            load_span<before>(dst + (columns[r] > 0 ? y : 0) * of.dst_strides.h + o * of.dst_strides.c,
                                              x0 + k, columns[r], spans[r]);
                        }
#pragma unroll
                        for (int r = 0; r < ROWS_AT_ONCE; r++)
                            if (plain)
                                add_taps<true, stride>(spans[r], weight, x0 + k, columns[r], taps, parts[first + r]);
                            else
                                add_taps<false, stride>(spans[r], weight, x0 + k, columns[r], taps, parts[first + r]);
                    }
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++)
                        sums[r][c] += parts[r][c];
            }
        Element *src = static_cast<Element *>(of.src) + at.image * of.src_strides.n + at.channel * of.src_strides.c +
                       at.row * of.src_strides.h + at.column * of.src_strides.w;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            element_vector<Element, COLUMNS> row;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                row.at[c] = finish_total<Element>(sums[r][c]);
            if (at.row + r >= of.rows.in)
                continue;
            if (of.stores_vectors)
                *reinterpret_cast<element_vector<Element, COLUMNS> *>(src + r * of.src_strides.h) = row;
            else
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    if (at.column + c < of.columns.in)
                        src[r * of.src_strides.h + c * of.src_strides.w] = row.at[c];
        }
    }
}

} // namespace tconv::depthwise::data

#endif
