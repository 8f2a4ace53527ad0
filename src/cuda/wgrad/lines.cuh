/*
 * Load mode LINES. A line is a shared-memory row with all columns of an output row, in the order of memory; each
 * channel has a line of its own, or all channels share one. TMA brings the lines, and brings src as the operand where
 * it can; where TMA cannot, threads copy single elements.
 *
 * A row of M is a pair of a tap and an output channel. In this load mode the rows have an order of their own, in which
 * taps of neighbouring kernel columns (`twins`) follow one another before channels do. With a stride, and as lines are
 * padded (plan_lines.c), a fragment's eight rows by four pixels then lie in different banks.
 */
#ifndef TCONV_CUDA_WGRAD_LINES_CUH
#define TCONV_CUDA_WGRAD_LINES_CUH

#include "tile_box.cuh"

namespace tconv::wgrad
{

/* Returns the pair of row m of M: its number among the pairs of the block. */
static __device__ __forceinline__ int line_pair(const parameters &p, int m)
{
    const int chunk = (int)p.tiles.chunk, taps = p.by.taps.divisor;
    if (m >= taps * chunk)
        return m;
    /* The first tap of the twins, a power of two; the last twins may be fewer. */
    int first = divide(m, p.by.chunk).whole & -p.lines.twins;
    const int twins = min(p.lines.twins, taps - first);
    const int rest = m - first * chunk, channel = twins == 3 ? (int)((unsigned)rest / 3) : rest >> (twins >> 1);
    first += rest - channel * twins;
    const int column = divide(first, p.by.column_taps).rest;
    const int place = p.tiles.columns.groups == 1 ? place_of(p.by.columns, column) : column;
    return (first - column + place) * chunk + channel;
}

/* Returns the place of the block's first channel in a line. */
static __device__ __forceinline__ int line_channel(const parameters &p, const block_tile &block)
{
    return p.lines.channels == 1 ? 0 : (int)(block.at.group * p.tiles.group_out + block.at.chunk * p.tiles.chunk);
}

/* Returns the output column at which a block's lines begin, from the first output of a K-tile: TMA takes multiples of
 * 16 bytes. */
template <class Element> __device__ __forceinline__ int line_begin(const block_tile &block)
{
    return block.outputs.columns[0] & -access_length<Element>;
}

/* Returns the offset in the lines of a stage, in bytes, of the outputs of row m of M at the first pixel; 0 where the
 * row has no pair. */
template <class Element> __device__ __forceinline__ int line_offset(const parameters &p, const block_tile &block, int m)
{
    const pair_places at = find_pair(p, block, line_pair(p, m));
    if (!at.exists)
        return 0;
    const int output = p.columns.least[block.column_first + p.columns.tap_residue[at.column]] +
                       p.columns.tap_slot[at.column] * p.columns.stride - line_begin<Element>(block);
    return p.rows.tap_residue[at.row] * p.lines.residue_bytes + p.rows.tap_slot[at.row] * p.row_pitch +
           (at.channel + line_channel(p, block)) * p.dst_pitch + output * p.lines.channels * (int)sizeof(Element);
}

/* Finds row i of the lines of a block's K-tile. Rows are ordered by residue, then by image. */
template <class Element> __device__ __forceinline__ place find_line(const parameters &p, const block_tile &block, int i)
{
    const quotient of_image = divide(i, p.by.row_slots);
    place at;
    at.column = line_begin<Element>(block);
    const int image = of_image.whole & ((1 << p.images.tile_log2) - 1);
    at.image = image * p.images.step;
    at.row = p.rows.least[block.row_first + (of_image.whole >> p.images.tile_log2)] + of_image.rest * p.rows.stride;
    at.offset =
        (int)(image * p.dst_strides.n + at.row * p.dst_strides.h + at.column * p.dst_strides.w) * (int)sizeof(Element);
    return at;
}

static __device__ __forceinline__ int line_rows(const parameters &p, const block_tile &block)
{
    return (block.row_residues * p.rows.extent) << p.images.tile_log2;
}

/* Finds the box that brings the lines of residue i of the rows. */
template <class Element>
__device__ __forceinline__ tile_box find_line_box(const parameters &p, const block_tile &block, int i)
{
    const int channel =
        p.lines.channels > 1 ? 0 : (int)(block.at.group * p.tiles.group_out + block.at.chunk * p.tiles.chunk);
    return {(uint32_t)(p.src_bytes + i * p.lines.residue_bytes), line_begin<Element>(block) * p.lines.channels, channel,
            p.rows.least[block.row_first + i]};
}

/* Finds box i of src, which is a part of the operand. */
static __device__ __forceinline__ tile_box find_src_box(const parameters &p, const block_tile &block, int i)
{
    return {(uint32_t)(i * p.lines.src_box_bytes), i * p.lines.src_box_pixels,
            (int)(block.at.group * p.tiles.group_in) + (int)block.at.m_tile * p.tiles.block_m, 0};
}

/* Copies bytes to shared memory, or zeros. cp.async takes 4 bytes at least; a copy of 2 bytes is done on return. */
template <int bytes> __device__ __forceinline__ void copy_unit(uint32_t to, const char *from, bool exists)
{
    if constexpr (bytes >= 4)
        cp_async_padded<bytes>(to, from, exists ? bytes : 0);
    else
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(exists ? __ldg((const uint16_t *)from) : (uint16_t)0)
                     : "memory");
}

/* Copies lines, `unit` elements at once, with zeros where outputs do not exist. Eight or more lanes of a warp copy a
 * line. */
template <class Element, int unit>
__device__ __forceinline__ void copy_lines(const parameters &p, const block_tile &block, crew by, uint32_t slots,
                                           const place *table, const origin &from)
{
    constexpr int BYTES = unit * (int)sizeof(Element);
    const int units = p.lines.length / unit, lanes_log2 = units > 16 ? 5 : units > 8 ? 4 : 3;
    const int first = by.thread >> lanes_log2, step = by.threads >> lanes_log2;
    const bool together = p.lines.channels > 1;
    const int channels = together ? 1 : (int)p.tiles.chunk, existing = together ? 1 : from.channels;
    const int begin = (from.column + line_begin<Element>(block)) * p.lines.channels,
              end = from.columns * p.lines.channels;
    const int rows = p.rows.extent << p.images.tile_log2;
#pragma unroll 1
    for (int j = by.thread & ((1 << lanes_log2) - 1); j < units; j += 1 << lanes_log2) {
        const bool column = (unsigned)(begin + j * unit) < (unsigned)end;
        const char *data =
            from.data + (j * unit - line_channel(p, block)) * (int)sizeof(Element) + first * from.channel_stride;
        const place *at = table;
#pragma unroll 1
        for (int residue = 0; residue < block.row_residues; residue++) {
            uint32_t to_row = slots + residue * p.lines.residue_bytes + first * p.dst_pitch + j * BYTES;
#pragma unroll 2
            for (int row = 0; row < rows; row++, at++, to_row += p.row_pitch) {
                const place line = *at;
                const int last = column && from.has_row(line) ? existing : 0;
                const char *from_line = data + line.offset;
                uint32_t to = to_row;
#pragma unroll 2
                for (int c = first; c < channels; c += step) {
                    copy_unit<BYTES>(to, from_line, c < last);
                    from_line += step * from.channel_stride;
                    to += step * p.dst_pitch;
                }
            }
        }
    }
}

/* Copies the lines of a K-tile, as many elements at once as the plan allows. */
template <class Element>
__device__ __forceinline__ void copy_lines_by_units(const parameters &p, const block_tile &block, crew by,
                                                    uint32_t slots, const place *table, const k_walk &k_tile)
{
    const auto copy = [&](auto unit) {
        copy_lines<Element, unit>(p, block, by, slots, table, dst_origin<Element>(p, block, k_tile));
    };
    if (sizeof(Element) == 2 && p.lines.unit == 8)
        copy(std::integral_constant < int, sizeof(Element) == 2 ? 8 : 4 > ());
    else if (p.lines.unit == 4)
        copy(std::integral_constant<int, 4>());
    else if (p.lines.unit == 2)
        copy(std::integral_constant<int, 2>());
    else
        copy(std::integral_constant<int, 1>());
}

} // namespace tconv::wgrad

#endif
