/*
 * cuda_depthwise, the gradients of weights and bias: layers with one input channel a group and few output channels, every
 * dtype and either layout, straight from global memory.
 *
 * A block has a channel (NCHW, or very few channels), or 32 whose neighbours are in neighbouring threads (NHWC), a few of its
 * pairs of a tap and an output channel, and a part of the pixels. A thread loads an input once for all of its pairs, whose
 * sums are in registers; what pairs share comes from the first-level cache. Outputs that are not there are skipped. The sums
 * of a part are a slice (outer/tiles.h).
 *
 * Numeric order, by layer and number of multiprocessors alone: segments of SEGMENT pixels of a thread from zero; segments,
 * threads of a block and slices in double, in f64 with what rounding loses; one rounding.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../numeric/compensated.cuh"
#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "../wgrad/sums.h"

#include <cstdio>
#include <type_traits>

namespace tconv::depthwise
{

namespace
{

constexpr int THREADS = 128;
constexpr int LANES = 32;             /* channels of a block in NHWC */
constexpr int64_t LEAST_CHANNELS = 8; /* of a layer in NHWC, for blocks of so many */
constexpr int PAIRS = 16;             /* of a block */
constexpr int SEGMENT = 16;           /* terms: n round to within n / 2 units of the sum of their magnitudes */
constexpr int64_t MOST_OUT = 4;       /* output channels of a group: tensor cores do more better */
constexpr int64_t MAX_EXTENT = (int64_t)1 << 28; /* of coordinates, so that sums of a few fit in 32 bits */
constexpr int64_t BLOCKS = 16;                   /* of a multiprocessor, about */
constexpr int64_t THREAD_PIXELS = 16;            /* that a thread sums, at least */
constexpr int64_t MOST_SLICES_BYTES = (int64_t)32 << 20;

struct range {
    int first, last;
};

struct axis {
    int in, out, kernel, stride, dilation, pad;
    range inside; /* outputs of tap 0, before padding, from which all taps' exist */
};

struct parameters {
    const void *src, *diff_dst;
    double *slices;
    tconv_strides src_strides, dst_strides;
    axis rows, columns;
    fast_divisor by_columns; /* inputs of a row */
    int64_t groups, group_out;
    int64_t pixels, image_pixels; /* inputs of all images, of one */
    int64_t pairs;                /* of a group */
    int64_t pair_blocks, channel_blocks, parts, part_pixels;
};

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

struct planned_layer {
    depthwise::parameters parameters; /* without addresses */
    wgrad::sum_tiles tiles;
    bool by_lanes; /* a warp's threads have a channel each */
    int64_t blocks;
};

bool is_small(const tconv_axis *of)
{
    return of->in < MAX_EXTENT && of->out < MAX_EXTENT && of->stride < MAX_EXTENT &&
           of->in * of->stride < 2 * MAX_EXTENT && (of->kernel - 1) * of->dilation < MAX_EXTENT && of->pad < MAX_EXTENT;
}

axis axis_of(const tconv_axis *of)
{
    const int64_t pad = of->pad, reach = (of->kernel - 1) * of->dilation;
    return {(int)of->in,
            (int)of->out,
            (int)of->kernel,
            (int)of->stride,
            (int)of->dilation,
            (int)pad,
            {(int)pad, (int)(of->out - 1 - reach + pad)}};
}

tconv_status plan(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer *made = (planned_layer *)to;
    parameters *p = &made->parameters;
    if (problem->group_in != 1 || (problem->group_out > MOST_OUT && !planned->named))
        return tconv_decline(issue, "needs one input channel a group and at most %d output channels", (int)MOST_OUT);
    if (!is_small(&problem->h) || !is_small(&problem->w) || problem->h.in * problem->w.in >= 2 * MAX_EXTENT)
        return tconv_decline(issue, "needs extents below 2^28");
    p->src_strides = problem->src;
    p->dst_strides = problem->dst;
    p->rows = axis_of(&problem->h);
    p->columns = axis_of(&problem->w);
    p->by_columns = divisor_of((int)problem->w.in);
    p->groups = problem->groups;
    p->group_out = problem->group_out;
    p->image_pixels = problem->h.in * problem->w.in;
    p->pixels = problem->batch * p->image_pixels;
    made->tiles = wgrad::tiles_of_all_pairs(problem, 1);
    p->pairs = made->tiles.block_n;
    p->pair_blocks = tconv_ceil_div(p->pairs, PAIRS);
    made->by_lanes = problem->layout == TCONV_NHWC && problem->groups >= LEAST_CHANNELS;
    const int64_t channels = made->by_lanes ? LANES : 1;
    p->channel_blocks = tconv_ceil_div(p->groups, channels);
    const int64_t blocks = BLOCKS * (int64_t)layer->target.multiprocessors, bytes = p->groups * p->pairs * 8;
    const int64_t parts =
        tconv_min(tconv_ceil_div(blocks, p->channel_blocks * p->pair_blocks), MOST_SLICES_BYTES / bytes);
    p->part_pixels = tconv_max(THREAD_PIXELS * THREADS / channels, tconv_ceil_div(p->pixels, tconv_max(1, parts)));
    p->parts = tconv_ceil_div(p->pixels, p->part_pixels);
    made->blocks = p->parts * p->channel_blocks * p->pair_blocks;
    planned->sizes.scratch = (size_t)tconv_max(p->parts * bytes, (int64_t)wgrad::bias_scratch(layer));
    return TCONV_SUCCESS;
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    return wgrad::execute_gradients(
        layer, arguments,
        [&](wgrad::slices *of) {
            parameters p = made->parameters;
            p.src = arguments->src;
            p.diff_dst = arguments->dst;
            p.slices = (double *)arguments->scratch;
            *of = {made->tiles, p.parts, true};
            const void *kernel = with_element(layer->problem.dtype, [&](auto element) {
                using Element = decltype(element);
                return made->by_lanes ? (const void *)sum_pixels<Element, true>
                                      : (const void *)sum_pixels<Element, false>;
            });
            void *kernel_arguments[] = {&p};
            return made->blocks == 0 ? TCONV_SUCCESS
                                     : tconv_launch_blocks(kernel, made->blocks, THREADS, kernel_arguments,
                                                           arguments->stream, issue, false);
        },
        issue);
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const planned_layer *made = (const planned_layer *)from;
    snprintf(text, capacity, "pairs=%d parts=%lld blocks=%lld", PAIRS, (long long)made->parameters.parts,
             (long long)made->blocks);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_depthwise_weights = {"cuda_depthwise",
                                                                      TCONV_BACKEND_CUDA,
                                                                      TCONV_DTYPES_TO_F64,
                                                                      sizeof(planned_layer),
                                                                      plan,
                                                                      wgrad::pack_nothing,
                                                                      execute,
                                                                      describe,
                                                                      true,
                                                                      NULL};

} // namespace tconv::depthwise
