/*
 * Kernels that only move elements, as bits: the gradient of dst to its planes, and the weights to those of the derived
 * layer. A few lanes of a warp work off a line together: a row of all column planes, the output channels of all planes of
 * a pixel, neighbouring weights. Loads go out several at a time, before what they bring is stored.
 */
#include "parameters.h"

#include "../../core/checked.h"
#include "../runtime/launch.h"

namespace tconv::correlation
{

namespace
{

constexpr int THREADS = 256;
constexpr int AT_ONCE = 4;                       /* loads of a lane */
constexpr int64_t MAX_BLOCKS = (int64_t)1 << 20; /* more lines are taken by the same blocks */

/* Lanes that share a line of so many words: a power of two. */
int lanes_log2_of(int64_t words)
{
    int log2 = 0;
    while (log2 < 5 && (int64_t)1 << log2 < words)
        log2++;
    return log2;
}

__device__ __forceinline__ bool is_below(int64_t index, int64_t extent)
{
    return (uint64_t)index < (uint64_t)extent;
}

/* Loads the outputs of neighbouring positions of a plane from a row; zeros where there are none. */
template <class Word, class Element>
__device__ __forceinline__ Word load_positions(const Element *row, int plane, int position, const tconv_cuda_planes &of)
{
    Word word = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Word) / sizeof(Element)); i++) {
        const int64_t column = tconv_cuda_plane_output(&of, plane, position + i);
        if (position + i < of.positions && is_below(column, of.out))
            word |= (Word)__ldg(row + column) << i * (int)sizeof(Element) * 8;
    }
    return word;
}

/* NCHW: lines of rows, row planes fastest, so that neighbouring lines read neighbouring rows. */
template <class Word, class Element>
__global__ void __launch_bounds__(THREADS)
    split_rows(const __grid_constant__ depth_shape of, int64_t lines, int lanes_log2)
{
    constexpr int ELEMENTS = sizeof(Word) / sizeof(Element);
    const int lane = (int)threadIdx.x & ((1 << lanes_log2) - 1), words = of.row_elements / ELEMENTS;
    const int64_t at_once = THREADS >> lanes_log2, plane_pitch = of.group_out * of.to_channel;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < lines; line += gridDim.x * at_once) {
        const quotient plane = divide((int)line, of.row_planes), row = divide(plane.whole, of.row_positions);
        const quotient image = divide(row.whole, of.channels), group = divide(image.rest, of.group_channels);
        const int64_t output = tconv_cuda_plane_output(&of.rows, plane.rest, row.rest);
        const bool inside = is_below(output, of.rows.out);
        const Element *from = static_cast<const Element *>(of.from) + image.whole * of.from_strides.n +
                              image.rest * of.from_strides.c + (inside ? output : 0) * of.from_strides.h;
        const int64_t channel =
            ((int64_t)group.whole * of.rows.count + plane.rest) * of.columns.count * of.group_out + group.rest;
        Element *to =
            static_cast<Element *>(of.to) + image.whole * of.to_image + channel * of.to_channel + row.rest * of.to_row;
        for (int word = lane; word < words; word += 1 << lanes_log2)
            for (int p = 0; p < of.columns.count; p += AT_ONCE) {
                Word values[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    values[i] = 0;
                    if (inside && p + i < of.columns.count)
                        values[i] = load_positions<Word>(from, p + i, word * ELEMENTS, of.columns);
                }
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (p + i < of.columns.count)
                        reinterpret_cast<Word *>(to + (p + i) * plane_pitch)[word] = values[i];
            }
    }
}

/* NHWC: lines of a pixel's and group's channels, groups fastest. All strides, and group_out, are in words. */
template <class Word>
__global__ void __launch_bounds__(THREADS)
    split_pixels(const __grid_constant__ depth_shape of, int64_t lines, int lanes_log2)
{
    const int lane = (int)threadIdx.x & ((1 << lanes_log2) - 1), planes = (int)(of.rows.count * of.columns.count);
    const int64_t at_once = THREADS >> lanes_log2;
    for (int64_t line = blockIdx.x * at_once + (threadIdx.x >> lanes_log2); line < lines; line += gridDim.x * at_once) {
        const quotient pixel = divide((int)line, of.groups), row = divide(pixel.whole, of.column_positions);
        const quotient image = divide(row.whole, of.row_positions);
        const Word *from =
            static_cast<const Word *>(of.from) + image.whole * of.from_strides.n + (int64_t)pixel.rest * of.group_out;
        Word *to = static_cast<Word *>(of.to) + image.whole * of.to_image + image.rest * of.to_row +
                   row.rest * of.to_pixel + (int64_t)pixel.rest * planes * of.group_out;
        for (int word = lane; word < of.group_out; word += 1 << lanes_log2) {
            int row_plane = 0, column_plane = 0;
            for (int p = 0; p < planes; p += AT_ONCE) {
                Word values[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    const int64_t y = tconv_cuda_plane_output(&of.rows, row_plane, image.rest);
                    const int64_t x = tconv_cuda_plane_output(&of.columns, column_plane, row.rest);
                    values[i] = Word();
                    if (p + i < planes && is_below(y, of.rows.out) && is_below(x, of.columns.out))
                        values[i] = __ldg(from + y * of.from_strides.h + x * of.from_strides.w + word);
                    if (++column_plane == of.columns.count) {
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
}

tconv_status launch_lines(const void *kernel, int64_t lines, int lanes_log2, void **arguments, void *stream,
                          tconv_issue *issue)
{
    const int64_t blocks = tconv_ceil_div(lines, THREADS >> lanes_log2);
    return launch_blocks(kernel, tconv_min(blocks, MAX_BLOCKS), THREADS, arguments, stream, issue);
}

/* Lines of words of two elements of 16 bits, for a lane's stores to have four bytes. */
tconv_status split_rows_of(const tconv_problem *problem, const depth_shape *shape, void *stream, tconv_issue *issue)
{
    const void *const kernel = problem->element_size == 2 && shape->row_elements % 2 == 0
                                   ? (const void *)split_rows<uint32_t, uint16_t>
                               : problem->element_size == 2 ? (const void *)split_rows<uint16_t, uint16_t>
                               : problem->element_size == 4 ? (const void *)split_rows<uint32_t, uint32_t>
                                                            : (const void *)split_rows<uint64_t, uint64_t>;
    depth_shape of = *shape;
    int64_t lines = (int64_t)of.images * of.channels.divisor * of.rows.positions * of.rows.count;
    int lanes_log2 = lanes_log2_of(of.row_elements);
    void *arguments[] = {&of, &lines, &lanes_log2};
    return launch_lines(kernel, lines, lanes_log2, arguments, stream, issue);
}

/* The most bytes, of 16, 8, 4 and an element's, at whose multiples the channels of every group and pixel begin and end.
 * What they are written to begins at a multiple of 16. */
int64_t word_of(const depth_shape *shape, int64_t size)
{
    const tconv_strides *from = &shape->from_strides;
    const auto is_multiple = [&](int64_t bytes) {
        for (const int64_t step : {from->n, from->h, from->w, (int64_t)shape->group_out, shape->to_pixel})
            if (step * size % bytes != 0)
                return false;
        return (uintptr_t)shape->from % (uintptr_t)bytes == 0;
    };
    int64_t bytes = 16;
    while (bytes > size && !is_multiple(bytes))
        bytes /= 2;
    return bytes;
}

tconv_status split_pixels_of(const tconv_problem *problem, const depth_shape *shape, void *stream, tconv_issue *issue)
{
    const int64_t size = (int64_t)problem->element_size, word = word_of(shape, size), elements = word / size;
    const void *const kernel = word == 16  ? (const void *)split_pixels<uint4>
                               : word == 8 ? (const void *)split_pixels<uint2>
                               : word == 4 ? (const void *)split_pixels<uint32_t>
                                           : (const void *)split_pixels<uint16_t>;
    depth_shape of = *shape;
    of.from_strides = {of.from_strides.n / elements, 0, of.from_strides.h / elements, of.from_strides.w / elements};
    of.to_image /= elements;
    of.to_row /= elements;
    of.to_pixel /= elements;
    of.group_out /= (int)elements;
    int64_t lines = (int64_t)of.images * of.rows.positions * of.columns.positions * of.groups.divisor;
    int lanes_log2 = lanes_log2_of(of.group_out);
    void *arguments[] = {&of, &lines, &lanes_log2};
    return launch_lines(kernel, lines, lanes_log2, arguments, stream, issue);
}

} // namespace

tconv_status split_planes(const tconv_problem *problem, const depth_shape *shape, void *stream, tconv_issue *issue)
{
    return problem->layout == TCONV_NCHW ? split_rows_of(problem, shape, stream, issue)
                                         : split_pixels_of(problem, shape, stream, issue);
}

tconv_status derive_weights(const tconv_problem *problem, const weight_shape *shape, void *stream, tconv_issue *issue)
{
    const void *const kernel = problem->element_size == 2   ? (const void *)derive<uint16_t>
                               : problem->element_size == 4 ? (const void *)derive<uint32_t>
                                                            : (const void *)derive<uint64_t>;
    weight_shape of = *shape;
    int lanes_log2 = lanes_log2_of(of.inputs_inside ? of.group_in : of.group_out);
    void *arguments[] = {&of, &lanes_log2};
    return launch_lines(kernel, of.lines, lanes_log2, arguments, stream, issue);
}

} // namespace tconv::correlation
