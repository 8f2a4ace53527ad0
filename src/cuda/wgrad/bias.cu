/*
 * The gradient of the bias: the sum of the gradient of dst over all outputs of a channel, with a tap or without.
 *
 * The outputs are cut into parts, by the layer alone: pieces of images. A block sums a part of some channels that are
 * neighbours in memory (NHWC): its threads read vectors, one after the other, and so many of them that what a thread reads
 * next is of the same channels. In NCHW a warp sums a part of one channel. Then a warp adds the parts of a channel, in an
 * order of its own. A thread's sums are in double, of doubles compensated, and all others are compensated, so that they are
 * exact but for one rounding for any number of outputs that memory holds; 16-bit outputs are added four at a time in f32
 * before, since each conversion to double takes longer than all else.
 */
#include "../../core/checked.h"
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "sums.h"

namespace tconv::wgrad
{

namespace
{

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int AT_ONCE = 4;                      /* loads of a thread */
constexpr int64_t MOST_PARTS = 1024;            /* of a channel */
constexpr int64_t MOST_SUMS = (int64_t)1 << 18; /* of all parts, where these are more than LEAST_PARTS */
constexpr int64_t LEAST_PARTS = 64;             /* that are always taken */
constexpr int RESIDENT = 4;                     /* blocks of a multiprocessor */
constexpr int64_t THREAD_VECTORS = 2 * AT_ONCE; /* that a thread sums, at least */
constexpr int64_t MOST_CHANNELS = THREADS;      /* of a block, or as many vectors */

template <class Element> constexpr int VECTOR = 16 / (int)sizeof(Element);

struct parameters {
    tconv_strides strides;
    int64_t channels;
    int64_t block_channels, channel_blocks; /* NCHW: a block has one channel for each warp, and block_channels is 1 */
    int64_t image_pixels, piece_pixels, image_pieces; /* of an image */
    int64_t pieces, parts, part_pieces;               /* of all images */
    bool vectors;                                     /* vectors of pixels or channels are neighbours in memory */
    bool aligned;                                     /* and their addresses are aligned */
    bool accumulates;                                 /* to what the gradient holds */
};

using lossless = lossless_sum<double>;

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

/* Adds to a thread's sums AT_ONCE vectors, `step` apart, of which the first has so many elements left and each next one `less`
 * fewer; what is not left counts as zero. Loads of vectors are all under way together. */
template <class Element, int V, class Sum>
__device__ __forceinline__ void add_vectors(Sum (&sums)[V], const Element *from, int64_t step, int64_t left,
                                            int64_t less, bool aligned)
{
    constexpr bool HALF = sizeof(Element) == 2;
    float few[V] = {}; /* of 16 bits, that are added in f32 first */
    const auto add = [&](const element_vector<Element, V> &loaded) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            if constexpr (HALF)
                few[j] += static_cast<float>(loaded.at[j]);
            else
                sums[j].add((double)loaded.at[j]);
        }
    };
    if (aligned && left % V == 0) {
        using Words = std::conditional_t<V * sizeof(Element) == 16, uint4, Element>;
        Words words[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            words[i] = i * less < left ? *reinterpret_cast<const Words *>(from + i * step) : Words{};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            add(*reinterpret_cast<const element_vector<Element, V> *>(&words[i]));
    } else {
#pragma unroll 1
        for (int i = 0; i < AT_ONCE; i++, from += step, left -= less) {
            element_vector<Element, V> loaded;
#pragma unroll
            for (int j = 0; j < V; j++)
                loaded.at[j] = j < left ? from[j] : static_cast<Element>(0.0f);
            add(loaded);
        }
    }
#pragma unroll
    for (int j = 0; j < V && HALF; j++)
        sums[j].add((double)few[j]);
}

/* The threads that sum so many channels: all those read after one another are a multiple of them. */
__device__ __forceinline__ int threads_of(int channels, int vector)
{
    const int period = channels / min(channels & -channels, vector);
    return THREADS - THREADS % period;
}

template <class Element, int V>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_parts_kernel(const __grid_constant__ parameters p, const Element *from, lossless *parts)
{
    using Sum = std::conditional_t<sizeof(Element) == sizeof(double), lossless, plain>;
    __shared__ lossless shared[THREADS * V];
    const int at = (int)threadIdx.x * V;
    launch_dependents();
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
            for (; left > 0; left -= AT_ONCE * less, data += AT_ONCE * step)
                add_vectors<Element, V>(sums, data, step, left, less, p.aligned);
        }
#pragma unroll
        for (int j = 0; j < V; j++)
            shared[at + j] = sums[j];
        __syncthreads();
        for (int rows = threads * V / channels, half; rows > 1; rows = half) {
            half = (rows + 1) / 2;
            for (int i = (int)threadIdx.x; i < (rows - half) * channels; i += THREADS)
                shared[i].add(shared[i + half * channels]);
            __syncthreads();
        }
        wait_for_kernel_ahead(); /* which may read what lies there */
        for (int i = (int)threadIdx.x; i < channels; i += THREADS)
            parts[part * p.channels + first + i] = shared[i];
        __syncthreads();
    }
}

/* Adds what the lanes of a warp have, for the first one. */
__device__ __forceinline__ void add_lanes(lossless &sum)
{
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum.add({__shfl_down_sync(~0u, sum.sum, lanes), __shfl_down_sync(~0u, sum.lost, lanes)});
}

template <class Element, int V>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_planes_kernel(const __grid_constant__ parameters p, const Element *from, lossless *parts)
{
    using Sum = std::conditional_t<sizeof(Element) == sizeof(double), lossless, plain>;
    const int at = (int)threadIdx.x % WARP * V, warps = THREADS / WARP;
    const int64_t step = (int64_t)WARP * V;
    launch_dependents();
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
            for (; left > 0; left -= AT_ONCE * step, data += AT_ONCE * step * p.strides.w)
                add_vectors<Element, V>(sums, data, step * p.strides.w, left, step, p.aligned);
        }
        lossless sum = sums[0];
#pragma unroll
        for (int j = 1; j < V; j++)
            sum.add((lossless)sums[j]);
        add_lanes(sum);
        wait_for_kernel_ahead(); /* which may read what lies there */
        if (at == 0)
            parts[part * p.channels + channel] = sum;
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    add_parts_kernel(const __grid_constant__ parameters p, const lossless *parts, Element *bias)
{
    const int lane = (int)threadIdx.x % WARP;
    wait_for_kernel_ahead();
    for (int64_t channel = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP; channel < p.channels;
         channel += (int64_t)gridDim.x * (THREADS / WARP)) {
        lossless sum = {0, 0};
        for (int64_t part = lane; part < p.parts; part += AT_ONCE * WARP) {
            lossless loaded[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                loaded[i] = part + i * WARP < p.parts ? parts[(part + i * WARP) * p.channels + channel] : lossless{};
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                sum.add(loaded[i]);
        }
        add_lanes(sum);
        if (lane == 0) {
            if (p.accumulates)
                sum.add(static_cast<double>(bias[channel]));
            bias[channel] = static_cast<Element>(sum.whole());
        }
    }
}

parameters parameters_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const bool channels_last = problem->layout == TCONV_NHWC;
    const int64_t vector = 16 / (int64_t)problem->element_size;
    parameters p = {};
    p.strides = problem->dst;
    p.channels = problem->out_channels;
    p.accumulates = problem->desc.accumulate != 0;
    const bool by_channels = channels_last && p.channels % vector == 0 && p.strides.w % vector == 0;
    p.block_channels = channels_last ? tconv_min(p.channels, MOST_CHANNELS * (by_channels ? vector : 1)) : 1;
    p.channel_blocks = tconv_ceil_div(p.channels, channels_last ? p.block_channels : THREADS / WARP);
    p.vectors = by_channels || p.strides.w == p.block_channels;
    /* Rows are dense. */
    p.image_pixels = problem->h.out * problem->w.out;
    const int64_t sums = (channels_last ? THREADS : WARP) * (p.vectors ? vector : 1);
    const int64_t most = tconv_min(tconv_min(MOST_PARTS, tconv_max(LEAST_PARTS, MOST_SUMS / p.channels)),
                                   tconv_ceil_div(RESIDENT * (int64_t)layer->target.multiprocessors, p.channel_blocks));
    const int64_t least = tconv_max(1, THREAD_VECTORS * sums / p.block_channels);
    const int64_t part_pixels = tconv_max(least, tconv_ceil_div(problem->batch * p.image_pixels, most));
    p.piece_pixels = tconv_round_up(tconv_min(part_pixels, p.image_pixels), vector);
    p.image_pieces = tconv_ceil_div(p.image_pixels, p.piece_pixels);
    p.pieces = problem->batch * p.image_pieces;
    p.part_pieces = tconv_max(1, part_pixels / p.piece_pixels);
    p.parts = tconv_ceil_div(p.pieces, p.part_pieces);
    return p;
}

/* Whether all vectors begin at multiples of their size. */
bool is_aligned(const tconv_problem *problem, const parameters *p, const void *diff_dst)
{
    const int64_t vector = 16 / (int64_t)problem->element_size;
    return (uintptr_t)diff_dst % 16 == 0 && p->strides.n % vector == 0 &&
           (problem->layout == TCONV_NHWC || p->strides.c % vector == 0);
}

} // namespace

size_t bias_scratch(const tconv_layer *layer)
{
    const parameters p = parameters_of(layer);
    return bias_parts_bytes(layer, p.parts);
}

size_t bias_parts_bytes(const tconv_layer *layer, int64_t parts)
{
    return (size_t)(parts * layer->problem.out_channels) * sizeof(lossless);
}

tconv_status add_bias_parts(const tconv_layer *layer, const void *parts, int64_t count, void *bias, void *stream,
                            tconv_issue *issue)
{
    parameters p = {};
    p.channels = layer->problem.out_channels;
    p.parts = count;
    p.accumulates = layer->problem.desc.accumulate != 0;
    const void *kernel = with_element(layer->problem.dtype,
                                      [](auto element) { return (const void *)add_parts_kernel<decltype(element)>; });
    void *arguments[] = {&p, &parts, &bias};
    return tconv_launch_blocks(kernel, tconv_ceil_div(p.channels, THREADS / WARP), THREADS, arguments, stream, issue,
                               count > 0 && may_overlap(layer));
}

tconv_status sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias, bool overlaps,
                      void *stream, tconv_issue *issue)
{
    parameters p = parameters_of(layer);
    p.aligned = is_aligned(&layer->problem, &p, diff_dst);
    const void *sum_parts;
    with_element(layer->problem.dtype, [&](auto element) {
        using Element = decltype(element);
        if (layer->problem.layout == TCONV_NCHW)
            sum_parts = p.vectors ? (const void *)sum_planes_kernel<Element, VECTOR<Element>>
                                  : (const void *)sum_planes_kernel<Element, 1>;
        else
            sum_parts = p.vectors ? (const void *)sum_parts_kernel<Element, VECTOR<Element>>
                                  : (const void *)sum_parts_kernel<Element, 1>;
        return 0;
    });
    void *arguments[] = {&p, &diff_dst, &scratch};
    tconv_status status = TCONV_SUCCESS;
    if (p.parts > 0)
        status = tconv_launch_blocks(sum_parts, p.channel_blocks * p.parts, THREADS, arguments, stream, issue,
                                     overlaps && may_overlap(layer));
    return status == TCONV_SUCCESS ? add_bias_parts(layer, scratch, p.parts, bias, stream, issue) : status;
}

} // namespace tconv::wgrad
