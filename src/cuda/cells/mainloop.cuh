/* The steps of both main loops, which load A fragments of 64 positions from a stage's planes, round or split them, and
 * multiply them by a window of the weights; and the streaming kernel's walk over the entries of a tap schedule. */
#ifndef TCONV_CUDA_CELLS_MAINLOOP_CUH
#define TCONV_CUDA_CELLS_MAINLOOP_CUH

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "tile.cuh"

namespace tconv::cells
{

/* Strides of an entry's operands in shared memory. */
struct operand_strides {
    uint32_t half_k;     /* bytes of A from a channel to the one 4 on, the other half of MMA_K */
    uint32_t a_step;     /* bytes of A to the next wgmma step */
    uint32_t b_step;     /* of the descriptor's low word (16 bytes) to the next wgmma step */
    uint32_t small_part; /* of the descriptor's low word to the small parts, in strict f32 */
};

/* The A fragments of all wgmma steps of an entry, rounded or, in strict f32, split. */
template <bool STRICT, int MMA_STEPS> struct a_fragments {
    uint32_t big[MMA_STEPS][4], small[STRICT ? MMA_STEPS : 1][4];
};

/* Addresses of the pixels at a thread's two positions, in channel lane % 4. */
struct pixel_pair {
    uint32_t half[2];
};

/* straddle: a word has the second half of one in memory, and the first of the next. */
template <bool straddle, int MMA_STEPS>
__device__ __forceinline__ void load_fragments(pixel_pair from, const operand_strides &strides,
                                               uint32_t (&to)[MMA_STEPS][4])
{
#pragma unroll
    for (int i = 0; i < MMA_STEPS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t at = from.half[j % 2] + j / 2 * strides.half_k;
            to[i][j] = load_shared<uint32_t>(at);
            if (straddle)
                to[i][j] = __byte_perm(to[i][j], load_shared<uint32_t>(at + sizeof(uint32_t)), 0x5432);
        }
        from.half[0] += strides.a_step;
        from.half[1] += strides.a_step;
    }
}

/* Rounds as round_to_tf32 does to the bits of TF32, since wgmma ignores all others. `one` is 1, unknown to the
 * compiler: multiplication by it makes every NaN the one that stays NaN. */
__device__ __forceinline__ uint32_t round_for_mma(uint32_t bits, float one)
{
    constexpr uint32_t HALF = 0x1000u;
    constexpr float TO_INFINITY = 0x1.ffep127f; /* the least that would round up to infinity */
    const float value = __fmul_rn(__uint_as_float(bits), one);
    return fabsf(value) < TO_INFINITY ? __float_as_uint(value) + HALF : __float_as_uint(value);
}

template <int MMA_STEPS> __device__ __forceinline__ void round_fragments(uint32_t (&a)[MMA_STEPS][4], float one)
{
#pragma unroll
    for (int i = 0; i < MMA_STEPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[i][j] = round_for_mma(a[i][j], one);
}

/* Takes what was loaded for the next entry: it is rounded already or, in strict f32, is split here. */
template <bool STRICT, int MMA_STEPS>
__device__ __forceinline__ void take_fragments(const uint32_t (&next)[MMA_STEPS][4], a_fragments<STRICT, MMA_STEPS> &a)
{
#pragma unroll
    for (int i = 0; i < MMA_STEPS; i++) {
        if constexpr (STRICT) {
            round_or_split<true>(next[i], a.big[i], a.small[i]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                a.big[i][j] = next[i][j];
        }
    }
}

/* wgmma reads A from registers while it runs. Stores that never happen keep the compiler from reusing these registers
 * before this point. */
template <bool STRICT, int MMA_STEPS>
__device__ __forceinline__ void keep_until_here(const a_fragments<STRICT, MMA_STEPS> &a, bool never)
{
    if (!never)
        return;
#pragma unroll
    for (int i = 0; i < (STRICT ? 2 : 1) * MMA_STEPS; i++) {
        const uint32_t(&words)[4] = i < MMA_STEPS ? a.big[i % MMA_STEPS] : a.small[i % (STRICT ? MMA_STEPS : 1)];
        asm volatile("st.shared.v4.b32 [%0], {%0, %1, %2, %3};" ::"r"(words[0]), "r"(words[1]), "r"(words[2]),
                     "r"(words[3]));
    }
}

/* The type of factors for wgmma. */
template <class Element>
constexpr wgmma_type TYPE_OF = std::is_same<Element, float>::value    ? WGMMA_TF32
                               : std::is_same<Element, __half>::value ? WGMMA_F16
                                                                      : WGMMA_BF16;

/* Issues one wgmma step: an A fragment by each of `count` MMA tiles of N. */
template <wgmma_type type, int MMA_N, int first, int count, bool accumulate, int all>
__device__ __forceinline__ void multiply_step(float (&accumulators)[all], const uint32_t (&a)[4], uint32_t b)
{
    wgmma_rs<type, MMA_N>::template add<first * MMA_N / 2>(accumulators, a, descriptor(b), accumulate);
    if constexpr (count > 1)
        multiply_step<type, MMA_N, first + 1, count - 1, accumulate>(accumulators, a, b + MMA_N);
}

/*
 * Issues the wgmma group of an entry whose window has `count` MMA tiles from `first` on: in strict f32 from zero, and
 * small parts first. Every wgmma has the same N: where wgmmas of different N use the same accumulators, ptxas has each
 * wait for the one before it.
 */
template <bool STRICT, int MMA_N, int first, int count, wgmma_type type = WGMMA_TF32, int MMA_STEPS, int all>
__device__ __forceinline__ void multiply_window(float (&accumulators)[all], const a_fragments<STRICT, MMA_STEPS> &a,
                                                uint32_t b, const operand_strides &strides)
{
    wgmma_fence();
    if constexpr (STRICT) {
        multiply_step<type, MMA_N, first, count, false>(accumulators, a.small[0], b);
        multiply_step<type, MMA_N, first, count, true>(accumulators, a.big[0], b + strides.small_part);
#pragma unroll
        for (int i = 1; i < MMA_STEPS; i++) {
            multiply_step<type, MMA_N, first, count, true>(accumulators, a.small[i], b + i * strides.b_step);
            multiply_step<type, MMA_N, first, count, true>(accumulators, a.big[i],
                                                           b + i * strides.b_step + strides.small_part);
        }
    }
#pragma unroll
    for (int i = 0; i < MMA_STEPS; i++)
        multiply_step<type, MMA_N, first, count, true>(accumulators, a.big[i], b + i * strides.b_step);
    wgmma_commit();
}

/* The MMA tiles of a window, as constants. */
template <int first_mma_tile, int mma_tiles> struct constant_window {
    static constexpr int first = first_mma_tile, count = mma_tiles;
};

/* Calls `what` with the window (as in schedule_entry) as constants. */
template <int MMA_N, int N, class Do> __device__ __forceinline__ void with_window(int window, Do what)
{
#define TCONV_CASE(first, count)                                                                                       \
    case first * 16 + count:                                                                                           \
        if constexpr ((first + count) * MMA_N <= N)                                                                    \
            what(constant_window<first, count>());                                                                     \
        break;
    if constexpr (MMA_N == N) {
        what(constant_window<0, 1>());
        return;
    }
    switch (window) {
        // clang-format off
        TCONV_CASE(0, 1) TCONV_CASE(1, 1) TCONV_CASE(2, 1) TCONV_CASE(3, 1) TCONV_CASE(4, 1) TCONV_CASE(5, 1)
        TCONV_CASE(6, 1) TCONV_CASE(7, 1) TCONV_CASE(0, 2) TCONV_CASE(1, 2) TCONV_CASE(2, 2) TCONV_CASE(3, 2)
        TCONV_CASE(4, 2) TCONV_CASE(5, 2) TCONV_CASE(6, 2) TCONV_CASE(0, 3) TCONV_CASE(1, 3) TCONV_CASE(2, 3)
        TCONV_CASE(3, 3) TCONV_CASE(4, 3) TCONV_CASE(5, 3) TCONV_CASE(0, 4) TCONV_CASE(1, 4) TCONV_CASE(2, 4)
        TCONV_CASE(3, 4) TCONV_CASE(4, 4) TCONV_CASE(0, 5) TCONV_CASE(1, 5) TCONV_CASE(2, 5) TCONV_CASE(3, 5)
        TCONV_CASE(0, 6) TCONV_CASE(1, 6) TCONV_CASE(2, 6) TCONV_CASE(0, 7) TCONV_CASE(1, 7) TCONV_CASE(0, 8)
        // clang-format on
    }
#undef TCONV_CASE
}

/* Walks the entries of a block's tiles, one after another. whole: each schedule is one entry, whose window is all of
 * N. */
template <bool whole, bool segments, int N> struct schedule_walk {
    int tile, k_blocks_left, entry, first_entry;
    int segment_end; /* K-blocks that are left where the segment ends */
    uint32_t pixels; /* bytes from a stage to its tile's first column */
    pipeline_state pixel_stage, weight_stage;
    uint32_t pixel, window, flags, b_row, b_rows; /* of this entry */

    __device__ __forceinline__ schedule_walk(const parameters &layer)
        : tile(first_tile()), pixel_stage{0, 0}, weight_stage{0, 0}
    {
        begin_tile(layer);
        read_entry(layer);
    }
    __device__ __forceinline__ void begin_tile(const parameters &layer)
    {
        const tile_coord coord = find_tile(layer, tile);
        pixels = (uint32_t)(coord.column * layer.column_step + layer.first_column - stage_column(layer, coord)) *
                 sizeof(float);
        entry = first_entry = layer.schedules[coord.schedule].first_entry;
        k_blocks_left = layer.k_blocks;
        begin_segment(layer);
    }
    __device__ __forceinline__ void begin_segment(const parameters &layer)
    {
        segment_end = segments ? max(k_blocks_left - layer.segment_k_blocks, 0) : 0;
    }
    __device__ __forceinline__ void read_entry(const parameters &layer)
    {
        const uint2 words = whole ? make_uint2(0, 0) : *reinterpret_cast<const uint2 *>(&layer.entries[entry]);
        pixel = words.x & 0xffff;
        window = words.x >> 16 & 0xff;
        flags = whole ? WEIGHT_TILE_ENDS | K_BLOCK_ENDS | STAGE_ENDS : words.x >> 24;
        b_row = words.y & 0xffff;
        b_rows = whole ? N : words.y >> 16;
    }
    /* Returns true where a segment ends; `tile` has changed where its tile does as well. */
    __device__ __forceinline__ bool advance(const parameters &layer)
    {
        const bool k_block_ends = flags & K_BLOCK_ENDS;
        if (flags & WEIGHT_TILE_ENDS)
            weight_stage.next(layer.weight_stages);
        if (flags & STAGE_ENDS)
            pixel_stage.next(layer.pixel_stages);
        entry = k_block_ends ? first_entry : entry + 1;
        k_blocks_left -= k_block_ends;
        const bool segment_ends = k_blocks_left == segment_end;
        if (segment_ends && k_blocks_left > 0) {
            begin_segment(layer);
        } else if (segment_ends) {
            tile += tile_step();
            if (tile < layer.tiles)
                begin_tile(layer);
        }
        read_entry(layer);
        return segment_ends;
    }
};

/* Adds the partial sums of the tile's segments so far to a thread's accumulators, unless this is the first one, and
 * stores the result for the next, unless this is the last one. Each thread has its own: `partial_sums` is where its
 * first four are, side by side with those of all other threads. */
template <int count>
__device__ __forceinline__ void join_segments(float (&accumulators)[count], uint32_t partial_sums, bool first,
                                              bool last)
{
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        const uint32_t at = partial_sums + i * CONSUMER_WARPS * WARP * (uint32_t)sizeof(float);
        if (!first) {
            const float4 before = load_shared<float4>(at);
            accumulators[i] += before.x;
            accumulators[i + 1] += before.y;
            accumulators[i + 2] += before.z;
            accumulators[i + 3] += before.w;
        }
        if (!last)
            store_shared(at,
                         make_float4(accumulators[i], accumulators[i + 1], accumulators[i + 2], accumulators[i + 3]));
    }
}

} // namespace tconv::cells

#endif
