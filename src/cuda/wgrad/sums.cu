/* Adds the slices of a gradient of weights: a block has a run of weights in the order of memory, and several threads
 * for each, which add parts of the slices; the parts are added in order. */
#include "../../core/checked.h"
#include "../epilogue/finish.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "bias_parts.cuh"
#include "sums.h"

namespace tconv::wgrad
{

namespace
{

constexpr int THREADS = BIAS_THREADS;
constexpr int LOADS = 8;                     /* of a thread, under way together */
constexpr int64_t NARROW = (int64_t)1 << 30; /* indices below this are 32-bit ones */

/* Division of numbers that fit in 32 bits, or of any. */
template <class Index> struct divisor {
    Index by;
};
template <> struct divisor<int> {
    fast_divisor by;
};
template <class Index> struct quotient_of {
    Index whole, rest;
};

template <class Index> divisor<Index> make(int64_t by)
{
    if constexpr (sizeof(Index) == 4)
        return {divisor_of((int)by)};
    else
        return {by};
}

template <class Index> __device__ __forceinline__ quotient_of<Index> split(Index number, const divisor<Index> &of)
{
    if constexpr (sizeof(Index) == 4) {
        const quotient result = divide(number, of.by);
        return {result.whole, result.rest};
    } else {
        return {number / of.by, number % of.by};
    }
}

/* The taps of an axis, as wgrad_tap_order has them, and what a group of taps and a tap of it add to the number of a
 * sum. */
template <class Index> struct order {
    divisor<Index> kernel_step, group_taps;
    Index floor, longer; /* taps of a residue, and residues with one more */
    Index group, tap;
};

template <class Index> struct parameters {
    divisor<Index> inner, middle; /* extents of the weights as they lie, but for the outermost */
    int roles[3];                 /* of these axes: 0 input channels, 1 output channels, 2 taps */
    divisor<Index> columns, kernel_rows, group_in, block_m, chunk;
    order<Index> rows, along;      /* of the kernel's rows and columns */
    Index plane, group, m_tile, m; /* what one more of these adds to the number of a sum */
    Index chunk_sums;
    bool has_planes; /* several kernel planes */
    tconv_weight_strides strides;
    int64_t slices, slice_sums, weights;
    int parts;
    bool accumulates;      /* to what the gradient holds */
    int64_t runs;          /* of as many weights as a block adds at a time */
    wgrad_bias_parts bias; /* which blocks behind those of runs add */
};

template <class Index> order<Index> order_for(const wgrad_tap_order &taps, int64_t group, int64_t tap)
{
    return {make<Index>(taps.kernel_step),
            make<Index>(taps.group_taps),
            taps.kernel / taps.kernel_step,
            taps.kernel % taps.kernel_step,
            (Index)group,
            (Index)tap};
}

template <class Index> parameters<Index> parameters_for(const tconv_layer *layer, const wgrad_slices *slices)
{
    const tconv_problem *problem = &layer->problem;
    const sum_tiles &tiles = slices->tiles;
    const int64_t extents[3] = {problem->in_channels, problem->group_out,
                                problem->d.kernel * problem->h.kernel * problem->w.kernel};
    const int64_t tile = tiles.block_m * tiles.block_n, chunk = tile * tiles.rows.groups * tiles.columns.groups;
    const tconv_weight_strides *strides = &problem->weight;
    parameters<Index> p = {};
    p.roles[0] = strides->w == 1 ? 2 : strides->out == 1 ? 1 : 0;
    p.roles[1] = p.roles[0] == 1 ? 2 : 1;
    p.roles[2] = 3 - p.roles[0] - p.roles[1];
    p.inner = make<Index>(extents[p.roles[0]]);
    p.middle = make<Index>(extents[p.roles[1]]);
    p.columns = make<Index>(problem->w.kernel);
    p.kernel_rows = make<Index>(problem->h.kernel);
    p.has_planes = tiles.planes > 1;
    p.group_in = make<Index>(problem->group_in);
    p.block_m = make<Index>(tiles.block_m);
    p.chunk = make<Index>(tiles.chunk);
    p.rows = order_for<Index>(tiles.rows, tile * tiles.columns.groups, tiles.columns.group_taps * tiles.chunk);
    p.along = order_for<Index>(tiles.columns, tile, tiles.chunk);
    p.chunk_sums = (Index)chunk;
    p.m_tile = (Index)(chunk * tiles.chunks);
    p.group = (Index)(p.m_tile * tiles.m_tiles);
    p.plane = (Index)(p.group * tiles.groups);
    p.m = (Index)tiles.block_n;
    p.strides = *strides;
    p.slices = slices->count;
    p.slice_sums = tconv_wgrad_slice_sums(&tiles);
    p.weights = extents[0] * extents[1] * extents[2];
    p.parts = tconv_wgrad_parts_of_slices(p.slices);
    p.accumulates = problem->desc.accumulate != 0;
    p.runs = tconv_ceil_div(p.weights, THREADS / p.parts);
    p.bias = slices->with;
    return p;
}

/* What kernel index k of an axis adds to the number of a sum. */
template <class Index> __device__ __forceinline__ Index sum_of_tap(const order<Index> &of, Index k)
{
    const quotient_of<Index> by_step = split(k, of.kernel_step);
    const Index place = by_step.rest * of.floor + min(by_step.rest, of.longer) + by_step.whole;
    const quotient_of<Index> group = split(place, of.group_taps);
    return group.whole * of.group + group.rest * of.tap;
}

template <class Element, class Sum, class Index>
__global__ void __launch_bounds__(THREADS)
    add_slices_kernel(const __grid_constant__ parameters<Index> p, const Sum *slices, Element *weights)
{
    __shared__ double sums[THREADS];
    const int width = THREADS / p.parts, part = (int)threadIdx.x / width, lane = (int)threadIdx.x % width;
    const int64_t begin = divide(p.slices * part, p.parts), end = divide(p.slices * (part + 1), p.parts);
    launch_dependents();
    int64_t run = blockIdx.x;
    for (; run < p.runs; run += gridDim.x) {
        const int64_t number = run * width + lane;
        double sum = 0;
        Index weight = 0;
        if (number < p.weights) {
            const quotient_of<Index> inner = split((Index)number, p.inner), middle = split(inner.whole, p.middle);
            const auto at = [&](int role) {
                return p.roles[0] == role ? inner.rest : p.roles[1] == role ? middle.rest : middle.whole;
            };
            const quotient_of<Index> group = split(at(0), p.group_in), m_tile = split(group.rest, p.block_m);
            const quotient_of<Index> chunk = split(at(1), p.chunk), tap = split(at(2), p.columns);
            const quotient_of<Index> plane =
                p.has_planes ? split(tap.whole, p.kernel_rows) : quotient_of<Index>{0, tap.whole};
            const Index place = plane.whole * p.plane + group.whole * p.group + m_tile.whole * p.m_tile +
                                m_tile.rest * p.m + chunk.whole * p.chunk_sums + chunk.rest +
                                sum_of_tap(p.rows, plane.rest) + sum_of_tap(p.along, tap.rest);
            const Sum *from = slices + place + begin * p.slice_sums;
            weight = at(0) * (Index)p.strides.in + at(1) * (Index)p.strides.out + plane.whole * (Index)p.strides.d +
                     plane.rest * (Index)p.strides.h + tap.rest * (Index)p.strides.w;
            wait_for_kernel_ahead();
#pragma unroll 1
            for (int left = (int)(end - begin); left > 0; left -= LOADS, from += LOADS * p.slice_sums) {
                Sum loaded[LOADS];
#pragma unroll
                for (int i = 0; i < LOADS; i++)
                    loaded[i] = i < left ? from[i * p.slice_sums] : (Sum)-0.0; /* which changes no sum */
#pragma unroll
                for (int i = 0; i < LOADS; i++)
                    sum += (double)loaded[i];
            }
        }
        if (p.parts > 1) {
            sums[threadIdx.x] = sum;
            __syncthreads();
            for (int i = 1; i < p.parts && part == 0; i++)
                sum += sums[i * width + lane];
            __syncthreads();
        }
        if (part == 0 && number < p.weights) {
            sum += p.accumulates ? static_cast<double>(weights[weight]) : 0;
            weights[weight] = finish_total<Element>(sum);
        }
    }
    wait_for_kernel_ahead();
#pragma unroll 1
    for (int64_t block = run - p.runs; block < p.bias.blocks; block += gridDim.x)
        add_bias_parts<Element>(p.bias, block);
}

template <class Index>
tconv_status launch(const tconv_layer *layer, const wgrad_slices *slices, const void *memory, void *weights,
                    void *stream, tconv_issue *issue)
{
    parameters<Index> p = parameters_for<Index>(layer, slices);
    const void *kernel = with_element(layer->problem.dtype, [&](auto element) {
        using Element = decltype(element);
        return slices->are_double ? (const void *)add_slices_kernel<Element, double, Index>
                                  : (const void *)add_slices_kernel<Element, float, Index>;
    });
    void *arguments[] = {&p, &memory, &weights};
    return tconv_launch_blocks(kernel, p.runs + p.bias.blocks, THREADS, arguments, stream, issue,
                               slices->count > 0 && tconv_wgrad_may_overlap(layer));
}

} // namespace

tconv_status tconv_wgrad_add_slices(const tconv_layer *layer, const wgrad_slices *slices, const void *memory,
                                    void *weights, void *stream, tconv_issue *issue)
{
    if (tconv_wgrad_adds_rows(layer, slices))
        return tconv_wgrad_add_rows(layer, slices, memory, weights, stream, issue);
    const tconv_problem *problem = &layer->problem;
    const tconv_weight_strides *strides = &problem->weight;
    const int64_t reach = (problem->in_channels - 1) * strides->in + (problem->group_out - 1) * strides->out +
                          (problem->d.kernel - 1) * strides->d + (problem->h.kernel - 1) * strides->h +
                          (problem->w.kernel - 1) * strides->w;
    return tconv_max(tconv_wgrad_slice_sums(&slices->tiles), reach) < NARROW
               ? launch<int>(layer, slices, memory, weights, stream, issue)
               : launch<int64_t>(layer, slices, memory, weights, stream, issue);
}

} // namespace tconv::wgrad
