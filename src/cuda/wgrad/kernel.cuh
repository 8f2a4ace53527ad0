/*
 * The kernel of cuda_wgrad by mma.sync: an implicit GEMM whose K is pixels. A block has a tile of the gradient of the
 * weights and a split-K slice of the pixels, and multiplies src by the gradient of dst.
 *
 * A K-tile is a box of inputs. A stage of shared memory holds the block's input channels of src, pixel by pixel, and
 * its output channels of the gradient of dst, slot by slot (tile_axis). A column of the B operand is a tap and an
 * output channel. Its address for a pixel is the address of the pixel's first slot plus an offset that a lane keeps. So
 * taps share the outputs in shared memory, for any stride and dilation.
 *
 * A lane's fragments of f32 come from two pixels, of src two neighbouring channels of each at once: the MMA's rows g
 * and g + 8 are channels 2g and 2g + 1. In 16 bits ldmatrix transposes.
 */
#ifndef TCONV_CUDA_WGRAD_KERNEL_CUH
#define TCONV_CUDA_WGRAD_KERNEL_CUH

#include "../numeric/compensated.cuh"
#include "../ptx/mma.cuh"
#include "kernels.h"
#include "load.cuh"
#include "rounding.cuh"

namespace tconv::wgrad
{

/* The sums of a warp tile, of HEIGHT fragments of 16 rows by WIDTH fragments of 8 columns. */
template <int HEIGHT, int WIDTH> struct warp_sums {
    float at[HEIGHT][WIDTH][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int m = 0; m < HEIGHT; m++)
#pragma unroll
            for (int n = 0; n < WIDTH; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    at[m][n][i] = 0;
    }
};

/* In 3xTF32 the tensor cores sum STRICT_STEPS steps of K, which lose bits; their sums join the total with
 * compensation. */
template <int HEIGHT, int WIDTH> struct strict_total {
    warp_sums<HEIGHT, WIDTH> total;
    lost_parts<float, HEIGHT * WIDTH * 4> lost;

    __device__ __forceinline__ void clear()
    {
        total.clear();
#pragma unroll
        for (int i = 0; i < HEIGHT * WIDTH * 2; i++)
            lost.pairs[i] = 0;
    }
    __device__ __forceinline__ void add(warp_sums<HEIGHT, WIDTH> &sums)
    {
#pragma unroll
        for (int m = 0; m < HEIGHT; m++)
#pragma unroll
            for (int n = 0; n < WIDTH; n++)
#pragma unroll
                for (int i = 0; i < 4; i += 2)
                    lost.add((m * WIDTH + n) * 4 + i, total.at[m][n][i], total.at[m][n][i + 1], sums.at[m][n][i],
                             sums.at[m][n][i + 1]);
        sums.clear();
    }
};

/* The factors of a step of K, as they lie in memory: 8 pixels of f32, 16 of 16-bit elements. */
template <int HEIGHT, int WIDTH> struct factors {
    fragment_a a[HEIGHT];
    fragment_b b[WIDTH];
};

/* Loads 8 pixels of f32. src: the lane's first rows at its first pixel; dst: its slots at its two pixels. */
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ void load_floats(factors<HEIGHT, WIDTH> &to, uint32_t src, int src_pitch, uint32_t dst,
                                            uint32_t next_dst, const int (&pairs)[WIDTH])
{
#pragma unroll
    for (int m = 0; m < HEIGHT; m++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint2 rows = load_shared<uint2>(src + m * 64 + k * 4 * src_pitch);
            to.a[m].at[2 * k] = rows.x, to.a[m].at[2 * k + 1] = rows.y;
        }
#pragma unroll
    for (int n = 0; n < WIDTH; n++) {
        to.b[n].at[0] = load_shared<uint32_t>(dst + pairs[n]);
        to.b[n].at[1] = load_shared<uint32_t>(next_dst + pairs[n]);
    }
}

/* Loads 16 pixels of 16-bit elements. src: the lane's row of the first ldmatrix; dst: its slot. */
template <int HEIGHT, int WIDTH>
__device__ __forceinline__ void load_halves(factors<HEIGHT, WIDTH> &to, uint32_t src, uint32_t dst,
                                            const int (&pairs)[WIDTH / 2])
{
#pragma unroll
    for (int m = 0; m < HEIGHT; m++)
        to.a[m] = load_matrices<true>(src + m * 32);
#pragma unroll
    for (int q = 0; q < WIDTH / 2; q++) {
        const fragment_a two = load_matrices<true>(dst + pairs[q]);
        to.b[2 * q] = {{two.at[0], two.at[1]}};
        to.b[2 * q + 1] = {{two.at[2], two.at[3]}};
    }
}

template <numerics MODE, int HEIGHT, int WIDTH>
__device__ __forceinline__ void multiply(warp_sums<HEIGHT, WIDTH> &sums, factors<HEIGHT, WIDTH> &of)
{
    constexpr bool STRICT = MODE == NUMERICS_STRICT;
    fragment_a small_a[HEIGHT];
    if constexpr (!IS_HALF<MODE>) {
#pragma unroll
        for (int m = 0; m < HEIGHT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                round_factor<STRICT>(of.a[m].at[i], &small_a[m].at[i]);
    }
#pragma unroll
    for (int n = 0; n < WIDTH; n++) {
        if constexpr (IS_HALF<MODE>) {
#pragma unroll
            for (int m = 0; m < HEIGHT; m++)
                mma_half(sums.at[m][n], of.a[m], of.b[n], element_of<MODE>());
        } else {
            fragment_b small_b;
            round_factor<STRICT>(of.b[n].at[0], &small_b.at[0]);
            round_factor<STRICT>(of.b[n].at[1], &small_b.at[1]);
#pragma unroll
            for (int m = 0; m < HEIGHT; m++) {
                if (STRICT) {
                    mma_tf32(sums.at[m][n], small_a[m], of.b[n]);
                    mma_tf32(sums.at[m][n], of.a[m], small_b);
                }
                mma_tf32(sums.at[m][n], of.a[m], of.b[n]);
            }
        }
    }
}

/* The row in the warp tile of a lane's sum i of a fragment's, whose rows of f32 are pairs of neighbours. */
template <bool half> __device__ __forceinline__ int row_of(int m, int i, int lane)
{
    const int g = lane / 4, second = i / 2;
    return m * 16 + (half ? second * 8 + g : 2 * g + second);
}

/* Writes the sums of a warp tile to the slice, or adds them to what it holds. */
template <bool half, int HEIGHT, int WIDTH>
__device__ __forceinline__ void store_sums(const warp_sums<HEIGHT, WIDTH> &sums, float *to, int64_t pitch, bool adds,
                                           int lane)
{
    asm volatile("" : "+l"(to), "+l"(pitch)); /* or addresses are kept in registers through the main loop */
#pragma unroll
    for (int m = 0; m < HEIGHT; m++)
#pragma unroll
        for (int n = 0; n < WIDTH; n++)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                float2 *at = reinterpret_cast<float2 *>(to + row_of<half>(m, i, lane) * pitch + n * 8 + lane % 4 * 2);
                float2 pair = {sums.at[m][n][i], sums.at[m][n][i + 1]};
                if (adds) {
                    const float2 before = *at;
                    pair.x += before.x, pair.y += before.y;
                }
                *at = pair;
                asm volatile("" ::: "memory"); /* one after the other: there are no registers for more */
            }
}

/* Registers are for so many warps on a multiprocessor. */
template <numerics MODE, int HEIGHT>
constexpr int RESIDENT_WARPS = WGRAD_MMA_RESIDENT_WARPS(MODE == NUMERICS_STRICT, HEIGHT);

template <numerics MODE, int HEIGHT, int WIDTH, bool vectors>
__global__ void __launch_bounds__(RESIDENT_WARPS<MODE, HEIGHT> *WARP) outer_kernel(const __grid_constant__ parameters p)
{
    using Element = element_of<MODE>;
    constexpr bool HALF = IS_HALF<MODE>, STRICT = MODE == NUMERICS_STRICT;
    extern __shared__ __align__(128) char shared[]; /* the tables, and the stages */
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const auto [number, split] = find_work(p);
    const block_tile block = find_block(p, number);
    const int warp_m = warp % p.warps_m, warp_n = warp / p.warps_m;
    const auto [first, count] = find_k_tiles(p, split);

    if (p.dependents == AS_BLOCKS_BEGIN)
        launch_dependents();
    const tables tables = make_tables<Element>(p, shared, block.slots,
                                               [&](int i) { return find_slot(p, block, i, (int)sizeof(Element)); });
    __syncthreads();
    int pairs[HALF ? WIDTH / 2 : WIDTH];
#pragma unroll
    for (int i = 0; i < (HALF ? WIDTH / 2 : WIDTH); i++)
        pairs[i] = pair_offset(p, block, warp_n * WIDTH * 8 + (HALF ? i * 16 + lane / 16 * 8 : i * 8 + lane / 4),
                               (int)sizeof(Element));
    const uint32_t memory = shared_address(shared) + p.table_bytes;
    const uint32_t src_lane =
        HALF ? (lane % 8 + lane / 16 * 8) * p.src_pitch + warp_m * HEIGHT * 32 + (lane / 8 % 2) * 16
             : lane % 4 * p.src_pitch + warp_m * HEIGHT * 64 + lane / 4 * 8;

    k_walk walk;
    walk.begin(p, first);
    for (int i = 0; i < p.stages - 1; i++) {
        if (i < count)
            load_stage<Element, vectors>(p, block, tables, walk, memory + i * p.stage_bytes);
        walk.advance(p);
        cp_async_commit();
    }

    float *slice = p.slices + (split * p.tiles.count + number) * p.tiles.block_m * p.tiles.block_n +
                   (int64_t)warp_m * HEIGHT * 16 * p.tiles.block_n + warp_n * WIDTH * 8;
    warp_sums<HEIGHT, WIDTH> sums;
    std::conditional_t<STRICT, strict_total<HEIGHT, WIDTH>, int> total;
    sums.clear();
    if constexpr (STRICT)
        total.clear();
    bool flushed = false;
    int stage = 0, loaded = p.stages - 1, until_flush = p.flush_tiles;
    for (int k = 0; k < count; k++) {
        if (p.stages == 2)
            cp_async_wait<0>();
        else
            cp_async_wait<1>();
        __syncthreads();
        if (k + p.stages - 1 < count)
            load_stage<Element, vectors>(p, block, tables, walk, memory + loaded * p.stage_bytes);
        walk.advance(p);
        cp_async_commit();
        loaded = loaded + 1 == p.stages ? 0 : loaded + 1;

        const uint32_t src = memory + stage * p.stage_bytes + src_lane;
        const uint32_t dst = memory + stage * p.stage_bytes + p.src_bytes;
        stage = stage + 1 == p.stages ? 0 : stage + 1;
        constexpr int STEP = HALF ? 16 : 8;
        const auto load = [&](factors<HEIGHT, WIDTH> &to, int i) {
            if constexpr (HALF) {
                load_halves(to, src + i * p.src_pitch, dst + tables.pixels[i + lane % 16], pairs);
            } else {
                const int2 at = *reinterpret_cast<const int2 *>(tables.pixels + i + lane % 4 * 2);
                load_floats(to, src + i * p.src_pitch, p.src_pitch, dst + at.x, dst + at.y, pairs);
            }
        };
        /* The factors of a step are loaded while those of the one before are multiplied. */
        factors<HEIGHT, WIDTH> of[2];
        load(of[0], 0);
#pragma unroll 1
        for (int i = 0; i < p.k_pixels; i += 2 * STEP) {
            load(of[1], i + STEP);
            multiply<MODE>(sums, of[0]);
            if (i + 2 * STEP < p.k_pixels)
                load(of[0], i + 2 * STEP);
            multiply<MODE>(sums, of[1]);
            if constexpr (STRICT)
                if ((i / STEP + 2) % STRICT_STEPS == 0)
                    total.add(sums);
        }
        if (!STRICT && --until_flush == 0) {
            store_sums<HALF>(sums, slice, p.tiles.block_n, flushed, lane);
            sums.clear();
            flushed = true;
            until_flush = p.flush_tiles;
        }
    }
    launch_dependents(); /* what adds slices */
    if constexpr (STRICT)
        store_sums<HALF>(total.total, slice, p.tiles.block_n, false, lane);
    else
        store_sums<HALF>(sums, slice, p.tiles.block_n, flushed, lane);
    cp_async_wait_all();
}

template <numerics MODE, int HEIGHT, int WIDTH> kernel_functions mma_kernels()
{
    kernel_functions functions = {};
    functions.at[ELEMENTS] = (const void *)outer_kernel<MODE, HEIGHT, WIDTH, false>;
    functions.at[CHANNELS] = (const void *)outer_kernel<MODE, HEIGHT, WIDTH, true>;
    return functions;
}

} // namespace tconv::wgrad

#endif
