/* The kernel that writes the outputs without a tap, see fill.c. */
#include <cstdint>

#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../hardware.h"
#include "../numeric/divisor.cuh"
#include "outputs.h"

namespace tconv::general
{

namespace
{

/* Says whether the outputs of a residue have a phase: by the mask, since each step of a search waits for memory. */
__device__ bool has_phase(const device_axis &axis, uint64_t mask, int64_t output)
{
    if (axis.stride <= MASK_STRIDE) {
        const int64_t residue = output - divide(output, axis.stride) * axis.stride;
        return (mask >> residue & 1) != 0;
    }
    const int64_t residue = (int64_t)((uint64_t)output % (uint64_t)axis.stride);
    int64_t low = 0, high = axis.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (axis.phases[middle].residue < residue)
            low = middle + 1;
        else
            high = middle;
    }
    return low < axis.count && axis.phases[low].residue == residue;
}

/* Neighbouring channels of an output without a tap, with post-ops. */
template <class Element, int count>
__device__ __forceinline__ element_vector<Element, count> post_output(const outputs &layer, int64_t image, int64_t gaps,
                                                                      int64_t channel, int64_t row, int64_t column)
{
    compute_type<Element> values[count];
#pragma unroll
    for (int i = 0; i < count; i++)
        values[i] = channel_bias<Element>(layer.bias, channel + i);
    run_layer_posts<Element>(
        layer.posts, values, [&](int i) { return channel + i; },
        [&](int i) {
            const tconv_strides &strides = layer.posts.addend_strides;
            return image * strides.n + gaps + (channel + i) * strides.c + row * strides.h + column * strides.w;
        });
    return to_outputs<Element, count>(values);
}

/* Writes an element of a row, in all rows of the tile. */
template <class Element, int count, bool has_posts>
__device__ __forceinline__ void fill_column(const outputs &layer, int64_t plane, int64_t row_tile, int64_t element,
                                            const bool (&row_has_phase)[FILL_ROWS])
{
    const bool nhwc = layer.nhwc;
    const int64_t column = nhwc ? divide(element, layer.plane_channels) : element;
    const int64_t image = nhwc ? plane : divide(plane, layer.plane_channels);
    const int64_t channel =
        nhwc ? (element - column * layer.plane_channels) * count : plane - image * layer.plane_channels;
    const bool column_has_phase = has_phase(layer.columns, layer.column_mask, column);
    element_vector<Element, count> value;
    if (!has_posts)
        for (int i = 0; i < count; i++)
            value.at[i] = bias_output<Element>(layer.bias, channel + i);
    bool is_found = !has_posts;
    const int64_t gaps = divide((int)image, layer.by_volume_images).whole * layer.volume_gap;
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.strides.n + gaps + channel * layer.strides.c +
                   (row_tile << layer.rows_log2) * layer.strides.h + column * layer.strides.w;
    const int rows = (int)min((int64_t)1 << layer.rows_log2, layer.rows.out - (row_tile << layer.rows_log2));
    for (int row = (int)threadIdx.x >> layer.lanes_log2; row < rows; row += FILL_THREADS >> layer.lanes_log2)
        if (!column_has_phase || !row_has_phase[row]) {
            if (!is_found) {
                const int64_t to_row = (row_tile << layer.rows_log2) + row;
                value = post_output<Element, count>(layer, image, gaps, channel, to_row, column);
                is_found = layer.posts.addend == NULL;
            }
            *reinterpret_cast<element_vector<Element, count> *>(dst + row * layer.strides.h) = value;
        }
}

template <class Element, int count, bool has_posts>
__global__ void __launch_bounds__(FILL_THREADS) fill_bias_only_kernel(const __grid_constant__ outputs layer)
{
    __shared__ bool row_has_phase[FILL_ROWS];
    const int lane = (int)threadIdx.x & ((1 << layer.lanes_log2) - 1);
    for (int64_t number = blockIdx.x; number < layer.tiles; number += gridDim.x) {
        const int64_t line = divide(number, layer.stretches), stretch = number - line * layer.stretches;
        const int64_t plane = divide(line, layer.row_tiles), row_tile = line - plane * layer.row_tiles;
        if (threadIdx.x < 1 << layer.rows_log2)
            row_has_phase[threadIdx.x] =
                has_phase(layer.rows, layer.row_mask, (row_tile << layer.rows_log2) + threadIdx.x);
        __syncthreads();
        for (int i = 0; i < layer.repeats; i++) {
            const int64_t element = ((stretch * layer.repeats + i) << layer.lanes_log2) + lane;
            if (element < layer.row_length)
                fill_column<Element, count, has_posts>(layer, plane, row_tile, element, row_has_phase);
        }
        __syncthreads();
    }
}

/* What all outputs without a tap of a channel are, where no post-op reads them one by one. */
template <class Element, bool has_posts>
__device__ __forceinline__ Element channel_output(const outputs &layer, int64_t channel)
{
    if constexpr (has_posts)
        return post_output<Element, 1>(layer, 0, 0, channel, 0, 0).at[0];
    else
        return bias_output<Element>(layer.bias, channel);
}

/* Writes 16 bytes of one value. In C++ nvcc 13.0 makes of it four stores, or eight. */
template <class Element> __device__ __forceinline__ void store_repeated(Element *to, Element value)
{
    if constexpr (sizeof(Element) == 8) {
        const uint64_t bits = *reinterpret_cast<const uint64_t *>(&value);
        asm volatile("st.global.v2.b64 [%0], {%1, %1};" ::"l"(to), "l"(bits) : "memory");
    } else {
        uint32_t bits;
        if constexpr (sizeof(Element) == 2)
            bits = *reinterpret_cast<const uint16_t *>(&value) * 0x10001u;
        else
            bits = *reinterpret_cast<const uint32_t *>(&value);
        asm volatile("st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(to), "r"(bits) : "memory");
    }
}

/* Writes vectors of a line from this one on, lanes apart. The first and the last have elements of the line as far as it
 * reaches. */
template <class Element, bool has_posts>
__device__ __forceinline__ void fill_line(const outputs &layer, int64_t line, int64_t vector)
{
    constexpr int VECTOR = VECTOR_BYTES / (int)sizeof(Element);
    const int64_t plane = divide(line, layer.row_tiles), row = line - plane * layer.row_tiles;
    if (layer.skips_rows && has_phase(layer.rows, layer.row_mask, row))
        return;
    const int64_t image = divide(plane, layer.plane_channels), channel = plane - image * layer.plane_channels;
    const int64_t gaps = divide((int)image, layer.by_volume_images).whole * layer.volume_gap;
    Element *dst = static_cast<Element *>(layer.dst) + image * layer.strides.n + gaps + channel * layer.strides.c +
                   row * layer.strides.h;
    const int before = (int)(reinterpret_cast<uintptr_t>(dst) % VECTOR_BYTES / sizeof(Element));
    dst -= before; /* a vector begins there */
    const int64_t end = before + layer.row_length;
    const Element value = channel_output<Element, has_posts>(layer, channel);
    for (int i = 0; i < layer.repeats; i++) {
        const int64_t first = (vector + ((int64_t)i << layer.lanes_log2)) * VECTOR;
        if (first >= end)
            return;
        if (first >= before && first + VECTOR <= end)
            store_repeated(dst + first, value);
        else
            for (int j = 0; j < VECTOR; j++)
                if (first + j >= before && first + j < end)
                    dst[first + j] = value;
    }
}

/* Writes lines, each by lanes of a tile that are side by side. */
template <class Element, bool has_posts>
__global__ void __launch_bounds__(FILL_THREADS) fill_lines_kernel(const __grid_constant__ outputs layer)
{
    const int lane = (int)threadIdx.x & ((1 << layer.lanes_log2) - 1);
    for (int64_t number = blockIdx.x; number < layer.tiles; number += gridDim.x) {
        const int64_t tile = divide(number, layer.stretches), stretch = number - tile * layer.stretches;
        const int64_t line = tile * (FILL_THREADS >> layer.lanes_log2) + (threadIdx.x >> layer.lanes_log2);
        if (line < layer.lines)
            fill_line<Element, has_posts>(layer, line, (stretch * layer.repeats << layer.lanes_log2) + lane);
    }
}

template <class Element, bool has_posts> const void *kernel_of(fill_form form)
{
    switch (form) {
    case FILLS_LINES: return (const void *)fill_lines_kernel<Element, has_posts>;
    case FILLS_VECTORS:
        return (const void *)fill_bias_only_kernel<Element, VECTOR_BYTES / (int)sizeof(Element), has_posts>;
    default: return (const void *)fill_bias_only_kernel<Element, 1, has_posts>;
    }
}

} // namespace

extern "C" const void *tconv_general_fill_kernel(tconv_dtype dtype, fill_form form, bool has_posts)
{
    return with_element(dtype, [=](auto element) {
        return has_posts ? kernel_of<decltype(element), true>(form) : kernel_of<decltype(element), false>(form);
    });
}

} // namespace tconv::general
