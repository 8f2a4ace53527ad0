/* The producer side of the pipeline: the copies that fill the stages ahead of the main loop. All threads of the block
 * issue them, and with TF32 each rounds what it has copied. */
#ifndef TCONV_CUDA_MMA_LOAD_CUH
#define TCONV_CUDA_MMA_LOAD_CUH

#include "../ptx/memory.cuh"
#include "../ptx/tma.cuh"
#include "mode.cuh"
#include "packed.cuh"
#include "schedule.cuh"

namespace tconv::mma
{

/* Arrives as mbarrier_arrive and mbarrier_arrive_expect_tx do. There the state that an arrival returns is dropped; with
 * a register for it ptxas allocates the others in four kernels as when they were measured. */
__device__ __forceinline__ void arrive(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
                 : "memory");
}

#if __CUDA_ARCH__ >= 900
/* Copies bytes (a multiple of 16) that complete on the barrier, and arrives there. By one thread. */
__device__ __forceinline__ void load_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    bulk_load(shared_address(to), from, bytes, shared_address(barrier));
}
#endif

constexpr int64_t OUTSIDE = -1; /* the offset of a pixel that src does not have */

template <mode MODE> struct loader {
    using Element = element_of<MODE>;
    static constexpr bool ROUNDS = MODE == TF32;
    static constexpr int VECTOR = 16 / (int)sizeof(Element);
    static constexpr int PER_WORD = 4 / (int)sizeof(Element);

    const parameters &params;
    uint32_t *const shared;
    /* Shared address of the table of src offsets: of each vector of a channel's patch (NCHW) or each pixel (NHWC) in
     * channel 0. */
    const uint32_t offsets;
    tile_scheduler ahead;
    const Element *src; /* channel 0 of the group */
    const uint32_t *packed;
    int stage, issued;                  /* issued: commit groups, empty ones too */
    int pixel_vectors, channel_vectors; /* a K-block of src has pixel_vectors x channel_vectors vectors */
    int first_pixel, first_channel;     /* this thread's first vector, */
    uint32_t offset_step, offset_carry;
    int pixel_step,
        channel_step; /* and from one to the next, with a carry from pixels to channels (NHWC: the reverse) */

    __device__ __forceinline__ loader(const parameters &params, uint32_t *shared, const block_origin &block)
        : params(params), shared(shared), offsets(shared_address(shared + params.offsets_at)), ahead(params), stage(0),
          issued(0)
    {
        const int64_t block_tile =
            ((int64_t)block.group * params.m_tiles + block.m_tile) * params.phase_sets + block.phase_set;
        src = static_cast<const Element *>(params.src) + (int64_t)block.group * params.group_in * params.src_strides.c;
        packed = static_cast<const uint32_t *>(params.packed) + block_tile * params.k_blocks * params.a_tile_words;
        pixel_vectors =
            params.tile_images * params.patch_rows * params.patch_columns / (is_nhwc<MODE>(params) ? 1 : VECTOR);
        channel_vectors = is_nhwc<MODE>(params) ? params.block_k_words / 4 : params.block_k_words * PER_WORD;
        const int fast =
            is_nhwc<MODE>(params) ? channel_vectors : pixel_vectors; /* the axis that threads are neighbours on */
        const int start = (int)threadIdx.x, threads = (int)blockDim.x;
        first_pixel = is_nhwc<MODE>(params) ? start / fast : start % fast;
        first_channel = is_nhwc<MODE>(params) ? start % fast : start / fast;
        pixel_step = is_nhwc<MODE>(params) ? threads / fast : threads % fast;
        channel_step = is_nhwc<MODE>(params) ? threads % fast : threads / fast;
        offset_step = offset_in_stage(pixel_step, channel_step);
        offset_carry =
            is_nhwc<MODE>(params) ? offset_in_stage(1, -channel_vectors) : offset_in_stage(-pixel_vectors, 1);
    }

    /* Bytes from the start of a stage to a vector. */
    __device__ __forceinline__ uint32_t offset_in_stage(int pixel, int channel) const
    {
        const int elements = is_nhwc<MODE>(params) ? pixel * params.pixel_pitch * PER_WORD + channel * VECTOR
                                                   : channel * (params.word_pitch / PER_WORD) + pixel * VECTOR;
        return (uint32_t)elements * (uint32_t)sizeof(Element);
    }

    /* Writes the table of src offsets for the tile ahead, by all threads, with a __syncthreads before and after.
     * Patches begin at a column that is a multiple of VECTOR (NCHW), so that no vector lies across column 0. */
    __device__ __forceinline__ void make_offsets()
    {
        const int width = is_nhwc<MODE>(params) ? 1 : VECTOR;
        const unsigned int per_row = (unsigned int)(params.patch_columns / width);
        for (unsigned int i = threadIdx.x; i < (unsigned int)pixel_vectors; i += blockDim.x) {
            const unsigned int rows = i / per_row, images = rows / (unsigned int)params.patch_rows;
            const int image = ahead.tile.image + (int)images;
            const int row =
                ahead.tile.row + params.min_row_shift + (int)(rows - images * (unsigned int)params.patch_rows);
            const int column =
                ahead.tile.column + params.min_column_shift - ahead.tile.skew + (int)(i - rows * per_row) * width;
            const bool exists = image < params.batch && (unsigned int)row < (unsigned int)params.src_rows &&
                                (unsigned int)column < (unsigned int)params.src_columns;
            store_shared_8(offsets + i * 8, exists ? image * params.src_strides.n + row * params.src_strides.h +
                                                         column * params.src_strides.w
                                                   : OUTSIDE);
        }
    }

    /* One of this thread's vectors of a K-block; offset: bytes from the start of a stage. */
    struct vector_iterator {
        int pixel, channel, left;
        uint32_t offset;
    };

    __device__ __forceinline__ vector_iterator first_vector() const
    {
        const int all = pixel_vectors * channel_vectors, threads = (int)blockDim.x;
        return {first_pixel, first_channel, (all - (int)threadIdx.x + threads - 1) / threads,
                offset_in_stage(first_pixel, first_channel)};
    }

    template <bool nhwc> __device__ __forceinline__ void next_vector(vector_iterator &vector) const
    {
        vector.pixel += pixel_step;
        vector.channel += channel_step;
        vector.offset += offset_step;
        vector.left--;
        if (nhwc ? vector.channel >= channel_vectors : vector.pixel >= pixel_vectors) {
            vector.channel += nhwc ? -channel_vectors : 1;
            vector.pixel += nhwc ? 1 : -pixel_vectors;
            vector.offset += offset_carry;
        }
    }

    /* Copies a K-block of src whose vectors are aligned; channels: those that exist. */
    template <bool nhwc>
    __device__ __forceinline__ void load_vectors(uint32_t address, const Element *k_block, int channels)
    {
        const int64_t distance = nhwc ? VECTOR : params.src_strides.c;
        vector_iterator vector = first_vector();
#pragma unroll 2
        while (vector.left > 0) {
            const int64_t at = load_shared_8(offsets + (uint32_t)vector.pixel * 8);
            const int valid = nhwc ? channels - vector.channel * VECTOR : vector.channel < channels ? VECTOR : 0;
            const int bytes = at != OUTSIDE ? min(max(valid, 0), VECTOR) * (int)sizeof(Element) : 0;
            cp_async_padded<16>(address + vector.offset, bytes != 0 ? k_block + at + vector.channel * distance : src,
                                bytes);
            next_vector<nhwc>(vector);
        }
    }

    /* Copies VECTOR elements, so many bytes at once, of which the first `valid` exist. */
    template <int size> __device__ __forceinline__ void load_parts(Element *to, const Element *from, int valid)
    {
        constexpr int LENGTH = size / (int)sizeof(Element);
        for (int i = 0; i < VECTOR; i += LENGTH) {
            const Element *const at = valid > i ? from + i : src;
            const int bytes = min(max(valid - i, 0), LENGTH) * (int)sizeof(Element);
            cp_async_padded<size>(shared_address(to + i), at, bytes);
        }
    }

    __device__ __forceinline__ void load_elements(Element *to, const Element *from, int valid)
    {
        if (params.src_vector >= 2 * PER_WORD)
            load_parts<8>(to, from, valid);
        else if (params.src_vector >= PER_WORD)
            load_parts<4>(to, from, valid);
        else
            for (int i = 0; i < VECTOR; i++)
                to[i] = valid > i ? from[i] : from_compute<Element>(0);
    }

    /* Copies a K-block of src whose vectors are not aligned; one may cross the end of its row (NCHW). */
    template <bool nhwc>
    __device__ __forceinline__ void load_unaligned(Element *to, const Element *k_block, int channels)
    {
        const int64_t distance = nhwc ? VECTOR : params.src_strides.c;
        const int per_row = params.patch_columns / VECTOR;
        const int columns = params.src_columns - (ahead.tile.column + params.min_column_shift - ahead.tile.skew);
        vector_iterator vector = first_vector();
#pragma unroll 1
        while (vector.left > 0) {
            const int64_t at = load_shared_8(offsets + (uint32_t)vector.pixel * 8);
            int valid = nhwc                        ? channels - vector.channel * VECTOR
                        : vector.channel < channels ? columns - vector.pixel % per_row * VECTOR
                                                    : 0;
            valid = at != OUTSIDE ? valid : 0;
            load_elements(to + vector.offset / sizeof(Element),
                          valid > 0 ? k_block + at + vector.channel * distance : src, valid);
            next_vector<nhwc>(vector);
        }
    }

    __device__ __forceinline__ void load_src(Element *to)
    {
        const int first = ahead.k_block * params.block_k_words * PER_WORD, channels = params.group_in - first;
        const Element *k_block = src + first * params.src_strides.c;
        if (params.src_vector == VECTOR && is_nhwc<MODE>(params))
            load_vectors<true>(shared_address(to), k_block, channels);
        else if (params.src_vector == VECTOR)
            load_vectors<false>(shared_address(to), k_block, channels);
        else if (is_nhwc<MODE>(params))
            load_unaligned<true>(to, k_block, channels);
        else
            load_unaligned<false>(to, k_block, channels);
    }

    /* Rounds to TF32 what this thread has copied to a stage. */
    template <bool nhwc> __device__ __forceinline__ void round_k_block(uint32_t *words)
    {
        vector_iterator vector = first_vector();
#pragma unroll 2
        while (vector.left > 0) {
            uint4 *at = reinterpret_cast<uint4 *>(words + vector.offset / 4);
            const uint4 word = *at;
            *at = {round_for_mma(word.x), round_for_mma(word.y), round_for_mma(word.z), round_for_mma(word.w)};
            next_vector<nhwc>(vector);
        }
    }

    /* Copies the A tile of the K-block ahead. Bulk copies complete on the full barrier, those before compute capability
     * 9.0 with the thread's other copies. */
    __device__ __forceinline__ void load_weights(uint32_t *words, uint64_t *full)
    {
        const bool stay =
            params.k_blocks == 1 && issued >= params.stages; /* a single K-block's weights stay in their stage */
        const uint32_t *from = packed + (int64_t)ahead.k_block * params.a_tile_words;
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x == 0 && stay)
            arrive(full);
        else if (threadIdx.x == 0)
            load_bulk(words + params.weights_at, from, (uint32_t)params.a_tile_words * 4, full);
#else
        for (int i = (int)threadIdx.x * 4; i < params.a_tile_words && !stay; i += (int)blockDim.x * 4)
            cp_async_padded<16>(shared_address(words + params.weights_at + i), from + i, 16);
        if (threadIdx.x == 0)
            arrive(full);
#endif
    }

    /* Issues the copies of the K-block ahead, if there is one, as a commit group. By all threads; the stage is free. */
    __device__ __forceinline__ void issue(uint64_t *full)
    {
        if (ahead.exists()) {
            uint32_t *words = shared + stage * params.stage_words;
            if (ahead.k_block == 0) {
                make_offsets();
                __syncthreads();
            }
            load_weights(words, full + stage);
            load_src(reinterpret_cast<Element *>(words));
            stage = stage + 1 == params.stages ? 0 : stage + 1;
            ahead.next_k_block();
        }
        issued++;
        cp_async_commit();
    }

    /* Waits until this thread's copies to the oldest stage are complete, and rounds them. */
    __device__ __forceinline__ void wait(uint32_t *words)
    {
        if (params.stages == 2)
            cp_async_wait_all();
        else if (params.stages == 3)
            cp_async_wait<1>();
        else
            cp_async_wait<2>();
        if constexpr (ROUNDS) {
            if (is_nhwc<MODE>(params))
                round_k_block<true>(words);
            else
                round_k_block<false>(words);
        }
    }
};

} // namespace tconv::mma

#endif
