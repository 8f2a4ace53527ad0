/* Runs a layer's post-ops on a few values, each of which may have a channel and a place of its own. */
#ifndef TCONV_CUDA_EPILOGUE_LAYER_POSTS_CUH
#define TCONV_CUDA_EPILOGUE_LAYER_POSTS_CUH

#include "../numeric/forgotten.cuh"
#include "layer_posts.h"
#include "posts.cuh"

namespace tconv
{

/* No element of the addend: the value is of an output that does not exist. */
constexpr int64_t NO_PLACE = -1;

/* Takes values, which have their bias, through all steps. channel(i) returns the output channel of value i, of all groups
 * and one that exists; place(i) returns the elements from the addend to that of value i, or NO_PLACE. Both are called
 * only in steps that need them. */
template <class Element, int COUNT, class Channel, class Place>
__device__ __forceinline__ void run_layer_posts(const layer_posts &posts, compute_type<Element> (&values)[COUNT],
                                                const Channel &channel, const Place &place)
{
    using Compute = compute_type<Element>;
    using Numbers = element_vector<Compute, COUNT>;
    run_posts(
        posts.steps, values,
        [&](const void *array) {
            Numbers numbers;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                numbers.at[i] = static_cast<const Compute *>(array)[channel(i)];
            return numbers;
        },
        [&]() {
            Numbers terms;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const int64_t at = place(i);
                terms.at[i] = at != NO_PLACE ? to_compute(static_cast<const Element *>(posts.addend)[at]) : Compute(0);
            }
            return terms;
        });
}

} // namespace tconv

#endif
