/*
 * The kernel of cuda_frames for many columns: products of up to WIDE_ROWS rows with up to WIDE_COLUMNS pixels, by warps that
 * share rows and columns and not input channels. Weights and pixels are brought to shared memory once for all warps, two
 * stages ahead of products.
 *
 * Numeric order: that of kernel.cuh. A warp sums a slice from zero and adds it to the slices before it, so that a product has the
 * same bits by either kernel.
 */
#ifndef TCONV_CUDA_FRAMES_WIDE_CUH
#define TCONV_CUDA_FRAMES_WIDE_CUH

#include "outputs.cuh"
#include "products.cuh"

#include "../ptx/dependent_launch.cuh"

namespace tconv::frames
{

namespace
{

/* This is how the warps of a block share its products. A stage has the weights of its input channels, rows side by side, and then their
 * pixels. */
template <class Mode> struct wide {
    static constexpr int ROW_WARPS = WIDE_ROWS / Mode::TILE_ROWS, COLUMN_WARPS = WIDE_WARPS / ROW_WARPS;
    static constexpr int COLUMNS = WIDE_COLUMNS / COLUMN_WARPS, TILES = COLUMNS / TILE_N; /* of a warp */
    static constexpr int STEPS = WIDE_CHANNELS / Mode::STEP_CHANNELS;                     /* of a stage */
    static constexpr int PITCH = wide_pitch(Mode::SIZE), PIXELS = WIDE_CHANNELS * PITCH, STAGE_BYTES = 2 * PIXELS;
    static constexpr int PIXEL_COPIES = WIDE_COLUMNS / WARP;          /* of a channel by a lane, at most */
    static constexpr int PIXEL_CHANNELS = WIDE_CHANNELS / WIDE_WARPS; /* by a lane, WIDE_WARPS apart */
    static constexpr int ROW_LANES = WIDE_ROWS / Mode::LANE_ROWS;     /* that copy the weights of a channel, */
    static constexpr int ROW_CHANNELS = WIDE_WARPS * WARP / ROW_LANES, ROW_COPIES = WIDE_CHANNELS / ROW_CHANNELS;
};

/* The row of a stage that has an input channel: of 16 bits the rows of a step are in the order of an MMA's K, in which
 * ldmatrix reads them. Which channel is which of K is kernel.cuh's choice. */
template <class Mode> __device__ __forceinline__ int stage_row(int channel)
{
    if (Mode::SIZE == 4)
        return channel;
    const int step = channel / Mode::STEP_CHANNELS, in_step = channel % Mode::STEP_CHANNELS;
    return step * Mode::STEP_CHANNELS + in_step % 4 / 2 * 8 + in_step / 4 * 2 + in_step % 2;
}

/* A lane copies some weights and some pixels of each stage: these are the places of the next stage's in memory, and the places in
 * a stage that they are copied to. */
template <class Mode> struct lane_copies {
    const typename Mode::Element *weights, *pixels[wide<Mode>::PIXEL_COPIES];
    uint32_t to_weights[wide<Mode>::ROW_COPIES], to_pixels[wide<Mode>::PIXEL_CHANNELS];
    int channel, rows, pixel_copies; /* first channel of the stage; rows and copies of pixels that exist */
};

template <class Mode>
__device__ __forceinline__ lane_copies<Mode> find_copies(const parameters &of, const block_tile &tile)
{
    using Element = typename Mode::Element;
    using of_wide = wide<Mode>;
    const int thread = (int)threadIdx.x, lane = thread % WARP, warp = thread / WARP;
    const int64_t group_channel = (int64_t)tile.group * of.group_in;
    const int row = thread % of_wide::ROW_LANES * Mode::LANE_ROWS, row_channel = thread / of_wide::ROW_LANES;
    lane_copies<Mode> copies;
    copies.channel = 0;
    copies.weights = static_cast<const Element *>(of.weights) + (group_channel + row_channel) * of.weight_pitch +
                     tile.first_row + row;
    copies.rows = tile.rows - row;
#pragma unroll
    for (int i = 0; i < of_wide::ROW_COPIES; i++)
        copies.to_weights[i] =
            stage_row<Mode>(row_channel + i * of_wide::ROW_CHANNELS) * of_wide::PITCH + row * Mode::SIZE;
#pragma unroll
    for (int i = 0; i < of_wide::PIXEL_CHANNELS; i++)
        copies.to_pixels[i] =
            of_wide::PIXELS + stage_row<Mode>(warp + i * WIDE_WARPS) * of_wide::PITCH + lane * of.together * Mode::SIZE;
    copies.pixel_copies = 0;
#pragma unroll
    for (int i = 0; i < of_wide::PIXEL_COPIES; i++) {
        const int column = (lane + i * WARP) * of.together;
        if (column >= tile.columns)
            continue;
        copies.pixels[i] = static_cast<const Element *>(of.src) + (group_channel + warp) * of.src_strides.c +
                           find_pixel(of, tile, column, of.together);
        copies.pixel_copies = i + 1;
    }
    return copies;
}

/* Begins to copy 4 bytes, or copies 2; or zeros. */
__device__ __forceinline__ void copy_word(bool is_whole, uint32_t to, const void *from, bool exists)
{
    if (is_whole) {
        cp_async_padded<4>(to, from, exists ? 4 : 0);
    } else {
        const uint16_t half = exists ? *static_cast<const uint16_t *>(from) : 0;
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(half) : "memory");
    }
}

/* Begins to copy the lane's weights and pixels of the next stage. Channels that do not exist become zeros; rows that do not
 * exist are not copied, or as they lie. */
template <class Mode, bool VECTORS>
__device__ __forceinline__ void copy_stage(const parameters &of, lane_copies<Mode> &copies, uint32_t stage)
{
    using Element = typename Mode::Element;
    using of_wide = wide<Mode>;
    const bool is_whole = Mode::SIZE == 4 || of.together > 1;
    const int warp = (int)threadIdx.x / WARP, row_channel = (int)threadIdx.x / of_wide::ROW_LANES;
    const Element *weights = copies.weights;
#pragma unroll
    for (int c = 0; c < of_wide::ROW_COPIES; c++, weights += of_wide::ROW_CHANNELS * of.weight_pitch) {
        const bool exists = copies.channel + row_channel + c * of_wide::ROW_CHANNELS < of.group_in;
        const uint32_t to = stage + copies.to_weights[c];
        const Element *from = exists ? weights : static_cast<const Element *>(of.weights);
        if (VECTORS && copies.rows > 0)
            cp_async_padded<LANE_BYTES>(to, from, exists ? LANE_BYTES : 0);
#pragma unroll
        for (int i = 0; i < Mode::LANE_ROWS; i++)
            if (!VECTORS && i < copies.rows)
                copy_word(Mode::SIZE == 4, to + i * Mode::SIZE, from + i, exists);
    }
    copies.weights += WIDE_CHANNELS * of.weight_pitch;
#pragma unroll
    for (int i = 0; i < of_wide::PIXEL_COPIES; i++) {
        if (i >= copies.pixel_copies)
            continue;
        const Element *pixel = copies.pixels[i];
#pragma unroll
        for (int c = 0; c < of_wide::PIXEL_CHANNELS; c++, pixel += WIDE_WARPS * of.src_strides.c) {
            const bool exists = copies.channel + warp + c * WIDE_WARPS < of.group_in;
            copy_word(is_whole, stage + copies.to_pixels[c] + i * WARP * of.together * Mode::SIZE,
                      exists ? pixel : static_cast<const Element *>(of.src), exists);
        }
        copies.pixels[i] = pixel;
    }
    copies.channel += WIDE_CHANNELS;
}

/* Returns where a lane begins to load the weights of a row tile from a stage: its own ones of f32, or its row for ldmatrix. */
template <class Mode> __device__ __forceinline__ uint32_t find_weights(uint32_t stages, int row_tile)
{
    const int lane = (int)threadIdx.x % WARP, row = row_tile * Mode::TILE_ROWS;
    if (Mode::SIZE == 4)
        return stages + lane % 4 * 2 * wide<Mode>::PITCH + (row + lane / 4 * 2) * 4;
    return stages + (lane % 8 + lane / 16 * 8) * wide<Mode>::PITCH + (row + lane / 8 % 2 * 8) * 2;
}

/* Loads the fragment of an MMA of a step: [0] the only or big parts, [1] the small ones. from: as find_weights says, of the
 * MMA's first row. Rows g and g + 8 of the MMA are rows 2 g and 2 g + 1 of f32. */
template <class Mode> __device__ __forceinline__ void load_rows(uint32_t from, fragment_a (&a)[2])
{
    if constexpr (Mode::SIZE == 2) {
        a[0] = load_matrices<true>(from);
    } else {
        const uint2 even = load_shared<uint2>(from), odd = load_shared<uint2>(from + wide<Mode>::PITCH);
        a[0] = {{even.x, even.y, odd.x, odd.y}};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (Mode::STRICT)
                split_for_mma(a[0].at[i], &a[1].at[i]);
            else
                a[0].at[i] = round_for_mma(a[0].at[i]);
        }
    }
}

/* Returns where a lane begins to load pixels from a stage: the first of its warp's columns. */
template <class Mode> __device__ __forceinline__ uint32_t find_pixels(uint32_t stages, int first_column)
{
    const int lane = (int)threadIdx.x % WARP;
    if (Mode::SIZE == 4)
        return stages + wide<Mode>::PIXELS + lane % 4 * 2 * wide<Mode>::PITCH + (first_column + lane / 4) * 4;
    return stages + wide<Mode>::PIXELS + lane % 16 * wide<Mode>::PITCH + (first_column + lane / 16 * TILE_N) * 2;
}

/* Loads a step's pixels of two tiles of columns. from: as find_pixels says, of the first tile. */
template <class Mode> __device__ __forceinline__ void load_two_tiles(uint32_t from, uint2 (&to)[2])
{
    if constexpr (Mode::SIZE == 4) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            to[n].x = load_shared<uint32_t>(from + n * TILE_N * 4);
            to[n].y = load_shared<uint32_t>(from + n * TILE_N * 4 + wide<Mode>::PITCH);
        }
    } else {
        const fragment_a words = load_matrices<true>(from);
        to[0] = make_uint2(words.at[0], words.at[1]), to[1] = make_uint2(words.at[2], words.at[3]);
    }
}

/* A warp's products, step by step: sums of the slice so far, and of the slices before it. */
template <class Mode> struct warp_sums {
    float slice[wide<Mode>::TILES][Mode::MMAS][4], product[wide<Mode>::TILES][Mode::MMAS][4];

    /* Adds the slice to the product and begins the next. */
    __device__ __forceinline__ void end_slice()
    {
#pragma unroll
        for (int n = 0; n < wide<Mode>::TILES; n++)
#pragma unroll
            for (int m = 0; m < Mode::MMAS; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    product[n][m][i] += slice[n][m][i];
                    slice[n][m][i] = 0;
                }
    }

    /* Adds the products of a step. */
    __device__ __forceinline__ void add_step(uint32_t weights, uint32_t pixels)
    {
        fragment_a a[Mode::MMAS][2];
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            load_rows<Mode>(weights + m * MMA_ROWS * Mode::SIZE, a[m]);
#pragma unroll
        for (int n = 0; n < wide<Mode>::TILES; n += 2) {
            uint2 two[2];
            load_two_tiles<Mode>(pixels + n * TILE_N * Mode::SIZE, two);
            multiply_step<Mode>(a, two[0], slice[n]);
            multiply_step<Mode>(a, two[1], slice[n + 1]);
        }
    }

    /* Puts the products to shared memory. */
    __device__ __forceinline__ void put(const parameters &of, const block_tile &tile, int first_row, int first_column,
                                        float *products) const
    {
        const int lane = (int)threadIdx.x % WARP;
#pragma unroll
        for (int n = 0; n < wide<Mode>::TILES; n++)
#pragma unroll
            for (int m = 0; m < Mode::MMAS; m++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int column = first_column + n * TILE_N + lane % 4 * 2 + i % 2;
                    const int row = first_row + m * MMA_ROWS +
                                    (Mode::SIZE == 4 ? lane / 4 * 2 + i / 2 : lane / 4 + i / 2 * (MMA_ROWS / 2));
                    if (column < tile.columns && row < tile.rows)
                        products[column * of.product_pitch + row] = product[n][m][i];
                }
    }
};

/* Sums the products of a block, all of its warps together, and puts them to shared memory. */
template <class Mode, bool VECTORS>
__device__ __forceinline__ void sum_products(const parameters &of, const block_tile &tile, uint32_t stages,
                                             float *products)
{
    using of_wide = wide<Mode>;
    const int warp = (int)threadIdx.x / WARP, row_tile = warp % of_wide::ROW_WARPS;
    const int first_column = warp / of_wide::ROW_WARPS * of_wide::COLUMNS;
    const bool has_products = first_column < tile.columns && row_tile * Mode::TILE_ROWS < tile.rows;
    const int stage_count = (of.group_in - 1) / WIDE_CHANNELS + 1;
    const uint32_t weights = find_weights<Mode>(stages, row_tile), pixels = find_pixels<Mode>(stages, first_column);
    lane_copies<Mode> copies = find_copies<Mode>(of, tile);
    warp_sums<Mode> sums = {};
    int steps_left = of.slice_steps;

    /* The first stages are under way; copies are a commit group for each stage. */
#pragma unroll
    for (int i = 0; i < WIDE_BUFFERS - 1; i++) {
        if (i < stage_count)
            copy_stage<Mode, VECTORS>(of, copies, stages + i * of_wide::STAGE_BYTES);
        cp_async_commit();
    }
    int stage = 0, next = (WIDE_BUFFERS - 1) * of_wide::STAGE_BYTES;
#pragma unroll 1
    for (int number = 0; number < stage_count; number++) {
        cp_async_wait<WIDE_BUFFERS - 2>();
        __syncthreads(); /* the stage is there, and the one before has been read */
        if (number + WIDE_BUFFERS - 1 < stage_count)
            copy_stage<Mode, VECTORS>(of, copies, stages + next);
        cp_async_commit();
        if (has_products)
#pragma unroll(Mode::STRICT ? 1 : of_wide::STEPS)
            for (int step = 0; step < of_wide::STEPS; step++) { /* those behind the last channel add zeros */
                const int begin = stage + step * Mode::STEP_CHANNELS * of_wide::PITCH;
                sums.add_step(weights + begin, pixels + begin);
                if (--steps_left == 0) {
                    sums.end_slice();
                    steps_left = of.slice_steps;
                }
            }
        next = stage;
        stage = stage + of_wide::STAGE_BYTES == WIDE_BUFFERS * of_wide::STAGE_BYTES ? 0 : stage + of_wide::STAGE_BYTES;
    }
    if (has_products) {
        if (steps_left < of.slice_steps)
            sums.end_slice();
        sums.put(of, tile, row_tile * Mode::TILE_ROWS, first_column, products);
    }
}

template <class Mode, bool VECTORS>
__global__ void __launch_bounds__(WIDE_WARPS *WARP, 1) multiply_wide(const __grid_constant__ parameters of)
{
    extern __shared__ __align__(16) char shared[];
    const block_tile tile = find_tile<Mode>(of, (int)blockIdx.x);
    float *products = reinterpret_cast<float *>(shared + WIDE_BUFFERS * wide<Mode>::STAGE_BYTES);
    wait_for_kernel_ahead();
    if (of.carry.slot_count > 0)
        load_carry<Mode, 1>(of, tile, products);
    if (of.columns.in > 0) /* a flush has no inputs */
        sum_products<Mode, VECTORS>(of, tile, shared_address(shared), products);
    launch_dependents();
    cp_async_wait_all();
    __syncthreads();
    store_outputs<Mode, 1>(of, tile, products);
}

} // namespace

} // namespace tconv::frames

#endif
