/*
 * The kinds of arithmetic of the rows algorithm: what is done to 16 bytes of each of UNIT channels when they have come; where
 * a column lies then, of the step's word `word`; how a lane takes its piece of 8 positions by a step's channels, and
 * multiplies it with 16 output channels. Shared memory is [channel][column]. STEPS: how many there are, or 0 for any number.
 */
#ifndef TCONV_CUDA_ROWS_MAINLOOP_CUH
#define TCONV_CUDA_ROWS_MAINLOOP_CUH

#include "../col2im/mainloop.cuh"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/mma.cuh"
#include "parameters.h"

namespace tconv::rows
{

/* A step's operands of one tile of positions; small is what 3xTF32 adds. */
struct operand {
    fragment_b big, small;
};

/* A step's weights; small is what 3xTF32 adds. */
struct step_weights {
    fragment_a big, small;
};

__device__ __forceinline__ fragment_a load_fragment(const uint4 *weights)
{
    const uint4 quad = *weights;
    return {{quad.x, quad.y, quad.z, quad.w}};
}

/* Splits f32 in two for 3xTF32: as split_to_tf32 (tf32_device.cuh), in fewer instructions. Of the small part the tensor cores
 * ignore the low bits, so that it need not be rounded; the big part is never rounded up to Inf. */
__device__ __forceinline__ void split(float value, uint32_t *big, uint32_t *small)
{
    constexpr uint32_t SIGN = 0x80000000u, INFINITE = 0x7f800000u, HALF = 0x1000u, KEPT = 0xffffe000u;
    const uint32_t bits = __float_as_uint(value), magnitude = bits & ~SIGN;
    const uint32_t rounded = ((min(magnitude, INFINITE - HALF - 1) + HALF) & KEPT) | (bits & SIGN);
    *big = magnitude < INFINITE ? rounded : 0;
    *small = __float_as_uint(value - __uint_as_float(*big));
}

/* f32 by 3xTF32. A step's products are summed by themselves, the small ones first, where they lose nothing, and added in f32:
 * the tensor cores' own additions cut off bits of the whole sum. */
struct strict_mode {
    using Element = float;
    static constexpr int PLANES = 2, UNIT = 1, STEPS = 0;
    static constexpr bool PREPARES = false, DIRECT = false;

    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return word * pitch + column;
    }

    static __device__ __forceinline__ step_weights load_weights(const uint4 *weights)
    {
        return {load_fragment(weights), load_fragment(weights + 32)};
    }

    static __device__ __forceinline__ operand load(const float *from, int pitch)
    {
        operand made;
        split(from[0], &made.big.at[0], &made.small.at[0]);
        split(from[4 * pitch], &made.big.at[1], &made.small.at[1]);
        return made;
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const step_weights &weights,
                                                    const operand (&src)[TILES])
    {
        float parts[TILES][4] = {};
#pragma unroll
        for (int t = 0; t < TILES; t++)
            mma_tf32(parts[t], weights.small, src[t].big);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            mma_tf32(parts[t], weights.big, src[t].small);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            mma_tf32(parts[t], weights.big, src[t].big);
#pragma unroll
        for (int i = 0; i < TILES * 4; i++)
            sums[i / 4][i % 4] += parts[i / 4][i % 4];
    }
};

/* f32 as TF32, of which weights are rounded when they are packed, and src when it has come. */
struct tf32_mode {
    using Element = float;
    static constexpr int PLANES = 1, UNIT = 1, STEPS = 0;
    static constexpr bool PREPARES = true, DIRECT = false;

    static __device__ __forceinline__ void prepare(float *piece, int)
    {
        uint4 *quad = reinterpret_cast<uint4 *>(piece);
        const uint4 bits = *quad;
        *quad = {round_to_tf32(bits.x), round_to_tf32(bits.y), round_to_tf32(bits.z), round_to_tf32(bits.w)};
    }

    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return word * pitch + column;
    }

    static __device__ __forceinline__ step_weights load_weights(const uint4 *weights)
    {
        return {load_fragment(weights), {}};
    }

    static __device__ __forceinline__ operand load(const float *from, int pitch)
    {
        return {{{__float_as_uint(from[0]), __float_as_uint(from[4 * pitch])}}, {}};
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const step_weights &weights,
                                                    const operand (&src)[TILES])
    {
#pragma unroll
        for (int t = 0; t < TILES; t++)
            mma_tf32(sums[t], weights.big, src[t].big);
    }
};

/* Adds the products of the first 8 channels of a step. */
__device__ __forceinline__ void multiply_narrow(float (&sums)[4], const fragment_a &a, const fragment_b &b, __half)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(b.at[0]));
}

__device__ __forceinline__ void multiply_narrow(float (&sums)[4], const fragment_a &a, const fragment_b &b,
                                                __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(b.at[0]));
}

/* f16 and bf16; steps are added in f32 as above, unless they are so few that the sums can be left to the tensor cores
 * (direct). narrow: of one step, whose second half has no channels. */
template <class Element_, bool direct, bool narrow> struct half_mode {
    using Element = Element_;
    static constexpr int PLANES = 1, UNIT = 2, STEPS = narrow ? 1 : 0;
    static constexpr bool PREPARES = true, DIRECT = direct;

    /* Two channels become words of both: of 8 columns, the first 4 take the place of the first channel's. */
    static __device__ __forceinline__ void prepare(Element *piece, int pitch)
    {
        uint4 *first = reinterpret_cast<uint4 *>(piece), *second = reinterpret_cast<uint4 *>(piece + pitch);
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

    static __device__ __forceinline__ step_weights load_weights(const uint4 *weights)
    {
        return {load_fragment(weights), {}};
    }

    static __device__ __forceinline__ operand load(const Element *from, int pitch)
    {
        return {{{*reinterpret_cast<const uint32_t *>(from),
                  narrow ? 0 : *reinterpret_cast<const uint32_t *>(from + 8 * pitch)}},
                {}};
    }

    static __device__ __forceinline__ void add_products(float (&sums)[4], const fragment_a &weights,
                                                        const fragment_b &src)
    {
        if constexpr (narrow)
            multiply_narrow(sums, weights, src, Element());
        else
            mma_half(sums, weights, src, Element());
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const step_weights &weights,
                                                    const operand (&src)[TILES])
    {
        if constexpr (direct) {
#pragma unroll
            for (int t = 0; t < TILES; t++)
                add_products(sums[t], weights.big, src[t].big);
        } else {
            float parts[TILES][4] = {};
#pragma unroll
            for (int t = 0; t < TILES; t++)
                add_products(parts[t], weights.big, src[t].big);
#pragma unroll
            for (int i = 0; i < TILES * 4; i++)
                sums[i / 4][i % 4] += parts[i / 4][i % 4];
        }
    }
};

} // namespace tconv::rows

#endif
