/*
 * The gradient of the bias: the sum of the gradient of dst over all outputs of a channel, with a tap or without.
 *
 * The outputs are cut into parts, by the layer alone: pieces of images. A block sums a part of some channels that are
 * neighbours in memory (NHWC): its threads read vectors, one after the other, and so many of them that what a thread
 * reads next is of the same channels. In NCHW a warp sums a part of one channel. Then a warp adds the parts of a
 * channel, in an order of its own. A thread's sums are in double, of doubles compensated, and all others are
 * compensated, so that they are exact but for one rounding for any number of outputs that memory holds; 16-bit outputs
 * are added four at a time in f32 before, since each conversion to double takes longer than all else.
 */
#include "bias.h"

#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"
#include "bias_parts.cuh"

namespace tconv::wgrad
{

namespace
{

constexpr int THREADS = BIAS_THREADS, RESIDENT = BIAS_RESIDENT_BLOCKS;

template <class Element> constexpr int VECTOR = 16 / (int)sizeof(Element);
template <int V> constexpr int AT_ONCE = V == 1 ? BIAS_SINGLE_LOADS : BIAS_LOADS; /* loads of a thread */

/* A sum in double, of which rounding loses too little to keep where terms are shorter. */
struct plain {
    double sum;
    __device__ __forceinline__ void add(double term)
    {
        sum += term;
    }
    __device__ __forceinline__ operator lossless() const
    {
        return {sum, 0};
    }
};

/* Adds to a thread's sums AT_ONCE<V> vectors, `step` apart, of which the first has so many elements left and each next one
 * `less` fewer; what is not left counts as zero. Loads of vectors are all under way together. */
template <class Element, int V, class Sum>
__device__ __forceinline__ void add_vectors(Sum (&sums)[V], const Element *from, int64_t step, int64_t left,
                                            int64_t less, bool aligned)
{
    constexpr bool HALF = sizeof(Element) == 2;
    float few[V] = {}; /* of 16 bits: BIAS_LOADS are added in f32 first */
    const auto add = [&](const element_vector<Element, V> &loaded) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            if constexpr (HALF)
                few[j] += static_cast<float>(loaded.at[j]);
            else
                sums[j].add((double)loaded.at[j]);
        }
    };
    const auto add_few = [&] {
#pragma unroll
        for (int j = 0; j < V && HALF; j++) {
            sums[j].add((double)few[j]);
            few[j] = 0;
        }
    };
    if (aligned && left % V == 0) {
        using Words = std::conditional_t<V * sizeof(Element) == 16, uint4, Element>;
        Words words[AT_ONCE<V>];
#pragma unroll
        for (int i = 0; i < AT_ONCE<V>; i++)
            words[i] = i * less < left ? *reinterpret_cast<const Words *>(from + i * step) : Words{};
#pragma unroll
        for (int i = 0; i < AT_ONCE<V>; i++) {
            add(*reinterpret_cast<const element_vector<Element, V> *>(&words[i]));
            if (i % BIAS_LOADS == BIAS_LOADS - 1)
                add_few();
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < BIAS_LOADS; i++, from += step, left -= less) {
            element_vector<Element, V> loaded;
#pragma unroll
            for (int j = 0; j < V; j++)
                loaded.at[j] = j < left ? from[j] : static_cast<Element>(0.0f);
            add(loaded);
        }
        add_few();
    }
}

/* The kernel that adds the parts begins early, but for parts that are summed beside the kernel ahead: that adds them later, and
 * would crowd where no block of the two is. */
__device__ __forceinline__ void begin(const bias_parameters &p)
{
    if (!p.beside)
        launch_dependents();
}

/* Waits until parts may be written: the kernel ahead may read what lies there. */
__device__ __forceinline__ void wait_for_place(const bias_parameters &p)
{
    if (!p.beside)
        wait_for_kernel_ahead();
}

/* One block waits for the kernel ahead, so that the end of this kernel is the end of both. The others make room. */
__device__ __forceinline__ void end(const bias_parameters &p)
{
    if (p.beside && blockIdx.x == gridDim.x - 1)
        wait_for_kernel_ahead();
}

/* The threads that sum so many channels: all those read after one another are a multiple of them. */
__device__ __forceinline__ int threads_of(int channels, int vector)
{
    const int period = channels / min(channels & -channels, vector);
    return THREADS - THREADS % period;
}

template <class Element, int V>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_parts_kernel(const __grid_constant__ bias_parameters p, const Element *from, lossless *parts)
{
    using Sum = std::conditional_t<sizeof(Element) == sizeof(double), lossless, plain>;
    __shared__ lossless shared[THREADS * (V + 1)];
    /* The sums of each thread are followed by a gap, or lanes would meet in a bank. */
    const auto sum_at = [&](int number) -> lossless & { return shared[number + number / V]; };
    const int at = (int)threadIdx.x * V;
    begin(p);
    for (int64_t block = blockIdx.x; block < p.channel_blocks * p.parts; block += gridDim.x) {
        const int64_t part = block / p.channel_blocks, first = block % p.channel_blocks * p.block_channels;
        const int channels = (int)min(p.block_channels, p.channels - first), threads = threads_of(channels, V);
        const int64_t step = (int64_t)(threads * V / channels) * p.strides.w, less = (int64_t)threads * V;
        const int64_t pieces = min(p.pieces, (part + 1) * p.part_pieces);
        Sum sums[V] = {};
        for (int64_t piece = part * p.part_pieces; piece < pieces && (int)threadIdx.x < threads; piece++) {
            const int64_t image = divide(piece, p.image_pieces);
            const int64_t begin = (piece - image * p.image_pieces) * p.piece_pixels;
            const Element *data = from + image * p.strides.n + first * p.strides.c +
                                  (begin + at / channels) * p.strides.w + at % channels;
            int64_t left = min(p.piece_pixels, p.image_pixels - begin) * channels - at;
            for (; left > 0; left -= AT_ONCE<V> * less, data += AT_ONCE<V> * step)
                add_vectors<Element, V>(sums, data, step, left, less, p.aligned);
        }
#pragma unroll
        for (int j = 0; j < V; j++)
            shared[at + threadIdx.x + j] = sums[j];
        __syncthreads();
        for (int rows = threads * V / channels, half; rows > 1; rows = half) {
            half = (rows + 1) / 2;
            for (int i = (int)threadIdx.x; i < (rows - half) * channels; i += THREADS)
                sum_at(i).add(sum_at(i + half * channels));
            __syncthreads();
        }
        wait_for_place(p);
        for (int i = (int)threadIdx.x; i < channels; i += THREADS)
            parts[part * p.channels + first + i] = sum_at(i);
        __syncthreads();
    }
    end(p);
}

template <class Element, int V>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_planes_kernel(const __grid_constant__ bias_parameters p, const Element *from, lossless *parts)
{
    using Sum = std::conditional_t<sizeof(Element) == sizeof(double), lossless, plain>;
    const int at = (int)threadIdx.x % WARP * V, warps = THREADS / WARP;
    const int64_t step = (int64_t)WARP * V;
    begin(p);
    for (int64_t item = (int64_t)blockIdx.x * warps + (int)threadIdx.x / WARP; item < p.channels * p.parts;
         item += (int64_t)gridDim.x * warps) {
        const int64_t part = item / p.channels, channel = item % p.channels;
        const int64_t pieces = min(p.pieces, (part + 1) * p.part_pieces);
        Sum sums[V] = {};
        for (int64_t piece = part * p.part_pieces; piece < pieces; piece++) {
            const int64_t image = divide(piece, p.image_pieces);
            const int64_t begin = (piece - image * p.image_pieces) * p.piece_pixels;
            const Element *data = from + image * p.strides.n + channel * p.strides.c + (begin + at) * p.strides.w;
            int64_t left = min(p.piece_pixels, p.image_pixels - begin) - at;
            for (; left > 0; left -= AT_ONCE<V> * step, data += AT_ONCE<V> * step * p.strides.w)
                add_vectors<Element, V>(sums, data, step * p.strides.w, left, step, p.aligned);
        }
        lossless sum = sums[0];
#pragma unroll
        for (int j = 1; j < V; j++)
            sum.add((lossless)sums[j]);
        add_lanes(sum);
        wait_for_place(p);
        if (at == 0)
            parts[part * p.channels + channel] = sum;
    }
    end(p);
}

template <class Element>
__global__ void __launch_bounds__(THREADS) add_parts_kernel(const __grid_constant__ wgrad_bias_parts of)
{
    wait_for_kernel_ahead();
    for (int64_t block = blockIdx.x; block < of.blocks; block += gridDim.x)
        add_bias_parts<Element>(of, block);
}

} // namespace

const void *tconv_wgrad_add_bias_kernel(tconv_dtype dtype)
{
    return with_element(dtype, [](auto element) { return (const void *)add_parts_kernel<decltype(element)>; });
}

const void *tconv_wgrad_bias_kernel(tconv_dtype dtype, tconv_layout layout, bool vectors)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        if (layout == TCONV_NCHW)
            return vectors ? (const void *)sum_planes_kernel<Element, VECTOR<Element>>
                           : (const void *)sum_planes_kernel<Element, 1>;
        return vectors ? (const void *)sum_parts_kernel<Element, VECTOR<Element>>
                       : (const void *)sum_parts_kernel<Element, 1>;
    });
}

} // namespace tconv::wgrad
