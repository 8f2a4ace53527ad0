/*
 * Activation functions of f32 by the device's own 2^x and 1 / x, in a third to a half of the instructions of
 * activations.cuh. A result is off by at most 16 units in the last place or 2^-118 (tconv.h): what layers of f16 and bf16
 * and products in TF32 lose is thousands of times as much. For a value that is not finite the result is the same as there.
 */
#ifndef TCONV_CUDA_NUMERIC_FAST_ACTIVATIONS_CUH
#define TCONV_CUDA_NUMERIC_FAST_ACTIVATIONS_CUH

namespace tconv
{

/* Within 2.5 units of 2^-24 of the power; below 2^-126 it is 0. */
__device__ __forceinline__ float fast_power_of_2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* Within 1.7 units of 2^-24; below 2^-126 it is 0. */
__device__ __forceinline__ float fast_reciprocal(float x)
{
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

/* y, but at least, or at most, so much; NaN stays NaN. */
__device__ __forceinline__ float fast_at_least(float y, float least)
{
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(y), "f"(least));
    return bounded;
}
__device__ __forceinline__ float fast_at_most(float y, float most)
{
    float bounded;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(y), "f"(most));
    return bounded;
}

constexpr float LOG2_E = 1.44269502f;
constexpr float LOG_2 = 0.693147182f, LOG_2_REST = -1.90465421e-9f; /* log(2) in two parts */

/* Returns exp(x) for a finite x that is no greater than 88. What the rounding of x * log2(e) took is made good by
 * exp(rest) = 1 + rest. */
__device__ __forceinline__ float fast_exp(float x)
{
    const float exponent = __fmul_rn(x, LOG2_E);
    const float rest = __fmaf_rn(exponent, -LOG_2_REST, __fmaf_rn(exponent, -LOG_2, x));
    const float power = fast_power_of_2(exponent);
    return __fmaf_rn(power, rest, power);
}

__device__ __forceinline__ float fast_sigmoid(float y)
{
    return fast_reciprocal(1 + fast_exp(fast_at_most(fast_at_least(-y, -88), 88)));
}

/* Near 0 a polynomial, else 1 - 2 / (1 + exp(2 |y|)), which needs no more of the exponential than its size. */
__device__ __forceinline__ float fast_tanh(float y)
{
    const float magnitude = fabsf(y), square = __fmul_rn(y, y);
    const float large = __fmaf_rn(-2, fast_reciprocal(1 + fast_power_of_2(magnitude * (2 * LOG2_E))), 1);
    float p = __fmaf_rn(0.0156132001f, square, -0.0522122309f);
    p = __fmaf_rn(p, square, 0.133131266f);
    p = __fmaf_rn(p, square, -0.333325982f);
    const float small = __fmaf_rn(square * magnitude, p, magnitude);
    return copysignf(magnitude < 0.6f ? small : large, y);
}

__device__ __forceinline__ float fast_silu(float y)
{
    const float limited = fast_at_least(y, -88);
    return __fmul_rn(limited, fast_reciprocal(1 + fast_exp(-fast_at_most(limited, 88))));
}

/* With w = exp(y) and n = w * (w + 2), tanh(log(1 + w)) is n / (n + 2). */
__device__ __forceinline__ float fast_mish(float y)
{
    const float limited = fast_at_least(y, -88);
    const float w = fast_exp(fast_at_most(limited, 12)), n = __fmul_rn(w, w + 2);
    return __fmul_rn(limited, __fmul_rn(n, fast_reciprocal(n + 2)));
}

/* The tail of the normal distribution is exp(-y^2 / 2) * f(x) / (1.5 + |y|): see activations.inc.h. The square is taken
 * in two parts. */
__device__ __forceinline__ float fast_gelu(float y)
{
    const float limited = fast_at_most(fast_at_least(y, -13.265f), 13.265f);
    const float square = __fmul_rn(limited, limited), square_rest = __fmaf_rn(limited, limited, -square);
    const float exponent = __fmul_rn(square, -0.5f * LOG2_E);
    float rest = __fmaf_rn(exponent, 2 * LOG_2, square);
    rest = __fmaf_rn(exponent, 2 * LOG_2_REST, rest) + square_rest; /* twice what exp(-y^2 / 2) has too much */
    const float power = fast_power_of_2(exponent), over = fast_reciprocal(fabsf(limited) + 1.5f);
    const float x = __fmaf_rn(over, 3, -1);
    float f = -0.000273020298f;
    f = __fmaf_rn(f, x, -0.000246595679f);
    f = __fmaf_rn(f, x, 0.00253188447f);
    f = __fmaf_rn(f, x, -0.00292498479f);
    f = __fmaf_rn(f, x, -0.00387438922f);
    f = __fmaf_rn(f, x, 0.0177690908f);
    f = __fmaf_rn(f, x, -0.017916739f);
    f = __fmaf_rn(f, x, -0.0575079136f);
    f = __fmaf_rn(f, x, 0.195100144f);
    f = __fmaf_rn(f, x, 0.617342234f);
    const float exponential = __fmaf_rn(power, -0.5f * rest, power);
    const float tail = __fmul_rn(__fmul_rn(__fmul_rn(limited, over), f), exponential);
    return y > 0 ? __fadd_rn(y, -tail) : tail;
}

/* max(y, 0) + log(1 + t) with t = exp(-|y|), as activations.inc.h has it. */
__device__ __forceinline__ float fast_softplus(float y)
{
    const float t = fast_exp(-fast_at_most(fabsf(y), 88));
    const float u = t * fast_reciprocal(t + 2), v = u * u;
    float q = __fmaf_rn(0.280294299f, v, 0.27998212f);
    q = __fmaf_rn(q, v, 0.400217503f);
    q = __fmaf_rn(q, v, 0.666664124f);
    return __fadd_rn(fast_at_least(y, 0), __fmaf_rn(u * v, q, u + u));
}

} // namespace tconv

#endif
