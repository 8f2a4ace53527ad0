/* Rounds factors of f32 to TF32, as the tensor cores take them. In strict f32 a factor is split in two, so that three
 * products of TF32 are as exact as one of f32: x = big + small, where big is x rounded, and small is the rest,
 * rounded. */
#ifndef TCONV_CUDA_NUMERIC_TF32_CUH
#define TCONV_CUDA_NUMERIC_TF32_CUH

#include <cstdint>

namespace tconv
{

/* Rounds to the 11 bits of TF32, to nearest, but never up to infinity; NaN stays NaN. The low 13 bits of the
 * result are 0. */
__device__ __forceinline__ uint32_t round_to_tf32(uint32_t bits)
{
    constexpr uint32_t KEPT = 0xffffe000u, HALF = 0x1000u, INFINITE = 0x7f800000u, NOT_A_NUMBER = 0x7fffe000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude < INFINITE - HALF)
        return (bits + HALF) & KEPT;
    return magnitude > INFINITE ? NOT_A_NUMBER : bits & KEPT;
}

/* A factor that is not finite goes to the small part alone: in the big part, infinity would meet the other factor's
 * small part, of either sign or 0, and become NaN. */
__device__ __forceinline__ void split_to_tf32(uint32_t bits, uint32_t *big, uint32_t *small)
{
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    *big = finite ? round_to_tf32(bits) : 0;
    *small = round_to_tf32(__float_as_uint(__uint_as_float(bits) - __uint_as_float(*big)));
}

/* Says whether all factors are plain: none is infinite or NaN, or so large that it might round up to infinity. It does
 * so by multiplications, of which there can be more at a time than comparisons. */
template <int count> __device__ __forceinline__ bool are_plain(const uint32_t (&bits)[count])
{
    constexpr float MARGIN = 1.0f + 1.0f / 1024;
    float check = 0;
#pragma unroll
    for (int i = 0; i < count; i++)
        check = fmaf(__uint_as_float(bits[i]) * MARGIN, 0.0f, check);
    return check == 0;
}

/* These do the same as above, for plain factors. */
__device__ __forceinline__ uint32_t round_plain_to_tf32(uint32_t bits)
{
    return (bits + 0x1000u) & 0xffffe000u;
}
__device__ __forceinline__ void split_plain_to_tf32(uint32_t bits, uint32_t *big, uint32_t *small)
{
    *big = round_plain_to_tf32(bits);
    *small = round_plain_to_tf32(__float_as_uint(__uint_as_float(bits) - __uint_as_float(*big)));
}

/* Rounds to TF32, to nearest, ties away: MMAs ignore the bits below. NaN and Inf stay as they are. Half the
 * instructions of round_to_tf32. */
__device__ __forceinline__ uint32_t round_for_mma(uint32_t bits)
{
    return fabsf(__uint_as_float(bits)) < __int_as_float(0x7f800000) ? bits + 0x1000u : bits;
}

/* Rounds to TF32 for MMAs, which ignore the bits below, in one instruction: by adding a quarter to a half of a unit,
 * which is to one of the two nearest. What TF32 holds stays as it is, NaN and Inf too, and nothing becomes Inf. */
__device__ __forceinline__ uint32_t round_quickly_for_mma(uint32_t bits)
{
    return __float_as_uint(__fmul_rz(__uint_as_float(bits), 1 + 0x1p-12f));
}

/* Splits bits into what TF32 holds, rounded to nearest, and the exact rest. If it is not finite, or rounds to Inf, at
 * least one of the two is not finite. */
__device__ __forceinline__ void split_for_mma(uint32_t &bits, uint32_t *small)
{
    const uint32_t big = (bits + 0x1000u) & 0xffffe000u;
    *small = __float_as_uint(__uint_as_float(bits) - __uint_as_float(big));
    bits = big;
}

/* Splits four factors in strict f32; else rounds them to big, and small stays as it is. */
template <bool strict>
__device__ __forceinline__ void round_or_split(const uint32_t (&words)[4], uint32_t (&big)[4], uint32_t (&small)[4])
{
    const bool plain = are_plain(words);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (strict)
            split_plain_to_tf32(words[i], &big[i], &small[i]);
        else
            big[i] = round_plain_to_tf32(words[i]);
    }
    if (!plain) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (strict)
                split_to_tf32(words[i], &big[i], &small[i]);
            else
                big[i] = round_to_tf32(words[i]);
        }
    }
}

} // namespace tconv

#endif
