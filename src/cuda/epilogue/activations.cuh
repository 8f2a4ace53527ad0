/*
 * The kinds of post-ops that are no plain arithmetic, in f32 (numeric/activations.cuh) and in double: by CUDA's functions,
 * with the limits of core/post_exact.c. No function has a stack frame: CUDA's sine has one, for large arguments.
 */
#ifndef TCONV_CUDA_EPILOGUE_ACTIVATIONS_CUH
#define TCONV_CUDA_EPILOGUE_ACTIVATIONS_CUH

#include "../numeric/activations.cuh"

namespace tconv
{

__device__ __forceinline__ bool is_least(double y)
{
    return y == -INFINITY;
}

/* y / (1 + exp(-x)), whose limit is -0. */
__device__ __forceinline__ double times_sigmoid(double y, double x)
{
    return is_least(y) ? -0.0 : y / (1 + exp(-x));
}

__device__ __forceinline__ double post_sigmoid(double y)
{
    return 1 / (1 + exp(-y));
}

__device__ __forceinline__ double post_tanh(double y)
{
    return tanh(y);
}

__device__ __forceinline__ double post_silu(double y)
{
    return times_sigmoid(y, y);
}

__device__ __forceinline__ double post_gelu(double y)
{
    const double root_half = 0.70710678118654752440, root_half_rest = -4.8336466567264565e-17;
    const double slope = 1.12837916709551257390; /* 2 / sqrt(pi) */
    const double t = -y * root_half, rest = fma(-y, root_half, -t) - y * root_half_rest;
    if (y > 40 || y < -40)
        return y > 0 ? y : -0.0;
    return 0.5 * y * (erfc(t) - rest * slope * exp(-t * t));
}

/* y * (1 + tanh(u)) / 2 is y / (1 + exp(-2 u)). An error of u is one of the result times 2 u: products are rounded as C
 * rounds them. */
__device__ __forceinline__ double post_gelu_tanh(double y)
{
    const double twice_root = 1.59576912160573071176; /* 2 sqrt(2 / pi) */
    const double cube = __dmul_rn(__dmul_rn(__dmul_rn(0.044715, y), y), y);
    return times_sigmoid(y, twice_root * __dadd_rn(y, cube));
}

__device__ __forceinline__ double post_softplus(double y)
{
    return (y > 0 ? y : 0) + log1p(exp(y > 0 ? -y : y));
}

__device__ __forceinline__ double post_mish(double y)
{
    return is_least(y) ? -0.0 : y * tanh(post_softplus(y));
}

__device__ __forceinline__ double post_elu(double y, double alpha)
{
    return y > 0 ? y : alpha * expm1(y);
}

__device__ __forceinline__ double post_hardswish(double y)
{
    const double shifted = y + 3;
    return is_least(y) ? -0.0 : y * (shifted < 0 ? 0 : shifted > 6 ? 6 : shifted) / 6;
}

/* y + height * sin(frequency * y)^2. The square has the period pi, of which two parts are taken. */
__device__ __forceinline__ double post_snake(double y, double frequency, double height)
{
    const double pi = 3.14159265358979311600, rest = 1.22464679914735317723e-16, by_pi = 0.31830988618379067154;
    const double x = frequency * y, turns = rint(x * by_pi);
    const double sine = sinpi(fma(-turns, rest, fma(-turns, pi, x)) * by_pi);
    return isinf(y) ? y : fma(height * sine, sine, y);
}

} // namespace tconv

#endif
