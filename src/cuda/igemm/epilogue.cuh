/* From a warp's accumulators in registers to dst, through its own staging in shared memory, so that neighbouring lanes
 * store neighbouring elements; the address warps' tables have the positions' offsets in dst. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_CUH

#include "../epilogue/finish.cuh"
#include "../gemm/staging.cuh"
#include "offsets.cuh"
#include "posts.cuh"

#include <type_traits>

namespace tconv::igemm
{

/* Stages so many accumulators of each MMA tile of a pair, from accumulator `first` on: row of M by row, so many bytes
 * apart, with the columns of the two phases in turn. */
template <class Element, int N, int count, int row_bytes>
__device__ __forceinline__ void stage_pair_rows(const float (&even)[N / 2], const float (&odd)[N / 2],
                                                const float (&bias)[2], int first, uint32_t staged, int lane)
{
    constexpr int element = sizeof(Element);
    const uint32_t to = staged + lane / 4 * row_bytes + lane % 4 * 4 * element;
#pragma unroll
    for (int i = 0; i < count; i += 2) {
        const float add = bias[i / 2 % 2];
        stage_pairs<Element>(to + i / 4 * 16 * element + i / 2 % 2 * 8 * row_bytes,
                             finish_pair(even[first + i], odd[first + i], add),
                             finish_pair(even[first + i + 1], odd[first + i + 1], add));
    }
}

/* Stores pixels in NHWC, whose `rows` channels are staged side by side, swizzled as stage_pixels does, a Vector (an
 * element, or 16 bytes of them) at a time. The pixels are shared out among so many warps. */
template <class Element, class Vector, int pixels, int rows, int warps, int pixel_bytes, int swizzle_mask>
__device__ __forceinline__ void store_pixels(char *dst, int channels, const int64_t *offset_table, uint32_t staged,
                                             int warp, int lane)
{
    constexpr int LENGTH = sizeof(Vector) / sizeof(Element), LANES = rows / LENGTH < WARP ? rows / LENGTH : WARP;
    constexpr int STEP = warps * WARP / LANES, ROUNDS = pixels / STEP;
    constexpr int AT_ONCE = ROUNDS % 4 == 0 ? 4 : ROUNDS % 3 == 0 ? 3 : ROUNDS % 2 == 0 ? 2 : 1;
    static_assert(pixels % STEP == 0, "whole rounds");
    const int first_pixel = warp * (WARP / LANES) + lane / LANES;
    const uint32_t offset = shared_address(offset_table + first_pixel);
#pragma unroll 1
    for (int channel = lane % LANES * LENGTH; channel < channels; channel += LANES * LENGTH) {
        const int byte = channel * (int)sizeof(Element);
#pragma unroll(LENGTH > 1 || swizzle_mask != 0 ? ROUNDS / AT_ONCE : 4)
        for (int first = 0; first < ROUNDS; first += AT_ONCE) {
            Vector vectors[AT_ONCE];
            int64_t offsets[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int pixel = first_pixel + (first + i) * STEP;
                offsets[i] = load_shared<int64_t>(offset + (first + i) * STEP * (int)sizeof *offset_table);
                vectors[i] = load_shared<Vector>(staged + pixel * pixel_bytes + (byte ^ (pixel & swizzle_mask) * 16));
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (offsets[i] >= 0)
                    *reinterpret_cast<Vector *>(dst + byte + offsets[i]) = vectors[i];
        }
    }
}

/* Stores NCHW: neighbouring lanes take neighbouring Vectors of a row of M (an element, or two neighbouring columns),
 * `each` of which follow one another in a pixel, but that the last of a row of dst has only the first; lanes past the row
 * take other channels. */
template <class Element, int N, int count, class Vector, int each = 1>
__device__ __forceinline__ void store_rows(char *dst, int64_t channel_bytes, const int64_t *offset_table,
                                           uint32_t staged, int channels, int lane)
{
    constexpr int SHARE = count < WARP ? WARP / count : 1; /* lanes that share a Vector */
    constexpr int AT_ONCE = sizeof(Vector) == 8 ? 4 : 8;
    static_assert(WARP_M / SHARE % AT_ONCE == 0, "whole rounds");
    const int first_channel = lane / (WARP / SHARE) * (WARP_M / SHARE);
    channels = min(channels, first_channel + WARP_M / SHARE);
#pragma unroll 1
    for (int at = lane % (WARP / SHARE); at < count; at += WARP) {
        int64_t offset = offset_table[at / each];
        if (each > 1) {
            if (offset & CUT_END && at % each > 0)
                continue;
            offset &= ~CUT_END;
        }
        if (offset < 0)
            continue;
        char *to = dst + offset + at % each * (int)sizeof(Vector) + first_channel * channel_bytes;
        const uint32_t from = staged + at * (int)sizeof(Vector);
#pragma unroll 1
        for (int first = first_channel; first < channels; first += AT_ONCE) {
            Vector vectors[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                vectors[i] = load_shared<Vector>(from + (first + i) * STAGED_ROW_BYTES<Element, N>);
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
                                                uint32_t staged, int channels, int lane)
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
    const uint32_t from = staged + vector * 16;
    char *to = dst + first + first_channel * channel_bytes;
#pragma unroll 1
    for (int row = first_channel; row < channels; row += AT_ONCE * STEP) {
        uint4 vectors[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (row + i * STEP < channels)
                vectors[i] = load_shared<uint4>(from + (row + i * STEP) * STAGED_ROW_BYTES<Element, N>);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, to += STEP * channel_bytes)
            if (row + i * STEP < channels)
                *reinterpret_cast<uint4 *>(to) = vectors[i];
    }
    return true;
}

/* The part of dst that a warp's 16 rows of an M tile go to. */
template <class Element> struct warp_destination {
    char *dst;    /* of the first row */
    int channels; /* rows that exist; may be 0 or less */
    int column;   /* of its run that the first row is */
    __device__ __forceinline__ warp_destination(const parameters &layer, const tile_record &tile, int m_tile, int warp)
    {
        const int row = warp * WARP_M;
        channels = min(WARP_M, tile.channels[m_tile] - row);
        column = row & (layer.runs.rows - 1);
        dst = static_cast<char *>(layer.dst) + offset_of_row<Element>(layer, tile, m_tile, row);
    }
};

/* Stores NCHW where rows of M are runs of columns, of which the warp has so many rows: neighbouring lanes take
 * neighbouring columns, so many at once, of the same pixels of each channel. */
template <class Element, int N, int rows, int columns>
__device__ __forceinline__ void store_runs(const parameters &layer, const warp_destination<Element> &place,
                                           const int64_t *offset_table, uint32_t staged, int lane)
{
    using Columns = element_vector<Element, columns>;
    constexpr int PIECES = rows / columns, CHANNELS = WARP_M / rows, STEP = WARP / PIECES;
    constexpr int AT_ONCE = CHANNELS < 4 ? CHANNELS : 4, ROW = STAGED_ROW_BYTES<Element, N>;
    const int of_run = lane % PIECES * columns, column = place.column + of_run;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    char *const dst = place.dst + of_run * (int)sizeof(Element);
#pragma unroll 1
    for (int pixel = lane / PIECES; pixel < N / 2; pixel += STEP) {
        const int64_t offset = offset_table[pixel];
        if (offset < 0 || column < (offset & CUT_BEGIN ? layer.runs.begin : 0) ||
            column >= (offset & CUT_END ? layer.runs.end : layer.runs.columns))
            continue;
        char *to = dst + (offset & ~(CUT_BEGIN | CUT_END));
        const uint32_t from = staged + of_run * ROW + pixel * (int)sizeof(Element);
#pragma unroll
        for (int first = 0; first < CHANNELS; first += AT_ONCE) {
            Columns values[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE * columns; i++)
                values[i / columns].at[i % columns] =
                    load_shared<Element>(from + ((first + i / columns) * rows + i % columns) * ROW);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++, to += channel_bytes)
                if ((first + i) * rows < place.channels)
                    *reinterpret_cast<Columns *>(to) = values[i];
        }
    }
}

/* The same for the columns at once that the plan has. */
template <class Element, int N, int rows>
__device__ __forceinline__ void store_runs_by(const parameters &layer, const warp_destination<Element> &place,
                                              const int64_t *offset_table, uint32_t staged, int lane)
{
    /* A run of fewer rows has no such vector. */
    constexpr int EIGHT = sizeof(Element) == 2 && rows >= 8 ? 8 : 1, FOUR = rows >= 4 ? 4 : 1;
    if (EIGHT > 1 && layer.run_vector == EIGHT)
        store_runs<Element, N, rows, EIGHT>(layer, place, offset_table, staged, lane);
    else if (FOUR > 1 && layer.run_vector == FOUR)
        store_runs<Element, N, rows, FOUR>(layer, place, offset_table, staged, lane);
    else if (layer.run_vector == 2)
        store_runs<Element, N, rows, 2>(layer, place, offset_table, staged, lane);
    else
        store_runs<Element, N, rows, 1>(layer, place, offset_table, staged, lane);
}

/* Stages half of a warp's accumulators of an MMA tile, from number `first` on. */
template <class Mode, int N>
__device__ __forceinline__ void stage_mma_half(const parameters &layer, const float (&sums)[N / 2], int first,
                                               const float (&bias)[2], uint32_t staged, int lane)
{
    using Element = typename Mode::Output;
    if (layer.dst_channels_last)
        stage_pixels<Element, N / 4, STAGED_PIXEL_BYTES<Element>, 0>(
            staged, 0, lane, [&](int i) { return finish_sum(sums[first + i], bias[i / 2 % 2]); });
    else
        stage_rows<Element, N / 4, STAGED_ROW_BYTES<Element, N>>(
            staged, lane, [&](int i) { return finish_pair(sums[first + i], sums[first + i + 1], bias[i / 2 % 2]); });
}

/* Stores what a warp has staged of half of an MMA tile. */
template <class Element, int N>
__device__ __forceinline__ void store_mma_half(const parameters &layer, const warp_destination<Element> &place,
                                               const int64_t *offset_table, uint32_t staged, int lane)
{
    constexpr int PIXEL = STAGED_PIXEL_BYTES<Element>;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    if (layer.runs.rows > 1) {
        if (layer.runs.rows == 2)
            store_runs_by<Element, N, 2>(layer, place, offset_table, staged, lane);
        else if (layer.runs.rows == 4)
            store_runs_by<Element, N, 4>(layer, place, offset_table, staged, lane);
        else if (layer.runs.rows == 8)
            store_runs_by<Element, N, 8>(layer, place, offset_table, staged, lane);
        else
            store_runs_by<Element, N, WARP_M>(layer, place, offset_table, staged, lane);
    } else if (!layer.dst_channels_last)
        store_rows<Element, N, N / 2, Element>(place.dst, channel_bytes, offset_table, staged, place.channels, lane);
    else if (layer.store_vectors)
        store_pixels<Element, uint4, N / 2, WARP_M, 1, PIXEL, 0>(place.dst, place.channels, offset_table, staged, 0,
                                                                 lane);
    else
        store_pixels<Element, Element, N / 2, WARP_M, 1, PIXEL, 0>(place.dst, place.channels, offset_table, staged, 0,
                                                                   lane);
}

/* Two neighbouring columns. */
template <class Element> using two_columns = std::conditional_t<sizeof(Element) == 4, uint2, uint32_t>;

/* Stages a quarter of the accumulators of both MMA tiles of a pair, or half of those of one. */
template <class Mode, int N>
__device__ __forceinline__ void stage_part(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                           int part, const float (&bias)[2], uint32_t staged, int lane)
{
    using Element = typename Mode::Output;
    if constexpr (PAIRS<Mode>)
        if (layer.paired)
            return stage_pair_rows<Element, N, N / 8, STAGED_ROW_BYTES<Element, N>>(sums[0], sums[1], bias,
                                                                                    part * (N / 8), staged, lane);
    stage_mma_half<Mode, N>(layer, sums[part / 2], part % 2 * (N / 4), bias, staged, lane);
}

/* Stages a part in f32 for post-ops whose outputs are of 16 bits: POSTS_COLUMNS of an MMA tile or of a pair. */
template <class Mode, int N>
__device__ __forceinline__ void stage_posts_part(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                                 int part, const float (&bias)[2], uint32_t staged, int lane)
{
    constexpr int COLUMNS = POSTS_COLUMNS<typename Mode::Output, N>, ROW = POSTS_ROW_BYTES<typename Mode::Output, N>;
    constexpr int PARTS = N / COLUMNS, COUNT = COLUMNS / 2; /* of an MMA tile; accumulators */
    static_assert(COLUMNS * STAGED_PIXEL_BYTES<float> <= WARP_STAGING_BYTES<typename Mode::Output, N> &&
                      WARP_M * ROW <= WARP_STAGING_BYTES<typename Mode::Output, N>,
                  "has room where elements are staged");
    if constexpr (PAIRS<Mode>)
        if (layer.paired)
            return stage_pair_rows<float, N, COUNT / 2, ROW>(sums[0], sums[1], bias, part * (COUNT / 2), staged, lane);
    const float(&of)[N / 2] = sums[part / PARTS];
    const int first = part % PARTS * COUNT;
    if (layer.dst_channels_last)
        stage_pixels<float, COUNT, STAGED_PIXEL_BYTES<float>, 0>(
            staged, 0, lane, [&](int i) { return finish_sum(of[first + i], bias[i / 2 % 2]); });
    else
        stage_rows<float, COUNT, ROW>(
            staged, lane, [&](int i) { return finish_pair(of[first + i], of[first + i + 1], bias[i / 2 % 2]); });
}

/* Stores what a warp has staged of a quarter of a pair. */
template <class Element, int N>
__device__ __forceinline__ void store_pair_quarter(const parameters &layer, const warp_destination<Element> &place,
                                                   const int64_t *offset_table, uint32_t staged, int lane)
{
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
    if (layer.store_vectors)
        store_rows<Element, N, N / 4, two_columns<Element>>(place.dst, channel_bytes, offset_table, staged,
                                                            place.channels, lane);
    else
        store_rows<Element, N, N / 2, Element, 2>(place.dst, channel_bytes, offset_table, staged, place.channels, lane);
}

/* Stores a warp's accumulators of a tile by parts: so many of each MMA tile, one after another, or as many in all of both
 * MMA tiles of a pair at once. stage(part, bias) stages a part, and store(m_tile, offset_table) stores what is staged. */
template <class Mode, int N, int parts, class Stage, class Store>
__device__ __forceinline__ void for_each_part(const parameters &layer, const tile_record &tile,
                                              const int64_t *offset_table, int warp, int lane, const Stage &stage,
                                              const Store &store)
{
    const int warpgroup = warp / WARPGROUP_WARPS;
    const bool paired = PAIRS<Mode> && layer.paired;
#pragma unroll 1 /* the code that stores is there once */
    for (int part = 0; part < parts * Mode::MMA_TILES; part++) {
        const int mma = paired ? 0 : part / parts, m_tile = layer.mma_m_tile[warpgroup][mma];
        if (layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
            continue; /* it has no positions */
        const int row = warp % WARPGROUP_WARPS * WARP_M + lane / 4;
        const float bias[2] = {bias_of(layer, tile, m_tile, row), bias_of(layer, tile, m_tile, row + 8)};
        const int first = paired ? part * (N / parts / 2) : part % parts * (N / parts);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < parts * Mode::MMA_TILES; i++)
            if (i == part)
                stage(i, bias);
        __syncwarp();
        store(m_tile, offset_table + layer.mma_position[warpgroup][mma] + first);
    }
}

/* Stores all of a warp's accumulators of a tile. */
template <class Mode, int N>
__device__ __forceinline__ void store_accumulators(const parameters &layer, const float (&sums)[Mode::MMA_TILES][N / 2],
                                                   const tile_record &tile, const int64_t *offset_table,
                                                   uint32_t staged, int warp, int lane)
{
    using Element = typename Mode::Output;
    constexpr int VALUES = Mode::MMA_TILES * N < 256 ? 4 : 2; /* of so many accumulators as registers allow */
    const int row = warp % WARPGROUP_WARPS * WARP_M;
    const auto run_posts_of = [&](int m_tile, const int64_t *offsets) {
        run_posts_of_rows<functions_of<Mode>, Element, N, true, VALUES, 1>(layer, tile, m_tile, row, offsets, staged,
                                                                           lane);
    };
    if constexpr (STORES_POSTS<Mode, N>)
        if (layer.posts_of_staged)
            return for_each_part<Mode, N, N / POSTS_COLUMNS<Element, N>>(
                layer, tile, offset_table, warp, lane,
                [&](int part, const float(&bias)[2]) {
                    stage_posts_part<Mode, N>(layer, sums, part, bias, staged, lane);
                },
                [&](int m_tile, const int64_t *offsets) { run_posts_of(m_tile, offsets); });
    for_each_part<Mode, N, HALVES>(
        layer, tile, offset_table, warp, lane,
        [&](int part, const float(&bias)[2]) { stage_part<Mode, N>(layer, sums, part, bias, staged, lane); },
        [&](int m_tile, const int64_t *offsets) {
            if constexpr (HAS_ANY_POSTS<Mode, N> && !STORES_POSTS<Mode, N>)
                if (layer.posts_of_staged)
                    run_posts_of(m_tile, offsets);
            const warp_destination<Element> place(layer, tile, m_tile, warp % WARPGROUP_WARPS);
            if (PAIRS<Mode> && layer.paired)
                store_pair_quarter<Element, N>(layer, place, offsets, staged, lane);
            else
                store_mma_half<Element, N>(layer, place, offsets, staged, lane);
        });
}

} // namespace tconv::igemm

#endif
