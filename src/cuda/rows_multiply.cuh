/* The kinds of arithmetic of the rows algorithm: how a lane takes its piece of 8 positions by a step's channels from
 * shared memory, [channel][column], and multiplies it with 16 output channels. */
#ifndef TCONV_CUDA_ROWS_MULTIPLY_CUH
#define TCONV_CUDA_ROWS_MULTIPLY_CUH

#include "products_multiply.cuh"
#include "rows_kernels.h"
#include "tf32_device.cuh"

namespace tconv_rows
{

using tconv_products::fragment_a;
using tconv_products::fragment_b;

/* A step's operands of one tile of positions; small is what 3xTF32 adds. */
struct operand {
    fragment_b big, small;
};

__device__ __forceinline__ fragment_a load_weights(const uint4 *weights)
{
    const uint4 quad = *weights;
    return {{quad.x, quad.y, quad.z, quad.w}};
}

/* Splits f32 in two for 3xTF32. What is not finite stays so in the small part, of which the tensor cores ignore the low bits;
 * the big part is finite, also of what would round up to Inf. */
__device__ __forceinline__ void split(float value, uint32_t *big, uint32_t *small)
{
    constexpr uint32_t SIGN = 0x80000000u, LARGEST = 0x7f7fefffu, HALF = 0x1000u, KEPT = 0xffffe000u;
    const uint32_t bits = __float_as_uint(value);
    *big = ((min(bits & ~SIGN, LARGEST) + HALF) & KEPT) | (bits & SIGN);
    *small = __float_as_uint(value - __uint_as_float(*big));
}

/* f32 by 3xTF32. A step's products are summed by themselves, the small ones first, where they lose nothing, and added in f32:
 * the tensor cores' own additions cut off bits of the whole sum. */
struct strict_mode {
    using Element = float;
    static constexpr int PLANES = 2;
    static constexpr bool ROUNDS = false;

    static __device__ __forceinline__ operand load(const float *from, int pitch)
    {
        operand made;
        split(from[0], &made.big.at[0], &made.small.at[0]);
        split(from[4 * pitch], &made.big.at[1], &made.small.at[1]);
        return made;
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const uint4 *weights,
                                                    const operand (&src)[TILES])
    {
        const fragment_a big = load_weights(weights), small = load_weights(weights + 32);
        float parts[TILES][4] = {};
#pragma unroll
        for (int t = 0; t < TILES; t++)
            tconv_products::multiply_tf32(parts[t], small, src[t].big);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            tconv_products::multiply_tf32(parts[t], big, src[t].small);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            tconv_products::multiply_tf32(parts[t], big, src[t].big);
#pragma unroll
        for (int i = 0; i < TILES * 4; i++)
            sums[i / 4][i % 4] += parts[i / 4][i % 4];
    }
};

/* f32 as TF32, of which weights are rounded when they are packed, and src when it has come. */
struct tf32_mode {
    using Element = float;
    static constexpr int PLANES = 1;
    static constexpr bool ROUNDS = true;

    static __device__ __forceinline__ operand load(const float *from, int pitch)
    {
        return {{{__float_as_uint(from[0]), __float_as_uint(from[4 * pitch])}}, {}};
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const uint4 *weights,
                                                    const operand (&src)[TILES])
    {
        const fragment_a big = load_weights(weights);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            tconv_products::multiply_tf32(sums[t], big, src[t].big);
    }
};

/* f16 and bf16, steps added in f32 as above. */
template <class Element_> struct half_mode {
    using Element = Element_;
    static constexpr int PLANES = 1;
    static constexpr bool ROUNDS = false;

    /* Two channels of one column: the words of the operand. */
    static __device__ __forceinline__ uint32_t load_pair(const Element *from, int pitch)
    {
        const unsigned short *bits = reinterpret_cast<const unsigned short *>(from);
        return (uint32_t)bits[0] | (uint32_t)bits[pitch] << 16;
    }

    static __device__ __forceinline__ operand load(const Element *from, int pitch)
    {
        return {{{load_pair(from, pitch), load_pair(from + 8 * pitch, pitch)}}, {}};
    }

    template <int TILES>
    static __device__ __forceinline__ void multiply(float (&sums)[TILES][4], const uint4 *weights,
                                                    const operand (&src)[TILES])
    {
        const fragment_a a = load_weights(weights);
        float parts[TILES][4] = {};
#pragma unroll
        for (int t = 0; t < TILES; t++)
            tconv_products::multiply_half(parts[t], a, src[t].big, Element());
#pragma unroll
        for (int i = 0; i < TILES * 4; i++)
            sums[i / 4][i % 4] += parts[i / 4][i % 4];
    }
};

} // namespace tconv_rows

#endif
