/* Products of cuda_frames: weights as they lie become rows of MMAs, pixels in shared memory their columns. */
#ifndef TCONV_CUDA_FRAMES_PRODUCTS_CUH
#define TCONV_CUDA_FRAMES_PRODUCTS_CUH

#include "tile.cuh"

#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"

namespace tconv::frames
{

namespace
{

/* Where a warp works: its slice of the input channels, and its columns of the block. */
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
                /* The same row of two input channels. */
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
            b[0].at[i] = round_for_mma(b[0].at[i]);
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

} // namespace

} // namespace tconv::frames

#endif
