/*
 * The kernel of cuda_frames for few columns, by mma.sync: products of all weights of a few output channels with the pixels of
 * a few images, from which the same thread block sums outputs. wide.cuh has the kernel for many columns.
 *
 * A lane loads 16 bytes of the weights of an input channel straight to registers. They are neighbouring rows of the product,
 * and become rows of several MMAs: which row of an MMA is which weight is the kernel's to choose, and so is which of its K
 * is which input channel. The loads of the next steps are under way while a step is multiplied. Each warp brings the pixels
 * of its own input channels to shared memory.
 *
 * Numeric order: the input channels of a slice in turn, by steps of an MMA's K; in strict f32 the tensor cores sum those of
 * a step from zero. Then the slices in turn; then taps by ascending column of inputs, in each by ascending row. All of it is the
 * layer's and none of it the batch's, the block's or the GPU's. A stream's sum is carried between two inputs, so that no cut
 * of a stream changes a bit, where the carry is f32. Strict products that are not finite are summed again, by
 * multiply-adds.
 */
#ifndef TCONV_CUDA_FRAMES_KERNEL_CUH
#define TCONV_CUDA_FRAMES_KERNEL_CUH

#include "outputs.cuh"
#include "products.cuh"

#include "../ptx/dependent_launch.cuh"

namespace tconv::frames
{

namespace
{

/* Steps whose weights are under way: 128 bytes of a lane where registers allow it, else 64. The steps of a stage are a
 * multiple of it. */
template <class Mode, int TILES, bool VECTORS>
constexpr int depth_of = (TILES == 1 && VECTORS ? 8 : 4) / Mode::LANE_CHANNELS;

/* A warp works on a slice of the input channels, and on these columns of the block. */
struct warp_place {
    int slice, first_column, columns;
};

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
                words = *reinterpret_cast<const uint4 *>(from);
            to.at[c][0] = words.x, to.at[c][1] = words.y, to.at[c][2] = words.z, to.at[c][3] = words.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                to.at[c][i] = 0;
#pragma unroll
            for (int i = 0; i < Mode::LANE_ROWS; i++)
                if (c < channels && i < rows) {
                    if constexpr (Mode::SIZE == 4)
                        to.at[c][i] = reinterpret_cast<const uint32_t *>(from)[i];
                    else
                        to.at[c][i / 2] |= (uint32_t) reinterpret_cast<const uint16_t *>(from)[i] << i % 2 * 16;
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
                /* A register has the same row of two input channels. */
                a[m][0].at[i] =
                    __byte_perm(weights.at[i / 2 * 2][m], weights.at[i / 2 * 2 + 1][m], i % 2 == 0 ? 0x5410 : 0x7632);
            } else {
                const uint32_t word = weights.at[i / 2][2 * m + i % 2];
                a[m][0].at[i] = Mode::STRICT ? word : round_for_mma(word);
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
                    loaded[i][half] = halves[half * pitch];
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

/* Adds a step's products with several tiles of columns, without a branch, so that all loads are under way. pixels: where the lane's words
 * of its first column are; pitch: bytes from a column to the next. Tiles that do not exist are multiplied with what lies there. */
template <class Mode, int TILES>
__device__ __forceinline__ void multiply_tiles(const fragment_a (&a)[Mode::MMAS][2], uint32_t pixels, int pitch,
                                               float (*sums)[Mode::MMAS][4])
{
    uint2 loaded[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
        loaded[n] = load_shared<uint2>(pixels + n * TILE_N * pitch);
#pragma unroll
    for (int n = 0; n < TILES; n++)
        multiply_step<Mode>(a, loaded[n], sums[n]);
}

/* Adds the products of a step with its weights. pixels, pitch: as multiply_tiles has them. */
template <class Mode, int TILES, bool VECTORS>
__device__ __forceinline__ void add_step(const lane_weights<Mode> &weights, uint32_t pixels, int pitch, int columns,
                                         float (&sums)[TILES][Mode::MMAS][4])
{
    constexpr int AT_ONCE = TILES == 1 || (Mode::STRICT && VECTORS) ? 1 : TILES_AT_ONCE; /* as registers allow */
    fragment_a a[Mode::MMAS][2];
    make_fragments<Mode>(weights, a);
    multiply_tiles<Mode, AT_ONCE>(a, pixels, pitch, sums);
#pragma unroll
    for (int n = AT_ONCE; n < TILES; n += AT_ONCE)
        if (n * TILE_N < columns)
            multiply_tiles<Mode, AT_ONCE>(a, pixels + n * TILE_N * pitch, pitch, sums + n);
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
                if (first_step + i < steps)
                    add_step<Mode, TILES, VECTORS>(loaded[i], pixels + (first_step + i) * STEP_WORDS * 4,
                                                   of.stage_pitch * 4, warp.columns, sums);
                /* In every step: a load in some of them would go to other registers, and be waited for at once. */
                load_next(loaded[i]);
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
    wait_for_kernel_ahead();
    if (of.carry.slot_count > 0)
        load_carry<Mode, SLICES>(of, tile, products);
    if (warp.columns > 0 && of.columns.in > 0) { /* the last images may be so few; a flush has no inputs */
#pragma unroll 1
        for (int row_tile = 0; row_tile < of.row_tiles; row_tile++) {
            float sums[TILES][Mode::MMAS][4] = {};
            sum_slice<Mode, TILES, VECTORS>(of, tile, warp, row_tile, stage, sums);
            put_products<Mode, TILES>(of, tile, warp, row_tile, sums,
                                      products + warp.slice * tile.columns * of.product_pitch);
        }
    }
    launch_dependents(); /* now: the next kernel's blocks would share multiprocessors before, while others have none */
    cp_async_wait_all();
    __syncthreads();
    store_outputs<Mode, SLICES>(of, tile, products);
}

} // namespace

} // namespace tconv::frames

#endif
