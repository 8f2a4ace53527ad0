/*
 * The slots of a K-tile, of 16 bits, where neighbouring outputs are neighbours in memory and channels are not, as in NCHW: a
 * thread takes a block of channels by a unit of 8, 4 or 2 outputs, which it loads at once, through its registers and
 * transposes it. Units begin at the multiple of their length before the first slot; outputs between that are no slots are
 * left out.
 */
#ifndef TCONV_CUDA_OUTER_DST_ROWS_CUH
#define TCONV_CUDA_OUTER_DST_ROWS_CUH

#include "src_operand.cuh"

namespace tconv::outer
{

constexpr int HALF_BYTES = 2;

/* The units of a row of outputs, for a block's slots: the column that the first begins with, and their number. */
__device__ __forceinline__ int2 find_units(const block_tile &block, int unit)
{
    const int first = block.outputs.columns[0] & -unit;
    return {first, (block.outputs.columns[1] - first) / unit + 1};
}

/* Tables of the units of all rows, by their addresses in shared memory: where each lies in memory (place), where the slots
 * of its row begin and the address of its columns (int2), and by column where its slot lies from there (int; -1: it is
 * none). */
struct row_tables {
    uint32_t units, stores;
    int count;
};

__device__ __forceinline__ row_tables make_row_tables(const parameters &p, const block_tile &block, char *memory)
{
    const int2 row = find_units(block, p.dst_unit);
    const int images = 1 << p.images_log2, columns = row.y * p.dst_unit;
    row_tables made;
    made.count = block.row_residues * images * p.rows.extent * row.y;
    place *units = reinterpret_cast<place *>(memory);
    int2 *stores = reinterpret_cast<int2 *>(units + made.count);
    int *all_columns = reinterpret_cast<int *>(stores + made.count);
    made.units = shared_address(units);
    made.stores = shared_address(stores);
    for (int i = (int)threadIdx.x; i < made.count; i += (int)blockDim.x) {
        const int unit = i % row.y, slot = i / row.y % p.rows.extent;
        const int image = i / row.y / p.rows.extent % images, residue = i / row.y / p.rows.extent / images;
        place at;
        at.column = row.x + unit * p.dst_unit;
        at.row = p.rows.least[block.row_first + residue] + slot * p.rows.stride;
        at.image = image;
        at.offset = (int)(at.image * p.dst_strides.n + at.row * p.dst_strides.h + at.column) * HALF_BYTES;
        units[i] = at;
        stores[i] = {
            (residue * block.column_residues * p.residue_slots + (image * p.rows.extent + slot) * p.columns.extent) *
                p.dst_pitch,
            (int)shared_address(all_columns + unit * p.dst_unit)};
    }
    for (int i = (int)threadIdx.x; i < columns; i += (int)blockDim.x) {
        int at = -1;
        for (int residue = 0; residue < block.column_residues; residue++) {
            const int from = row.x + i - p.columns.least[block.column_first + residue];
            if (from >= 0 && from % p.columns.stride == 0 && from / p.columns.stride < p.columns.extent)
                at = (residue * p.residue_slots + from / p.columns.stride) * p.dst_pitch;
        }
        all_columns[i] = at;
    }
    return made;
}

/* Walks over a thread's blocks: up to eight lanes have neighbouring channels. */
struct row_walk {
    int unit, channel, lanes_log2;

    __device__ __forceinline__ row_walk(int thread, int channels)
    {
        const int quads = (channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS;
        lanes_log2 = min(32 - __clz(quads - 1), 3);
        unit = thread >> lanes_log2;
        channel = (thread & ((1 << lanes_log2) - 1)) * BLOCK_CHANNELS;
    }
    __device__ __forceinline__ void advance(crew by, int channels)
    {
        channel += BLOCK_CHANNELS << lanes_log2;
        if (channel >= channels) {
            channel &= (BLOCK_CHANNELS << lanes_log2) - 1;
            unit += by.threads >> lanes_log2;
        }
    }
};

template <int unit>
__device__ __forceinline__ void load_row_block(src_block &to, const row_walk &at, const row_tables &tables,
                                               const origin &from)
{
    if (at.unit >= tables.count)
        return;
    const place first = load_shared<place>(tables.units + at.unit * (int)sizeof(place));
    const int existing = from.all || from.has(first) ? from.channels : 0;
    const char *data = from.data + first.offset + at.channel * from.channel_stride;
#pragma unroll
    for (int c = 0; c < BLOCK_CHANNELS; c++, data += from.channel_stride)
        load_unit<unit>(to.at[c], data, at.channel + c < existing);
}

template <int unit>
__device__ __forceinline__ void store_row_block(const src_block &of, const row_walk &at, const row_tables &tables,
                                                int channels, uint32_t slots)
{
    if (at.channel >= channels)
        return;
    const int2 store = load_shared<int2>(tables.stores + at.unit * (int)sizeof(int2));
    slots += store.x + at.channel * HALF_BYTES;
#pragma unroll
    for (int i = 0; i < unit; i++) {
        const int column = load_shared<int>((uint32_t)store.y + i * (int)sizeof(int));
        if (column < 0)
            continue;
        constexpr uint32_t LOW = 0x5410, HIGH = 0x7632; /* halves of two words */
        store_shared(slots + column,
                     make_uint2(__byte_perm(of.at[0][i / 2], of.at[1][i / 2], i % 2 == 0 ? LOW : HIGH),
                                __byte_perm(of.at[2][i / 2], of.at[3][i / 2], i % 2 == 0 ? LOW : HIGH)));
    }
}

} // namespace tconv::outer

#endif
