/* What feeds the tensor-core kernel: the walk over tiles and chunks, the copies that fill the stages ahead of it, rounding
 * to TF32 and streaming stores. */
#ifndef TCONV_CUDA_MMA_LOAD_CUH
#define TCONV_CUDA_MMA_LOAD_CUH

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "barrier.cuh"
#include "packed.cuh"
#include "parameters.h"

namespace tconv::mma
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

__device__ __forceinline__ void copy_8(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void copy_4(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t at, int64_t value)
{
    asm volatile("st.shared.b64 [%0], %1;" ::"r"(at), "l"(value) : "memory");
}

__device__ __forceinline__ int64_t load_shared(uint32_t at)
{
    int64_t value;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(value) : "r"(at));
    return value;
}

__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups of this thread's copies but the last `pending`. */
template <int pending> __device__ __forceinline__ void wait_for_copies()
{
    if constexpr (pending == 0)
        asm volatile("cp.async.wait_all;" ::: "memory");
    else
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

template <tconv_cuda_mma_mode MODE> struct mode_traits {
    using element = float;
};
template <> struct mode_traits<TCONV_CUDA_MMA_F16> {
    using element = __half;
};
template <> struct mode_traits<TCONV_CUDA_MMA_F16_PLANES> {
    using element = __half;
};
template <> struct mode_traits<TCONV_CUDA_MMA_BF16> {
    using element = __nv_bfloat16;
};
template <> struct mode_traits<TCONV_CUDA_MMA_BF16_PLANES> {
    using element = __nv_bfloat16;
};

/* Whether src and dst are NHWC. Kernels of 16-bit elements are made for one layout, so that they hold no code for the other. */
template <tconv_cuda_mma_mode MODE> __device__ __forceinline__ bool is_nhwc(const tconv_cuda_mma_parameters &layer)
{
    if constexpr (MODE == TCONV_CUDA_MMA_F16 || MODE == TCONV_CUDA_MMA_BF16)
        return true;
    else if constexpr (MODE == TCONV_CUDA_MMA_F16_PLANES || MODE == TCONV_CUDA_MMA_BF16_PLANES)
        return false;
    else
        return layer.nhwc;
}

constexpr int64_t OUTSIDE = -1; /* a cell that src does not have */

template <tconv_cuda_mma_mode MODE> struct copier {
    using Element = typename mode_traits<MODE>::element;
    static constexpr bool ROUNDS = MODE == TCONV_CUDA_MMA_TF32;
    static constexpr int VECTOR = 16 / (int)sizeof(Element);
    static constexpr int PER_WORD = 4 / (int)sizeof(Element);

    const tconv_cuda_mma_parameters &layer;
    uint32_t *const shared;
    const uint32_t
        cells; /* shared address of where src has each vector of a patch plane (NCHW) or each cell (NHWC), channel 0 */
    tile_walk ahead;
    const Element *src; /* channel 0 of the group */
    const uint32_t *packed;
    int stage, issued;             /* issued: groups of copies, empty ones too */
    int cell_count, channel_count; /* of vectors: a chunk is cell_count x channel_count of them */
    int first_cell, first_channel; /* this thread's first vector, */
    uint32_t place_step, place_carry;
    int cell_step, channel_step; /* and from one to the next, with a carry from cells to channels (NHWC: the reverse) */

    __device__ __forceinline__ copier(const tconv_cuda_mma_parameters &layer, uint32_t *shared,
                                      const block_place &block)
        : layer(layer), shared(shared), cells(shared_address(shared + layer.cells_at)), ahead(layer), stage(0),
          issued(0)
    {
        const int64_t blob =
            ((int64_t)block.group * layer.channel_tiles + block.channel_tile) * layer.residue_sets + block.residue_set;
        src = static_cast<const Element *>(layer.src) + (int64_t)block.group * layer.group_in * layer.src_strides.c;
        packed = static_cast<const uint32_t *>(layer.packed) + blob * layer.chunks * layer.blob_words;
        cell_count = layer.tile_images * layer.patch_rows * layer.patch_columns / (is_nhwc<MODE>(layer) ? 1 : VECTOR);
        channel_count = is_nhwc<MODE>(layer) ? layer.chunk_words / 4 : layer.chunk_words * PER_WORD;
        const int fast =
            is_nhwc<MODE>(layer) ? channel_count : cell_count; /* what neighbouring threads have neighbours of */
        const int start = (int)threadIdx.x, threads = (int)blockDim.x;
        first_cell = is_nhwc<MODE>(layer) ? start / fast : start % fast;
        first_channel = is_nhwc<MODE>(layer) ? start % fast : start / fast;
        cell_step = is_nhwc<MODE>(layer) ? threads / fast : threads % fast;
        channel_step = is_nhwc<MODE>(layer) ? threads % fast : threads / fast;
        place_step = (uint32_t)place_of(cell_step, channel_step) * (uint32_t)sizeof(Element);
        place_carry = (uint32_t)(is_nhwc<MODE>(layer) ? place_of(1, -channel_count) : place_of(-cell_count, 1)) *
                      (uint32_t)sizeof(Element);
    }

    /* Elements from the start of a stage to a vector. */
    __device__ __forceinline__ int place_of(int cell, int channel) const
    {
        return is_nhwc<MODE>(layer) ? cell * layer.cell_step * PER_WORD + channel * VECTOR
                                    : channel * (layer.word_step / PER_WORD) + cell * VECTOR;
    }

    /* The table of positions, as image, row and column within the tile, and that of steps: where each reads src, in bytes,
     * and which column residues have a tap there. By all threads of the block. */
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
        const unsigned int columns = (unsigned int)layer.tile_columns, tile_rows = (unsigned int)layer.tile_rows;
        const unsigned int positions = (unsigned int)layer.tile_images * tile_rows * columns;
        for (unsigned int i = threadIdx.x; i < (unsigned int)layer.positions; i += blockDim.x) {
            const unsigned int rows = i / columns, images = rows / tile_rows;
            shared[layer.table_at + (int)i] =
                i < positions ? images << 20 | (rows - images * tile_rows) << 10 | (i - rows * columns) : NO_POSITION;
        }
    }

    /* The table of cells for the tile ahead, by all threads, which meet before and after. Patches begin at a column that is a multiple of
     * VECTOR (NCHW), so that no vector lies across column 0. */
    __device__ __forceinline__ void make_cells()
    {
        const int width = is_nhwc<MODE>(layer) ? 1 : VECTOR;
        const unsigned int per_row = (unsigned int)(layer.patch_columns / width);
        for (unsigned int i = threadIdx.x; i < (unsigned int)cell_count; i += blockDim.x) {
            const unsigned int rows = i / per_row, images = rows / (unsigned int)layer.patch_rows;
            const int image = ahead.tile.image + (int)images;
            const int row =
                ahead.tile.row + layer.min_row_shift + (int)(rows - images * (unsigned int)layer.patch_rows);
            const int column =
                ahead.tile.column + layer.min_column_shift - ahead.tile.skew + (int)(i - rows * per_row) * width;
            const bool exists = image < layer.batch && (unsigned int)row < (unsigned int)layer.src_rows &&
                                (unsigned int)column < (unsigned int)layer.src_columns;
            store_shared(cells + i * 8,
                         exists ? image * layer.src_strides.n + row * layer.src_strides.h + column * layer.src_strides.w
                                : OUTSIDE);
        }
    }

    /* This thread's vectors of a chunk, one after the other, and bytes from the start of a stage to each. */
    struct vector_walk {
        int cell, channel, left;
        uint32_t place;
    };

    __device__ __forceinline__ vector_walk first_vector() const
    {
        const int all = cell_count * channel_count, threads = (int)blockDim.x;
        return {first_cell, first_channel, (all - (int)threadIdx.x + threads - 1) / threads,
                (uint32_t)place_of(first_cell, first_channel) * (uint32_t)sizeof(Element)};
    }

    template <bool nhwc> __device__ __forceinline__ void next_vector(vector_walk &walk) const
    {
        walk.cell += cell_step;
        walk.channel += channel_step;
        walk.place += place_step;
        walk.left--;
        if (nhwc ? walk.channel >= channel_count : walk.cell >= cell_count) {
            walk.channel += nhwc ? -channel_count : 1;
            walk.cell += nhwc ? 1 : -cell_count;
            walk.place += place_carry;
        }
    }

    /* A chunk where vectors are aligned; known: its channels that exist. */
    template <bool nhwc> __device__ __forceinline__ void copy_vectors(uint32_t address, const Element *chunk, int known)
    {
        const int64_t distance = nhwc ? VECTOR : layer.src_strides.c;
        vector_walk walk = first_vector();
#pragma unroll 2
        while (walk.left > 0) {
            const int64_t at = load_shared(cells + (uint32_t)walk.cell * 8);
            const int valid = nhwc ? known - walk.channel * VECTOR : walk.channel < known ? VECTOR : 0;
            const int bytes = at != OUTSIDE ? min(max(valid, 0), VECTOR) * (int)sizeof(Element) : 0;
            copy_16_to(address + walk.place, bytes != 0 ? chunk + at + walk.channel * distance : src, bytes);
            next_vector<nhwc>(walk);
        }
    }

    /* VECTOR elements of which the first `valid` exist. */
    __device__ __forceinline__ void copy_elements(Element *to, const Element *from, int valid)
    {
        if (layer.src_vector >= 2 * PER_WORD) {
            for (int i = 0; i < VECTOR; i += 2 * PER_WORD)
                copy_8(to + i, valid > i ? from + i : src, min(max(valid - i, 0), 2 * PER_WORD) * (int)sizeof(Element));
        } else if (layer.src_vector >= PER_WORD) {
            for (int i = 0; i < VECTOR; i += PER_WORD)
                copy_4(to + i, valid > i ? from + i : src, min(max(valid - i, 0), PER_WORD) * (int)sizeof(Element));
        } else {
            for (int i = 0; i < VECTOR; i++)
                to[i] = valid > i ? from[i] : from_compute<Element>(0);
        }
    }

    /* The same where they are not; a vector may cross the end of its row (NCHW). */
    template <bool nhwc> __device__ __forceinline__ void copy_unaligned(Element *to, const Element *chunk, int known)
    {
        const int64_t distance = nhwc ? VECTOR : layer.src_strides.c;
        const int per_row = layer.patch_columns / VECTOR;
        const int columns = layer.src_columns - (ahead.tile.column + layer.min_column_shift - ahead.tile.skew);
        vector_walk walk = first_vector();
#pragma unroll 1
        while (walk.left > 0) {
            const int64_t at = load_shared(cells + (uint32_t)walk.cell * 8);
            int valid = nhwc                   ? known - walk.channel * VECTOR
                        : walk.channel < known ? columns - walk.cell % per_row * VECTOR
                                               : 0;
            valid = at != OUTSIDE ? valid : 0;
            copy_elements(to + walk.place / sizeof(Element), valid > 0 ? chunk + at + walk.channel * distance : src,
                          valid);
            next_vector<nhwc>(walk);
        }
    }

    __device__ __forceinline__ void copy_chunk(Element *to)
    {
        const int first = ahead.chunk * layer.chunk_words * PER_WORD, known = layer.group_in - first;
        const Element *chunk = src + first * layer.src_strides.c;
        if (layer.src_vector == VECTOR && is_nhwc<MODE>(layer))
            copy_vectors<true>(shared_address(to), chunk, known);
        else if (layer.src_vector == VECTOR)
            copy_vectors<false>(shared_address(to), chunk, known);
        else if (is_nhwc<MODE>(layer))
            copy_unaligned<true>(to, chunk, known);
        else
            copy_unaligned<false>(to, chunk, known);
    }

    /* Rounds to TF32 what this thread has copied to a stage. */
    template <bool nhwc> __device__ __forceinline__ void round_chunk(uint32_t *words)
    {
        vector_walk walk = first_vector();
#pragma unroll 2
        while (walk.left > 0) {
            uint4 *at = reinterpret_cast<uint4 *>(words + walk.place / 4);
            const uint4 word = *at;
            *at = {round_to_tf32(word.x), round_to_tf32(word.y), round_to_tf32(word.z), round_to_tf32(word.w)};
            next_vector<nhwc>(walk);
        }
    }

    /* The weights of the chunk. They complete on full where bulk copies are, else with the thread's other copies. */
    __device__ __forceinline__ void copy_weights(uint32_t *words, uint64_t *full)
    {
        const bool stay =
            layer.chunks == 1 && issued >= layer.stages; /* a single chunk's weights stay in their stage */
        const uint32_t *from = packed + (int64_t)ahead.chunk * layer.blob_words;
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x == 0 && stay)
            arrive(full);
        else if (threadIdx.x == 0)
            copy_bulk(words + layer.weights_at, from, (uint32_t)layer.blob_words * 4, full);
#else
        for (int i = (int)threadIdx.x * 4; i < layer.blob_words && !stay; i += (int)blockDim.x * 4)
            copy_16(words + layer.weights_at + i, from + i, 16);
        if (threadIdx.x == 0)
            arrive(full);
#endif
    }

    /* Starts the copies of the chunk ahead, if there is one, as a group. All threads; the stage is free. */
    __device__ __forceinline__ void issue(uint64_t *full)
    {
        if (ahead.exists()) {
            uint32_t *words = shared + stage * layer.stage_words;
            if (ahead.chunk == 0) {
                make_cells();
                __syncthreads();
            }
            copy_weights(words, full + stage);
            copy_chunk(reinterpret_cast<Element *>(words));
            stage = stage + 1 == layer.stages ? 0 : stage + 1;
            ahead.next_chunk();
        }
        issued++;
        commit_copies();
    }

    /* Until this thread's copies to the oldest stage have come; rounds them. */
    __device__ __forceinline__ void wait(uint32_t *words)
    {
        if (layer.stages == 2)
            wait_for_copies<0>();
        else if (layer.stages == 3)
            wait_for_copies<1>();
        else
            wait_for_copies<2>();
        if constexpr (ROUNDS) {
            if (is_nhwc<MODE>(layer))
                round_chunk<true>(words);
            else
                round_chunk<false>(words);
        }
    }
};

} // namespace tconv::mma

#endif
