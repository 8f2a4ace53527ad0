/* What feeds the tensor-core kernel: the walk over tiles and chunks, the copies that fill the stages ahead of it, rounding
 * to TF32 and streaming stores. */
#ifndef TCONV_CUDA_MMA_COPY_CUH
#define TCONV_CUDA_MMA_COPY_CUH

#include "element.cuh"
#include "mma_barrier.cuh"
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

/* Copies 16 bytes of which the first `bytes` are read and the others zeros. */
__device__ __forceinline__ void copy_16_to(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_16(void *to, const void *from, int bytes)
{
    copy_16_to(shared_address(to), from, bytes);
}

__device__ __forceinline__ void copy_4(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
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
    int thread, threads, issued;
    int cell_count, first_cell, cell_lanes, first_lane, lanes; /* this thread's share: cells, and channels or vectors */

    __device__ __forceinline__ copier(const tconv_cuda_mma_parameters &layer, uint32_t *shared,
                                      const block_place &block, int computing_threads)
        : layer(layer), shared(shared), cells(shared + layer.cells_at), ahead(layer),
          thread((int)threadIdx.x - computing_threads),
          threads(TCONV_CUDA_MMA_COPY_WARPS * 32), issued(0)
    {
        const int64_t blob = ((int64_t)block.group * layer.channel_tiles + block.channel_tile) * layer.residue_sets +
                             block.residue_set;
        src = static_cast<const Element *>(layer.src) + (int64_t)block.group * layer.group_in * layer.src_strides.c;
        packed = static_cast<const uint32_t *>(layer.packed) + blob * layer.chunks * layer.blob_words;
        cell_count = layer.tile_images * layer.patch_rows * layer.patch_columns / (layer.nhwc ? 1 : VECTOR);
        if (layer.nhwc) { /* neighbouring threads on the vectors of a pixel */
            lanes = min(layer.chunk_words / 4, threads);
            cell_lanes = threads / lanes;
            first_cell = thread / lanes;
            first_lane = thread % lanes;
        } else { /* neighbouring threads on neighbouring columns */
            cell_lanes = min(cell_count, threads);
            lanes = threads / cell_lanes;
            first_cell = thread % cell_lanes;
            first_lane = thread / cell_lanes;
        }
        if (first_lane >= lanes || first_cell >= cell_lanes)
            first_cell = cell_count;
    }

    /* The tables of positions and of cells, both as image, row and column within the tile, and that of steps: where
     * each reads src, in bytes, and which column residues have a tap there. By all threads of the block. */
    __device__ __forceinline__ void make_tables()
    {
        const int of_shift = layer.chunk_words / TCONV_CUDA_MMA_STEP_WORDS, cell_bytes = layer.halves ? 2 : 4;
        for (int i = (int)threadIdx.x; i < layer.most_row_taps * layer.steps; i += (int)blockDim.x) {
            const tconv_cuda_mma_shift &column = layer.columns[i % layer.steps / of_shift];
            const int row = (layer.most_row_taps - 1 - i / layer.steps) * layer.row_shift_step;
            const int at = (row * layer.patch_columns + column.shift) * layer.cell_step +
                           i % of_shift * TCONV_CUDA_MMA_STEP_WORDS * layer.word_step;
            shared[layer.steps_at + i] = (uint32_t)column.residues << 24 | (uint32_t)(at * cell_bytes);
        }
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
        const int plane = layer.word_step / PER_WORD;
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
            if (layer.src_vector == VECTOR)
                copy_vectors(to + i * VECTOR, from, plane, valid, layer.group_in - first_channel);
            else
                for (int channel = first_lane; channel < channels; channel += lanes, from += lanes * layer.src_strides.c)
                    copy_elements(to + channel * plane + i * VECTOR, from, VECTOR,
                                  first_channel + channel < layer.group_in ? valid : 0);
        }
    }

    /* A vector of each of this thread's channels of a chunk, `known` of which exist. */
    __device__ __forceinline__ void copy_vectors(Element *to, const Element *from, int plane, int valid, int known)
    {
        const int channels = layer.chunk_words * PER_WORD, bytes = valid > 0 ? 16 : 0;
        const int64_t step = valid > 0 ? lanes * layer.src_strides.c : 0;
        uint32_t address = shared_address(to + first_lane * plane);
        const uint32_t address_step = (uint32_t)(lanes * plane) * (uint32_t)sizeof(Element);
        if (valid <= 0)
            from = src;
        int channel = first_lane;
#pragma unroll 4
        for (; channel < min(channels, known); channel += lanes) {
            copy_16_to(address, from, bytes);
            address += address_step;
            from += step;
        }
        for (; channel < channels; channel += lanes) {
            copy_16_to(address, src, 0);
            address += address_step;
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

    /* The weights of the chunk; one arrival of thread 0 on full beside all threads' own. */
    __device__ __forceinline__ void copy_weights(uint32_t *words, uint64_t *full)
    {
        const bool stay = layer.chunks == 1 && issued >= layer.stages; /* a single chunk's weights stay in their stage */
        const uint32_t *from = packed + (int64_t)ahead.chunk * layer.blob_words;
#if __CUDA_ARCH__ >= 900
        if (thread == 0 && stay)
            arrive(full);
        else if (thread == 0)
            copy_bulk(words + layer.weights_at, from, (uint32_t)layer.blob_words * 4, full);
#else
        for (int i = thread * 4; i < layer.blob_words && !stay; i += threads * 4)
            copy_16(words + layer.weights_at + i, from + i, 16);
        if (thread == 0)
            arrive(full);
#endif
    }

    /* All chunks of all tiles, each as soon as a stage is free. */
    __device__ __forceinline__ void run(uint64_t *full, uint64_t *free)
    {
        int stage = 0;
        uint32_t parity = 1; /* of the phase before the first, which counts as ended */
        for (; ahead.exists(); ahead.next_chunk()) {
            uint32_t *words = shared + stage * layer.stage_words;
            Element *to = reinterpret_cast<Element *>(words);
            const int first_channel = ahead.chunk * layer.chunk_words * PER_WORD;
            wait_for(free + stage, parity);
            copy_weights(words, full + stage);
            if (layer.nhwc)
                copy_pixels(to, first_channel);
            else
                copy_planes(to, first_channel);
            if (layer.src_vector >= PER_WORD) {
                arrive_after_copies(full + stage);
            } else { /* by plain stores */
                wait_for_copies();
                arrive(full + stage);
            }
            issued++;
            if (++stage == layer.stages) {
                stage = 0;
                parity ^= 1;
            }
        }
        wait_for_copies();
    }
};

/* Rounds the words of src in each stage to TF32, by the given threads, and says so on rounded. */
__device__ __forceinline__ void round_stages(const tconv_cuda_mma_parameters &layer, uint32_t *shared, int thread,
                                             uint64_t *full, uint64_t *rounded)
{
    int stage = 0;
    uint32_t parity = 0;
    for (tile_walk walk(layer); walk.exists(); walk.next_chunk()) {
        uint4 *words = reinterpret_cast<uint4 *>(shared + stage * layer.stage_words);
        wait_for(full + stage, parity);
#pragma unroll 4
        for (int i = thread; i < layer.weights_at / 4; i += TCONV_CUDA_MMA_ROUND_WARPS * 32) {
            const uint4 word = words[i];
            words[i] = {round_to_tf32(word.x), round_to_tf32(word.y), round_to_tf32(word.z), round_to_tf32(word.w)};
        }
        __syncwarp();
        if (thread % 32 == 0)
            arrive(rounded + stage);
        if (++stage == layer.stages) {
            stage = 0;
            parity ^= 1;
        }
    }
}

} // namespace

#endif
