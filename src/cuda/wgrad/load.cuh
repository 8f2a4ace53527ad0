/*
 * A block of cuda_wgrad copies K-tiles of src and of the gradient of dst to shared memory. It makes tables once with
 * the places of the pixels and slots of a K-tile, and copies vectors of channels where channels are neighbours in
 * memory, else single elements.
 */
#ifndef TCONV_CUDA_WGRAD_LOAD_CUH
#define TCONV_CUDA_WGRAD_LOAD_CUH

#include <cstring>

#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"
#include "tiles.cuh"

namespace tconv::wgrad
{

constexpr int GATHER_PIXELS = 8; /* neighbouring pixels of a warp, where channels are no neighbours: a sector of f32 */
constexpr int GATHER_CHANNELS = WARP / GATHER_PIXELS;
constexpr int COPIES = 4; /* vectors whose offsets a thread loads together */

/* A pixel of a K-tile, or a slot: its distance from the first pixel or output of the K-tile, in bytes of memory and in
 * coordinates. */
struct alignas(16) place {
    int offset, column, row, image;
};

/* The first pixel or output of a K-tile, and the extents of the tensor. */
struct origin {
    const char *data; /* of the block's first channel */
    int column, row, image;
    int columns, rows, images;
    int64_t channel_stride; /* bytes */
    int channels;           /* channels of the block that exist */
    bool all;               /* every place of the K-tile exists */

    __device__ __forceinline__ bool has_row(const place &at) const
    {
        return (unsigned)(row + at.row) < (unsigned)rows && (unsigned)(image + at.image) < (unsigned)images;
    }
    __device__ __forceinline__ bool has(const place &at) const
    {
        return (unsigned)(column + at.column) < (unsigned)columns && has_row(at);
    }
};

/* A thread among those that copy or sum together, which are whole warps. */
struct crew {
    int thread, threads;
};

/* Loads a vector of channels of 16 bits element by element; zeros where they do not exist. */
__device__ __forceinline__ uint4 gather_vector(const origin &from, const place &at, int channel)
{
    const int existing = from.all || from.has(at) ? from.channels : 0;
    const char *data = from.data + at.offset + channel * from.channel_stride;
    uint32_t gathered[8];
#pragma unroll
    for (int j = 0; j < 8; j++, data += from.channel_stride)
        gathered[j] = channel + j < existing ? *reinterpret_cast<const uint16_t *>(data) : 0;
    return make_uint4(gathered[0] | gathered[1] << 16, gathered[2] | gathered[3] << 16, gathered[4] | gathered[5] << 16,
                      gathered[6] | gathered[7] << 16);
}

/* copy_pixels of 16 bits whose channels are not read as vectors: lanes have neighbouring pixels, as many as leave all
 * vectors of a pixel, or four of them, to others; each has two at once. */
__device__ __forceinline__ void gather_vectors(crew by, uint32_t to, int pitch, const place *table, int count,
                                               int channels, const origin &from)
{
    const int vectors = (channels + 7) / 8, groups_log2 = vectors > 2 ? 2 : vectors - 1;
    const int pixels = WARP >> groups_log2, lane = by.thread % WARP, warps = by.threads / WARP;
    const int first = by.thread / WARP * pixels + lane % pixels, step = warps * pixels;
#pragma unroll 1
    for (int i = first; i < count; i += 2 * step) {
        const int next = min(i + step, count - 1);
        const place at = table[i], then = table[next];
#pragma unroll 1
        for (int vector = lane / pixels; vector < vectors; vector += 1 << groups_log2) {
            const uint4 here = gather_vector(from, at, 8 * vector), there = gather_vector(from, then, 8 * vector);
            store_shared(to + i * pitch + vector * ACCESS_BYTES, here);
            if (i + step < count)
                store_shared(to + next * pitch + vector * ACCESS_BYTES, there);
        }
    }
}

/* Copies `channels` channels of the pixels of a table into shared memory, zeros where they do not exist. */
template <class Element, bool vectors>
__device__ __forceinline__ void copy_pixels(crew by, uint32_t to, int pitch, const place *table, int count,
                                            int channels, const origin &from)
{
    constexpr int VECTOR = access_length<Element>;
    if constexpr (vectors) {
        const int lanes_log2 = 32 - __clz((channels + VECTOR - 1) / VECTOR - 1);
        const int channel = (by.thread & ((1 << lanes_log2) - 1)) * VECTOR;
        const int first = by.thread >> lanes_log2, step = by.threads >> lanes_log2;
        if (channel >= channels)
            return;
        const char *data = from.data + channel * (int)sizeof(Element);
        const place *end = table + count;
        to += first * pitch + channel * (int)sizeof(Element);
        table += first;
        pitch *= step;
        if (from.all && channel < from.channels) {
            for (; table + (COPIES - 1) * step < end; table += COPIES * step, to += COPIES * pitch) {
                int offsets[COPIES];
#pragma unroll
                for (int i = 0; i < COPIES; i++)
                    offsets[i] = table[i * step].offset;
#pragma unroll
                for (int i = 0; i < COPIES; i++)
                    cp_async_padded<ACCESS_BYTES>(to + i * pitch, data + offsets[i], ACCESS_BYTES);
            }
            for (; table < end; table += step, to += pitch)
                cp_async_padded<ACCESS_BYTES>(to, data + table->offset, ACCESS_BYTES);
        } else {
#pragma unroll 2
            for (; table < end; table += step, to += pitch) {
                const place at = *table;
                cp_async_padded<ACCESS_BYTES>(to, data + at.offset,
                                              channel < from.channels && from.has(at) ? ACCESS_BYTES : 0);
            }
        }
        return;
    }
    if constexpr (sizeof(Element) == 2) {
        gather_vectors(by, to, pitch, table, count, channels, from);
        return;
    }
    const int lane = by.thread % WARP, warps = by.threads / WARP;
#pragma unroll 1
    for (int i = by.thread / WARP * GATHER_PIXELS + lane % GATHER_PIXELS; i < count; i += warps * GATHER_PIXELS) {
        const place at = table[i];
        const int existing = from.all || from.has(at) ? from.channels : 0;
        const int first = lane / GATHER_PIXELS;
        const char *data = from.data + at.offset + first * from.channel_stride;
#pragma unroll 4
        for (int c = first; c < channels; c += GATHER_CHANNELS, data += GATHER_CHANNELS * from.channel_stride)
            cp_async_padded<4>(to + i * pitch + c * 4, data, c < existing ? 4 : 0);
    }
}

/* The least and the greatest coordinates of the places of a K-tile, from its first. */
struct box {
    int columns[2], rows[2], images;
};

static __device__ __forceinline__ bool holds(const box &of, int column, int row, int image, int columns, int rows,
                                             int images)
{
    return column + of.columns[0] >= 0 && column + of.columns[1] < columns && row + of.rows[0] >= 0 &&
           row + of.rows[1] < rows && image + of.images < images;
}

/* Finds the least and the greatest output of the slots of some residues of an axis. */
static __device__ __forceinline__ void find_ends(const tile_axis &axis, int first, int residues, int (&ends)[2])
{
    ends[0] = ends[1] = axis.least[first];
    for (int i = 1; i < residues; i++) {
        ends[0] = min(ends[0], (int)axis.least[first + i]);
        ends[1] = max(ends[1], (int)axis.least[first + i]);
    }
    ends[1] += axis.stride * (axis.extent - 1);
}

/* The tile of a block, and what all its K-tiles have alike. */
struct block_tile {
    tile_at at;
    int row_first, column_first; /* the first residue of the block's groups of taps, by axis */
    int row_residues, column_residues;
    int slots;
    box inputs, outputs; /* of src and of the gradient of dst */
};

static __device__ __forceinline__ block_tile find_block(const parameters &p, const tile_at &at)
{
    block_tile block;
    block.at = at;
    block.row_first = p.rows.first[block.at.row_group];
    block.column_first = p.columns.first[block.at.column_group];
    block.row_residues = p.rows.first[block.at.row_group + 1] - block.row_first;
    block.column_residues = p.columns.first[block.at.column_group + 1] - block.column_first;
    block.slots = block.row_residues * block.column_residues * p.residue_slots;
    const int images = (1 << p.images.tile_log2) - 1;
    block.inputs = {{0, (1 << p.columns.tile_log2) - 1}, {0, (1 << p.rows.tile_log2) - 1}, images};
    block.outputs.images = images * p.images.step;
    find_ends(p.columns, block.column_first, block.column_residues, block.outputs.columns);
    find_ends(p.rows, block.row_first, block.row_residues, block.outputs.rows);
    return block;
}

static __device__ __forceinline__ block_tile find_block(const parameters &p, uint32_t number)
{
    return find_block(p, find_tile(p.by, (int)number));
}

/* Finds pixel i of a K-tile. */
static __device__ __forceinline__ place find_input(const parameters &p, int i, int element_size)
{
    place at;
    at.column = i & ((1 << p.columns.tile_log2) - 1);
    at.row = i >> p.columns.tile_log2 & ((1 << p.rows.tile_log2) - 1);
    at.image = i >> (p.columns.tile_log2 + p.rows.tile_log2);
    at.offset =
        (int)(at.image * p.src_strides.n + at.row * p.src_strides.h + at.column * p.src_strides.w) * element_size;
    return at;
}

/* Finds slot i of a block's K-tile. Slots are ordered by residue of the rows, residue of the columns, image, row and
 * column; padding repeats the first slot. */
static __device__ __forceinline__ place find_slot(const parameters &p, const block_tile &block, int i, int element_size)
{
    const quotient of_residue = divide(i, p.by.residue_slots);
    const int residues = of_residue.whole, image_slots = p.rows.extent * p.columns.extent << p.images.tile_log2;
    const quotient row = divide(of_residue.rest < image_slots ? of_residue.rest : 0, p.by.column_slots);
    place at;
    at.column = p.columns.least[block.column_first + residues % block.column_residues] + row.rest * p.columns.stride;
    const quotient of_image = divide(row.whole, p.by.row_slots);
    at.row = p.rows.least[block.row_first + residues / block.column_residues] + of_image.rest * p.rows.stride;
    const int image = of_image.whole;
    at.image = image * p.images.step;
    at.offset = (int)(image * p.dst_strides.n + at.row * p.dst_strides.h + at.column * p.dst_strides.w) * element_size;
    return at;
}

/* The number of a block's tile, and its split-K slice. The blocks of a cluster follow one another. */
struct block_work {
    uint32_t number;
    int split;
};

static __device__ __forceinline__ block_work find_work(const parameters &p)
{
    if (p.sharers == 1) {
        const quotient split = divide((int)blockIdx.x, p.by.tiles);
        return {(uint32_t)split.rest, split.whole};
    }
    const uint32_t inner = (uint32_t)p.tiles.chunks * p.tiles.rows.groups * p.tiles.columns.groups;
    const uint32_t sharers = p.sharers, sharer = blockIdx.x % sharers;
    const quotient split = divide((int)(blockIdx.x / sharers), p.by.shared_tiles);
    const uint32_t number = split.rest;
    return {(number / inner * sharers + sharer) * inner + number % inner, split.whole};
}

/* The K-tiles of a split-K slice. */
struct k_range {
    int first, count;
};

static __device__ __forceinline__ k_range find_k_tiles(const parameters &p, int split)
{
    const quotient each = divide(p.k_tiles, p.by.splits); /* slices are at most a few thousand */
    const auto part = [&](int slices) { return slices * each.whole + divide(slices * each.rest, p.by.splits).whole; };
    const int first = part(split);
    return {first, part(split + 1) - first};
}

/* The tables that a block keeps in shared memory beside the stages. */
struct tables {
    place *inputs, *slots;
    int *pixels; /* by pixel, in the order in which lanes load them: the offset of its slots in bytes */
};

/* A walk over K-tiles, at the first pixel of one. Images are counted through all volumes, in each of which K-tiles are whole. */
struct k_walk {
    int column, row, image;

    __device__ __forceinline__ void begin(const parameters &p, int k_tile)
    {
        const quotient of_row = divide(k_tile, p.by.column_k_tiles), of_image = divide(of_row.whole, p.by.row_k_tiles);
        column = of_row.rest << p.columns.tile_log2;
        row = of_image.rest << p.rows.tile_log2;
        image = of_image.whole << p.images.tile_log2;
    }
    __device__ __forceinline__ void advance(const parameters &p)
    {
        column += 1 << p.columns.tile_log2;
        if (column >= p.columns.in) {
            column = 0;
            row += 1 << p.rows.tile_log2;
            if (row >= p.rows.in) {
                row = 0;
                image += 1 << p.images.tile_log2;
            }
        }
    }
};

/* The first image of a K-tile in its volume: of src, or of the gradient of dst the image that this one meets. */
struct image_at {
    int image, volume, first; /* first: of the gradient of dst, the image that image 0 meets */
};

/* Finds it for each K-tile anew: there are no registers to keep what a block has alike. The layer has depth. */
static __device__ __forceinline__ image_at find_plane(const parameters &p, const k_walk &at, bool of_dst)
{
    int block = (int)blockIdx.x;
    asm volatile("" : "+r"(block)); /* or the kernel plane is kept in registers */
    const quotient volume = divide(at.image >> p.images.tile_log2, p.images.by_tiles);
    const int image = volume.rest << p.images.tile_log2;
    if (!of_dst)
        return {image, volume.whole, 0};
    const quotient plane = divide(divide(block, p.images.by_plane_tiles).whole, p.images.by_planes);
    const int first = p.images.first + p.images.tap * plane.rest;
    return {p.images.step * image + first, volume.whole, first};
}

/* Returns the elements from the tensor's first image to the K-tile's, whose number `image` becomes. */
static __device__ __forceinline__ int64_t find_image(const parameters &p, const k_walk &at, bool of_dst, int &image)
{
    int64_t offset = at.image * (of_dst ? p.dst_strides.n : p.src_strides.n);
    image = at.image;
    if (p.images.are_planes) {
        const image_at found = find_plane(p, at, of_dst);
        image = found.image;
        offset += found.volume * (of_dst ? p.images.dst_beyond : p.images.src_beyond);
        if (of_dst)
            offset += found.first * p.images.dst_image;
    }
    return offset;
}

/* Returns the address of a pixel, whose image lies so many elements on. */
template <class Element>
__device__ __forceinline__ const char *address_of(const void *tensor, const tconv_strides &of, int64_t channel,
                                                  int64_t image, int row, int column)
{
    asm volatile("" : "+l"(channel)); /* or its product with the stride is kept in registers as well */
    return (const char *)((const Element *)tensor + channel * of.c + image + row * of.h + column * of.w);
}

/* Returns the origin of src for a K-tile. */
template <class Element>
__device__ __forceinline__ origin src_origin(const parameters &p, const block_tile &block, const k_walk &at)
{
    const int64_t first = block.at.m_tile * p.tiles.block_m;
    int image;
    const int64_t offset = find_image(p, at, false, image);
    return {
        address_of<Element>(p.src, p.src_strides, block.at.group * p.tiles.group_in + first, offset, at.row, at.column),
        at.column,
        at.row,
        image,
        p.columns.in,
        p.rows.in,
        p.images.in,
        p.src_strides.c * (int64_t)sizeof(Element),
        (int)min(p.tiles.group_in - first, (int64_t)p.tiles.block_m),
        holds(block.inputs, at.column, at.row, image, p.columns.in, p.rows.in, p.images.in)};
}

/* Returns the origin of the gradient of dst for a K-tile. */
template <class Element>
__device__ __forceinline__ origin dst_origin(const parameters &p, const block_tile &block, const k_walk &at)
{
    const int64_t first = block.at.chunk * p.tiles.chunk;
    const int column = at.column * p.columns.stride, row = at.row * p.rows.stride;
    int image;
    const int64_t offset = find_image(p, at, true, image);
    return {
        address_of<Element>(p.diff_dst, p.dst_strides, block.at.group * p.tiles.group_out + first, offset, row, column),
        column,
        row,
        image,
        p.columns.out,
        p.rows.out,
        p.images.out,
        p.dst_strides.c * (int64_t)sizeof(Element),
        (int)min(p.tiles.group_out - first, p.tiles.chunk),
        image >= 0 && holds(block.outputs, column, row, image, p.columns.out, p.rows.out, p.images.out)};
}

/* Copies a K-tile into a stage. */
template <class Element, bool vectors>
__device__ __forceinline__ void load_stage(const parameters &p, const block_tile &block, const tables &tables,
                                           k_walk k_tile, uint32_t stage)
{
    const crew all = {(int)threadIdx.x, (int)blockDim.x};
    copy_pixels<Element, vectors>(all, stage, p.src_pitch, tables.inputs, p.k_pixels, p.tiles.block_m,
                                  src_origin<Element>(p, block, k_tile));
    /* Or what was found of the K-tile for src is kept in registers. */
    asm volatile("" : "+r"(k_tile.column), "+r"(k_tile.row), "+r"(k_tile.image));
    copy_pixels<Element, vectors>(all, stage + p.src_bytes, p.dst_pitch, tables.slots, block.slots, (int)p.tiles.chunk,
                                  dst_origin<Element>(p, block, k_tile));
}

/* A GEMM column is a pair: a tap, by its places in the order of kernel rows and of kernel columns, and an output
 * channel of the chunk. */
struct pair_places {
    int row, column, channel;
    bool exists;
};

static __device__ __forceinline__ pair_places find_pair(const parameters &p, const block_tile &block, int n)
{
    const quotient tap = divide(n, p.by.chunk), row = divide(tap.whole, p.by.column_taps);
    pair_places at;
    at.channel = tap.rest;
    at.row = block.at.row_group * p.tiles.rows.group_taps + row.whole;
    at.column = block.at.column_group * p.tiles.columns.group_taps + row.rest;
    at.exists =
        row.whole < p.tiles.rows.group_taps && at.row < p.tiles.rows.kernel && at.column < p.tiles.columns.kernel;
    return at;
}

/* Returns the offset of GEMM column n of the block's tile in the slots of a stage, at the first pixel; 0 where the
 * column has no pair. */
static __device__ __forceinline__ int pair_offset(const parameters &p, const block_tile &block, int n, int element_size)
{
    const pair_places at = find_pair(p, block, n);
    if (!at.exists)
        return 0;
    const int residues = p.rows.tap_residue[at.row] * block.column_residues + p.columns.tap_residue[at.column];
    const int slot = p.rows.tap_slot[at.row] * p.columns.extent + p.columns.tap_slot[at.column];
    return (residues * p.residue_slots + slot) * p.dst_pitch + at.channel * element_size;
}

/* Returns the bytes from the slot that a tap has at a K-tile's first pixel to the slot that it has at this one. */
static __device__ __forceinline__ int slot_offset(const parameters &p, const place &input)
{
    return (input.image * p.rows.extent + input.row) * p.row_pitch + input.column * p.column_pitch;
}

/* Makes the tables of a block. `find` finds each of the slots (LINES: rows of lines). The caller has to synchronise. */
template <class Element, class Find>
__device__ __forceinline__ tables make_tables(const parameters &p, char *memory, int slot_count, Find find)
{
    constexpr int SIZE = (int)sizeof(Element);
    tables made;
    made.inputs = reinterpret_cast<place *>(memory);
    made.slots = made.inputs + p.k_pixels;
    made.pixels = reinterpret_cast<int *>(made.slots + slot_count);
#pragma unroll 1 /* or the compiler divides to know how often */
    for (int i = (int)threadIdx.x; i < p.k_pixels; i += (int)blockDim.x) {
        /* The two pixels of a lane's fragment of f32 lie side by side. */
        const int turn = SIZE == 2 ? i : (i & ~7) | (i & 3) << 1 | (i >> 2 & 1);
        made.inputs[i] = find_input(p, i, SIZE);
        made.pixels[turn] = slot_offset(p, made.inputs[i]);
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < slot_count; i += (int)blockDim.x)
        made.slots[i] = find(i);
    return made;
}

} // namespace tconv::wgrad

#endif
