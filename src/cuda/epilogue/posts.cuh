/*
 * Post-ops on a few values that a thread holds: the one switch over their kinds. A kernel that has a list of steps
 * (posts.h) in its parameters runs the list on values that are finished but for the rounding (finish.cuh):
 *
 *     run_posts(of.steps, values, channels, addend);
 *
 * All threads of a kernel take the same steps, so that branches are uniform. The loop over the steps stays a loop: there
 * is one text of each kind, for all values at once. Values are in the type of sums and rounded to it after each step.
 */
#ifndef TCONV_CUDA_EPILOGUE_POSTS_CUH
#define TCONV_CUDA_EPILOGUE_POSTS_CUH

#include "../numeric/element.cuh"
#include "../numeric/fast_activations.cuh"
#include "activations.cuh"
#include "posts.h"

namespace tconv
{

/* What changes no bit of a sum, not that of -0 either. */
constexpr float NO_BIAS = -0.0f;

/* The step's alpha or beta. */
template <class Compute> __device__ __forceinline__ Compute number_of(const post_number &number)
{
    if constexpr (std::is_same<Compute, double>::value)
        return number.f64;
    else
        return number.f32;
}

/* One rounding each: the compiler does not join them. */
__device__ __forceinline__ float add_rounded(float a, float b)
{
    return __fadd_rn(a, b);
}
__device__ __forceinline__ double add_rounded(double a, double b)
{
    return __dadd_rn(a, b);
}
__device__ __forceinline__ float multiply_rounded(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ __forceinline__ double multiply_rounded(double a, double b)
{
    return __dmul_rn(a, b);
}
__device__ __forceinline__ float multiply_add_rounded(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double multiply_add_rounded(double a, double b, double c)
{
    return __fma_rn(a, b, c);
}

/* NaN is neither less nor more. */
__device__ __forceinline__ double clamp(double y, double least, double most)
{
    return y < least ? least : y > most ? most : y;
}
__device__ __forceinline__ float clamp(float y, float least, float most)
{
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;\n\tmin.NaN.f32 %0, %0, %3;" : "=&f"(bounded) : "f"(y), "f"(least), "f"(most));
    return bounded;
}

template <class Compute> __device__ __forceinline__ Compute leaky_relu(Compute y, Compute slope)
{
    const Compute below = slope == 0 && y == -INFINITY ? Compute(0) : multiply_rounded(slope, y);
    return y > 0 ? y : below;
}

/* The activation functions that run_post calls: those of strict f32 and of f64, and those of TF32 and of 16 bits. */
struct exact_functions {
    template <class Compute> static __device__ __forceinline__ Compute sigmoid(Compute y)
    {
        return post_sigmoid(y);
    }
    template <class Compute> static __device__ __forceinline__ Compute tanh(Compute y)
    {
        return post_tanh(y);
    }
    template <class Compute> static __device__ __forceinline__ Compute silu(Compute y)
    {
        return post_silu(y);
    }
    template <class Compute> static __device__ __forceinline__ Compute gelu(Compute y)
    {
        return post_gelu(y);
    }
    template <class Compute> static __device__ __forceinline__ Compute mish(Compute y)
    {
        return post_mish(y);
    }
    template <class Compute> static __device__ __forceinline__ Compute softplus(Compute y)
    {
        return post_softplus(y);
    }
};
struct fast_functions {
    static __device__ __forceinline__ float sigmoid(float y)
    {
        return fast_sigmoid(y);
    }
    static __device__ __forceinline__ float tanh(float y)
    {
        return fast_tanh(y);
    }
    static __device__ __forceinline__ float silu(float y)
    {
        return fast_silu(y);
    }
    static __device__ __forceinline__ float gelu(float y)
    {
        return fast_gelu(y);
    }
    static __device__ __forceinline__ float mish(float y)
    {
        return fast_mish(y);
    }
    static __device__ __forceinline__ float softplus(float y)
    {
        return fast_softplus(y);
    }
};

/* Takes each value to what a function makes of it and of its index. */
template <int COUNT, class Compute, class Function>
__device__ __forceinline__ void for_each_value(Compute (&values)[COUNT], Function function)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i] = function(values[i], i);
}

/* Takes values through one step: see run_posts. Values that are no array have a for_each_value in their own namespace,
 * which gives the function a value and the index of what is taken from channels(array) and addend(). */
template <class Compute, class Functions = exact_functions, class Values, class Channels, class Addend>
__device__ __forceinline__ void run_post(const post_step &step, Values &values, const Channels &channels,
                                         const Addend &addend)
{
    const Compute alpha = number_of<Compute>(step.alpha), beta = number_of<Compute>(step.beta);
    switch (step.kind) {
    case TCONV_POST_ADD_CHANNEL: {
        const auto terms = channels(step.first);
        return for_each_value(values, [&](Compute y, int i) { return add_rounded(y, terms.at[i]); });
    }
    case TCONV_POST_MUL_CHANNEL: {
        const auto factors = channels(step.first);
        return for_each_value(values, [&](Compute y, int i) { return multiply_rounded(y, factors.at[i]); });
    }
    case POST_MUL_ADD_CHANNEL: {
        const auto factors = channels(step.first), terms = channels(step.second);
        return for_each_value(values,
                              [&](Compute y, int i) { return multiply_add_rounded(y, factors.at[i], terms.at[i]); });
    }
    case TCONV_POST_ADD_TENSOR: {
        const auto elements = addend();
        return for_each_value(values, [&](Compute y, int i) { return multiply_add_rounded(alpha, elements.at[i], y); });
    }
    case TCONV_POST_LINEAR:
        return for_each_value(values, [=](Compute y, int) { return multiply_add_rounded(alpha, y, beta); });
    case TCONV_POST_CLAMP: return for_each_value(values, [=](Compute y, int) { return clamp(y, alpha, beta); });
    case TCONV_POST_LEAKY_RELU: return for_each_value(values, [=](Compute y, int) { return leaky_relu(y, alpha); });
    case TCONV_POST_SIGMOID: return for_each_value(values, [](Compute y, int) { return Functions::sigmoid(y); });
    case TCONV_POST_TANH: return for_each_value(values, [](Compute y, int) { return Functions::tanh(y); });
    case TCONV_POST_SILU: return for_each_value(values, [](Compute y, int) { return Functions::silu(y); });
    case TCONV_POST_GELU: return for_each_value(values, [](Compute y, int) { return Functions::gelu(y); });
    case TCONV_POST_GELU_TANH: return for_each_value(values, [](Compute y, int) { return post_gelu_tanh(y); });
    case TCONV_POST_MISH: return for_each_value(values, [](Compute y, int) { return Functions::mish(y); });
    case TCONV_POST_ELU: return for_each_value(values, [=](Compute y, int) { return post_elu(y, alpha); });
    case TCONV_POST_SOFTPLUS: return for_each_value(values, [](Compute y, int) { return Functions::softplus(y); });
    case TCONV_POST_HARDSWISH: return for_each_value(values, [](Compute y, int) { return post_hardswish(y); });
    case TCONV_POST_SNAKE: {
        const auto frequencies = channels(step.first), heights = channels(step.second);
        return for_each_value(values,
                              [&](Compute y, int i) { return post_snake(y, frequencies.at[i], heights.at[i]); });
    }
    }
}

/* Takes values through the tail of a step. */
template <int COUNT> __device__ __forceinline__ void run_tail(const post_tail &tail, float (&values)[COUNT])
{
    for_each_value(values, [&](float y, int) {
        y = clamp(multiply_add_rounded(tail.scale, y, tail.shift), tail.least, tail.most);
        return multiply_add_rounded(tail.last_scale, y, tail.last_shift);
    });
}

/* Takes values through all steps. channels(array) returns the numbers that an array of a number for each output channel
 * has for the values, and addend() the values' elements of the addend: each an element_vector<Compute, COUNT>. */
template <int COUNT, class Compute, class Channels, class Addend>
__device__ __forceinline__ void run_posts(const post_steps &steps, Compute (&values)[COUNT], const Channels &channels,
                                          const Addend &addend)
{
#pragma unroll 1
    for (int i = 0; i < steps.count; i++)
        run_post<Compute>(steps.of[i], values, channels, addend);
}

/* Takes accumulators, in place, through their bias and then through steps that are all affine (post_step_is_affine). The
 * text of a step is there once for each accumulator. bias(i) returns the bias of accumulator i, and channels(array) a
 * function that returns the number for accumulator i of an array of a number for each output channel. A kernel that
 * has taken its accumulators through this adds NO_BIAS where it else adds their bias. */
template <int COUNT, class Bias, class Channels>
__device__ __forceinline__ void run_affine_posts(const post_steps &steps, float (&sums)[COUNT], const Bias &bias,
                                                 const Channels &channels)
{
    for_each_value(sums, [&](float sum, int i) { return sum + bias(i); });
#pragma unroll 1
    for (int i = 0; i < steps.count; i++) {
        const post_step &step = steps.of[i];
        const float alpha = step.alpha.f32, beta = step.beta.f32;
        if (step.kind == TCONV_POST_CLAMP) {
            for_each_value(sums, [=](float y, int) { return clamp(y, alpha, beta); });
        } else if (step.kind == TCONV_POST_LEAKY_RELU) {
            for_each_value(sums, [=](float y, int) { return y > 0 ? y : multiply_rounded(alpha, y); });
        } else if (step.kind == TCONV_POST_LINEAR) {
            for_each_value(sums, [=](float y, int) { return multiply_add_rounded(alpha, y, beta); });
        } else {
            /* A factor of 1, or a term of -0, changes no bit. */
            const bool adds = step.kind == TCONV_POST_ADD_CHANNEL, scales = step.kind == TCONV_POST_MUL_CHANNEL;
            const auto factors = channels(step.first), terms = channels(scales ? step.first
                                                                        : adds ? step.first
                                                                               : step.second);
            for_each_value(sums, [&](float y, int j) {
                return multiply_add_rounded(y, adds ? 1.0f : factors(j), scales ? NO_BIAS : terms(j));
            });
        }
    }
}

} // namespace tconv

#endif
