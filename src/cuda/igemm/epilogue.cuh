/* From a warp's accumulators in registers to dst, through its own staging in shared memory, so that neighbouring lanes
 * store neighbouring elements; the address warps' tables have the positions' offsets in dst. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "offsets.cuh"
#include "staging.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

/* Stores NHWC: rows of 16 channels, a Vector (an element, or 16 bytes of them) at a time. */
template <class Element, int N, class Vector>
__device__ __forceinline__ void store_pixels(char *dst, const int64_t *offset_table, const char *staged, int channels,
                                             int lane)
{
    constexpr int LENGTH = sizeof(Vector) / sizeof(Element), LANES = WARP_M / LENGTH, STEP = WARP / LANES;
    constexpr int ROUNDS = N / 2 / STEP, AT_ONCE = ROUNDS % 4 == 0 ? 4 : ROUNDS % 2 == 0 ? 2 : 1;
    static_assert(N / 2 % STEP == 0, "whole rounds");
    const int channel = lane % LANES * LENGTH, first_pixel = lane / LANES;
    if (channel >= channels)
        return;
    dst += channel * sizeof(Element);
    const uint32_t offset = shared_address(offset_table + first_pixel);
    const uint32_t from =
        shared_address(staged) + first_pixel * STAGED_PIXEL_BYTES<Element> + channel * (int)sizeof(Element);
#pragma unroll
    for (int first = 0; first < ROUNDS; first += AT_ONCE) {
        Vector vectors[AT_ONCE];
        int64_t offsets[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            offsets[i] = load_offset(offset + (first + i) * STEP * (int)sizeof *offset_table);
            load_staged(from + (first + i) * STEP * STAGED_PIXEL_BYTES<Element>, vectors[i]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (offsets[i] >= 0)
                *reinterpret_cast<Vector *>(dst + offsets[i]) = vectors[i];
    }
}

/* Stores NCHW: neighbouring lanes take neighbouring pixels, each a Vector (an element, or two neighbouring columns);
 * lanes past the pixels take other channels. */
template <class Element, int N, int pixels, class Vector>
__device__ __forceinline__ void store_rows(char *dst, int64_t channel_bytes, const int64_t *offset_table,
                                           const char *staged, int channels, int lane)
{
    constexpr int SHARE = pixels < WARP ? WARP / pixels : 1; /* lanes that share a pixel */
    constexpr int AT_ONCE = sizeof(Vector) == 8 ? 4 : 8;
    static_assert(WARP_M / SHARE % AT_ONCE == 0, "whole rounds");
    const int first_channel = lane / (WARP / SHARE) * (WARP_M / SHARE);
    channels = min(channels, first_channel + WARP_M / SHARE);
#pragma unroll 1
    for (int pixel = lane % (WARP / SHARE); pixel < pixels; pixel += WARP) {
        const int64_t offset = offset_table[pixel];
        if (offset < 0)
            continue;
        char *to = dst + offset + first_channel * channel_bytes;
        const uint32_t from = shared_address(staged) + pixel * (int)sizeof(Vector);
#pragma unroll 1
        for (int first = first_channel; first < channels; first += AT_ONCE) {
            Vector vectors[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                load_staged(from + (first + i) * STAGED_ROW_BYTES<Element, N>, vectors[i]);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++, to += channel_bytes)
                if (first + i < channels)
                    *reinterpret_cast<Vector *>(to) = vectors[i];
        }
    }
}

/* Stores a pair, 16 bytes at a time: a lane takes pixels whose columns are these bytes. Returns whether it could: they
 * must follow one another in dst, all or none of them, and begin at a whole vector. */
template <class Element, int N, int pixels>
__device__ __forceinline__ bool store_wide_rows(char *dst, int64_t channel_bytes, const int64_t *offset_table,
                                                const char *staged, int channels, int lane)
{
    constexpr int PIXEL = 2 * (int)sizeof(Element), LENGTH = 16 / PIXEL, LANES = pixels / LENGTH;
    constexpr int STEP = WARP / LANES, ROUNDS = (WARP_M + STEP - 1) / STEP;
    constexpr int AT_ONCE = ROUNDS % 4 == 0 ? 4 : 2;
    static_assert(pixels % LENGTH == 0 && ROUNDS % AT_ONCE == 0, "whole rounds");
    bool whole = channel_bytes % 16 == 0;
#pragma unroll 1
    for (int pixel = lane; pixel < pixels; pixel += WARP) {
        const int64_t first = offset_table[pixel / LENGTH * LENGTH];
        const int64_t expected = first < 0 ? NOWHERE : first + pixel % LENGTH * PIXEL;
        whole = whole && offset_table[pixel] == expected && (first < 0 || (uintptr_t)(dst + first) % 16 == 0);
    }
    if (!__all_sync(~0u, whole))
        return false;
    const int vector = lane % LANES, first_channel = lane / LANES;
    const int64_t first = offset_table[vector * LENGTH];
    if (first < 0 || first_channel >= STEP)
        return true;
    const uint32_t from = shared_address(staged) + vector * 16;
    char *to = dst + first + first_channel * channel_bytes;
#pragma unroll 1
    for (int row = first_channel; row < channels; row += AT_ONCE * STEP) {
        uint4 vectors[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (row + i * STEP < channels)
                load_staged(from + (row + i * STEP) * STAGED_ROW_BYTES<Element, N>, vectors[i]);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, to += STEP * channel_bytes)
            if (row + i * STEP < channels)
                *reinterpret_cast<uint4 *>(to) = vectors[i];
    }
    return true;
}

/* Stores a pair whose columns cannot be stored at once. */
template <class Element, int N, int pixels>
__device__ __forceinline__ void store_columns(char *dst, int64_t channel_bytes, const int64_t *offset_table,
                                              const char *staged, int channels, int lane)
{
    for (int column = lane; column < 2 * pixels; column += WARP) {
        const int64_t offset = offset_table[column / 2];
        if (offset < 0)
            continue;
        char *to = dst + offset + column % 2 * (int)sizeof(Element);
        const char *from = staged + column * (int)sizeof(Element);
        for (int c = 0; c < channels; c++, to += channel_bytes)
            *reinterpret_cast<Element *>(to) =
                *reinterpret_cast<const Element *>(from + c * STAGED_ROW_BYTES<Element, N>);
    }
}

/* Stores NCHW where rows of M are columns of a channel: neighbouring lanes take neighbouring pixels, and store a
 * channel's columns at once where `vectors`. */
template <class Element, int N, int depth_columns>
__device__ __forceinline__ void store_depth_to_space(char *dst, int64_t channel_bytes, const int64_t *offset_table,
                                                     const char *staged, int rows, bool vectors, int lane)
{
    using Columns = element_vector<Element, depth_columns>;
    constexpr int CHANNELS = WARP_M / depth_columns;
#pragma unroll 1
    for (int pixel = lane; pixel < N / 2; pixel += WARP) {
        const int64_t offset = offset_table[pixel];
        if (offset < 0)
            continue;
        char *to = dst + offset;
        const uint32_t from = shared_address(staged) + pixel * (int)sizeof(Element);
        Columns channels[CHANNELS];
#pragma unroll
        for (int i = 0; i < WARP_M; i++)
            load_staged(from + i * STAGED_ROW_BYTES<Element, N>, channels[i / depth_columns].at[i % depth_columns]);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++, to += channel_bytes) {
            if (c * depth_columns >= rows)
                break;
            if (vectors)
                *reinterpret_cast<Columns *>(to) = channels[c];
            else
#pragma unroll
                for (int j = 0; j < depth_columns; j++)
                    reinterpret_cast<Element *>(to)[j] = channels[c].at[j];
        }
    }
}

/* The part of dst that a warp's 16 rows of an M tile go to. */
template <class Element> struct warp_destination {
    char *dst;     /* of the first row's channel */
    int channels;  /* rows that exist; may be 0 or less */
    float bias[2]; /* of rows lane / 4 and lane / 4 + 8 */
    __device__ __forceinline__ warp_destination(const parameters &layer, const tile_record &tile, int m_tile, int warp,
                                                int lane)
    {
        const int row = warp * WARP_M;
        channels = min(WARP_M, tile.channels[m_tile] - row);
        dst = static_cast<char *>(layer.dst) + tile.offset[m_tile] +
              row / layer.depth_columns * layer.to.c * (int64_t)sizeof(Element);
        bias[0] = tile.bias[m_tile][row + lane / 4];
        bias[1] = tile.bias[m_tile][row + lane / 4 + 8];
    }
};

/* Stores half of a warp's accumulators of an MMA tile, from number `first` on. */
template <class Mode, int N, int first>
__device__ __forceinline__ void store_mma_half(const parameters &layer, const float (&sums)[N / 2],
                                               const warp_destination<typename Mode::Element> &place,
                                               const int64_t *offset_table, char *staged, int lane)
{
    using Element = typename Mode::Element;
    __syncwarp();
    if (layer.dst_channels_last)
        stage_by_pixels<N, first>(sums, place.bias, staged, lane, Element{});
    else
        stage_by_rows<N, first>(sums, place.bias, staged, lane, Element{});
    __syncwarp();
    offset_table += first * 2;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    if (sizeof(Element) == 4 && layer.depth_columns == 2)
        store_depth_to_space<Element, N, 2>(place.dst, channel_bytes, offset_table, staged, place.channels,
                                            layer.store_vectors, lane);
    else if (layer.depth_columns == 4)
        store_depth_to_space<Element, N, 4>(place.dst, channel_bytes, offset_table, staged, place.channels,
                                            layer.store_vectors, lane);
    else if (sizeof(Element) == 2 && layer.depth_columns == 8)
        store_depth_to_space<Element, N, 8>(place.dst, channel_bytes, offset_table, staged, place.channels,
                                            layer.store_vectors, lane);
    else if (!layer.dst_channels_last)
        store_rows<Element, N, N / 2, Element>(place.dst, channel_bytes, offset_table, staged, place.channels, lane);
    else if (layer.store_vectors)
        store_pixels<Element, N, uint4>(place.dst, offset_table, staged, place.channels, lane);
    else
        store_pixels<Element, N, Element>(place.dst, offset_table, staged, place.channels, lane);
}

template <class Element> struct two_columns {
    using type = uint32_t;
};
template <> struct two_columns<float> {
    using type = uint2;
};

/* Stores a quarter of the accumulators of both MMA tiles of a pair. */
template <class Mode, int N, int first>
__device__ __forceinline__ void
store_pairs(const parameters &layer, const float (&even)[N / 2], const float (&odd)[N / 2],
            const warp_destination<typename Mode::Element> &place, const int64_t *offset_table, char *staged, int lane)
{
    using Element = typename Mode::Element;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    __syncwarp();
    stage_pairs<N, first>(even, odd, place.bias, staged, lane, Element{});
    __syncwarp();
    offset_table += first * 2;
    if (layer.store_vectors)
        store_rows<Element, N, N / 4, typename two_columns<Element>::type>(place.dst, channel_bytes, offset_table,
                                                                           staged, place.channels, lane);
    else
        store_columns<Element, N, N / 4>(place.dst, channel_bytes, offset_table, staged, place.channels, lane);
}

/* Stores all of a warp's accumulators of a tile. */
template <class Mode, int N>
__device__ __forceinline__ void store_accumulators(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                                   const tile_record &tile, const int64_t *offset_table, char *staged,
                                                   int warp, int lane)
{
    using Place = warp_destination<typename Mode::Element>;
    const int warpgroup = warp / WARPGROUP_WARPS;
    if constexpr (PAIRS<Mode>)
        if (layer.paired) {
            const Place place(layer, tile, layer.mma_m_tile[warpgroup][0], warp % WARPGROUP_WARPS, lane);
            offset_table += layer.mma_position[warpgroup][0];
            store_pairs<Mode, N, 0>(layer, sums[0], sums[1], place, offset_table, staged, lane);
            store_pairs<Mode, N, N / 8>(layer, sums[0], sums[1], place, offset_table, staged, lane);
            store_pairs<Mode, N, N / 4>(layer, sums[0], sums[1], place, offset_table, staged, lane);
            store_pairs<Mode, N, 3 * N / 8>(layer, sums[0], sums[1], place, offset_table, staged, lane);
            return;
        }
#pragma unroll
    for (int mma = 0; mma < Mode::MMA_TILES; mma++) {
        if (layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
            continue; /* it has no positions */
        const Place place(layer, tile, layer.mma_m_tile[warpgroup][mma], warp % WARPGROUP_WARPS, lane);
        const int64_t *of_mma_tile = offset_table + layer.mma_position[warpgroup][mma];
        store_mma_half<Mode, N, 0>(layer, sums[mma], place, of_mma_tile, staged, lane);
        store_mma_half<Mode, N, N / 4>(layer, sums[mma], place, of_mma_tile, staged, lane);
    }
}

} // namespace tconv::igemm

#endif
