/*
 * The kernel of cuda_frames, by mma.sync: products of all weights of a few output channels with the pixels of a few images,
 * from which the same thread block sums outputs.
 *
 * A lane loads 16 bytes of the weights of an input channel straight to registers. They are neighbouring rows of the product,
 * and become rows of several MMAs: which row of an MMA is which weight is the kernel's to choose, and so is which of its K
 * is which input channel. The loads of the next steps are under way while a step is multiplied. Each warp brings the pixels
 * of its own input channels to shared memory.
 *
 * Numeric order: the input channels of a slice in turn, by steps of an MMA's K; in strict f32 the tensor cores sum those of
 * a step from zero. Then the slices, as a tree; then taps by ascending input, rows of them before columns. All of it is the
 * layer's and none of it the batch's, the block's or the GPU's. Strict products that are not finite are summed again, by
 * multiply-adds.
 */
#ifndef TCONV_CUDA_FRAMES_KERNEL_CUH
#define TCONV_CUDA_FRAMES_KERNEL_CUH

#include "parameters.h"

#include "../epilogue/finish.cuh"
#include "../epilogue/layer_posts.cuh"
#include "../numeric/divisor.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"

namespace tconv::frames
{

namespace
{

template <class Element_> struct mode_of {
    using Element = Element_;
    static constexpr bool STRICT = false;
    static constexpr int SIZE = sizeof(Element);
    static constexpr int LANE_ROWS = LANE_BYTES / SIZE;         /* neighbouring rows that a lane loads */
    static constexpr int TILE_ROWS = tile_rows(SIZE);           /* of the product */
    static constexpr int MMAS = LANE_ROWS / 2;                  /* of a row tile: each has two of a lane's rows */
    static constexpr int STEP_CHANNELS = STEP_WORDS * 4 / SIZE; /* of a step */
    static constexpr int LANE_CHANNELS = STEP_CHANNELS / 4;     /* that a lane loads of these */
};
struct tf32 : mode_of<float> {
};
struct strict : tf32 {
    static constexpr bool STRICT = true;
};
template <class Half> struct half_mode : mode_of<Half> {
};

/* Steps whose weights are under way: 128 bytes of a lane where registers allow it, else 64. The steps of a stage are a
 * multiple of it. */
template <class Mode, int TILES, bool VECTORS>
constexpr int depth_of = (TILES == 1 && VECTORS ? 8 : 4) / Mode::LANE_CHANNELS;

/* What a block computes: output channels of a group, and images. */
struct block_tile {
    int group, first_out, outs, first_image, images, columns;
    int first_x;           /* column of src */
    int first_column, end; /* columns of outputs */
    int first_row;         /* of the group's products, at a multiple of a lane's rows */
    int row_shift;         /* from there to the first row of the first output channel */
    int rows;              /* from there to the last row of the last output channel */
};

template <class Mode> __device__ __forceinline__ block_tile find_tile(const parameters &of, int number)
{
    const quotient strips = divide(number, of.strips), images = divide(strips.whole, of.image_tiles),
                   outs = divide(images.whole, of.out_tiles);
    block_tile tile;
    tile.group = outs.whole;
    tile.first_out = outs.rest * of.block_out;
    tile.outs = min(of.block_out, of.group_out - tile.first_out);
    tile.first_image = images.rest * of.tile_images;
    tile.images = min(of.tile_images, of.images - tile.first_image);
    tile.columns = tile.images * of.image_pixels.divisor;
    tile.first_x = max(strips.rest * of.strip_step - of.strip_back, 0);
    const int step = of.strip_step * of.columns.stride.divisor, begin = strips.rest * step - of.columns.pad;
    tile.first_column = strips.rest == 0 ? 0 : max(begin, 0);
    tile.end = strips.rest == of.strips.divisor - 1 ? of.columns.out : min(begin + step, of.columns.out);
    tile.row_shift = tile.first_out * of.taps % Mode::LANE_ROWS;
    tile.first_row = tile.first_out * of.taps - tile.row_shift;
    tile.rows = tile.row_shift + tile.outs * of.taps;
    return tile;
}

/* Where a warp works: its slice of the input channels, and its columns of the block. */
struct warp_place {
    int slice, first_column, columns;
};

/* Elements from src to the pixel of a block's column, input channel 0 of the layer. The last strip may be wider than what is
 * left of src: its last pixel is repeated. */
__device__ __forceinline__ int64_t find_pixel(const parameters &of, const block_tile &tile, int column)
{
    const quotient image = divide(column, of.image_pixels), row = divide(image.rest, of.image_columns);
    return (tile.first_image + image.whole) * of.src_strides.n + row.whole * of.src_strides.h +
           min(tile.first_x + row.rest, of.columns.in - 1) * of.src_strides.w;
}

/* ------------------------------------------------------------------------------------------------------- weights */

/* A lane's weights in a step: 16 bytes, which are rows, of each of its input channels. */
template <class Mode> struct lane_weights {
    uint32_t at[Mode::LANE_CHANNELS][4];
};

/* Loads them. channels, rows: how many there are from the lane's first on; the others become zeros. */
template <class Mode, bool VECTORS>
__device__ __forceinline__ void load_weights(const typename Mode::Element *from, int64_t pitch, int channels, int rows,
                                             lane_weights<Mode> &to)
{
#pragma unroll
    for (int c = 0; c < Mode::LANE_CHANNELS; c++, from += pitch) {
        if constexpr (VECTORS) {
            uint4 words = make_uint4(0, 0, 0, 0);
            if (c < channels && rows > 0)
                words = __ldg(reinterpret_cast<const uint4 *>(from));
            to.at[c][0] = words.x, to.at[c][1] = words.y, to.at[c][2] = words.z, to.at[c][3] = words.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                to.at[c][i] = 0;
#pragma unroll
            for (int i = 0; i < Mode::LANE_ROWS; i++)
                if (c < channels && i < rows) {
                    if constexpr (Mode::SIZE == 4)
                        to.at[c][i] = __ldg(reinterpret_cast<const uint32_t *>(from) + i);
                    else
                        to.at[c][i / 2] |= (uint32_t)__ldg(reinterpret_cast<const uint16_t *>(from) + i) << i % 2 * 16;
                }
        }
    }
}

/* Makes a step's fragments of them: [0] the only or big parts, [1] the small ones. Rows of MMA m are each lane's rows 2 m,
 * then each lane's rows 2 m + 1. */
template <class Mode>
__device__ __forceinline__ void make_fragments(const lane_weights<Mode> &weights, fragment_a (&a)[Mode::MMAS][2])
{
#pragma unroll
    for (int m = 0; m < Mode::MMAS; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (Mode::SIZE == 2) {
                /* The same row of two input channels. */
                a[m][0].at[i] =
                    __byte_perm(weights.at[i / 2 * 2][m], weights.at[i / 2 * 2 + 1][m], i % 2 == 0 ? 0x5410 : 0x7632);
            } else {
                const uint32_t word = weights.at[i / 2][2 * m + i % 2];
                a[m][0].at[i] = Mode::STRICT ? word : round_quickly_for_mma(word);
                if (Mode::STRICT)
                    split_for_mma(a[m][0].at[i], &a[m][1].at[i]);
            }
        }
}

/* ----------------------------------------------------------------------------------------------------------- src */

/* Brings a word of a pixel, which is a channel or two, to shared memory: several words of a lane, `step` of them apart.
 * Channels from `channels` on become zeros. Loads of 16 bits are all under way before the first is stored. */
template <class Mode, int AT_ONCE>
__device__ __forceinline__ void stage_words(const typename Mode::Element *from, int64_t pitch, int channels,
                                            uint32_t to, int word, int words, int step)
{
    constexpr int CHANNELS = 4 / Mode::SIZE;
    const typename Mode::Element *at = from + (int64_t)word * CHANNELS * pitch;
    const int64_t apart = (int64_t)step * CHANNELS * pitch;
    const int left = channels - word * CHANNELS, words_left = words - word;
    to += word * 4;
    if constexpr (Mode::SIZE == 4) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, at += apart)
            if (i * step < words_left)
                cp_async_padded<4>(to + i * step * 4, i * step < left ? at : from, i * step < left ? 4 : 0);
    } else {
        const uint16_t *halves = reinterpret_cast<const uint16_t *>(at);
        uint32_t loaded[AT_ONCE][2] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, halves += apart)
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (i * step * 2 + half < left)
                    loaded[i][half] = __ldg(halves + half * pitch);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (i * step < words_left)
                store_shared(to + i * step * 4, loaded[i][0] | loaded[i][1] << 16);
    }
}

/* Brings words of the pixels of a warp to shared memory. Neighbouring lanes load neighbouring pixels, as many as there are
 * up to TILE_N, and the others other channels. src: pixel 0 of the first channel. */
template <class Mode, int TILES>
__device__ __forceinline__ void stage_pixels(const parameters &of, const block_tile &tile, const warp_place &warp,
                                             const typename Mode::Element *src, int channels, uint32_t stage, int words)
{
    constexpr int AT_ONCE = TILES == 1                            ? FEW_AT_ONCE
                            : sizeof(typename Mode::Element) == 2 ? MANY_HALF_AT_ONCE
                                                                  : MANY_AT_ONCE;
    const int lane = (int)threadIdx.x % WARP, lanes_log2 = TILES == 1 ? of.stage_lanes_log2 : TILE_N_LOG2;
    const int lanes = 1 << lanes_log2, step = WARP >> lanes_log2;
#pragma unroll 1
    for (int column = lane & (lanes - 1); column < warp.columns; column += lanes) {
        const typename Mode::Element *from = src + find_pixel(of, tile, warp.first_column + column);
#pragma unroll 1
        for (int word = lane >> lanes_log2; word < words; word += step * AT_ONCE)
            stage_words<Mode, AT_ONCE>(from, of.src_strides.c, channels, stage + column * of.stage_pitch * 4, word,
                                       words, step);
    }
}

/* ------------------------------------------------------------------------------------------------------ products */

template <class Mode>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
{
    if constexpr (Mode::SIZE == 2)
        mma_half(sums, a, b, typename Mode::Element());
    else
        mma_tf32(sums, a, b);
}

/* Adds a step's products with a tile of columns. pixels: the lane's words of its column. */
template <class Mode>
__device__ __forceinline__ void multiply_step(const fragment_a (&a)[Mode::MMAS][2], const uint2 &pixels,
                                              float (&sums)[Mode::MMAS][4])
{
    fragment_b b[2] = {{{pixels.x, pixels.y}}, {{0, 0}}};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (Mode::STRICT)
            split_for_mma(b[0].at[i], &b[1].at[i]);
        else if (Mode::SIZE == 4)
            b[0].at[i] = round_quickly_for_mma(b[0].at[i]);
    }
    if constexpr (Mode::STRICT) {
        float step[Mode::MMAS][4] = {};
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][1], b[0]);
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][0], b[1]);
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][0], b[0]);
#pragma unroll
        for (int i = 0; i < Mode::MMAS * 4; i++)
            sums[i / 4][i % 4] += step[i / 4][i % 4];
    } else {
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(sums[m], a[m][0], b[0]);
    }
}

/* Sums the products of a row tile over the slice of a warp. stage: of the warp. */
template <class Mode, int TILES, bool VECTORS>
__device__ __forceinline__ void sum_slice(const parameters &of, const block_tile &tile, const warp_place &warp,
                                          int row_tile, uint32_t stage, float (&sums)[TILES][Mode::MMAS][4])
{
    using Element = typename Mode::Element;
    constexpr int DEPTH = depth_of<Mode, TILES, VECTORS>;
    const int lane = (int)threadIdx.x % WARP, first = warp.slice * of.slice_steps * Mode::STEP_CHANNELS;
    const int channels = min(of.group_in - first, of.slice_steps * Mode::STEP_CHANNELS);
    const int64_t in_channel = (int64_t)tile.group * of.group_in + first;

    const int row = row_tile * Mode::TILE_ROWS + lane / 4 * Mode::LANE_ROWS;
    int ahead = lane % 4 * Mode::LANE_CHANNELS; /* of the channels: where the lane loads next */
    const Element *weights =
        static_cast<const Element *>(of.weights) + (in_channel + ahead) * of.weight_pitch + tile.first_row + row;
    lane_weights<Mode> loaded[DEPTH];
    const auto load_next = [&](lane_weights<Mode> &to) {
        load_weights<Mode, VECTORS>(weights, of.weight_pitch, channels - ahead, tile.rows - row, to);
        weights += Mode::STEP_CHANNELS * of.weight_pitch;
        ahead += Mode::STEP_CHANNELS;
    };
#pragma unroll
    for (int i = 0; i < DEPTH; i++)
        load_next(loaded[i]);

    /* The lane's words of a step, of its first column. Columns that do not exist are multiplied with what lies there; in the
     * first tile with the last column. */
    const Element *src = static_cast<const Element *>(of.src) + in_channel * of.src_strides.c;
    const uint32_t pixels =
        stage + min(lane / 4, warp.columns - 1) * of.stage_pitch * 4 + lane % 4 * (STEP_WORDS / 4) * 4;

    const int stage_channels = of.stage_steps * Mode::STEP_CHANNELS;
#pragma unroll 1
    for (int begin = 0; begin < channels; begin += stage_channels) {
        __syncwarp(); /* the stage before has been read */
        const int left = channels - begin, steps = (min(left, stage_channels) - 1) / Mode::STEP_CHANNELS + 1;
        stage_pixels<Mode, TILES>(of, tile, warp, src + begin * of.src_strides.c, left, stage, steps * STEP_WORDS);
        cp_async_wait_all();
        __syncwarp();
#pragma unroll 1
        for (int first_step = 0; first_step < steps; first_step += DEPTH)
#pragma unroll
            for (int i = 0; i < DEPTH; i++) {
                if (first_step + i >= steps)
                    continue;
                fragment_a a[Mode::MMAS][2];
                make_fragments<Mode>(loaded[i], a);
                load_next(loaded[i]);
#pragma unroll
                for (int n = 0; n < TILES; n++)
                    if (n * TILE_N < warp.columns)
                        multiply_step<Mode>(
                            a,
                            load_shared<uint2>(pixels +
                                               (n * TILE_N * of.stage_pitch + (first_step + i) * STEP_WORDS) * 4),
                            sums[n]);
            }
    }
}

/* Puts sums of a row tile to shared memory. products: of the warp's slice. */
template <class Mode, int TILES>
__device__ __forceinline__ void put_products(const parameters &of, const block_tile &tile, const warp_place &warp,
                                             int row_tile, const float (&sums)[TILES][Mode::MMAS][4], float *products)
{
    const int lane = (int)threadIdx.x % WARP;
    const int row = row_tile * Mode::TILE_ROWS + lane / 4 * Mode::LANE_ROWS;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = n * TILE_N + lane % 4 * 2 + i % 2;
                const int of_lane = 2 * m + i / 2;
                if (column < warp.columns && row + of_lane < tile.rows)
                    products[(warp.first_column + column) * of.product_pitch + row + of_lane] = sums[n][m][i];
            }
}

/* ------------------------------------------------------------------------------------------------------- outputs */

/* A product of f32 by multiply-adds. */
__device__ __noinline__ float sum_plainly(const parameters &of, int64_t weight, int64_t pixel)
{
    const float *weights = static_cast<const float *>(of.weights) + weight;
    const float *src = static_cast<const float *>(of.src) + pixel;
    float sum = 0;
    for (int i = 0; i < of.group_in; i++, weights += of.weight_pitch, src += of.src_strides.c)
        sum = fmaf(*weights, *src, sum);
    return sum;
}

/* Returns a product, the sum of its slices. */
template <class Mode>
__device__ __forceinline__ float product_of(const parameters &of, const block_tile &tile, const float *products,
                                            int row, int column)
{
    const float *from = products + column * of.product_pitch + row;
    const int slice = tile.columns * of.product_pitch;
    float sums[SLICES];
#pragma unroll
    for (int i = 0; i < SLICES; i++)
        sums[i] = from[i * slice];
#pragma unroll
    for (int apart = 1; apart < SLICES; apart *= 2)
#pragma unroll
        for (int i = 0; i < SLICES; i += 2 * apart)
            sums[i] += sums[i + apart];
    if (!Mode::STRICT || isfinite(sums[0]))
        return sums[0];
    const int64_t in_channel = (int64_t)tile.group * of.group_in;
    return sum_plainly(of, in_channel * of.weight_pitch + tile.first_row + row,
                       find_pixel(of, tile, column) + in_channel * of.src_strides.c);
}

/* The inputs that may have a tap of an output. */
struct inputs {
    int first, last;
};

__device__ __forceinline__ inputs find_inputs(const frames_axis &axis, int output)
{
    const int padded = output + axis.pad, beyond = padded - axis.span;
    return {beyond > 0 ? divide(beyond + axis.stride.divisor - 1, axis.stride).whole : 0,
            min(divide(padded, axis.stride).whole, axis.in - 1)};
}

/* The tap of an output that reads an input, whose rest is 0 if there is one. */
__device__ __forceinline__ quotient find_tap(const frames_axis &axis, int output, int input)
{
    return divide(output + axis.pad - input * axis.stride.divisor, axis.dilation);
}

/* The sum of an output over its taps, by ascending input. */
template <class Mode>
__device__ __forceinline__ float fold_taps(const parameters &of, const block_tile &tile, const float *products,
                                           int image, int out, int row, int column)
{
    const inputs rows = find_inputs(of.rows, row), columns = find_inputs(of.columns, column);
    float sum = 0;
    for (int y = rows.first; y <= rows.last; y++) {
        const quotient row_tap = find_tap(of.rows, row, y);
        for (int x = columns.first; x <= columns.last; x++) {
            const quotient column_tap = find_tap(of.columns, column, x);
            if (row_tap.rest == 0 && column_tap.rest == 0)
                sum += product_of<Mode>(
                    of, tile, products,
                    tile.row_shift + out * of.taps + row_tap.whole * of.kernel_columns + column_tap.whole,
                    image * of.image_pixels.divisor + y * of.image_columns.divisor + x - tile.first_x);
        }
    }
    return sum;
}

/* Stores the outputs of a block, whose products are in shared memory. */
template <class Mode>
__device__ __forceinline__ void store_outputs(const parameters &of, const block_tile &tile, const float *products)
{
    using Element = typename Mode::Element;
    const int outputs = tile.images * of.block_out * of.row_outs.divisor * of.strip_outs.divisor;
    for (int i = (int)threadIdx.x; i < outputs; i += (int)blockDim.x) {
        const quotient place = divide(i, of.strip_outs), row = divide(place.whole, of.row_outs),
                       image = divide(row.whole, of.block_channels);
        const int out = image.rest, channel = tile.group * of.group_out + tile.first_out + out;
        const int column = tile.first_column + place.rest;
        if (out >= tile.outs || column >= tile.end)
            continue;
        const float sum = fold_taps<Mode>(of, tile, products, image.whole, out, row.rest, column);
        const auto offset = [&](const tconv_strides &strides) {
            return (tile.first_image + image.whole) * strides.n + channel * strides.c + row.rest * strides.h +
                   column * strides.w;
        };
        float value[] = {finish_sum(sum, channel_bias<Element>(of.bias, channel))};
        if (of.posts.steps.count > 0)
            run_layer_posts<Element>(
                of.posts, value, [&](int) { return channel; }, [&](int) { return offset(of.posts.addend_strides); });
        static_cast<Element *>(of.dst)[offset(of.dst_strides)] = to_output<Element>(value[0]);
    }
}

template <int TILES> constexpr int max_threads = (TILES == 1 ? 1 : MAX_PARTS) * SLICES *WARP;

template <class Mode, int TILES, bool VECTORS>
__global__ void __launch_bounds__(max_threads<TILES>, TILES == 1 ? 2 : 1)
    multiply_frames(const __grid_constant__ parameters of)
{
    extern __shared__ __align__(16) char shared[];
    const block_tile tile = find_tile<Mode>(of, (int)blockIdx.x);
    const int number = (int)threadIdx.x / WARP, first_column = number / SLICES * PART_COLUMNS;
    const warp_place warp = {number % SLICES, first_column, min(tile.columns - first_column, PART_COLUMNS)};
    const uint32_t stage = shared_address(shared + number * of.stage_words * 4);
    float *products = reinterpret_cast<float *>(shared + (int)blockDim.x / WARP * of.stage_words * 4);
    if (warp.columns > 0) { /* the last images may be so few */
#pragma unroll 1
        for (int row_tile = 0; row_tile < of.row_tiles; row_tile++) {
            float sums[TILES][Mode::MMAS][4] = {};
            sum_slice<Mode, TILES, VECTORS>(of, tile, warp, row_tile, stage, sums);
            put_products<Mode, TILES>(of, tile, warp, row_tile, sums,
                                      products + warp.slice * tile.columns * of.product_pitch);
        }
    }
    __syncthreads();
    store_outputs<Mode>(of, tile, products);
}

template <class Mode> const void *choose_kernel(bool many_columns, bool by_vectors)
{
    constexpr int FEW = FEW_COLUMNS / TILE_N, MANY = PART_COLUMNS / TILE_N;
    if (many_columns)
        return by_vectors ? (const void *)multiply_frames<Mode, MANY, true>
                          : (const void *)multiply_frames<Mode, MANY, false>;
    return by_vectors ? (const void *)multiply_frames<Mode, FEW, true>
                      : (const void *)multiply_frames<Mode, FEW, false>;
}

} // namespace

} // namespace tconv::frames

#endif
