/* The activation functions of core/activations.inc.h on a CUDA device: post_sigmoid(y) to post_snake(y, a, b), in f32. */
#ifndef TCONV_CUDA_NUMERIC_ACTIVATIONS_CUH
#define TCONV_CUDA_NUMERIC_ACTIVATIONS_CUH

namespace tconv
{

__device__ __forceinline__ unsigned post_bits(float value)
{
    return __float_as_uint(value);
}

__device__ __forceinline__ float post_value(unsigned bits)
{
    return __uint_as_float(bits);
}

__device__ __forceinline__ float post_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

__device__ __forceinline__ float post_product(float a, float b)
{
    return __fmul_rn(a, b);
}

__device__ __forceinline__ float post_two_product(float a, float b, float *rest)
{
    const float product = __fmul_rn(a, b);
    *rest = __fmaf_rn(a, b, -product);
    return product;
}

/* A reciprocal within 1 unit in the last place, and one step towards the quotient: 4 instructions, without the branch of
 * a division, which serves divisors that do not occur. */
__device__ __forceinline__ float post_quotient(float a, float b)
{
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
    const float near = __fmul_rn(a, reciprocal);
    return __fmaf_rn(__fmaf_rn(-b, near, a), reciprocal, near);
}

__device__ __forceinline__ float post_select(float x, float y, float a, float b)
{
    return x < y ? a : b;
}

__device__ __forceinline__ float post_at_least(float x, float limit)
{
    return x < limit ? limit : x;
}

__device__ __forceinline__ float post_at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

#define ACTIVATION_VALUE  float
#define ACTIVATION_INLINE __device__ __forceinline__
#define NAME(name)        name
#define NUMBER(number)    (number)
#include "../../core/activations.inc.h"
#undef ACTIVATION_VALUE
#undef ACTIVATION_INLINE
#undef NAME
#undef NUMBER

} // namespace tconv

#endif
