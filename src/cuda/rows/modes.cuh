/*
 * The kinds of arithmetic, each a mode: what is done to 16 bytes of each of COPY_CHANNELS channels when they have come;
 * where a column then lies, of the step's word `word`; how a lane loads its B fragments of 8 positions by a step's
 * channels, and multiplies them with 16 output channels. Shared memory is [channel][column]. STEPS: how many there are,
 * or 0 for any number.
 */
#ifndef TCONV_CUDA_ROWS_MAINLOOP_CUH
#define TCONV_CUDA_ROWS_MAINLOOP_CUH

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/mma.cuh"
#include "parameters.h"

namespace tconv::rows
{

/* The B operand of an MMA; small is what 3xTF32 adds. */
struct operand_b {
    fragment_b big, small;
};

/* The A operand of an MMA; small is what 3xTF32 adds. */
struct operand_a {
    fragment_a big, small;
};

/* Splits f32 in two for 3xTF32: as split_to_tf32 (numeric/tf32.cuh), in fewer instructions. The tensor cores ignore the
 * low bits of the small part, so that it need not be rounded; the big part is never rounded up to Inf. */
__device__ __forceinline__ void split(float value, uint32_t *big, uint32_t *small)
{
    constexpr uint32_t SIGN = 0x80000000u, INFINITE = 0x7f800000u, HALF = 0x1000u, KEPT = 0xffffe000u;
    const uint32_t bits = __float_as_uint(value), magnitude = bits & ~SIGN;
    const uint32_t rounded = ((min(magnitude, INFINITE - HALF - 1) + HALF) & KEPT) | (bits & SIGN);
    *big = magnitude < INFINITE ? rounded : 0;
    *small = __float_as_uint(value - __uint_as_float(*big));
}

/* f32 by 3xTF32. A step's products are summed by themselves, the small ones first, where they lose nothing, and added
 * in f32: the tensor cores' own additions cut off bits of the whole sum. */
struct strict_mode {
    using Element = float;
    static constexpr int A_FRAGMENTS = 2, COPY_CHANNELS = 1, STEPS = 0;
    static constexpr bool PREPARES = false, DIRECT = false;

    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return word * pitch + column;
    }

    static __device__ __forceinline__ operand_a load_weights(const uint4 *weights)
    {
        return {load_fragment_a(weights), load_fragment_a(weights + 32)};
    }

    static __device__ __forceinline__ operand_b load(const float *from, int pitch)
    {
        operand_b made;
        split(from[0], &made.big.at[0], &made.small.at[0]);
        split(from[4 * pitch], &made.big.at[1], &made.small.at[1]);
        return made;
    }

    template <int MMAS_N>
    static __device__ __forceinline__ void multiply(float (&accumulators)[MMAS_N][4], const operand_a &a,
                                                    const operand_b (&b)[MMAS_N])
    {
        float parts[MMAS_N][4] = {};
#pragma unroll
        for (int t = 0; t < MMAS_N; t++)
            mma_tf32(parts[t], a.small, b[t].big);
#pragma unroll
        for (int t = 0; t < MMAS_N; t++)
            mma_tf32(parts[t], a.big, b[t].small);
#pragma unroll
        for (int t = 0; t < MMAS_N; t++)
            mma_tf32(parts[t], a.big, b[t].big);
#pragma unroll
        for (int i = 0; i < MMAS_N * 4; i++)
            accumulators[i / 4][i % 4] += parts[i / 4][i % 4];
    }
};

/* f32 as TF32: weights are rounded when they are packed, src when it has come. */
struct tf32_mode {
    using Element = float;
    static constexpr int A_FRAGMENTS = 1, COPY_CHANNELS = 1, STEPS = 0;
    static constexpr bool PREPARES = true, DIRECT = false;

    static __device__ __forceinline__ void prepare(float *columns, int)
    {
        uint4 *vector = reinterpret_cast<uint4 *>(columns);
        const uint4 bits = *vector;
        *vector = {round_to_tf32(bits.x), round_to_tf32(bits.y), round_to_tf32(bits.z), round_to_tf32(bits.w)};
    }

    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return word * pitch + column;
    }

    static __device__ __forceinline__ operand_a load_weights(const uint4 *weights)
    {
        return {load_fragment_a(weights), {}};
    }

    static __device__ __forceinline__ operand_b load(const float *from, int pitch)
    {
        return {{{__float_as_uint(from[0]), __float_as_uint(from[4 * pitch])}}, {}};
    }

    template <int MMAS_N>
    static __device__ __forceinline__ void multiply(float (&accumulators)[MMAS_N][4], const operand_a &a,
                                                    const operand_b (&b)[MMAS_N])
    {
#pragma unroll
        for (int t = 0; t < MMAS_N; t++)
            mma_tf32(accumulators[t], a.big, b[t].big);
    }
};

/* f16 and bf16; steps are added in f32 as above, unless they are so few that the accumulators can be left to the tensor
 * cores (direct). narrow: of one step, whose second half has no channels. */
template <class Element_, bool direct, bool narrow> struct half_mode {
    using Element = Element_;
    static constexpr int A_FRAGMENTS = 1, COPY_CHANNELS = 2, STEPS = narrow ? 1 : 0;
    static constexpr bool PREPARES = true, DIRECT = direct;

    /* Two channels become words of both: of 8 columns, the first 4 take the place of the first channel's. */
    static __device__ __forceinline__ void prepare(Element *columns, int pitch)
    {
        uint4 *first = reinterpret_cast<uint4 *>(columns), *second = reinterpret_cast<uint4 *>(columns + pitch);
        const uint4 a = *first, b = *second;
        *first = {__byte_perm(a.x, b.x, LOW), __byte_perm(a.x, b.x, HIGH), __byte_perm(a.y, b.y, LOW),
                  __byte_perm(a.y, b.y, HIGH)};
        *second = {__byte_perm(a.z, b.z, LOW), __byte_perm(a.z, b.z, HIGH), __byte_perm(a.w, b.w, LOW),
                   __byte_perm(a.w, b.w, HIGH)};
    }
    static constexpr unsigned int LOW = 0x5410, HIGH = 0x7632; /* halves of two words side by side */

    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return (2 * word + (column >> 2 & 1)) * pitch + (column & ~7) + 2 * (column & 3);
    }

    static __device__ __forceinline__ operand_a load_weights(const uint4 *weights)
    {
        return {load_fragment_a(weights), {}};
    }

    static __device__ __forceinline__ operand_b load(const Element *from, int pitch)
    {
        return {{{*reinterpret_cast<const uint32_t *>(from),
                  narrow ? 0 : *reinterpret_cast<const uint32_t *>(from + 8 * pitch)}},
                {}};
    }

    static __device__ __forceinline__ void add_products(float (&accumulators)[4], const fragment_a &a,
                                                        const fragment_b &b)
    {
        if constexpr (narrow)
            mma_half_k8(accumulators, a, b, Element());
        else
            mma_half(accumulators, a, b, Element());
    }

    template <int MMAS_N>
    static __device__ __forceinline__ void multiply(float (&accumulators)[MMAS_N][4], const operand_a &a,
                                                    const operand_b (&b)[MMAS_N])
    {
        if constexpr (direct) {
#pragma unroll
            for (int t = 0; t < MMAS_N; t++)
                add_products(accumulators[t], a.big, b[t].big);
        } else {
            float parts[MMAS_N][4] = {};
#pragma unroll
            for (int t = 0; t < MMAS_N; t++)
                add_products(parts[t], a.big, b[t].big);
#pragma unroll
            for (int i = 0; i < MMAS_N * 4; i++)
                accumulators[i / 4][i % 4] += parts[i / 4][i % 4];
        }
    }
};

} // namespace tconv::rows

#endif
