/* The kernel of the gradient of weights (weights.c). */
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "kernels.h"
#include "weights_parameters.h"

#include <type_traits>

namespace tconv::depthwise::weights
{

namespace
{

constexpr int SEGMENT = 16; /* terms: n round to within n / 2 units of the sum of their magnitudes */

/* A sum of f32 products in double, of which rounding loses too little to keep. */
struct plain_sum {
    double sum;

    __device__ __forceinline__ void add(double term)
    {
        sum += term;
    }
    __device__ __forceinline__ double whole() const
    {
        return sum;
    }
};

template <class Compute>
using long_sum = std::conditional_t<std::is_same<Compute, double>::value, lossless_sum<double>, plain_sum>;

/* A tap and an output channel: where its outputs lie from those of the first tap and channel. */
struct pair {
    int64_t offset; /* in bytes */
    int row, column;
};

/* Adds an input's products with the outputs of a block's pairs, of which all exist if inside. All loads are under way
 * together. */
template <bool inside, class Element>
__device__ __forceinline__ void add_products(compute_type<Element> (&sums)[PAIRS], compute_type<Element> value,
                                             const Element *output, const pair *table, int row, int column,
                                             const parameters &p)
{
    Element read[PAIRS];
    bool exists[PAIRS];
    if (!inside)
        asm volatile("" : : : "memory"); /* or all of the table is kept in registers */
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const pair of = table[j];
        exists[j] = inside || ((unsigned)(row + of.row) < (unsigned)p.rows.out &&
                               (unsigned)(column + of.column) < (unsigned)p.columns.out);
        read[j] = exists[j] ? *(const Element *)((const char *)output + of.offset) : Element(0.0f);
    }
#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        if (exists[j])
            sums[j] = fma(value, to_compute(read[j]), sums[j]);
}

/* Blocks of a multiprocessor that registers are for. */
template <class Element> constexpr int RESIDENT = sizeof(Element) == sizeof(double) ? 3 : 5;

template <class Element, bool by_lanes>
__global__ void __launch_bounds__(THREADS, RESIDENT<Element>) sum_pixels(const __grid_constant__ parameters p)
{
    using Compute = compute_type<Element>;
    constexpr int CHANNELS = by_lanes ? LANES : 1;
    __shared__ pair table[PAIRS];
    constexpr int ADDERS = CHANNELS * PAIRS < THREADS ? THREADS / CHANNELS / PAIRS : 1; /* of a sum of all threads */
    __shared__ long_sum<Compute> sums[PAIRS][THREADS + ADDERS];
    const Element *src = (const Element *)p.src, *diff_dst = (const Element *)p.diff_dst;
    launch_dependents(); /* what adds slices */
    for (int64_t block = blockIdx.x; block < p.parts * p.channel_blocks * p.pair_blocks; block += gridDim.x) {
        const int64_t first_pair = block % p.pair_blocks * PAIRS, rest = block / p.pair_blocks;
        const int64_t channel = rest % p.channel_blocks * CHANNELS + (int)threadIdx.x % CHANNELS;
        const int64_t part = rest / p.channel_blocks, begin = part * p.part_pixels;
        const int64_t end = p.pixels - begin < p.part_pixels ? p.pixels : begin + p.part_pixels;
        const int pairs = (int)min((int64_t)PAIRS, p.pairs - first_pair);
        if ((int)threadIdx.x < PAIRS) { /* pairs past the last are the first, of which nothing is kept */
            const int64_t number = first_pair + ((int)threadIdx.x < pairs ? threadIdx.x : 0);
            const int64_t tap = number / p.group_out, out = number % p.group_out;
            const int row = (int)(tap / p.columns.kernel) * p.rows.dilation - p.rows.pad;
            const int column = (int)(tap % p.columns.kernel) * p.columns.dilation - p.columns.pad;
            const int64_t offset = out * p.dst_strides.c + row * p.dst_strides.h + column * p.dst_strides.w;
            table[threadIdx.x] = {offset * (int64_t)sizeof(Element), row, column};
        }
        __syncthreads();

#pragma unroll
        for (int j = 0; j < PAIRS; j++)
            sums[j][threadIdx.x] = {};
        Compute segment[PAIRS] = {};
        int in_segment = 0;
        for (int64_t first = begin, next; first < end && channel < p.groups; first = next) {
            const int64_t image = first / p.image_pixels, image_begin = image * p.image_pixels;
            const Element *from = src + image * p.src_strides.n + channel * p.src_strides.c;
            const Element *outputs = diff_dst + image * p.dst_strides.n + channel * p.group_out * p.dst_strides.c;
            next = min(end, image_begin + p.image_pixels);
#pragma unroll 1
            for (int64_t i = first - image_begin + (int)threadIdx.x / CHANNELS; i < next - image_begin;
                 i += THREADS / CHANNELS) {
                const quotient at = divide((int)i, p.by_columns);
                const int row = at.whole * p.rows.stride, column = at.rest * p.columns.stride;
                const Compute value = to_compute(from[at.whole * p.src_strides.h + at.rest * p.src_strides.w]);
                const Element *output = outputs + row * p.dst_strides.h + column * p.dst_strides.w;
                const bool inside = row >= p.rows.inside.first && row <= p.rows.inside.last &&
                                    column >= p.columns.inside.first && column <= p.columns.inside.last;
                if (__all_sync(__activemask(), inside)) /* or a warp at a border would go both ways */
                    add_products<true>(segment, value, output, table, row, column, p);
                else
                    add_products<false>(segment, value, output, table, row, column, p);
                if (++in_segment == SEGMENT) {
                    in_segment = 0;
#pragma unroll
                    for (int j = 0; j < PAIRS; j++) {
                        sums[j][threadIdx.x].add((double)segment[j]);
                        segment[j] = 0;
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < PAIRS; j++)
            sums[j][threadIdx.x].add((double)segment[j]);
        __syncthreads();
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < PAIRS * CHANNELS * ADDERS; i += THREADS) {
            const int first = i % ADDERS, of = i / ADDERS % CHANNELS, j = i / ADDERS / CHANNELS;
            const int64_t at = channel - (int)threadIdx.x % CHANNELS + of;
            double sum = 0;
            for (int term = first; term < THREADS / CHANNELS; term += ADDERS)
                sum += sums[j][term * CHANNELS + of].whole();
            for (int lanes = ADDERS / 2; lanes > 0; lanes /= 2)
                sum += __shfl_down_sync(0xffffffff, sum, lanes);
            if (first == 0 && at < p.groups && j < pairs)
                p.slices[(part * p.groups + at) * p.pairs + first_pair + j] = sum;
        }
        __syncthreads();
    }
}

} // namespace

} // namespace tconv::depthwise::weights

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_weights_kernel(tconv_dtype dtype, bool by_lanes)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        return by_lanes ? (const void *)weights::sum_pixels<Element, true>
                        : (const void *)weights::sum_pixels<Element, false>;
    });
}

} // namespace tconv::depthwise
