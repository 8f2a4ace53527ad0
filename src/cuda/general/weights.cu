/*
 * The gradients of weights and bias for every layer: any dtype, layout, slice, group, stride and dilation, any number of taps,
 * on any device.
 *
 * A block has a square of SIDE input channels of a group by SIDE pairs of a tap and an output channel, and a part of the
 * pixels; each thread multiplies a few of both, whose factors a K-block brings to shared memory. The sums of a part are a slice
 * (outer/tiles.h), which outer/sums.cu adds up. Terms whose output does not exist are products with zero, and left
 * out where src has Inf or NaN.
 *
 * Numeric order, by layer and number of multiprocessors alone: segments of SEGMENT_PIXELS terms from zero, which join a
 * compensated sum; slices in order, in double; one rounding.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "../wgrad/sums.h"

#include <cstdio>

namespace tconv::general
{

namespace
{

constexpr int SIDE = 64;
constexpr int THREAD_SIDE = 4;
constexpr int THREADS = (SIDE / THREAD_SIDE) * (SIDE / THREAD_SIDE);
constexpr int K_PIXELS = 16;
constexpr int SEGMENT_K_BLOCKS = 3;
constexpr int64_t MOST_SLICES_BYTES = (int64_t)32 << 20;
constexpr int64_t LEAST_PIXELS = 1024; /* of a part */
constexpr int64_t MAX_KERNEL = (int64_t)1 << 30;

struct parameters {
    wgrad::sum_tiles tiles; /* as one tile for SIDE input channels and all pairs */
    tconv_strides src_strides, dst_strides;
    tconv_axis h, w;
    int64_t pixels; /* of all images */
    int64_t pair_tiles, splits, part_pixels;
};

template <class Element>
__global__ void __launch_bounds__(THREADS)
    weights_kernel(const __grid_constant__ parameters p, const Element *src, const Element *diff_dst, double *slices)
{
    using Sum = compute_type<Element>;
    __shared__ Sum rows[K_PIXELS][SIDE + 1], columns[K_PIXELS][SIDE + 1];
    __shared__ bool has_output[K_PIXELS][SIDE];
    const int64_t blocks = p.splits * p.tiles.count * p.pair_tiles;
    launch_dependents(); /* what adds slices */
    const int lane_m = (int)threadIdx.x % (SIDE / THREAD_SIDE), lane_n = (int)threadIdx.x / (SIDE / THREAD_SIDE);
    /* What the thread loads: one pixel, and every 16th channel or pair. */
    const int pixel_lane = (int)threadIdx.x % K_PIXELS, first_lane = (int)threadIdx.x / K_PIXELS;
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int64_t first_pair = block % p.pair_tiles * SIDE, tile = block / p.pair_tiles % p.tiles.count;
        const int64_t split = block / p.pair_tiles / p.tiles.count;
        const int64_t group = tile / p.tiles.m_tiles, first_in = tile % p.tiles.m_tiles * SIDE;
        const int64_t begin = split * p.part_pixels;
        const int64_t end = p.pixels - begin < p.part_pixels ? p.pixels : begin + p.part_pixels;
        lossless_sum<Sum> total[THREAD_SIDE][THREAD_SIDE] = {};
        Sum segment[THREAD_SIDE][THREAD_SIDE] = {};
        int in_segment = 0;
        for (int64_t k = begin; k < end; k += K_PIXELS) {
            const int64_t pixel = k + pixel_lane, x = pixel % p.w.in, y = pixel / p.w.in % p.h.in;
            const int64_t n = pixel / p.w.in / p.h.in;
            const Element *from_src = src + n * p.src_strides.n + y * p.src_strides.h + x * p.src_strides.w;
            const Element *from_dst = diff_dst + n * p.dst_strides.n;
            bool finite = true;
            for (int i = first_lane; i < SIDE; i += THREADS / K_PIXELS) {
                const int64_t in = first_in + i;
                const Sum value = pixel < end && in < p.tiles.group_in
                                      ? to_compute(from_src[(group * p.tiles.group_in + in) * p.src_strides.c])
                                      : Sum(0);
                rows[pixel_lane][i] = value;
                finite = finite && value - value == 0;
            }
            for (int i = first_lane; i < SIDE; i += THREADS / K_PIXELS) {
                const int64_t pair = first_pair + i, tap = pair / p.tiles.group_out, out = pair % p.tiles.group_out;
                const int64_t kh = tap / p.w.kernel, kw = tap % p.w.kernel;
                const int64_t oy = y * p.h.stride + kh * p.h.dilation - p.h.pad;
                const int64_t ox = x * p.w.stride + kw * p.w.dilation - p.w.pad;
                const bool exists =
                    pixel < end && kh < p.h.kernel && oy >= 0 && oy < p.h.out && ox >= 0 && ox < p.w.out;
                columns[pixel_lane][i] = exists
                                             ? to_compute(from_dst[(group * p.tiles.group_out + out) * p.dst_strides.c +
                                                                   oy * p.dst_strides.h + ox * p.dst_strides.w])
                                             : Sum(0);
                has_output[pixel_lane][i] = exists;
            }
            const bool all_finite = __syncthreads_and(finite);
#pragma unroll 4
            for (int i = 0; i < K_PIXELS; i++) {
                Sum a[THREAD_SIDE], b[THREAD_SIDE];
#pragma unroll
                for (int j = 0; j < THREAD_SIDE; j++) {
                    a[j] = rows[i][lane_m + j * (SIDE / THREAD_SIDE)];
                    b[j] = columns[i][lane_n + j * (SIDE / THREAD_SIDE)];
                }
#pragma unroll
                for (int m = 0; m < THREAD_SIDE; m++)
#pragma unroll
                    for (int j = 0; j < THREAD_SIDE; j++)
                        if (all_finite || has_output[i][lane_n + j * (SIDE / THREAD_SIDE)])
                            segment[m][j] = fma(a[m], b[j], segment[m][j]);
            }
            __syncthreads();
            if (++in_segment == SEGMENT_K_BLOCKS || k + K_PIXELS >= end) {
                in_segment = 0;
#pragma unroll
                for (int m = 0; m < THREAD_SIDE; m++)
#pragma unroll
                    for (int j = 0; j < THREAD_SIDE; j++) {
                        total[m][j].add(segment[m][j]);
                        segment[m][j] = 0;
                    }
            }
        }
        double *slice = slices + (split * p.tiles.count + tile) * SIDE * p.tiles.block_n;
#pragma unroll
        for (int m = 0; m < THREAD_SIDE; m++)
#pragma unroll
            for (int j = 0; j < THREAD_SIDE; j++) {
                const int64_t pair = first_pair + lane_n + j * (SIDE / THREAD_SIDE);
                if (pair < p.tiles.block_n)
                    slice[(int64_t)(lane_m + m * (SIDE / THREAD_SIDE)) * p.tiles.block_n + pair] = total[m][j].whole();
            }
    }
}

struct planned_layer {
    general::parameters parameters;
    int64_t blocks;
};

tconv_status plan(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer *made = (planned_layer *)to;
    parameters *p = &made->parameters;
    if (problem->h.kernel >= MAX_KERNEL || problem->w.kernel >= MAX_KERNEL)
        return tconv_decline(issue, "takes kernels below 2^30 along an axis");
    p->src_strides = problem->src;
    p->dst_strides = problem->dst;
    p->h = problem->h;
    p->w = problem->w;
    p->pixels = problem->batch * problem->h.in * problem->w.in;
    p->tiles = wgrad::tiles_of_all_pairs(problem, SIDE);
    p->pair_tiles = tconv_ceil_div(p->tiles.block_n, SIDE);
    int64_t bytes;
    if (!tconv_checked_mul(p->tiles.count, SIDE * (int64_t)sizeof(double), &bytes) ||
        !tconv_checked_mul(bytes, p->tiles.block_n, &bytes))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "workspace: its size does not fit in 63 bits");
    const int64_t places = 2 * (int64_t)layer->target.multiprocessors;
    int64_t splits = tconv_ceil_div(places, p->tiles.count * p->pair_tiles);
    splits = tconv_min(splits, tconv_min(MOST_SLICES_BYTES / bytes, p->pixels / LEAST_PIXELS));
    p->part_pixels = tconv_ceil_div(p->pixels, tconv_max(1, splits));
    p->splits = p->pixels > 0 ? tconv_ceil_div(p->pixels, p->part_pixels) : 0;
    made->blocks = p->splits * p->tiles.count * p->pair_tiles;
    planned->sizes.scratch = (size_t)tconv_max(p->splits * bytes, (int64_t)wgrad::bias_scratch(layer));
    return TCONV_SUCCESS;
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const planned_layer *made = (const planned_layer *)from;
    return wgrad::execute_gradients(
        layer, arguments,
        [&](wgrad::slices *of) {
            parameters p = made->parameters;
            const void *kernel = with_element(
                layer->problem.dtype, [](auto element) { return (const void *)weights_kernel<decltype(element)>; });
            const void *src = arguments->src, *diff_dst = arguments->dst;
            void *slices = arguments->scratch, *kernel_arguments[] = {&p, &src, &diff_dst, &slices};
            *of = {p.tiles, p.splits, true};
            return made->blocks == 0 ? TCONV_SUCCESS
                                     : tconv_launch_blocks(kernel, made->blocks, THREADS, kernel_arguments,
                                                           arguments->stream, issue, false);
        },
        issue);
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const planned_layer *made = (const planned_layer *)from;
    snprintf(text, capacity, "block_tile=%dx%d splits=%lld blocks=%lld", SIDE, SIDE, (long long)made->parameters.splits,
             (long long)made->blocks);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_general_weights = {"cuda_general",
                                                                    TCONV_BACKEND_CUDA,
                                                                    TCONV_DTYPES_TO_F64,
                                                                    sizeof(planned_layer),
                                                                    plan,
                                                                    wgrad::pack_nothing,
                                                                    execute,
                                                                    describe,
                                                                    true,
                                                                    NULL};

} // namespace tconv::general
