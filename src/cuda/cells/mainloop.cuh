/* Products of the cells kernel: 64 positions in registers, read from planes, by a window of the weights. */
#ifndef TCONV_CUDA_CELLS_MAINLOOP_CUH
#define TCONV_CUDA_CELLS_MAINLOOP_CUH

#include "../numeric/tf32.cuh"
#include "../ptx/wgmma.cuh"
#include "parameters.h"

namespace tconv::cells
{

/* How the operands of an entry's products lie in shared memory. */
struct strides {
    uint32_t quad, pixels;   /* bytes: to the channel 4 on, to the next step's */
    uint32_t weights, small; /* of an operand's low word: to the next step's, in strict f32 to what rounding left */
};

/* The factors of all steps of an entry, of 64 positions, as the tensor cores take them: rounded or, in strict f32, split. */
template <bool STRICT, int STEPS> struct factors_of {
    uint32_t big[STEPS][4], small[STRICT ? STEPS : 1][4];
};

/* Where a thread's two positions are read: of channel lane % 4. */
struct pixel_pair {
    uint32_t of[2];
};

__device__ __forceinline__ uint32_t load_shared(uint32_t address)
{
    uint32_t bits;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(address));
    return bits;
}

/* The factors of all steps of a chunk, of 64 positions. */
template <int STEPS> __device__ __forceinline__ void load(pixel_pair at, const strides &by, uint32_t (&to)[STEPS][4])
{
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            to[i][j] = load_shared(at.of[j % 2] + j / 2 * by.quad);
        at.of[0] += by.pixels;
        at.of[1] += by.pixels;
    }
}

/* Rounds to the bits of TF32, of which the tensor cores take no others, as round_to_tf32 does; one is 1, unknown to the
 * compiler: a product with it makes every NaN the one that stays NaN. */
__device__ __forceinline__ uint32_t round_for_product(uint32_t bits, float one)
{
    constexpr uint32_t HALF = 0x1000u;
    constexpr float TO_INFINITY = 0x1.ffep127f; /* the least that would round up to infinity */
    const float value = __fmul_rn(__uint_as_float(bits), one);
    return fabsf(value) < TO_INFINITY ? __float_as_uint(value) + HALF : __float_as_uint(value);
}

template <int STEPS> __device__ __forceinline__ void round_factors(uint32_t (&factors)[STEPS][4], float one)
{
#pragma unroll
    for (int i = 0; i < STEPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            factors[i][j] = round_for_product(factors[i][j], one);
}

/* Takes what was loaded for the next entry: what is rounded already or, in strict f32, what is to be split. */
template <bool STRICT, int STEPS>
__device__ __forceinline__ void take_factors(const uint32_t (&next)[STEPS][4], factors_of<STRICT, STEPS> &factors)
{
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if constexpr (STRICT) {
            round_or_split<true>(next[i], factors.big[i], factors.small[i]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                factors.big[i][j] = next[i][j];
        }
    }
}

/* The tensor cores read factors from registers while they multiply. That these are not reused before then, the compiler must
 * be made to believe: by stores that never happen. */
template <bool STRICT, int STEPS>
__device__ __forceinline__ void keep_until_here(const factors_of<STRICT, STEPS> &factors, bool never)
{
    if (!never)
        return;
#pragma unroll
    for (int i = 0; i < (STRICT ? 2 : 1) * STEPS; i++) {
        const uint32_t(&words)[4] = i < STEPS ? factors.big[i % STEPS] : factors.small[i % (STRICT ? STEPS : 1)];
        asm volatile("st.shared.v4.b32 [%0], {%0, %1, %2, %3};" ::"r"(words[0]), "r"(words[1]), "r"(words[2]),
                     "r"(words[3]));
    }
}

/* One step: the positions' factors by each of `count` blocks of weights. */
template <int BLOCK, int first, int count, bool accumulate, int all>
__device__ __forceinline__ void multiply_blocks(float (&sums)[all], const uint32_t (&pixels)[4], uint32_t weights)
{
    wgmma_window<BLOCK>::template add<first * BLOCK / 2, accumulate>(sums, pixels, descriptor(weights));
    if constexpr (count > 1)
        multiply_blocks<BLOCK, first + 1, count - 1, accumulate>(sums, pixels, weights + BLOCK);
}

/*
 * Begins all products of an entry with `count` blocks of sums from `first` on: in strict f32 from zero, and small ones first.
 * Every product is of one block: with products of different width on the same sums, ptxas has each wait for the one before it.
 */
template <bool STRICT, int BLOCK, int first, int count, int STEPS, int all>
__device__ __forceinline__ void multiply_window(float (&sums)[all], const factors_of<STRICT, STEPS> &factors,
                                                uint32_t weights, const strides &by)
{
    wgmma_fence();
    if constexpr (STRICT) {
        multiply_blocks<BLOCK, first, count, false>(sums, factors.small[0], weights);
        multiply_blocks<BLOCK, first, count, true>(sums, factors.big[0], weights + by.small);
#pragma unroll
        for (int i = 1; i < STEPS; i++) {
            multiply_blocks<BLOCK, first, count, true>(sums, factors.small[i], weights + i * by.weights);
            multiply_blocks<BLOCK, first, count, true>(sums, factors.big[i], weights + i * by.weights + by.small);
        }
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        multiply_blocks<BLOCK, first, count, true>(sums, factors.big[i], weights + i * by.weights);
    wgmma_commit();
}

/* The blocks of a window of sums, by constants. */
template <int first_block, int blocks> struct window_of {
    static constexpr int first = first_block, count = blocks;
};

/* Does what is to be done with a window (as in tconv_cells_entry). */
template <int BLOCK, int SUMS, class Do> __device__ __forceinline__ void with_window(int window, Do what)
{
#define TCONV_CASE(first, count)                                                                                       \
    case first * 16 + count:                                                                                           \
        if constexpr ((first + count) * BLOCK <= SUMS)                                                                 \
            what(window_of<first, count>());                                                                           \
        break;
    if constexpr (BLOCK == SUMS) {
        what(window_of<0, 1>());
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

} // namespace tconv::cells

#endif
