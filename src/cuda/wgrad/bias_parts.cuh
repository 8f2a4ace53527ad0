/* The addition of the partial sums of the gradient of the bias, a channel by a warp or by a block, in an order of its own. */
#ifndef TCONV_CUDA_WGRAD_BIAS_PARTS_CUH
#define TCONV_CUDA_WGRAD_BIAS_PARTS_CUH

#include "../epilogue/finish.cuh"
#include "../hardware.h"
#include "../numeric/compensated.cuh"
#include "bias.h"
#include "sums.h"

namespace tconv::wgrad
{

using lossless = lossless_sum<double>;
static_assert(sizeof(lossless) == BIAS_PART_BYTES, "the host's size");

/* Adds what the lanes of a warp have, for the first one. */
static __device__ __forceinline__ void add_lanes(lossless &sum)
{
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum.add({__shfl_down_sync(~0u, sum.sum, lanes), __shfl_down_sync(~0u, sum.lost, lanes)});
}

/* Adds some parts of a channel, every `step`-th from `first` on. */
static __device__ __forceinline__ lossless sum_of_parts(const wgrad_bias_parts &of, int64_t channel, int first,
                                                        int step)
{
    const lossless *parts = static_cast<const lossless *>(of.parts) + channel;
    lossless sum = {0, 0};
#pragma unroll 1
    for (int64_t part = first; part < of.count; part += BIAS_LOADS * step) {
        lossless loaded[BIAS_LOADS];
#pragma unroll
        for (int i = 0; i < BIAS_LOADS; i++)
            loaded[i] = part + i * step < of.count ? parts[(part + i * step) * of.channels] : lossless{};
#pragma unroll
        for (int i = 0; i < BIAS_LOADS; i++)
            sum.add(loaded[i]);
    }
    return sum;
}

/* Adds the parts of the channels of a block: of one channel for each warp, or of one where all warps add parts of it. */
template <class Element> __device__ __forceinline__ void add_bias_parts(const wgrad_bias_parts &of, int64_t block)
{
    constexpr int WARPS = BIAS_THREADS / WARP;
    __shared__ lossless of_warps[WARPS];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int64_t channel = of.by_blocks ? block : block * WARPS + warp;
    if (channel >= of.channels)
        return;
    lossless sum = of.by_blocks ? sum_of_parts(of, channel, (int)threadIdx.x, BIAS_THREADS)
                                : sum_of_parts(of, channel, lane, WARP);
    add_lanes(sum);
    if (of.by_blocks) {
        if (lane == 0)
            of_warps[warp] = sum;
        __syncthreads();
        sum = lane < WARPS ? of_warps[lane] : lossless{};
        __syncthreads();
        add_lanes(sum);
    }
    if (lane == 0 && (warp == 0 || !of.by_blocks)) {
        Element *bias = static_cast<Element *>(of.bias) + channel;
        if (of.accumulates)
            sum.add(static_cast<double>(*bias));
        *bias = finish_total<Element>(sum.whole());
    }
}

} // namespace tconv::wgrad

#endif
