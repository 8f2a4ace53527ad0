/* What feeds the tensor-core kernel: the walk over tiles and chunks, the copies that fill the stages ahead of it, rounding
 * to TF32 and streaming stores. */
#ifndef TCONV_CUDA_MMA_COPY_CUH
#define TCONV_CUDA_MMA_COPY_CUH

#include "element.cuh"
#include "mma_kernels.h"
#include "mma_packed.cuh"

namespace
{

constexpr uint32_t NO_POSITION = 0xffffffffu;

/* ------------------------------------------------------------------------------------------------------------- numbers */

/* To nearest, ties away; the matrix instructions ignore the bits below. NaN and Inf stay as they are. */
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t bits)
{
    return fabsf(__uint_as_float(bits)) < __int_as_float(0x7f800000) ? bits + 0x1000u : bits;
}

/* Splits *bits into what TF32 holds, rounded to nearest, and the exact rest. Of what is not finite, or rounds to Inf, at
 * least one half is not finite. */
__device__ __forceinline__ void split_to_tf32(uint32_t &bits, uint32_t *rest)
{
    const uint32_t big = (bits + 0x1000u) & 0xffffe000u;
    *rest = __float_as_uint(__uint_as_float(bits) - __uint_as_float(big));
    bits = big;
}

/* -------------------------------------------------------------------------------------------------------------- memory */

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Copies 16 bytes of which the first `bytes` are read and the others zeros. */
__device__ __forceinline__ void copy_16(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy_4(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups of copies but the last `pending`. */
template <int pending> __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* Outputs are not read again soon: they should not push src and weights out of the cache. */
template <class Element, int COUNT> __device__ __forceinline__ void store_streaming(Element *to, const Element *from)
{
    constexpr int BYTES = COUNT * (int)sizeof(Element);
    if constexpr (BYTES == 16)
        __stcs(reinterpret_cast<uint4 *>(to), *reinterpret_cast<const uint4 *>(from));
    else if constexpr (BYTES == 8)
        __stcs(reinterpret_cast<uint2 *>(to), *reinterpret_cast<const uint2 *>(from));
    else if constexpr (BYTES == 4)
        __stcs(reinterpret_cast<uint32_t *>(to), *reinterpret_cast<const uint32_t *>(from));
    else
        __stcs(reinterpret_cast<unsigned short *>(to), *reinterpret_cast<const unsigned short *>(from));
}

/* ---------------------------------------------------------------------------------------------------------------- walk */

/* A tile of positions: its first image, row and column. */
struct tile_place {
    int image, row, column;
    int skew; /* patches start at a column that is a multiple of a vector: so much before the first that is read */
};

/* All tiles and chunks of a block, in order. */
struct tile_walk {
    const tconv_cuda_mma_parameters &layer;
    unsigned int number, step;
    int chunk;
    tile_place tile;

    __device__ __forceinline__ explicit tile_walk(const tconv_cuda_mma_parameters &layer) : layer(layer), chunk(0)
    {
        const unsigned int blocks = (unsigned int)(layer.groups * layer.channel_tiles * layer.residue_sets);
        number = blockIdx.x / blocks;
        step = gridDim.x / blocks;
        find();
    }
    __device__ __forceinline__ bool exists() const
    {
        return number < layer.position_tiles;
    }
    __device__ __forceinline__ void find()
    {
        const unsigned int rows = number / (unsigned int)layer.column_tiles;
        const unsigned int images = rows / (unsigned int)layer.row_tiles;
        tile.column = (int)(number - rows * (unsigned int)layer.column_tiles) * layer.tile_columns;
        tile.row = (int)(rows - images * (unsigned int)layer.row_tiles) * layer.tile_rows;
        tile.image = (int)images * layer.tile_images;
        tile.skew = (tile.column + layer.min_column_shift) & layer.skew_mask;
    }
    __device__ __forceinline__ void next_chunk()
    {
        if (++chunk < layer.chunks)
            return;
        chunk = 0;
        number += step;
        find();
    }
};

/* -------------------------------------------------------------------------------------------------------------- copies */

template <class Element> struct copier {
    static constexpr int VECTOR = 16 / (int)sizeof(Element);
    static constexpr int PER_WORD = 4 / (int)sizeof(Element);

    const tconv_cuda_mma_parameters &layer;
    uint32_t *const shared;
    uint32_t *const cells; /* image, row and column of each vector of a patch plane (NCHW) or of each cell (NHWC) */
    tile_walk ahead;
    const Element *src; /* channel 0 of the group */
    const uint32_t *packed;
    int stage, issued, threads;
    int cell_count, first_cell, cell_lanes, first_lane, lanes; /* this thread's share: cells, and channels or vectors */

    __device__ __forceinline__ copier(const tconv_cuda_mma_parameters &layer, uint32_t *shared,
                                      const block_place &block)
        : layer(layer), shared(shared), cells(shared + layer.cells_at), ahead(layer), stage(0), issued(0),
          threads((int)blockDim.x)
    {
        const int64_t blob = ((int64_t)block.group * layer.channel_tiles + block.channel_tile) * layer.residue_sets +
                             block.residue_set;
        src = static_cast<const Element *>(layer.src) + (int64_t)block.group * layer.group_in * layer.src_strides.c;
        packed = static_cast<const uint32_t *>(layer.packed) + blob * layer.chunks * layer.blob_words;
        cell_count = layer.tile_images * layer.patch_rows * layer.patch_columns / (layer.nhwc ? 1 : VECTOR);
        if (layer.nhwc) { /* neighbouring threads on the vectors of a pixel */
            lanes = min(layer.chunk_words / 4, threads);
            cell_lanes = threads / lanes;
            first_cell = (int)threadIdx.x / lanes;
            first_lane = (int)threadIdx.x % lanes;
        } else { /* neighbouring threads on neighbouring columns */
            cell_lanes = min(cell_count, threads);
            lanes = threads / cell_lanes;
            first_cell = (int)threadIdx.x % cell_lanes;
            first_lane = (int)threadIdx.x / cell_lanes;
        }
        if (first_lane >= lanes || first_cell >= cell_lanes)
            first_cell = cell_count;
    }

    /* The tables of positions and of cells, both as image, row and column within the tile. */
    __device__ __forceinline__ void make_tables()
    {
        const unsigned int per_row = (unsigned int)layer.patch_columns / (layer.nhwc ? 1u : (unsigned int)VECTOR);
        for (unsigned int i = threadIdx.x; i < (unsigned int)cell_count; i += blockDim.x) {
            const unsigned int rows = i / per_row, images = rows / (unsigned int)layer.patch_rows;
            cells[i] = images << 20 | (rows - images * (unsigned int)layer.patch_rows) << 10 | (i - rows * per_row);
        }
        const unsigned int columns = (unsigned int)layer.tile_columns, tile_rows = (unsigned int)layer.tile_rows;
        const unsigned int positions = (unsigned int)layer.tile_images * tile_rows * columns;
        for (unsigned int i = threadIdx.x; i < (unsigned int)layer.positions; i += blockDim.x) {
            const unsigned int rows = i / columns, images = rows / tile_rows;
            shared[layer.table_at + (int)i] =
                i < positions ? images << 20 | (rows - images * tile_rows) << 10 | (i - rows * columns) : NO_POSITION;
        }
    }

    /* count elements of which the first `valid` exist; from need not be valid where there are none. */
    __device__ __forceinline__ void copy_elements(Element *to, const Element *from, int count, int valid)
    {
        if (valid <= 0)
            from = src;
        if (layer.src_vector == VECTOR) {
            copy_16(to, from, min(max(valid, 0), VECTOR) * (int)sizeof(Element));
        } else if (layer.src_vector >= PER_WORD) {
            for (int i = 0; i < count; i += PER_WORD)
                copy_4(to + i, valid > i ? from + i : src, min(max(valid - i, 0), PER_WORD) * (int)sizeof(Element));
        } else {
            for (int i = 0; i < count; i++)
                to[i] = valid > i ? from[i] : from_compute<Element>(0);
        }
    }

    /* [channel][image][row][column], columns from a multiple of VECTOR on, so that no vector lies across column 0. */
    __device__ __forceinline__ void copy_planes(Element *to, int first_channel)
    {
        const int channels = layer.chunk_words * PER_WORD;
        const int plane = layer.raw_plane != 0 ? layer.raw_plane : layer.word_step;
        for (int i = first_cell; i < cell_count; i += cell_lanes) {
            const uint32_t packed_cell = cells[i];
            const int image = ahead.tile.image + (int)(packed_cell >> 20);
            const int row = ahead.tile.row + layer.min_row_shift + (int)(packed_cell >> 10 & TCONV_CUDA_MMA_EXTENT);
            const int column = ahead.tile.column + layer.min_column_shift - ahead.tile.skew +
                               (int)(packed_cell & TCONV_CUDA_MMA_EXTENT) * VECTOR;
            const bool exists =
                image < layer.batch && (unsigned int)row < (unsigned int)layer.src_rows && column >= 0;
            const int valid = exists ? layer.src_columns - column : 0;
            const Element *from = src + (int64_t)image * layer.src_strides.n + (int64_t)row * layer.src_strides.h +
                                  column + (int64_t)(first_channel + first_lane) * layer.src_strides.c;
            for (int channel = first_lane; channel < channels; channel += lanes) {
                const bool known = first_channel + channel < layer.group_in;
                copy_elements(to + channel * plane + i * VECTOR, from, VECTOR, known ? valid : 0);
                from += lanes * layer.src_strides.c;
            }
        }
    }

    /* [image][row][column][channel], cells cell_step words apart. */
    __device__ __forceinline__ void copy_pixels(Element *to, int first_channel)
    {
        for (int i = first_cell; i < cell_count; i += cell_lanes) {
            const uint32_t packed_cell = cells[i];
            const int image = ahead.tile.image + (int)(packed_cell >> 20);
            const int row = ahead.tile.row + layer.min_row_shift + (int)(packed_cell >> 10 & TCONV_CUDA_MMA_EXTENT);
            const int column =
                ahead.tile.column + layer.min_column_shift + (int)(packed_cell & TCONV_CUDA_MMA_EXTENT);
            const bool exists = image < layer.batch && (unsigned int)row < (unsigned int)layer.src_rows &&
                                (unsigned int)column < (unsigned int)layer.src_columns;
            const Element *from = src + (int64_t)image * layer.src_strides.n + (int64_t)row * layer.src_strides.h +
                                  (int64_t)column * layer.src_strides.w + first_channel;
            for (int lane = first_lane; lane < layer.chunk_words / 4; lane += lanes)
                copy_elements(to + i * layer.cell_step * PER_WORD + lane * VECTOR, from + lane * VECTOR, VECTOR,
                              exists ? layer.group_in - first_channel - lane * VECTOR : 0);
        }
    }

    /* Starts the copies of the next chunk, if there is one, as a group. */
    __device__ __forceinline__ void issue()
    {
        if (ahead.exists()) {
            uint32_t *words = shared + stage * layer.stage_words;
            Element *to = reinterpret_cast<Element *>(words);
            const int first_channel = ahead.chunk * layer.chunk_words * PER_WORD;
            if (layer.nhwc)
                copy_pixels(to, first_channel);
            else
                copy_planes(to, first_channel);
            if (layer.chunks > 1 || issued < layer.stages) { /* a single chunk's weights stay */
                const uint32_t *from = packed + (int64_t)ahead.chunk * layer.blob_words;
                for (int i = (int)threadIdx.x * 4; i < layer.blob_words; i += threads * 4)
                    copy_16(words + layer.weights_at + i, from + i, 16);
            }
            issued++;
            stage = stage + 1 == layer.stages ? 0 : stage + 1;
            ahead.next_chunk();
        }
        commit_copies();
    }

    /* Until the oldest stage has come. */
    __device__ __forceinline__ void wait()
    {
        if (layer.stages == 2)
            wait_for_copies<0>();
        else if (layer.stages == 3)
            wait_for_copies<1>();
        else
            wait_for_copies<2>();
    }

    /* 16-bit NCHW: from planes of channels to planes of words, each two channels. */
    __device__ __forceinline__ void pair_channels(const uint32_t *words)
    {
        const uint4 *from = reinterpret_cast<const uint4 *>(words);
        uint4 *to = reinterpret_cast<uint4 *>(shared + layer.pairs_at);
        const int plane = layer.raw_plane / VECTOR;
        for (int i = first_cell; i < cell_count; i += cell_lanes)
            for (int word = first_lane; word < layer.chunk_words; word += lanes) {
                const uint4 even = from[2 * word * plane + i], odd = from[(2 * word + 1) * plane + i];
                uint4 *pairs = to + word * (layer.word_step / 4) + i * 2;
                pairs[0] = {__byte_perm(even.x, odd.x, 0x5410), __byte_perm(even.x, odd.x, 0x7632),
                            __byte_perm(even.y, odd.y, 0x5410), __byte_perm(even.y, odd.y, 0x7632)};
                pairs[1] = {__byte_perm(even.z, odd.z, 0x5410), __byte_perm(even.z, odd.z, 0x7632),
                            __byte_perm(even.w, odd.w, 0x5410), __byte_perm(even.w, odd.w, 0x7632)};
            }
    }
};

} // namespace

#endif
