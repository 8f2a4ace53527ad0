/*
 * The one place where a sum becomes an output. Every kernel that stores outputs calls these functions:
 *
 *     value  = post(sum + bias)    finish_sum, finish_pair: in the type of sums
 *     output = round(value)        to_output, to_outputs, to_output_pair: once, to nearest even
 *     finish_output                both at once
 *     finish_total                 both, of a sum that has its bias already or has none (a gradient)
 *     bias_output                  an output without a tap
 *
 * A kernel that stages f32 calls finish_sum before staging and to_output after.
 *
 * A post says what else is done to a value before it is rounded. It is no_post everywhere but in the pass of cuda_finish,
 * which has a layer's post-ops as a list (posts.cuh: run_posts, on the values of a few outputs at a time, between their
 * bias and to_outputs). A kernel that is to run post-ops itself calls run_posts at the same place, or, for what needs no
 * list, hands an object of a class beside no_post to the functions that the kernel calls already. A post comes after all
 * terms of a sum: partial sums and what dst holds are among the terms, and a partial sum gets no post.
 */
#ifndef TCONV_CUDA_EPILOGUE_FINISH_CUH
#define TCONV_CUDA_EPILOGUE_FINISH_CUH

#include <cstdint>
#include <type_traits>

#include "../numeric/element.cuh"

namespace tconv
{

/* Leaves a value as it is. */
struct no_post {
    template <class Compute> __device__ __forceinline__ Compute operator()(Compute value) const
    {
        return value;
    }
};

/* The bias of a channel of all groups, in the type of sums. Zero where the layer has no bias, or the channel does not
 * exist. bias is the kernel's parameter itself: the compiler may read a parameter again instead of keeping it. */
template <class Element, class Index>
__device__ __forceinline__ compute_type<Element> channel_bias(const void *const &bias, Index channel,
                                                              bool exists = true)
{
    return bias != NULL && exists ? to_compute(static_cast<const Element *>(bias)[channel]) : compute_type<Element>(0);
}

/* Adds the bias of a channel of all groups, where the layer has one: a sum of -0 stays -0 where it has none. */
template <class Element, class Index>
__device__ __forceinline__ compute_type<Element> add_bias(compute_type<Element> sum, const void *bias, Index channel)
{
    return bias != NULL ? sum + to_compute(static_cast<const Element *>(bias)[channel]) : sum;
}

/* The value of an output before it is rounded. */
template <class Compute, class Post = no_post>
__device__ __forceinline__ Compute finish_sum(Compute sum, Compute bias, const Post &post = Post())
{
    return post(sum + bias);
}

/* The values of two outputs of one channel. */
template <class Post = no_post>
__device__ __forceinline__ float2 finish_pair(float first, float second, float bias, const Post &post = Post())
{
    return make_float2(finish_sum(first, bias, post), finish_sum(second, bias, post));
}

/* Rounds a value; a sum in double is not rounded to f32 before. */
template <class Element, class Sum> __device__ __forceinline__ Element to_output(Sum value)
{
    return static_cast<Element>(value);
}

/* Rounds the values of outputs that are stored at once. */
template <class Element, int COUNT>
__device__ __forceinline__ element_vector<Element, COUNT> to_outputs(const compute_type<Element> (&values)[COUNT])
{
    element_vector<Element, COUNT> outputs;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        outputs.at[i] = to_output<Element>(values[i]);
    return outputs;
}

/* Rounds two values to 16 bits each, in one word. */
template <class Half> __device__ __forceinline__ uint32_t to_output_pair(float first, float second)
{
    const auto pair = to_outputs<Half, 2>({first, second});
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* An output from its sum and bias. */
template <class Element, class Post = no_post>
__device__ __forceinline__ Element finish_output(compute_type<Element> sum, compute_type<Element> bias,
                                                 const Post &post = Post())
{
    return to_output<Element>(finish_sum(sum, bias, post));
}

/* An output from a sum that has its bias already, or has none. */
template <class Element, class Sum, class Post = no_post>
__device__ __forceinline__ Element finish_total(Sum sum, const Post &post = Post())
{
    return to_output<Element>(post(sum));
}

/* An output without a tap: the bias of a channel of all groups, or zero. Without a post nothing is converted. */
template <class Element, class Post = no_post, class Index>
__device__ __forceinline__ Element bias_output(const void *bias, Index channel, const Post &post = Post())
{
    if constexpr (std::is_same<Post, no_post>::value)
        return bias != NULL ? static_cast<const Element *>(bias)[channel] : from_compute<Element>(0);
    else
        return finish_total<Element>(channel_bias<Element>(bias, channel), post);
}

} // namespace tconv

#endif
