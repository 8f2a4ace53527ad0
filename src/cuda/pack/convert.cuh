/* What all packing kernels share: what becomes of a weight, and the launch. Weights are moved as integers of their
 * size. */
#ifndef TCONV_CUDA_PACK_CONVERT_CUH
#define TCONV_CUDA_PACK_CONVERT_CUH

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"

namespace tconv
{

constexpr int PACK_THREADS = 256; /* of a thread block */

/* Orders derive from it: f32 is rounded to TF32 or, in two planes, split in its big and small part (tf32.cuh); weights
 * of 16 bits stay as they are. */
struct tf32_order {
    template <int planes> static __device__ __forceinline__ void convert(uint32_t bits, uint32_t (&parts)[planes])
    {
        if constexpr (planes == 2)
            split_to_tf32(bits, &parts[0], &parts[1]);
        else
            parts[0] = round_to_tf32(bits);
    }
    static __device__ __forceinline__ void convert(uint16_t bits, uint16_t (&parts)[1])
    {
        parts[0] = bits;
    }
};

/* Writes a vector of weights to its place in the first plane, and to the same in the second, so many vectors on. */
template <int planes, class Order, class Word, int count>
__device__ __forceinline__ void store_planes(const Order &order, element_vector<Word, count> *to, int64_t plane_step,
                                             const element_vector<Word, count> &values)
{
    element_vector<Word, count> of_plane[planes];
#pragma unroll
    for (int i = 0; i < count; i++) {
        Word parts[planes];
        order.convert(values.at[i], parts);
#pragma unroll
        for (int plane = 0; plane < planes; plane++)
            of_plane[plane].at[i] = parts[plane];
    }
#pragma unroll
    for (int plane = 0; plane < planes; plane++)
        to[plane * plane_step] = of_plane[plane];
}

/* Takes the innermost index, on an axis of so many, off a number. */
template <class Number> __device__ __forceinline__ int take_index(Number &number, int extent)
{
    const int index = (int)(number % extent);
    number /= extent;
    return index;
}

template <class Order> using packing_kernel = void (*)(Order order, const void *weights, void *packed);

/* Launches a packing kernel, which is told an order. */
template <class Order>
tconv_status launch_order(packing_kernel<Order> kernel, Order order, int64_t blocks, int64_t shared_bytes,
                          const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    void *arguments[] = {&order, &weights, &packed};
    return tconv_launch_blocks_shared((const void *)kernel, blocks, PACK_THREADS, shared_bytes, arguments, stream,
                                      issue);
}

} // namespace tconv

#endif
