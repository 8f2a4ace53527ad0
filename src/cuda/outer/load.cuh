/*
 * What a block of cuda_outer copies to shared memory: K-tiles of src and of the gradient of dst, by tables of where pixels and
 * slots lie that it makes once; vectors of channels where they are neighbours in memory, else single elements.
 */
#ifndef TCONV_CUDA_OUTER_LOAD_CUH
#define TCONV_CUDA_OUTER_LOAD_CUH

#include <cstring>

#include "../ptx/memory.cuh"
#include "parameters.h"

namespace tconv::outer
{

constexpr int GATHER_PIXELS = 8; /* neighbouring pixels of a warp, where channels are no neighbours: a sector of f32 */
constexpr int GATHER_CHANNELS = LANES / GATHER_PIXELS;

/* A pixel of a K-tile, or a slot of its outputs: where it lies from the K-tile's first, in bytes of memory and in
 * coordinates. A block makes a table of them, once. */
struct alignas(16) place {
    int offset, column, row, image;
};

/* The first pixel of a K-tile, or the output that lies there, and what exists of the tensor. */
struct origin {
    const char *data; /* of the block's first channel */
    int column, row, image;
    int columns, rows, images;
    int64_t channel_stride; /* bytes */
    int channels;           /* of the block, that exist */
    bool all;               /* every place of the table is known to exist */

    __device__ __forceinline__ bool has(const place &at) const
    {
        return (unsigned)(column + at.column) < (unsigned)columns && (unsigned)(row + at.row) < (unsigned)rows &&
               image + at.image < images;
    }
};

/* Copies `channels` channels of the pixels of a table into shared memory, zeros where they do not exist. */
template <class Element, bool vectors>
__device__ __forceinline__ void copy_pixels(uint32_t to, int pitch, const place *table, int count, int channels,
                                            const origin &from)
{
    constexpr int VECTOR = access_length<Element>;
    if constexpr (vectors) {
        const int lanes_log2 = 32 - __clz((channels + VECTOR - 1) / VECTOR - 1);
        const int channel = ((int)threadIdx.x & ((1 << lanes_log2) - 1)) * VECTOR;
        const int first = (int)threadIdx.x >> lanes_log2, step = (int)blockDim.x >> lanes_log2;
        if (channel >= channels)
            return;
        const char *data = from.data + channel * (int)sizeof(Element);
        const place *end = table + count;
        to += first * pitch + channel * (int)sizeof(Element);
        table += first;
        pitch *= step;
        if (from.all && channel < from.channels) {
#pragma unroll 4
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
    const int lane = (int)threadIdx.x % LANES, warps = (int)blockDim.x / LANES;
#pragma unroll 1
    for (int i = ((int)threadIdx.x / LANES) * GATHER_PIXELS + lane % GATHER_PIXELS; i < count;
         i += warps * GATHER_PIXELS) {
        const place at = table[i];
        const int existing = from.all || from.has(at) ? from.channels : 0;
        if constexpr (sizeof(Element) == 4) {
            const int first = lane / GATHER_PIXELS;
            const char *data = from.data + at.offset + first * from.channel_stride;
#pragma unroll 4
            for (int c = first; c < channels; c += GATHER_CHANNELS, data += GATHER_CHANNELS * from.channel_stride)
                cp_async_padded<4>(to + i * pitch + c * 4, data, c < existing ? 4 : 0);
        } else {
#pragma unroll 1
            for (int c = lane / GATHER_PIXELS * VECTOR; c < channels; c += GATHER_CHANNELS * VECTOR) {
                uint32_t gathered[VECTOR];
                const char *data = from.data + at.offset + c * from.channel_stride;
#pragma unroll
                for (int j = 0; j < VECTOR; j++, data += from.channel_stride)
                    gathered[j] = c + j < existing ? *reinterpret_cast<const uint16_t *>(data) : (uint16_t)0;
                uint4 vector;
                vector.x = gathered[0] | gathered[1] << 16;
                vector.y = gathered[2] | gathered[3] << 16;
                vector.z = gathered[4] | gathered[5] << 16;
                vector.w = gathered[6] | gathered[7] << 16;
                store_shared(to + i * pitch + c * 2, vector);
            }
        }
    }
}

/* The least and the greatest coordinates of a table's places. */
struct box {
    int columns[2], rows[2], images;
};

static __device__ __forceinline__ bool holds(const box &of, int column, int row, int image, int columns, int rows,
                                             int images)
{
    return column + of.columns[0] >= 0 && column + of.columns[1] < columns && row + of.rows[0] >= 0 &&
           row + of.rows[1] < rows && image + of.images < images;
}

/* The least and the greatest offset of an axis's slots. */
static __device__ __forceinline__ void find_ends(const tile_axis &axis, int first, int slots, int (&ends)[2])
{
    ends[0] = ends[1] = axis.slot_offset[first];
    for (int i = 1; i < slots; i++) {
        ends[0] = min(ends[0], (int)axis.slot_offset[first + i]);
        ends[1] = max(ends[1], (int)axis.slot_offset[first + i]);
    }
}

/* A block's tile of sums, and what follows from it for all K-tiles. */
struct block_tile {
    tile_at at;
    int row_first, column_first; /* slots of its groups of taps, among all of an axis */
    int row_slots, column_slots;
    int slots;
    box inputs, outputs; /* of a K-tile, from its first */
};

static __device__ __forceinline__ block_tile find_block(const parameters &p, int64_t number)
{
    block_tile block;
    block.at = find_tile(p.tiles, number);
    block.row_first = p.rows.first[block.at.row_group];
    block.column_first = p.columns.first[block.at.column_group];
    block.row_slots = p.rows.first[block.at.row_group + 1] - block.row_first;
    block.column_slots = p.columns.first[block.at.column_group + 1] - block.column_first;
    block.slots = (block.row_slots << p.images_log2) * block.column_slots;
    const int images = (1 << p.images_log2) - 1;
    block.inputs = {{0, (1 << p.columns.tile_log2) - 1}, {0, (1 << p.rows.tile_log2) - 1}, images};
    block.outputs.images = images;
    find_ends(p.columns, block.column_first, block.column_slots, block.outputs.columns);
    find_ends(p.rows, block.row_first, block.row_slots, block.outputs.rows);
    return block;
}

/* Input i of a K-tile. */
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

/* Slot i of a block's K-tile. */
static __device__ __forceinline__ place find_slot(const parameters &p, const block_tile &block, int i, int element_size)
{
    const int column = i % block.column_slots, row = i / block.column_slots;
    place at;
    at.column = p.columns.slot_offset[block.column_first + column];
    at.row = p.rows.slot_offset[block.row_first + row % block.row_slots];
    at.image = row / block.row_slots;
    at.offset =
        (int)(at.image * p.dst_strides.n + at.row * p.dst_strides.h + at.column * p.dst_strides.w) * element_size;
    return at;
}

/* What a block keeps in shared memory beside the stages. */
struct tables {
    place *inputs, *slots;
    int *pixels; /* of K, in the order in which lanes load them: where their slots begin, in bytes */
};

/* Walks over K-tiles: the first input of one after the other. */
struct k_walk {
    int column, row, image;

    __device__ __forceinline__ void begin(const parameters &p, int k_tile)
    {
        column = k_tile % p.columns.tiles << p.columns.tile_log2;
        row = k_tile / p.columns.tiles % p.rows.tiles << p.rows.tile_log2;
        image = k_tile / p.columns.tiles / p.rows.tiles << p.images_log2;
    }
    __device__ __forceinline__ void advance(const parameters &p)
    {
        column += 1 << p.columns.tile_log2;
        if (column >= p.columns.in) {
            column = 0;
            row += 1 << p.rows.tile_log2;
            if (row >= p.rows.in) {
                row = 0;
                image += 1 << p.images_log2;
            }
        }
    }
};

/* Copies a K-tile into a stage. */
template <class Element, bool vectors>
__device__ __forceinline__ void load_stage(const parameters &p, const block_tile &block, const tables &tables,
                                           const k_walk &k_tile, uint32_t stage)
{
    const int column = k_tile.column, row = k_tile.row, image = k_tile.image;
    const sum_tiles &tiles = p.tiles;
    const int64_t in = block.at.m_tile * tiles.block_m, out = block.at.chunk * tiles.chunk;
    const int dst_column = column * p.columns.stride, dst_row = row * p.rows.stride;

    const auto at = [](const void *tensor, const tconv_strides &of, int64_t channel, int n, int y, int x) {
        return (const char *)((const Element *)tensor + channel * of.c + n * of.n + y * of.h + x * of.w);
    };
    const origin src = {at(p.src, p.src_strides, block.at.group * tiles.group_in + in, image, row, column),
                        column,
                        row,
                        image,
                        p.columns.in,
                        p.rows.in,
                        p.images,
                        p.src_strides.c * (int64_t)sizeof(Element),
                        (int)min(tiles.group_in - in, (int64_t)tiles.block_m),
                        holds(block.inputs, column, row, image, p.columns.in, p.rows.in, p.images)};
    copy_pixels<Element, vectors>(stage, p.src_pitch, tables.inputs, p.k_pixels, tiles.block_m, src);
    const origin dst = {
        at(p.diff_dst, p.dst_strides, block.at.group * tiles.group_out + out, image, dst_row, dst_column),
        dst_column,
        dst_row,
        image,
        p.columns.out,
        p.rows.out,
        p.images,
        p.dst_strides.c * (int64_t)sizeof(Element),
        (int)min(tiles.group_out - out, tiles.chunk),
        holds(block.outputs, dst_column, dst_row, image, p.columns.out, p.rows.out, p.images)};
    copy_pixels<Element, vectors>(stage + p.src_bytes, p.dst_pitch, tables.slots, block.slots, (int)tiles.chunk, dst);
}

/* The offset in a stage's slots of pair n of the block's tile, where a tap's output channels lie; 0 where there is none. */
static __device__ __forceinline__ int pair_offset(const parameters &p, const block_tile &block, int n, int element_size)
{
    const int tap = n / (int)p.tiles.chunk, channel = n % (int)p.tiles.chunk;
    const int row = tap / p.tiles.columns.group_taps, column = tap % p.tiles.columns.group_taps;
    const int row_place = block.at.row_group * p.tiles.rows.group_taps + row;
    const int column_place = block.at.column_group * p.tiles.columns.group_taps + column;
    if (row >= p.tiles.rows.group_taps || row_place >= p.tiles.rows.kernel || column_place >= p.tiles.columns.kernel)
        return 0;
    return (p.rows.tap_slot[row_place] * block.column_slots + p.columns.tap_slot[column_place]) * p.dst_pitch +
           channel * element_size;
}

/* Where the slot lies of an input of a K-tile, in bytes, for a tap whose first slot is the first. */
static __device__ __forceinline__ int slot_offset(const parameters &p, const block_tile &block, const place &input)
{
    return ((input.image * block.row_slots + input.row) * block.column_slots + input.column) * p.dst_pitch;
}

/* Makes the tables of a block. */
template <bool half>
__device__ __forceinline__ tables make_tables(const parameters &p, const block_tile &block, char *memory)
{
    tables made;
    made.inputs = reinterpret_cast<place *>(memory);
    made.slots = made.inputs + p.k_pixels;
    made.pixels = reinterpret_cast<int *>(made.slots + block.slots);
    for (int i = (int)threadIdx.x; i < p.k_pixels; i += (int)blockDim.x) {
        /* The two pixels of a lane's fragment of f32 lie side by side. */
        const int turn = half ? i : (i & ~7) | (i & 3) << 1 | (i >> 2 & 1);
        made.inputs[i] = find_input(p, i, half ? 2 : 4);
        made.pixels[turn] = slot_offset(p, block, made.inputs[i]);
    }
    for (int i = (int)threadIdx.x; i < block.slots; i += (int)blockDim.x)
        made.slots[i] = find_slot(p, block, i, half ? 2 : 4);
    __syncthreads();
    return made;
}

} // namespace tconv::outer

#endif
