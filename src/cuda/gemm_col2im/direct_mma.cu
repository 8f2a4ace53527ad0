/*
 * Products of few pixels with many weights, as they lie, by mma.sync: weights along M, pixels along N, input channels
 * along K. Both operands come to shared memory by cp.async. Neighbouring lanes take neighbouring weights of a channel,
 * which is how TF32's fragments lie; of 16 bits ldmatrix transposes them.
 *
 * Numeric order: channels; in strict f32, by 3xTF32, the tensor cores sum those of a K-block from zero. Products that
 * are not finite are then summed again by multiply-adds.
 */
#include "direct.cuh"

#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"

namespace tconv::gemm_col2im
{

namespace
{

constexpr int THREADS = DIRECT_MMA_THREADS, WARPS = THREADS / 32, RESIDENT = 2; /* blocks of a multiprocessor */
constexpr int ROWS = DIRECT_MMA_ROWS;                                           /* of a tile */
constexpr int STEPS = DIRECT_K_BYTES / MMA_K_BYTES;                             /* of a K-block */

struct tf32 {
    using Element = float;
    static constexpr bool STRICT = false;
};
struct strict : tf32 {
    static constexpr bool STRICT = true;
};
template <class Half> struct half_mode {
    using Element = Half;
    static constexpr bool STRICT = false;
};

/* A tile and how its warps share it. */
template <class Mode, int PIXELS> struct shape_of {
    using Element = typename Mode::Element;
    static constexpr int SIZE = sizeof(Element), BLOCK_K = DIRECT_K_BYTES / SIZE;
    static constexpr int WARPS_N = PIXELS >= 64 ? 2 : 1, WARPS_M = WARPS / WARPS_N;
    static constexpr int MMAS_M = ROWS / WARPS_M / 16, MMAS_N = PIXELS / WARPS_N / 8;
    static constexpr int WEIGHT_PITCH = direct_mma_weight_pitch(SIZE);
    static constexpr int SRC_PITCH = DIRECT_MMA_SRC_PITCH;
    static constexpr int WEIGHT_BYTES = BLOCK_K * WEIGHT_PITCH;
    static constexpr int STAGE_BYTES = WEIGHT_BYTES + PIXELS * SRC_PITCH;
    static constexpr int STAGES = direct_mma_stages(PIXELS);
    static_assert(STAGES * STAGE_BYTES == direct_mma_bytes(SIZE, PIXELS), "as the host counts");
};

/* Copies `count` times `access` bytes to shared memory, `pitch` bytes apart there: from(i), or zeros where that is
 * NULL. Copies of two bytes go through registers, several of which are under way. */
template <int access, int count, int pitch, class From>
__device__ __forceinline__ void copy_lines(uint32_t to, const void *readable, From from)
{
    if constexpr (access == 2) {
        constexpr int AT_ONCE = count < 4 ? count : 4;
#pragma unroll 1
        for (int first = 0; first < count; first += AT_ONCE) {
            uint16_t bits[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const char *line = from(first + i);
                bits[i] = line != NULL ? *reinterpret_cast<const uint16_t *>(line) : 0;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + (first + i) * pitch), "h"(bits[i]) : "memory");
        }
    } else {
#pragma unroll 4
        for (int i = 0; i < count; i++) {
            const char *line = from(i);
            cp_async_padded<access>(to + i * pitch, line != NULL ? line : readable, line != NULL ? access : 0);
        }
    }
}

template <class Shape, int access>
__device__ __forceinline__ void load_weights(const direct_shape &of, const direct_tile &tile, int channel, uint32_t to)
{
    constexpr int EACH = ROWS * Shape::SIZE / access, STEP = THREADS / EACH;
    const int at = (int)threadIdx.x % EACH, first = (int)threadIdx.x / EACH, row = tile.row + at * access / Shape::SIZE;
    const int64_t channel_bytes = of.weight_pitch * Shape::SIZE;
    const char *weights = static_cast<const char *>(of.weights) +
                          (tile.group * (int64_t)of.channels + channel + first) * channel_bytes + row * Shape::SIZE;
    const int count = row < of.row_length ? tile.end_channel - channel - first : 0;
    copy_lines<access, Shape::BLOCK_K / STEP, STEP * Shape::WEIGHT_PITCH>(
        to + first * Shape::WEIGHT_PITCH + at * access, of.weights,
        [&](int i) { return i * STEP < count ? weights + i * STEP * channel_bytes : NULL; });
}

template <class Shape, int PIXELS>
__device__ __forceinline__ void load_src(const direct_shape &of, const direct_tile &tile, int channel, uint32_t to)
{
    constexpr int EACH = DIRECT_K_BYTES / ACCESS_BYTES, STEP = THREADS / EACH;
    const int first = (int)threadIdx.x / EACH, at = (int)threadIdx.x % EACH * ACCESS_BYTES;
    const int inside = channel + at / Shape::SIZE, pixel = tile.pixel + first;
    const int64_t pixel_bytes = of.src_pitch * Shape::SIZE;
    const char *src = static_cast<const char *>(of.src) + pixel * pixel_bytes +
                      ((int64_t)tile.group * of.channels + inside) * Shape::SIZE;
    const int count = inside < tile.end_channel ? of.pixels - pixel : 0;
    copy_lines<ACCESS_BYTES, PIXELS / STEP, STEP * Shape::SRC_PITCH>(
        to + first * Shape::SRC_PITCH + at, of.src,
        [&](int i) { return i * STEP < count ? src + i * STEP * pixel_bytes : NULL; });
}

template <class Shape>
__device__ __forceinline__ void load_any_weights(const direct_shape &of, const direct_tile &tile, int channel,
                                                 uint32_t to)
{
    if (of.weight_access == 16)
        load_weights<Shape, 16>(of, tile, channel, to);
    else if (Shape::SIZE == 4 || of.weight_access == 4)
        load_weights<Shape, 4>(of, tile, channel, to);
    else if constexpr (Shape::SIZE == 2)
        load_weights<Shape, 2>(of, tile, channel, to);
}

/* Rounds to TF32, or splits. What is not finite may become NaN in strict f32: such products are summed again. */
template <class Mode>
__device__ __forceinline__ void round_for_steps(const uint32_t (&words)[4], uint32_t (&big)[4], uint32_t (&small)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        big[i] = Mode::STRICT ? words[i] : round_quickly_for_mma(words[i]);
        if (Mode::STRICT)
            split_for_mma(big[i], &small[i]);
    }
}

/* A step's fragments of 16 rows, and of two times 8 pixels: [0] the only or big parts, [1] the small ones. Address is
 * that of the step's first channel and the first row or pixel. */
template <class Mode, int pitch>
__device__ __forceinline__ void load_rows(uint32_t address, int lane, fragment_a (&a)[2])
{
    if constexpr (sizeof(typename Mode::Element) == 2) {
        a[0] = load_matrices<true>(address + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16);
    } else {
        const uint32_t first = address + lane % 4 * pitch + lane / 4 * 4;
        const uint32_t words[4] = {load_shared<uint32_t>(first), load_shared<uint32_t>(first + 32),
                                   load_shared<uint32_t>(first + 4 * pitch),
                                   load_shared<uint32_t>(first + 4 * pitch + 32)};
        round_for_steps<Mode>(words, a[0].at, a[1].at);
    }
}

template <class Mode, int pitch>
__device__ __forceinline__ void load_pixels(uint32_t address, int lane, fragment_b (&b)[2][2])
{
    uint32_t big[4], small[4];
    if constexpr (sizeof(typename Mode::Element) == 2) {
        const fragment_a loaded =
            load_matrices<false>(address + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16);
#pragma unroll
        for (int i = 0; i < 4; i++)
            big[i] = loaded.at[i];
    } else {
        const uint32_t first = address + lane / 4 * pitch + lane % 4 * 4;
        const uint32_t words[4] = {load_shared<uint32_t>(first), load_shared<uint32_t>(first + 16),
                                   load_shared<uint32_t>(first + 8 * pitch),
                                   load_shared<uint32_t>(first + 8 * pitch + 16)};
        round_for_steps<Mode>(words, big, small);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        b[0][i / 2].at[i % 2] = big[i];
        b[1][i / 2].at[i % 2] = Mode::STRICT ? small[i] : 0;
    }
}

template <class Mode>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
{
    if constexpr (sizeof(typename Mode::Element) == 2)
        mma_half(sums, a, b, typename Mode::Element());
    else
        mma_tf32(sums, a, b);
}

/* Adds the products of a stage. rows, pixels: where the warp's own begin in shared memory, at channel 0. */
template <class Mode, class Shape>
__device__ __forceinline__ void multiply_stage(uint32_t rows, uint32_t pixels, int lane,
                                               float (&sums)[Shape::MMAS_M][Shape::MMAS_N][4])
{
    constexpr int CHANNELS = Shape::BLOCK_K / STEPS; /* of a step */
#pragma unroll(Mode::STRICT ? 1 : STEPS)
    for (int step = 0; step < STEPS; step++) {
        fragment_a a[Shape::MMAS_M][2];
#pragma unroll
        for (int m = 0; m < Shape::MMAS_M; m++)
            load_rows<Mode, Shape::WEIGHT_PITCH>(rows + step * CHANNELS * Shape::WEIGHT_PITCH + m * 16 * Shape::SIZE,
                                                 lane, a[m]);
#pragma unroll
        for (int pair = 0; pair < Shape::MMAS_N / 2; pair++) {
            fragment_b b[2][2];
            load_pixels<Mode, Shape::SRC_PITCH>(pixels + step * MMA_K_BYTES + pair * 16 * Shape::SRC_PITCH, lane, b);
            if constexpr (Mode::STRICT) {
#pragma unroll
                for (int i = 0; i < 2 * Shape::MMAS_M; i++)
                    multiply_add<Mode>(sums[i / 2][pair * 2 + i % 2], a[i / 2][1], b[0][i % 2]);
#pragma unroll
                for (int i = 0; i < 2 * Shape::MMAS_M; i++)
                    multiply_add<Mode>(sums[i / 2][pair * 2 + i % 2], a[i / 2][0], b[1][i % 2]);
            }
#pragma unroll
            for (int i = 0; i < 2 * Shape::MMAS_M; i++)
                multiply_add<Mode>(sums[i / 2][pair * 2 + i % 2], a[i / 2][0], b[0][i % 2]);
        }
    }
}

/* A product of f32 by multiply-adds. */
__device__ __noinline__ float sum_plainly(const direct_shape &of, const direct_tile &tile, int row, int pixel)
{
    const int64_t first = (int64_t)tile.group * of.channels + tile.first_channel;
    const float *weights = static_cast<const float *>(of.weights) + first * of.weight_pitch + row;
    const float *src = static_cast<const float *>(of.src) + pixel * of.src_pitch + first;
    float sum = 0;
    for (int i = tile.first_channel; i < tile.end_channel; i++, weights += of.weight_pitch, src++)
        sum = fmaf(*weights, *src, sum);
    return sum;
}

template <class Mode, int PIXELS>
__global__ void __launch_bounds__(THREADS, RESIDENT) multiply_weights(const __grid_constant__ direct_shape of)
{
    using Shape = shape_of<Mode, PIXELS>;
    extern __shared__ __align__(16) char shared[];
    launch_dependents();
    const direct_tile tile = find_tile(of, (int)blockIdx.x);
    const uint32_t stages = shared_address(shared);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int row = warp / Shape::WARPS_N * Shape::MMAS_M * 16, pixel = warp % Shape::WARPS_N * Shape::MMAS_N * 8;
    const uint32_t rows_at = row * Shape::SIZE;
    const uint32_t pixels_at = Shape::WEIGHT_BYTES + pixel * Shape::SRC_PITCH;

    /* The first stages' weights are on their way before src is waited for. */
    int next = tile.first_channel;
    const auto stage_of = [&](int number) { return stages + number % Shape::STAGES * Shape::STAGE_BYTES; };
#pragma unroll 1
    for (int i = 0; i < Shape::STAGES - 1 && next + i * Shape::BLOCK_K < tile.end_channel; i++)
        load_any_weights<Shape>(of, tile, next + i * Shape::BLOCK_K, stage_of(i));
    wait_for_weights(); /* and src */
#pragma unroll 1
    for (int i = 0; i < Shape::STAGES - 1; i++, next += Shape::BLOCK_K) {
        if (next < tile.end_channel)
            load_src<Shape, PIXELS>(of, tile, next, stage_of(i) + Shape::WEIGHT_BYTES);
        cp_async_commit();
    }
    int loaded = Shape::STAGES - 1;
    const auto load_next = [&] {
        const uint32_t to = stages + loaded * Shape::STAGE_BYTES;
        if (next < tile.end_channel) {
            load_any_weights<Shape>(of, tile, next, to);
            load_src<Shape, PIXELS>(of, tile, next, to + Shape::WEIGHT_BYTES);
        }
        cp_async_commit();
        next += Shape::BLOCK_K;
        loaded = loaded + 1 == Shape::STAGES ? 0 : loaded + 1;
    };
    float sums[Shape::MMAS_M][Shape::MMAS_N][4] = {};
    uint32_t stage = stages;
#pragma unroll 1
    for (int channel = tile.first_channel; channel < tile.end_channel; channel += Shape::BLOCK_K) {
        cp_async_wait<Shape::STAGES - 2>();
        __syncthreads();
        load_next();
        if constexpr (Mode::STRICT) {
            float partial[Shape::MMAS_M][Shape::MMAS_N][4] = {};
            multiply_stage<Mode, Shape>(stage + rows_at, stage + pixels_at, lane, partial);
#pragma unroll
            for (int i = 0; i < Shape::MMAS_M * Shape::MMAS_N * 4; i++)
                sums[i / 4 / Shape::MMAS_N][i / 4 % Shape::MMAS_N][i % 4] +=
                    partial[i / 4 / Shape::MMAS_N][i / 4 % Shape::MMAS_N][i % 4];
        } else {
            multiply_stage<Mode, Shape>(stage + rows_at, stage + pixels_at, lane, sums);
        }
        stage += Shape::STAGE_BYTES;
        if (stage == stages + Shape::STAGES * Shape::STAGE_BYTES)
            stage = stages;
    }

    float *products = of.products + tile.part * of.part_pitch + tile.group * of.group_pitch;
#pragma unroll
    for (int m = 0; m < Shape::MMAS_M; m++)
#pragma unroll
        for (int n = 0; n < Shape::MMAS_N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int to_row = tile.row + row + m * 16 + lane / 4 + i / 2 * 8;
                const int to_pixel = tile.pixel + pixel + n * 8 + lane % 4 * 2 + i % 2;
                if (to_row >= of.rows || to_pixel >= of.pixels)
                    continue;
                float sum = sums[m][n][i];
                if (Mode::STRICT && !isfinite(sum))
                    sum = sum_plainly(of, tile, to_row, to_pixel);
                products[to_row * of.row_pitch + to_pixel * of.pixel_pitch] = sum;
            }
}

/* In strict f32 partial sums need registers as well: a tile has fewer pixels. */
template <class Mode> const void *choose_kernel(int tile_pixels)
{
    if constexpr (!Mode::STRICT)
        if (tile_pixels == 128)
            return (const void *)multiply_weights<Mode, 128>;
    return tile_pixels == 64 ? (const void *)multiply_weights<Mode, 64> : (const void *)multiply_weights<Mode, 32>;
}

} // namespace

const void *tconv_gemm_col2im_mma_kernel(numerics kind, int tile_pixels)
{
    switch (kind) {
    case NUMERICS_F16: return choose_kernel<half_mode<__half>>(tile_pixels);
    case NUMERICS_BF16: return choose_kernel<half_mode<__nv_bfloat16>>(tile_pixels);
    case NUMERICS_TF32: return choose_kernel<tf32>(tile_pixels);
    default: return choose_kernel<strict>(tile_pixels);
    }
}

} // namespace tconv::gemm_col2im
