/*
 * The gradient of the bias: the sum of the gradient of dst over all outputs of a channel, with a tap or without.
 *
 * The outputs of all images are cut into parts, by the layer alone. A block sums a part of up to 32 channels (NHWC), whose
 * neighbours are in neighbouring threads, or of one channel (NCHW), whose pixels are; then a warp adds the parts of a channel,
 * in an order of their number. All sums are compensated and in double, so that they are exact but for one rounding for any
 * number of outputs that memory holds.
 */
#include "../../core/checked.h"
#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../runtime/launch.h"
#include "sums.h"

namespace tconv::outer
{

namespace
{

constexpr int THREADS = 256;
constexpr int WARP = 32;
constexpr int MOST_LANES = 32;       /* channels of a block in NHWC */
constexpr int64_t MOST_PARTS = 256;  /* of a channel */
constexpr int64_t BLOCKS = 8;        /* of a multiprocessor, about */
constexpr int64_t THREAD_PIXELS = 8; /* that a thread sums, at least */

struct parameters {
    tconv_strides strides;
    int64_t channels, pixels, image_pixels; /* pixels: of all images */
    int64_t parts, part_pixels;
    int64_t channel_blocks;
    int lanes;        /* threads of a block that have a channel each */
    bool accumulates; /* to what the gradient holds */
};

using lossless = lossless_sum<double>;

/* Adds the sums of threads that are `apart` apart, up to `end`, to those of the first ones. */
__device__ void add_threads(lossless *shared, lossless &mine, int apart, int end)
{
    for (int half = end / 2; half >= apart; half /= 2) {
        shared[threadIdx.x] = mine;
        __syncthreads();
        if ((int)threadIdx.x < half)
            mine.add(shared[threadIdx.x + half]);
        __syncthreads();
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    sum_parts_kernel(const __grid_constant__ parameters p, const Element *from, lossless *parts)
{
    __shared__ lossless shared[THREADS];
    for (int64_t block = blockIdx.x; block < p.channel_blocks * p.parts; block += gridDim.x) {
        const int64_t part = block / p.channel_blocks, channel_block = block % p.channel_blocks;
        const int lanes = p.lanes;
        const int64_t channel = channel_block * lanes + (int)threadIdx.x % lanes;
        const int64_t end = p.part_pixels < p.pixels - part * p.part_pixels ? (part + 1) * p.part_pixels : p.pixels;
        lossless sum = {0, 0};
        for (int64_t first = part * p.part_pixels, next; first < end && channel < p.channels; first = next) {
            const int64_t image = first / p.image_pixels, begin = image * p.image_pixels;
            const Element *row = from + image * p.strides.n + channel * p.strides.c;
            next = end < begin + p.image_pixels ? end : begin + p.image_pixels;
            for (int64_t pixel = first - begin + (int)threadIdx.x / lanes; pixel < next - begin;
                 pixel += THREADS / lanes)
                sum.add((double)row[pixel * p.strides.w]); /* rows are dense */
        }
        add_threads(shared, sum, lanes, THREADS);
        if ((int)threadIdx.x < lanes && channel < p.channels)
            parts[part * p.channels + channel] = sum;
    }
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    add_parts_kernel(const __grid_constant__ parameters p, const lossless *parts, Element *bias)
{
    const int lane = (int)threadIdx.x % WARP;
    for (int64_t channel = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / WARP; channel < p.channels;
         channel += (int64_t)gridDim.x * (THREADS / WARP)) {
        lossless sum = {0, 0};
        for (int64_t part = lane; part < p.parts; part += WARP)
            sum.add(parts[part * p.channels + channel]);
        for (int half = WARP / 2; half > 0; half /= 2)
            sum.add(lossless{__shfl_down_sync(~0u, sum.sum, half), __shfl_down_sync(~0u, sum.lost, half)});
        if (lane > 0)
            continue;
        if (p.accumulates)
            sum.add(static_cast<double>(bias[channel]));
        bias[channel] = static_cast<Element>(sum.whole());
    }
}

parameters parameters_of(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    parameters p = {};
    p.strides = problem->dst;
    p.channels = problem->out_channels;
    p.image_pixels = problem->h.out * problem->w.out;
    p.pixels = problem->batch * p.image_pixels;
    p.lanes = 1;
    while (problem->layout == TCONV_NHWC && p.lanes < MOST_LANES && p.lanes < p.channels)
        p.lanes *= 2;
    p.accumulates = problem->desc.accumulate != 0;
    p.channel_blocks = tconv_ceil_div(p.channels, p.lanes);
    const int64_t blocks = BLOCKS * (int64_t)layer->target.multiprocessors;
    const int64_t most = tconv_min(MOST_PARTS, tconv_ceil_div(blocks, p.channel_blocks));
    const int64_t least_pixels = THREAD_PIXELS * THREADS / p.lanes;
    p.part_pixels = tconv_max(least_pixels, tconv_ceil_div(p.pixels, most));
    p.parts = tconv_ceil_div(p.pixels, p.part_pixels);
    return p;
}

} // namespace

size_t bias_scratch(const tconv_layer *layer)
{
    const parameters p = parameters_of(layer);
    return (size_t)(p.parts * p.channels) * sizeof(lossless);
}

tconv_status sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias, void *stream,
                      tconv_issue *issue)
{
    parameters p = parameters_of(layer);
    const void *sum_parts, *add_parts;
    with_element(layer->problem.dtype, [&](auto element) {
        using Element = decltype(element);
        sum_parts = (const void *)sum_parts_kernel<Element>;
        add_parts = (const void *)add_parts_kernel<Element>;
        return 0;
    });
    void *first[] = {&p, &diff_dst, &scratch}, *second[] = {&p, &scratch, &bias};
    tconv_status status = TCONV_SUCCESS;
    if (p.parts > 0)
        status = launch_blocks(sum_parts, p.channel_blocks * p.parts, THREADS, first, stream, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return launch_blocks(add_parts, tconv_ceil_div(p.channels, THREADS / WARP), THREADS, second, stream, issue);
}

} // namespace tconv::outer
