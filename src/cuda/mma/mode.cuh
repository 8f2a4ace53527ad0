/*
 * The kinds of arithmetic, for both kernels: a mode's element and layout, how f32 becomes factors of TF32, the A
 * operand and the MMA.
 *
 * Two kernels split f32 for 3xTF32 in two ways. That of cuda_mma may make a NaN of what is not finite, because the
 * epilogue sums such outputs again; that of cuda_rows must not.
 */
#ifndef TCONV_CUDA_MMA_MODE_CUH
#define TCONV_CUDA_MMA_MODE_CUH

#include <type_traits>

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/mma.cuh"
#include "parameters.h"

namespace tconv::mma
{

/* The arithmetic of a kernel, and for f16 and bf16 the layout of src and dst. In shared memory a word holds two
 * channels of a pixel in NHWC, two columns of a channel in NCHW. */
enum mode {
    TF32,        /* f32 rounded to TF32, both layouts */
    STRICT,      /* f32 as 3xTF32, both layouts */
    COMPENSATED, /* the same for sums of any length: it also keeps what additions lost */
    F16_NHWC,
    BF16_NHWC,
    F16_NCHW,
    BF16_NCHW
};

template <mode MODE> constexpr bool IS_STRICT = MODE == STRICT || MODE == COMPENSATED;
template <mode MODE> constexpr bool IS_F16 = MODE == F16_NHWC || MODE == F16_NCHW;
template <mode MODE> constexpr bool IS_BF16 = MODE == BF16_NHWC || MODE == BF16_NCHW;
template <mode MODE> constexpr bool IS_HALF = IS_F16<MODE> || IS_BF16<MODE>;

template <mode MODE>
using element_of = std::conditional_t<IS_F16<MODE>, __half, std::conditional_t<IS_BF16<MODE>, __nv_bfloat16, float>>;

/* Whether src and dst are NHWC. Kernels of 16-bit elements are made for one layout, so that they hold no code for the
 * other. */
template <mode MODE> __device__ __forceinline__ bool is_nhwc(const parameters &params)
{
    if constexpr (IS_HALF<MODE>)
        return MODE == F16_NHWC || MODE == BF16_NHWC;
    else
        return params.nhwc;
}

/* Splits as split_to_tf32 (numeric/tf32.cuh), in fewer instructions: MMAs ignore the low bits of the small part, so
 * that it need not be rounded; the big part is never rounded up to Inf. */
__device__ __forceinline__ void split_any(float value, uint32_t *big, uint32_t *small)
{
    constexpr uint32_t SIGN = 0x80000000u, INFINITE = 0x7f800000u, HALF = 0x1000u, KEPT = 0xffffe000u;
    const uint32_t bits = __float_as_uint(value), magnitude = bits & ~SIGN;
    const uint32_t rounded = ((min(magnitude, INFINITE - HALF - 1) + HALF) & KEPT) | (bits & SIGN);
    *big = magnitude < INFINITE ? rounded : 0;
    *small = __float_as_uint(value - __uint_as_float(*big));
}

/* A lane's part of the A operand of an MMA. For 3xTF32 that is two fragments, big and small. */
template <mode MODE> struct operand_a {
    static constexpr int FRAGMENTS = IS_STRICT<MODE> ? 2 : 1;
    static constexpr int VECTORS = FRAGMENTS * WARP; /* 16-byte vectors of all lanes */

    fragment_a at[FRAGMENTS];

    __device__ __forceinline__ const fragment_a &big() const
    {
        return at[0];
    }
    __device__ __forceinline__ const fragment_a &small() const
    {
        return at[FRAGMENTS - 1];
    }
};

template <mode MODE> __device__ __forceinline__ operand_a<MODE> load_weights(const uint4 *from)
{
    operand_a<MODE> loaded;
#pragma unroll
    for (int i = 0; i < operand_a<MODE>::FRAGMENTS; i++)
        loaded.at[i] = load_fragment_a(from + i * WARP);
    return loaded;
}

/* A step, by the mode's MMA. */
template <mode MODE>
__device__ __forceinline__ void multiply_add(float (&accumulators)[4], const fragment_a &a, const fragment_b &b)
{
    if constexpr (IS_HALF<MODE>)
        mma_half(accumulators, a, b, element_of<MODE>());
    else
        mma_tf32(accumulators, a, b);
}

} // namespace tconv::mma

#endif
