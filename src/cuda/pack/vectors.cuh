/*
 * Packs weights by threads that read them where they lie: each writes a vector, of 16 bytes or 8, in each plane.
 *
 * An order, which each algorithm has one of, says where the words (of 4 bytes of input channels) of a vector come from:
 *
 *     template <int per_word> pack_vector vector_of(int64_t number) const
 */
#ifndef TCONV_CUDA_PACK_VECTORS_CUH
#define TCONV_CUDA_PACK_VECTORS_CUH

#include "../../core/checked.h"
#include "../../core/impl.h"
#include "convert.cuh"

namespace tconv
{

/* A vector of the packed weights. Its words are two by two: word w is word 0 of other channels, in + w % 2 * odd_in +
 * w / 2 * upper_in and out + w % 2 * odd_out. */
struct pack_vector {
    int64_t at;         /* its number in the packed weights */
    int64_t plane_step; /* vectors from there to its place in the second plane */
    int64_t from;       /* elements before the weights of its channel group and kernel element */
    int in, out;        /* channels of its first element, in the group; out = group_out: zeros */
    int odd_in, odd_out, upper_in;
};

struct vector_order : tf32_order {
    static constexpr int VECTOR_BYTES = 16;
    tconv_weight_strides strides;
    int group_in, group_out; /* channels of a group */
    int planes;
    int64_t vectors; /* of a plane */

    __device__ __forceinline__ int64_t weights_at(int64_t group, int kernel_row, int kernel_column) const
    {
        return group * group_in * strides.in + kernel_row * strides.h + kernel_column * strides.w;
    }
};

inline vector_order order_of(const tconv_weight_strides &strides, int64_t group_in, int64_t group_out, bool split)
{
    vector_order made = {};
    made.strides = strides;
    made.group_in = (int)group_in;
    made.group_out = (int)group_out;
    made.planes = split ? 2 : 1;
    return made;
}

/* The place of the n-th bit that is set, from 0 on. */
__device__ __forceinline__ int nth_bit(unsigned bits, int n)
{
    while (n-- > 0)
        bits &= bits - 1;
    return __ffs((int)bits) - 1;
}

/* The vector of a lane's words of an A fragment of mma.sync: rows g and g + 8 (g = lane / 4) of words t and t + 4 (t =
 * lane % 4). Lanes are numbered without planes; [fragment][plane][lane] is how they lie. */
template <int per_word> __device__ __forceinline__ pack_vector a_fragment_vector(int64_t number, int planes)
{
    const int lane = (int)(number % 32);
    return {number / 32 * 32 * planes + lane, 32, 0, lane % 4 * per_word, lane / 4, 0, 8, 4 * per_word};
}

template <class Order, class Word, int planes>
__global__ void __launch_bounds__(PACK_THREADS)
    pack_by_vectors(const __grid_constant__ Order order, const void *__restrict__ weights, void *packed)
{
    constexpr int PER_WORD = 4 / (int)sizeof(Word), ELEMENTS = Order::VECTOR_BYTES / (int)sizeof(Word);
    launch_dependents();
    for (int64_t number = (int64_t)blockIdx.x * PACK_THREADS + threadIdx.x; number < order.vectors;
         number += (int64_t)gridDim.x * PACK_THREADS) {
        const pack_vector vector = order.template vector_of<PER_WORD>(number);
        const Word *from = static_cast<const Word *>(weights) + vector.from;
        element_vector<Word, ELEMENTS> values;
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) {
            const int word = i / PER_WORD, out = vector.out + word % 2 * vector.odd_out;
            const int in = vector.in + i % PER_WORD + word % 2 * vector.odd_in + word / 2 * vector.upper_in;
            const bool exists = in < order.group_in && out < order.group_out;
            values.at[i] = exists ? from[in * order.strides.in + out * order.strides.out] : 0;
        }
        store_planes<planes>(order, static_cast<element_vector<Word, ELEMENTS> *>(packed) + vector.at,
                             vector.plane_step, values);
    }
}

/* The kernel for elements of that size, where an order takes both sizes and any planes. */
template <class Order> packing_kernel<Order> vectors_kernel(size_t element_size, const Order &order)
{
    return element_size == 2   ? pack_by_vectors<Order, uint16_t, 1>
           : order.planes == 2 ? pack_by_vectors<Order, uint32_t, 2>
                               : pack_by_vectors<Order, uint32_t, 1>;
}

template <class Order>
tconv_status launch_vectors(packing_kernel<Order> kernel, const Order &order, const void *weights, void *packed,
                            void *stream, tconv_issue *issue)
{
    if (order.vectors == 0) /* no kernel column has a tap */
        return TCONV_SUCCESS;
    return launch_order(kernel, order, tconv_ceil_div(order.vectors, PACK_THREADS), 0, weights, packed, stream, issue);
}

} // namespace tconv

#endif
