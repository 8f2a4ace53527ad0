/* The kernel that sums the gradient of the weights, see weights.c. */
#include "../numeric/compensated.cuh"
#include "../numeric/element.cuh"
#include "../ptx/dependent_launch.cuh"
#include "weights.h"

namespace tconv::general
{

namespace
{

constexpr int SIDE = WEIGHTS_SIDE;
constexpr int THREAD_SIDE = WEIGHTS_THREAD_SIDE;
constexpr int THREADS = WEIGHTS_THREADS;
constexpr int K_PIXELS = WEIGHTS_PIXELS;
constexpr int SEGMENT_K_BLOCKS = 3;

template <class Element>
__global__ void __launch_bounds__(THREADS) weights_kernel(const __grid_constant__ weights_parameters p,
                                                          const Element *src, const Element *diff_dst, double *slices)
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

} // namespace

extern "C" const void *tconv_general_sum_weights_kernel(tconv_dtype dtype)
{
    return with_element(dtype, [](auto element) { return (const void *)weights_kernel<decltype(element)>; });
}

} // namespace tconv::general
