/* From a warpgroup's accumulators in registers to dst by epilogue warps, while the next tile is multiplied: the
 * consumers write staging buffers, a pipeline of their own, which the epilogue warps store. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH

#include "epilogue.cuh"

namespace tconv::igemm
{

/* A staging buffer with a part of an MMA tile: a pixel's 64 channels are vectors of 16 bytes, swizzled by the pixel, so
 * that neither side has bank conflicts. Eight pixels whose accumulators a warp has at once differ in the bits of the
 * mask. */
template <class Element> constexpr int STAGING_PIXEL_BYTES = MMA_M *(int)sizeof(Element);
template <class Mode, int N, bool pairs>
constexpr uint32_t STAGED_PART_BYTES = staging_buffer_bytes(N, sizeof(typename Mode::Output), pairs,
                                                            Mode::STAGED_PARTS);
template <class Element> constexpr int SWIZZLE_MASK = sizeof(Element) == 4 ? 6 : 7;

/* The staging buffers of a warpgroup. */
template <class Mode, int N, bool pairs>
__device__ __forceinline__ stage_ring staging_buffers(const parameters &layer, const shared_layout &shared,
                                                      int warpgroup)
{
    constexpr uint32_t bytes = STAGED_PART_BYTES<Mode, N, pairs>;
    return {shared.staging_barriers + warpgroup * (8 * STAGE_BARRIERS),
            shared.staging + warpgroup * layer.staging_buffers * bytes, bytes, layer.staging_buffers};
}

/* Values of a vector that an epilogue warp's lane takes through post-ops, and vectors at once, as registers allow. */
constexpr int POSTS_VALUES = 4;
template <class Mode> constexpr int POSTS_AT_ONCE = sizeof(typename Mode::Output) == 4 && !Mode::STRICT ? 2 : 1;

/* Parts of an MMA tile, or of a pair, in staging buffers: of elements, or of f32 where post-ops whose outputs are of 16
 * bits are run on what is staged. */
template <class Mode, int N, bool pairs, class Staged>
constexpr int PARTS_STAGED = std::is_same<Staged, typename Mode::Output>::value ? pairs ? QUARTERS : Mode::STAGED_PARTS
                             : pairs ? 2 * N / POSTS_COLUMNS<typename Mode::Output, N>
                                     : 2 * Mode::STAGED_PARTS;

/* From the rows of M of one warp to the next in the staging buffer of a pair. */
template <class Element, int N> constexpr int WARP_STRIP_BYTES = WARP_M *STAGED_ROW_BYTES<Element, N>;

/* Stages all of a warp's accumulators of a tile for the epilogue warps. */
template <class Mode, int N, bool pairs, class Staged>
__device__ __forceinline__ void stage_accumulators(const parameters &layer, const shared_layout &shared,
                                                   const float (&sums)[Mode::MMA_TILES][N / 2], const tile_record &tile,
                                                   pipeline_state &staging, int warp, int lane)
{
    using Element = typename Mode::Output;
    constexpr bool ELEMENTS = std::is_same<Staged, Element>::value;
    constexpr int PARTS = PARTS_STAGED<Mode, N, pairs, Staged>;
    const int warpgroup = warp / WARPGROUP_WARPS, warp_rows = warp % WARPGROUP_WARPS,
              row = warp_rows * WARP_M + lane / 4;
    const stage_ring buffers = staging_buffers<Mode, N, pairs>(layer, shared, warpgroup);
    stage_walk buffer(buffers, 0);
    buffer.state = staging;
#pragma unroll
    for (int mma = 0; mma < (pairs ? 1 : Mode::MMA_TILES); mma++) {
        if (!pairs && layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
            continue; /* it has no positions */
        const int m_tile = layer.mma_m_tile[warpgroup][mma];
        const float bias[2] = {bias_of(layer, tile, m_tile, row), bias_of(layer, tile, m_tile, row + 8)};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int first = part * (N / 2 / PARTS);
            buffer.wait_empty();
            const uint32_t staged = buffer.buffer();
            if constexpr (pairs)
                stage_pair_rows<Staged, N, N / 2 / PARTS,
                                ELEMENTS ? STAGED_ROW_BYTES<Element, N> : POSTS_ROW_BYTES<Element, N>>(
                    sums[0], sums[1], bias, first, staged + warp_rows * WARP_STRIP_BYTES<Element, N>, lane);
            else
                stage_pixels<Staged, N / 2 / PARTS, STAGING_PIXEL_BYTES<Staged>, SWIZZLE_MASK<Staged>>(
                    staged, warp_rows, lane, [&](int i) { return finish_sum(sums[mma][first + i], bias[i / 2 % 2]); });
            __syncwarp();
            signal_for_warp(buffer.full(), lane);
            buffer.next();
        }
    }
    staging = buffer.state;
}

/* Stores an epilogue warp's share of a part of an MMA tile. */
template <class Mode, int N, class Staged>
__device__ __forceinline__ void store_staged_part(const parameters &layer, const tile_record &tile, int m_tile,
                                                  const int64_t *offset_table, uint32_t buffer, int warp, int lane)
{
    using Element = typename Mode::Output;
    const int channels = min(MMA_M, tile.channels[m_tile]);
    char *dst = static_cast<char *>(layer.dst) + tile.offset[m_tile];
    if constexpr (HAS_ANY_POSTS<Mode, N>)
        if (std::is_same<Staged, float>::value && layer.posts_of_staged)
            run_posts_of_pixels<functions_of<Mode>, Element, N / PARTS_STAGED<Mode, N, false, Staged>,
                                WARPGROUP_EPILOGUE_WARPS, SWIZZLE_MASK<float>, POSTS_VALUES, POSTS_AT_ONCE<Mode>>(
                layer, tile, m_tile, offset_table, buffer, warp, lane);
    if constexpr (!std::is_same<Staged, Element>::value)
        return;
    if (layer.store_vectors)
        store_pixels<Element, uint4, N / Mode::STAGED_PARTS, MMA_M, WARPGROUP_EPILOGUE_WARPS,
                     STAGING_PIXEL_BYTES<Element>, SWIZZLE_MASK<Element>>(dst, channels, offset_table, buffer, warp,
                                                                          lane);
    else
        store_pixels<Element, Element, N / Mode::STAGED_PARTS, MMA_M, WARPGROUP_EPILOGUE_WARPS,
                     STAGING_PIXEL_BYTES<Element>, SWIZZLE_MASK<Element>>(dst, channels, offset_table, buffer, warp,
                                                                          lane);
}

/* Stores an epilogue warp's share of a part of a pair. */
template <class Mode, int N, class Staged>
__device__ __forceinline__ void store_staged_pair(const parameters &layer, const tile_record &tile, int m_tile,
                                                  const int64_t *offset_table, uint32_t buffer, int warp, int lane)
{
    using Element = typename Mode::Output;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
#pragma unroll 1
    for (int warp_rows = warp; warp_rows < WARPGROUP_WARPS; warp_rows += WARPGROUP_EPILOGUE_WARPS) {
        const warp_destination<Element> place(layer, tile, m_tile, warp_rows);
        const uint32_t staged = buffer + warp_rows * WARP_STRIP_BYTES<Element, N>;
        if constexpr (HAS_ANY_POSTS<Mode, N>)
            if (std::is_same<Staged, float>::value && layer.posts_of_staged)
                run_posts_of_rows<functions_of<Mode>, Element, N, false, POSTS_VALUES, POSTS_AT_ONCE<Mode>>(
                    layer, tile, m_tile, warp_rows * WARP_M, offset_table, staged, lane);
        if constexpr (!std::is_same<Staged, Element>::value)
            continue;
        if (!store_wide_rows<Element, N, N / 4>(place.dst, channel_bytes, offset_table, staged, place.channels, lane))
            store_rows<Element, N, N / 4, two_columns<Element>>(place.dst, channel_bytes, offset_table, staged,
                                                                place.channels, lane);
    }
}

/* The role of the epilogue warps: WARPGROUP_EPILOGUE_WARPS of them for each warpgroup. */
template <class Mode, int N, bool pairs, class Staged>
__device__ __forceinline__ void run_epilogue(const parameters &layer, const shared_layout &shared, int storer, int lane)
{
    constexpr int PARTS = PARTS_STAGED<Mode, N, pairs, Staged>;
    const int warpgroup = storer / WARPGROUP_EPILOGUE_WARPS, warp = storer % WARPGROUP_EPILOGUE_WARPS;
    const stage_ring buffers = staging_buffers<Mode, N, pairs>(layer, shared, warpgroup);
    stage_walk table(shared.tables, 0), buffer(buffers, 0);
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_record &tile = shared.records[table.state.at];
        table.wait_full();
#pragma unroll 1
        for (int mma = 0; mma < (pairs ? 1 : Mode::MMA_TILES); mma++) {
            if (!pairs && layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
                continue;
            const int m_tile = layer.mma_m_tile[warpgroup][mma];
            const int64_t *offset_table =
                shared.offsets + table.state.at * layer.block_n + layer.mma_position[warpgroup][mma];
#pragma unroll 1
            for (int i = 0; i < PARTS; i++, offset_table += N / PARTS) {
                const uint32_t staged = buffer.buffer();
                buffer.wait_full();
                if constexpr (pairs)
                    store_staged_pair<Mode, N, Staged>(layer, tile, m_tile, offset_table, staged, warp, lane);
                else
                    store_staged_part<Mode, N, Staged>(layer, tile, m_tile, offset_table, staged, warp, lane);
                __syncwarp();
                signal_for_warp(buffer.empty(), lane);
                buffer.next();
            }
        }
        __syncwarp();
        signal_for_warp(table.empty(), lane);
        table.next();
    }
}

} // namespace tconv::igemm

#endif
