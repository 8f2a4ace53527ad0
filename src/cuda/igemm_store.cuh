/* From a warp's sums in registers to dst: staging them in shared memory, which the warps that multiply do, and storing what is
 * staged, which is a role of its own. */
#ifndef TCONV_CUDA_IGEMM_STORE_CUH
#define TCONV_CUDA_IGEMM_STORE_CUH

#include "igemm_tile.cuh"

namespace tconv_igemm
{

template <class Element> constexpr int STAGED_PIXEL = tconv_igemm_staged_pixel(sizeof(Element));
template <class Element, int N> constexpr int STAGED_ROW = tconv_igemm_staged_row(N, sizeof(Element));
template <class Element, int N> constexpr int STAGED_BYTES = tconv_igemm_staged_bytes(N, sizeof(Element));

template <class Half> __device__ __forceinline__ uint32_t pack_pair(float first, float second)
{
    element_vector<Half, 2> pair;
    pair.at[0] = from_compute<Half>(first);
    pair.at[1] = from_compute<Half>(second);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* Stores two matrices of 8 x 8 elements of 16 bits, transposed: lane i < 16 says where row i % 8 of matrix i / 8 goes. */
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t first, uint32_t second)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second)
                 : "memory");
}

/* Half of a unit's 16 rows of M of a warp, from sum `first` on, pixel by pixel. Of the four sums for each 8 pixels, the first two are of row lane / 4 and
 * pixels lane % 4 * 2 and one on, the others of 8 rows on; bias is of these two rows. */
template <int N, int first>
__device__ __forceinline__ void stage_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                             float)
{
    constexpr int PIXEL = STAGED_PIXEL<float>;
    char *to = staged + lane % 4 * 2 * PIXEL + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *reinterpret_cast<float *>(to + (i / 4 * 8 + i % 2) * PIXEL + i / 2 % 2 * 32) =
            sums[first + i] + bias[i / 2 % 2];
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                             Half)
{
    constexpr int PIXEL = STAGED_PIXEL<Half>;
    const uint32_t to = shared_address(staged) + lane % 8 * PIXEL + lane / 8 % 2 * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i += 4)
        store_transposed(to + i * 2 * PIXEL, pack_pair<Half>(sums[first + i] + bias[0], sums[first + i + 1] + bias[0]),
                         pack_pair<Half>(sums[first + i + 2] + bias[1], sums[first + i + 3] + bias[1]));
}

/* The same, row of M by row. */
template <int N, int first>
__device__ __forceinline__ void stage_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                           float)
{
    constexpr int ROW = STAGED_ROW<float, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<float2 *>(to + i / 4 * 32 + i / 2 % 2 * 8 * ROW) =
            make_float2(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged, int lane,
                                           Half)
{
    constexpr int ROW = STAGED_ROW<Half, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<uint32_t *>(to + i / 4 * 16 + i / 2 % 2 * 8 * ROW) =
            pack_pair<Half>(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}

constexpr int64_t NOWHERE = -1;

/* Where in dst a pixel of a tile goes, as elements from channel 0 of the layer's group 0; NOWHERE for one that is not there. */
__device__ __forceinline__ int64_t find_output(const tconv_igemm_parameters &layer, const tile_place &tile,
                                               const block_place &block, int pixel)
{
    int image = pixel / layer.image_pixels;
    pixel -= image * layer.image_pixels;
    int row = pixel / layer.pitch, column = pixel - row * layer.pitch;
    if (image >= layer.tile_images || row >= layer.tile_rows || column >= layer.tile_columns)
        return NOWHERE;
    image += tile.image;
    row += tile.row;
    column += tile.column;
    if (image >= layer.images)
        return NOWHERE;
    if (layer.flat) {
        if (column >= layer.in_columns)
            return NOWHERE;
        row = column / layer.flat_columns;
        column -= row * layer.flat_columns;
        const int image_of_row = row / layer.flat_rows;
        row -= image_of_row * layer.flat_rows;
        image += image_of_row;
    }
    const tconv_igemm_phase &rows = layer.rows[block.row_phase], &columns = layer.columns[block.column_phase];
    if (row >= rows.outputs || column >= columns.outputs)
        return NOWHERE;
    return image * layer.to.n + ((int64_t)row * layer.row_stride + rows.residue) * layer.to.h +
           ((int64_t)column * layer.column_stride + columns.residue) * layer.to.w;
}

/* Of NHWC: rows of 16 channels, `vector` elements at a time. */
template <class Mode, int N, int vector>
__device__ __forceinline__ void store_pixels(typename Mode::Element *dst, const int64_t *outputs, const char *staged,
                                             int channels, int lane)
{
    using Elements = element_vector<typename Mode::Element, vector>;
    constexpr int LANES = TCONV_IGEMM_STAGED / vector, STEP = WARP / LANES;
    constexpr int PIXELS = N / 2, ROUNDS = PIXELS / STEP;
    constexpr int AT_ONCE = ROUNDS % 4 == 0 ? 4 : ROUNDS % 5 == 0 ? 5 : ROUNDS % 2 == 0 ? 2 : 1;
    static_assert(PIXELS % STEP == 0, "whole rounds");
    const int channel = lane % LANES * vector;
    if (channel >= channels)
        return;
    const char *from = staged + channel * sizeof(typename Mode::Element);
    for (int first = lane / LANES; first < PIXELS; first += AT_ONCE * STEP) {
        Elements elements[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            elements[i] = *reinterpret_cast<const Elements *>(from + (first + i * STEP) * STAGED_PIXEL<typename Mode::Element>);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int64_t offset = outputs[first + i * STEP];
            if (offset != NOWHERE)
                *reinterpret_cast<Elements *>(dst + offset + channel) = elements[i];
        }
    }
}

/* Of NCHW: neighbouring lanes take neighbouring pixels. */
template <class Mode, int N>
__device__ __forceinline__ void store_rows(typename Mode::Element *dst, int64_t channel_step, const int64_t *outputs,
                                           const char *staged, int channels, int lane)
{
    using Element = typename Mode::Element;
#pragma unroll 1
    for (int pixel = lane; pixel < N / 2; pixel += WARP) {
        const int64_t offset = outputs[pixel];
        if (offset == NOWHERE)
            continue;
        const char *from = staged + pixel * sizeof(Element);
        Element *to = dst + offset;
#pragma unroll 4
        for (int c = 0; c < channels; c++, to += channel_step)
            *to = *reinterpret_cast<const Element *>(from + c * STAGED_ROW<Element, N>);
    }
}

/* What one warp of a warpgroup staged of a unit. */
template <class Mode, int N>
__device__ __forceinline__ void store_staged(const tconv_igemm_parameters &layer, typename Mode::Element *dst,
                                             const int64_t *outputs, const char *staged, int channels, int lane)
{
    constexpr int WIDEST = 16 / (int)sizeof(typename Mode::Element);
    if (!layer.channels_last)
        store_rows<Mode, N>(dst, layer.to.c, outputs, staged, channels, lane);
    else if (layer.store_vector == WIDEST)
        store_pixels<Mode, N, WIDEST>(dst, outputs, staged, channels, lane);
    else
        store_pixels<Mode, N, 1>(dst, outputs, staged, channels, lane);
}

/* Stores what the warps of one warpgroup stage. */
template <class Mode, int N>
__device__ __forceinline__ void store_tiles(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                            int64_t *outputs, int group, int lane)
{
    using Element = typename Mode::Element;
    uint32_t parity = 0;
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        for (int turn = 0; turn < TURNS; turn++) {
            const int buffer = layer.staged_turns == 2 ? turn % 2 : 0, unit = turn / 2;
            const int first_pixel = layer.unit_pixel[group][unit] + turn % 2 * (N / 2);
            const block_place block = find_block(layer, tile, layer.unit_block[group][unit]);
            __syncwarp();
            for (int pixel = lane; pixel < N / 2; pixel += WARP)
                outputs[pixel] = find_output(layer, tile, block, first_pixel + pixel);
            __syncwarp();
            for (int warp = 0; warp < GROUP_WARPS; warp++) {
                const int consumer = group * GROUP_WARPS + warp, place = 8 * (consumer * STAGED_BUFFERS + buffer);
                const char *staged = shared.staged + (consumer * layer.staged_turns + buffer) * STAGED_BYTES<Element, N>;
                const int channel = block.channel + warp * TCONV_IGEMM_STAGED;
                const int channels = min(TCONV_IGEMM_STAGED, layer.group_out - channel);
                Element *dst = static_cast<Element *>(layer.dst) +
                               (tile.group * (int64_t)layer.group_out + channel) * layer.to.c;
                barrier_wait(shared.staged_full + place, parity >> buffer & 1);
                store_staged<Mode, N>(layer, dst, outputs, staged, channels, lane);
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(shared.staged_empty + place);
            }
            parity ^= 1 << buffer;
        }
    }
}

} // namespace tconv_igemm

#endif
