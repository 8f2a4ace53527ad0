/*
 * Kernels around the inner layer's. Two only move elements, as bits: the gradient of dst to its planes, and the weights to
 * those of the inner layer; one adds partial sums. A few lanes of a warp work off a line together: a row of all column
 * planes, the output channels of all planes of a pixel, neighbouring weights. Loads go out several at a time, before what
 * they bring is stored.
 */
#include "parameters.h"

#include <cstddef>
#include <cuda_runtime_api.h>

#include "../epilogue/finish.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"

namespace tconv::dgrad
{

namespace
{

/* An axis of planes, in coordinates of 32 bits where those have room, see tconv_cuda_plane_output. */
template <class Index> struct plane_axis {
    Index stride, dilation, pad, out;
    int count, positions;
};
static_assert(sizeof(plane_axis<int>) == sizeof(plane_axis32) &&
                  offsetof(plane_axis<int>, count) == offsetof(plane_axis32, count),
              "C launches with plane_axis32");
static_assert(sizeof(plane_axis<int64_t>) == sizeof(plane_axis64) &&
                  offsetof(plane_axis<int64_t>, count) == offsetof(plane_axis64, count),
              "C launches with plane_axis64");

template <class Index> __device__ __forceinline__ Index output_of(const plane_axis<Index> &of, int plane, int position)
{
    return of.stride * position + of.dilation * plane - of.pad;
}

__device__ __forceinline__ bool is_below(int index, int extent)
{
    return (uint32_t)index < (uint32_t)extent;
}

__device__ __forceinline__ bool is_below(int64_t index, int64_t extent)
{
    return (uint64_t)index < (uint64_t)extent;
}

/* The outputs of neighbouring positions of a plane: of a row, loaded without a condition, so that loads go out together. */
template <class Element, int COUNT> struct row_piece {
    Element elements[COUNT];
    bool there[COUNT];

    template <class Index>
    __device__ __forceinline__ void load(const Element *row, bool inside, int plane, int position,
                                         const plane_axis<Index> &of)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const Index column = output_of(of, plane, min(position + i, of.positions - 1));
            there[i] = inside && position + i < of.positions && is_below(column, of.out);
            elements[i] = __ldg(row + (there[i] ? column : 0));
        }
    }

    /* As one number; zeros where there are none. */
    template <class Word> __device__ __forceinline__ Word joined() const
    {
        Word word = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            word |= (Word)(there[i] ? elements[i] : (Element)0) << i * (int)sizeof(Element) * 8;
        return word;
    }
};

/* NCHW: lines of rows, row planes fastest, so that neighbouring lines read neighbouring rows. */
template <class Word, class Element, class Index>
__global__ void __launch_bounds__(THREADS)
    split_rows(const __grid_constant__ depth_shape of, const plane_axis<Index> rows, const plane_axis<Index> columns,
               int64_t lines, int lanes_log2, const __grid_constant__ line_pieces pieces)
{
    launch_dependents();
    constexpr int ELEMENTS = sizeof(Word) / sizeof(Element);
    const int lanes = 1 << lanes_log2, lane = (int)threadIdx.x & (lanes - 1), words = of.row_elements / ELEMENTS;
    const int64_t at_once = THREADS >> lanes_log2, plane_pitch = of.group_out * of.to_channel;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < lines; line += gridDim.x * at_once) {
        const quotient of_line = divide((int)line, pieces.count), piece = divide(of_line.rest, pieces.along_planes);
        const quotient row_plane = divide(of_line.whole, of.row_planes),
                       row = divide(row_plane.whole, of.row_positions);
        const int first_plane = piece.rest * pieces.planes, end_plane = min(first_plane + pieces.planes, columns.count);
        const int first_word = piece.whole * pieces.words, end_word = min(first_word + pieces.words, words);
        const quotient image = divide(row.whole, of.channels), group = divide(image.rest, of.group_channels);
        const Index output = output_of(rows, row_plane.rest, row.rest);
        const bool inside = is_below(output, rows.out);
        const Element *from = static_cast<const Element *>(of.from) + image.whole * of.from_strides.n +
                              image.rest * of.from_strides.c + (inside ? output : 0) * of.from_strides.h;
        const int64_t channel =
            ((int64_t)group.whole * rows.count + row_plane.rest) * columns.count * of.group_out + group.rest;
        Element *to =
            static_cast<Element *>(of.to) + image.whole * of.to_image + channel * of.to_channel + row.rest * of.to_row;
        int word = first_word + lane, plane = first_plane;
        while (word < end_word) {
            row_piece<Element, ELEMENTS> loaded[AT_ONCE];
            int words_of[AT_ONCE], planes_of[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                words_of[i] = word;
                planes_of[i] = plane;
                loaded[i].load(from, inside && word < end_word, plane, word * ELEMENTS, columns);
                if (++plane == end_plane) {
                    plane = first_plane;
                    word += lanes;
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (words_of[i] < end_word)
                    reinterpret_cast<Word *>(to + planes_of[i] * plane_pitch)[words_of[i]] =
                        loaded[i].template joined<Word>();
        }
    }
}

/* NHWC: lines of a pixel's and group's channels, groups fastest. All strides, and group_out, are in words. */
template <class Word, class Index>
__global__ void __launch_bounds__(THREADS)
    split_pixels(const __grid_constant__ depth_shape of, const plane_axis<Index> rows, const plane_axis<Index> columns,
                 int64_t lines, int lanes_log2)
{
    launch_dependents();
    const int lanes = 1 << lanes_log2, lane = (int)threadIdx.x & (lanes - 1), planes = rows.count * columns.count;
    const int64_t at_once = THREADS >> lanes_log2;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < lines; line += gridDim.x * at_once) {
        const quotient pixel = divide((int)line, of.groups), row = divide(pixel.whole, of.column_positions);
        const quotient image = divide(row.whole, of.row_positions);
        const Word *from =
            static_cast<const Word *>(of.from) + image.whole * of.from_strides.n + (int64_t)pixel.rest * of.group_out;
        Word *to = static_cast<Word *>(of.to) + image.whole * of.to_image + image.rest * of.to_row +
                   row.rest * of.to_pixel + (int64_t)pixel.rest * planes * of.group_out;
        for (int word = lane; word < of.group_out; word += lanes) {
            int row_plane = 0, column_plane = 0;
            for (int p = 0; p < planes; p += AT_ONCE) {
                Word values[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const Index y = output_of(rows, row_plane, image.rest);
                    const Index x = output_of(columns, column_plane, row.rest);
                    values[i] = Word();
                    if (p + i < planes && is_below(y, rows.out) && is_below(x, columns.out))
                        values[i] = __ldg(from + y * of.from_strides.h + x * of.from_strides.w + word);
                    if (++column_plane == columns.count) {
                        column_plane = 0;
                        row_plane++;
                    }
                }
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (p + i < planes)
                        to[(int64_t)(p + i) * of.group_out + word] = values[i];
            }
        }
    }
}

/* The same where a group has few channels and many planes: lanes take all planes' words as they follow one another, so
 * that stores are of neighbours, and few pixels are many loads. With fewer planes than fill all lanes' loads it took up to
 * 1.9 times as long. */
template <class Word, class Index>
__global__ void __launch_bounds__(THREADS)
    split_narrow_pixels(const __grid_constant__ depth_shape of, const plane_axis<Index> rows,
                        const plane_axis<Index> columns, int64_t lines, int lanes_log2,
                        const __grid_constant__ narrow_line by)
{
    launch_dependents();
    const int lanes = 1 << lanes_log2, lane = (int)threadIdx.x & (lanes - 1);
    const int items = rows.count * columns.count * of.group_out;
    const int64_t at_once = THREADS >> lanes_log2;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < lines; line += gridDim.x * at_once) {
        const quotient pixel = divide((int)line, of.groups), row = divide(pixel.whole, of.column_positions);
        const quotient image = divide(row.whole, of.row_positions);
        const Word *from =
            static_cast<const Word *>(of.from) + image.whole * of.from_strides.n + (int64_t)pixel.rest * of.group_out;
        Word *to = static_cast<Word *>(of.to) + image.whole * of.to_image + image.rest * of.to_row +
                   row.rest * of.to_pixel + (int64_t)pixel.rest * items;
        for (int left = items - lane; left > 0; left -= AT_ONCE * lanes) {
            const int first = items - left;
            Word values[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const bool exists = i * lanes < left;
                const quotient plane = divide(exists ? first + i * lanes : 0, by.words);
                const quotient row_plane = divide(plane.whole, by.column_planes);
                const Index y = output_of(rows, row_plane.whole, image.rest);
                const Index x = output_of(columns, row_plane.rest, row.rest);
                values[i] = Word();
                if (exists && is_below(y, rows.out) && is_below(x, columns.out))
                    values[i] = __ldg(from + y * of.from_strides.h + x * of.from_strides.w + plane.rest);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (i * lanes < left)
                    to[first + i * lanes] = values[i];
        }
    }
}

/* Lines of neighbouring derived weights: column planes fastest, then row planes, column and row taps, groups, and the
 * channel of a group that the line has. */
template <class Element>
__global__ void __launch_bounds__(THREADS) derive(const __grid_constant__ weight_shape of, int lanes_log2)
{
    const int lane = (int)threadIdx.x & ((1 << lanes_log2) - 1);
    const int neighbours = of.inputs_inside ? of.group_in : of.group_out;
    const int64_t at_once = THREADS >> lanes_log2;
    const int64_t from_step = of.inputs_inside ? of.from_strides.in : of.from_strides.out;
    const int64_t to_step = of.inputs_inside ? of.to_strides.out : of.to_strides.in;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < of.lines;
         line += gridDim.x * at_once) {
        const quotient column = divide((int)line, of.column_planes), row = divide(column.whole, of.row_planes);
        const quotient column_tap = divide(row.whole, of.column_taps), row_tap = divide(column_tap.whole, of.row_taps);
        const quotient group = divide(row_tap.whole, of.groups);
        const int64_t kernel_row = tconv_cuda_plane_weight(&of.rows, row.rest, row_tap.rest);
        const int64_t kernel_column = tconv_cuda_plane_weight(&of.columns, column.rest, column_tap.rest);
        const bool exists = kernel_row >= 0 && kernel_column >= 0;
        const int64_t in = (int64_t)group.rest * of.group_in + (of.inputs_inside ? 0 : group.whole);
        const int64_t out = of.inputs_inside ? group.whole : 0;
        const int64_t plane = ((int64_t)group.rest * of.rows.count + row.rest) * of.columns.count + column.rest;
        const Element *from = static_cast<const Element *>(of.from) + in * of.from_strides.in +
                              out * of.from_strides.out + (exists ? kernel_row : 0) * of.from_strides.h +
                              (exists ? kernel_column : 0) * of.from_strides.w;
        Element *to = static_cast<Element *>(of.to) + (plane * of.group_out + out) * of.to_strides.in +
                      (of.inputs_inside ? 0 : group.whole) * of.to_strides.out + row_tap.rest * of.to_strides.h +
                      column_tap.rest * of.to_strides.w;
        for (int i = lane; i < neighbours; i += 1 << lanes_log2)
            to[i * to_step] = exists ? __ldg(from + i * from_step) : (Element)0;
    }
    wait_for_weights(); /* here for planes, which the kernel after this one reads */
}

constexpr int PARTS_AT_ONCE = 8; /* whose loads are under way together */

/* Adds partial sums in double, neighbours as they lie. Blocks begin while those of the kernel before are at work. */
template <class Element, bool channels_last>
__global__ void __launch_bounds__(THREADS) add(const __grid_constant__ sum_shape of)
{
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < of.count; i += gridDim.x * (int64_t)THREADS) {
        const quotient first = divide((int)i, channels_last ? of.channels : of.columns);
        const quotient second = divide(first.whole, channels_last ? of.columns : of.rows);
        const quotient third = divide(second.whole, channels_last ? of.rows : of.channels);
        const int channel = channels_last ? first.rest : third.rest, row = channels_last ? third.rest : second.rest;
        const int column = channels_last ? second.rest : first.rest;
        const tconv_strides &from = of.from_strides, &to = of.to_strides;
        const float *part = of.from + third.whole * from.n + channel * from.c + row * from.h + (int64_t)column * from.w;
        const int64_t pitch = of.channels.divisor * from.c;
        double sum = 0;
        wait_for_kernel_ahead();
#pragma unroll 1
        for (int first_part = 0; first_part < of.parts; first_part += PARTS_AT_ONCE, part += PARTS_AT_ONCE * pitch) {
            float loaded[PARTS_AT_ONCE];
#pragma unroll
            for (int p = 0; p < PARTS_AT_ONCE; p++)
                loaded[p] = first_part + p < of.parts ? part[p * pitch] : -0.0f; /* which changes no sum */
#pragma unroll
            for (int p = 0; p < PARTS_AT_ONCE; p++)
                sum += loaded[p];
        }
        static_cast<Element *>(of.to)[third.whole * to.n + channel * to.c + row * to.h + (int64_t)column * to.w] =
            finish_total<Element>((float)sum);
    }
}

template <class Element> const void *add_of(bool channels_last)
{
    return channels_last ? (const void *)add<Element, true> : (const void *)add<Element, false>;
}

template <class Word, class Element> const void *split_rows_of(bool wide)
{
    return wide ? (const void *)split_rows<Word, Element, int64_t> : (const void *)split_rows<Word, Element, int>;
}

template <class Word> const void *split_pixels_of(bool narrow, bool wide)
{
    if (narrow)
        return wide ? (const void *)split_narrow_pixels<Word, int64_t> : (const void *)split_narrow_pixels<Word, int>;
    return wide ? (const void *)split_pixels<Word, int64_t> : (const void *)split_pixels<Word, int>;
}

} // namespace

extern "C" const void *tconv_dgrad_split_rows_kernel(int word_bytes, int element_bytes, bool wide)
{
    if (element_bytes == 2)
        return word_bytes == 4 ? split_rows_of<uint32_t, uint16_t>(wide) : split_rows_of<uint16_t, uint16_t>(wide);
    return element_bytes == 4 ? split_rows_of<uint32_t, uint32_t>(wide) : split_rows_of<uint64_t, uint64_t>(wide);
}

extern "C" const void *tconv_dgrad_split_pixels_kernel(int word_bytes, bool narrow, bool wide)
{
    return word_bytes == 16  ? split_pixels_of<uint4>(narrow, wide)
           : word_bytes == 8 ? split_pixels_of<uint2>(narrow, wide)
           : word_bytes == 4 ? split_pixels_of<uint32_t>(narrow, wide)
                             : split_pixels_of<uint16_t>(narrow, wide);
}

extern "C" const void *tconv_dgrad_derive_kernel(int element_bytes)
{
    return element_bytes == 2   ? (const void *)derive<uint16_t>
           : element_bytes == 4 ? (const void *)derive<uint32_t>
                                : (const void *)derive<uint64_t>;
}

extern "C" const void *tconv_dgrad_add_kernel(tconv_dtype dtype, bool channels_last)
{
    return dtype == TCONV_F16    ? add_of<__half>(channels_last)
           : dtype == TCONV_BF16 ? add_of<__nv_bfloat16>(channels_last)
                                 : add_of<float>(channels_last);
}

} // namespace tconv::dgrad
