/*
 * The slots of a K-tile, of 16 bits, where neighbouring outputs are vectors of 16 bytes and channels are no neighbours, as
 * in NCHW: a thread takes a block of channels by a vector of outputs through its registers and turns it. Vectors begin at
 * the multiple of their length before the first slot; outputs between that are no slots are left out.
 */
#ifndef TCONV_CUDA_OUTER_DST_ROWS_CUH
#define TCONV_CUDA_OUTER_DST_ROWS_CUH

#include "src_operand.cuh"

namespace tconv::outer
{

constexpr int HALF_BYTES = 2, VECTOR = ACCESS_BYTES / HALF_BYTES;

/* The vectors of a row of outputs, for a block's slots: the column that the first begins with, and their number. */
__device__ __forceinline__ int2 find_vectors(const block_tile &block)
{
    const int first = block.outputs.columns[0] & -VECTOR;
    return {first, (block.outputs.columns[1] - first) / VECTOR + 1};
}

/* Tables of the vectors of all rows, by their addresses in shared memory: where each lies in memory (place), where the slots
 * of its row begin and the address of its columns (int2), and by column where its slot lies from there (int; -1: it is
 * none). */
struct row_tables {
    uint32_t vectors, stores;
    int count;
};

__device__ __forceinline__ row_tables make_row_tables(const parameters &p, const block_tile &block, char *memory)
{
    const int2 row = find_vectors(block);
    const int images = 1 << p.images_log2, columns = row.y * VECTOR;
    row_tables made;
    made.count = block.row_residues * images * p.rows.extent * row.y;
    place *vectors = reinterpret_cast<place *>(memory);
    int2 *stores = reinterpret_cast<int2 *>(vectors + made.count);
    int *all_columns = reinterpret_cast<int *>(stores + made.count);
    made.vectors = shared_address(vectors);
    made.stores = shared_address(stores);
    for (int i = (int)threadIdx.x; i < made.count; i += (int)blockDim.x) {
        const int vector = i % row.y, slot = i / row.y % p.rows.extent;
        const int image = i / row.y / p.rows.extent % images, residue = i / row.y / p.rows.extent / images;
        place at;
        at.column = row.x + vector * VECTOR;
        at.row = p.rows.least[block.row_first + residue] + slot * p.rows.stride;
        at.image = image;
        at.offset = (int)(at.image * p.dst_strides.n + at.row * p.dst_strides.h + at.column) * HALF_BYTES;
        vectors[i] = at;
        stores[i] = {
            (residue * block.column_residues * p.residue_slots + (image * p.rows.extent + slot) * p.columns.extent) *
                p.dst_pitch,
            (int)shared_address(all_columns + vector * VECTOR)};
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
    int vector, channel, lanes_log2;

    __device__ __forceinline__ row_walk(int thread, int channels)
    {
        const int quads = (channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS;
        lanes_log2 = min(32 - __clz(quads - 1), 3);
        vector = thread >> lanes_log2;
        channel = (thread & ((1 << lanes_log2) - 1)) * BLOCK_CHANNELS;
    }
    __device__ __forceinline__ void advance(crew by, int channels)
    {
        channel += BLOCK_CHANNELS << lanes_log2;
        if (channel >= channels) {
            channel &= (BLOCK_CHANNELS << lanes_log2) - 1;
            vector += by.threads >> lanes_log2;
        }
    }
};

__device__ __forceinline__ void load_row_block(src_block &to, const row_walk &at, const row_tables &tables,
                                               const origin &from)
{
    if (at.vector >= tables.count)
        return;
    const place vector = load_shared<place>(tables.vectors + at.vector * (int)sizeof(place));
    const int existing = from.all || from.has(vector) ? from.channels : 0;
    const char *data = from.data + vector.offset + at.channel * from.channel_stride;
#pragma unroll
    for (int c = 0; c < BLOCK_CHANNELS; c++, data += from.channel_stride) {
        const uint4 words =
            at.channel + c < existing ? __ldg(reinterpret_cast<const uint4 *>(data)) : make_uint4(0, 0, 0, 0);
        to.at[c][0] = words.x, to.at[c][1] = words.y, to.at[c][2] = words.z, to.at[c][3] = words.w;
    }
}

__device__ __forceinline__ void store_row_block(const src_block &of, const row_walk &at, const row_tables &tables,
                                                int channels, uint32_t slots)
{
    if (at.vector >= tables.count || at.channel >= channels)
        return;
    const int2 store = load_shared<int2>(tables.stores + at.vector * (int)sizeof(int2));
    slots += store.x + at.channel * HALF_BYTES;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
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
