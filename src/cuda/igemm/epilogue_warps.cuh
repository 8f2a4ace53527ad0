/* From a warpgroup's accumulators in registers to dst by epilogue warps, while the next tile is multiplied: the
 * consumers write staging buffers, a pipeline of their own, which the epilogue warps store. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "epilogue.cuh"

namespace tconv::igemm
{

/* A staging buffer with half of an MMA tile: a pixel's 64 channels are vectors of 16 bytes, swizzled by the pixel, so
 * that neither side has bank conflicts. Eight pixels whose accumulators a warp has at once differ in the bits of the
 * mask. */
template <class Element> constexpr int STAGING_PIXEL_BYTES = MMA_M *(int)sizeof(Element);
template <class Element, int N, bool pairs>
constexpr int STAGING_BUFFER_BYTES = staging_buffer_bytes(N, sizeof(Element), pairs);
template <class Element> constexpr int SWIZZLE_MASK = sizeof(Element) == 4 ? 6 : 7;

template <int N, int first>
__device__ __forceinline__ void stage_swizzled(const float (&sums)[N / 2], const float (&bias)[2], uint32_t buffer,
                                               int warp, int lane, float)
{
    const int pixel = lane % 4 * 2;
    const uint32_t to = buffer + pixel * STAGING_PIXEL_BYTES<float> + lane / 4 % 4 * 4;
    const uint32_t vector = ((warp * 4 + lane / 16) ^ pixel) * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + (vector ^ i / 2 % 2 * 32) +
                                                     (i / 4 * 8 + i % 2) * STAGING_PIXEL_BYTES<float>),
                     "f"(sums[first + i] + bias[i / 2 % 2])
                     : "memory");
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_swizzled(const float (&sums)[N / 2], const float (&bias)[2], uint32_t buffer,
                                               int warp, int lane, Half)
{
    const uint32_t to = buffer + lane % 8 * STAGING_PIXEL_BYTES<Half> + ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i += 4)
        store_transposed(to + i * 2 * STAGING_PIXEL_BYTES<Half>,
                         pack_pair<Half>(sums[first + i] + bias[0], sums[first + i + 1] + bias[0]),
                         pack_pair<Half>(sums[first + i + 2] + bias[1], sums[first + i + 3] + bias[1]));
}

/* The staging buffers of a warpgroup, as the consumers and the epilogue warps walk them. */
struct staging_pipeline {
    uint32_t full, empty, bytes, first; /* bytes from the first warpgroup's first buffer to this one's */
    template <class Mode, int N, bool pairs>
    static __device__ __forceinline__ staging_pipeline of(const parameters &layer, const shared_layout &shared,
                                                          int warpgroup)
    {
        constexpr uint32_t bytes = STAGING_BUFFER_BYTES<typename Mode::Element, N, pairs>;
        const uint32_t barriers = warpgroup * 8 * MAX_STAGING_BUFFERS;
        return {shared.staging_full + barriers, shared.staging_empty + barriers, bytes,
                warpgroup * layer.staging_buffers * bytes};
    }
};

/* Writes a warp's share of the next staging buffer: write() is given where that begins. */
template <class Write>
__device__ __forceinline__ void stage_next(const parameters &layer, const staging_pipeline &buffers,
                                           pipeline_state &staging, int lane, Write write)
{
    mbarrier_wait(buffers.empty + 8 * staging.at, staging.parity);
    write(buffers.first + staging.at * buffers.bytes);
    __syncwarp();
    if (arrives_for_warp(lane))
        mbarrier_arrive(buffers.full + 8 * staging.at);
    staging.next(layer.staging_buffers);
}

/* From the rows of M of one warp to the next in the staging buffer of a pair. */
template <class Element, int N> constexpr int WARP_STRIP_BYTES = WARP_M *STAGED_ROW_BYTES<Element, N>;

/* Stages all of a warp's accumulators of a tile for the epilogue warps. */
template <class Mode, int N, bool pairs>
__device__ __forceinline__ void stage_accumulators(const parameters &layer, const shared_layout &shared,
                                                   const float (&sums)[Mode::MMA_TILES][N / 2], const tile_record &tile,
                                                   pipeline_state &staging, int warp, int lane)
{
    using Element = typename Mode::Element;
    const int warpgroup = warp / WARPGROUP_WARPS, warp_rows = warp % WARPGROUP_WARPS,
              row = warp_rows * WARP_M + lane / 4;
    const staging_pipeline buffers = staging_pipeline::of<Mode, N, pairs>(layer, shared, warpgroup);
#pragma unroll
    for (int mma = 0; mma < (pairs ? 1 : Mode::MMA_TILES); mma++) {
        if (!pairs && layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
            continue; /* it has no positions */
        const float *of_m_tile = tile.bias[layer.mma_m_tile[warpgroup][mma]];
        const float bias[2] = {of_m_tile[row], of_m_tile[row + 8]};
        if constexpr (pairs) {
            char *strips = shared.staging + warp_rows * WARP_STRIP_BYTES<Element, N>;
            const float(&even)[N / 2] = sums[0], (&odd)[N / 2] = sums[1];
            stage_next(layer, buffers, staging, lane,
                       [&](uint32_t at) { stage_pairs<N, 0>(even, odd, bias, strips + at, lane, Element{}); });
            stage_next(layer, buffers, staging, lane,
                       [&](uint32_t at) { stage_pairs<N, N / 8>(even, odd, bias, strips + at, lane, Element{}); });
            stage_next(layer, buffers, staging, lane,
                       [&](uint32_t at) { stage_pairs<N, N / 4>(even, odd, bias, strips + at, lane, Element{}); });
            stage_next(layer, buffers, staging, lane,
                       [&](uint32_t at) { stage_pairs<N, 3 * N / 8>(even, odd, bias, strips + at, lane, Element{}); });
        } else {
            const uint32_t staged = shared_address(shared.staging);
            stage_next(layer, buffers, staging, lane, [&](uint32_t at) {
                stage_swizzled<N, 0>(sums[mma], bias, staged + at, warp_rows, lane, Element{});
            });
            stage_next(layer, buffers, staging, lane, [&](uint32_t at) {
                stage_swizzled<N, N / 4>(sums[mma], bias, staged + at, warp_rows, lane, Element{});
            });
        }
    }
}

/* Stores a staging buffer in NHWC, a Vector (an element, or 16 bytes of them) at a time. */
template <class Element, int N, class Vector>
__device__ __forceinline__ void store_swizzled(char *dst, int channels, const int64_t *offset_table, uint32_t buffer,
                                               int warp, int lane)
{
    constexpr int LENGTH = sizeof(Vector) / sizeof(Element), VECTORS = MMA_M / LENGTH;
    constexpr int LANES = VECTORS < WARP ? VECTORS : WARP, STEP = WARPGROUP_EPILOGUE_WARPS * WARP / LANES;
    constexpr int ROUNDS = N / 2 / STEP, AT_ONCE = ROUNDS % 4 == 0 ? 4 : 3;
    static_assert(N / 2 % STEP == 0 && ROUNDS % AT_ONCE == 0, "whole rounds");
    const int first_pixel = warp * (WARP / LANES) + lane / LANES;
    const uint32_t offset = shared_address(offset_table + first_pixel);
#pragma unroll 1
    for (int channel = lane % LANES * LENGTH; channel < channels; channel += LANES * LENGTH) {
        const int byte = channel * (int)sizeof(Element);
#pragma unroll
        for (int first = 0; first < ROUNDS; first += AT_ONCE) {
            Vector vectors[AT_ONCE];
            int64_t offsets[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int pixel = first_pixel + (first + i) * STEP;
                offsets[i] = load_offset(offset + (first + i) * STEP * (int)sizeof *offset_table);
                load_staged(buffer + pixel * STAGING_PIXEL_BYTES<Element> + (byte ^ (pixel & SWIZZLE_MASK<Element>)*16),
                            vectors[i]);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (offsets[i] >= 0)
                    *reinterpret_cast<Vector *>(dst + byte + offsets[i]) = vectors[i];
        }
    }
}

/* Stores an epilogue warp's share of half of an MMA tile. */
template <class Mode, int N>
__device__ __forceinline__ void store_staged_half(const parameters &layer, const tile_record &tile, int m_tile,
                                                  const int64_t *offset_table, uint32_t buffer, int warp, int lane)
{
    using Element = typename Mode::Element;
    const int channels = min(MMA_M, tile.channels[m_tile]);
    char *dst = static_cast<char *>(layer.dst) + tile.offset[m_tile];
    if (layer.store_vectors)
        store_swizzled<Element, N, uint4>(dst, channels, offset_table, buffer, warp, lane);
    else
        store_swizzled<Element, N, Element>(dst, channels, offset_table, buffer, warp, lane);
}

/* Stores an epilogue warp's share of a quarter of a pair. */
template <class Mode, int N>
__device__ __forceinline__ void store_staged_quarter(const parameters &layer, const tile_record &tile, int m_tile,
                                                     const int64_t *offset_table, const char *buffer, int warp,
                                                     int lane)
{
    using Element = typename Mode::Element;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
#pragma unroll 1
    for (int warp_rows = warp; warp_rows < WARPGROUP_WARPS; warp_rows += WARPGROUP_EPILOGUE_WARPS) {
        const warp_destination<Element> place(layer, tile, m_tile, warp_rows, lane);
        const char *staged = buffer + warp_rows * WARP_STRIP_BYTES<Element, N>;
        if (!store_wide_rows<Element, N, N / 4>(place.dst, channel_bytes, offset_table, staged, place.channels, lane))
            store_rows<Element, N, N / 4, typename two_columns<Element>::type>(place.dst, channel_bytes, offset_table,
                                                                               staged, place.channels, lane);
    }
}

/* The role of the epilogue warps: WARPGROUP_EPILOGUE_WARPS of them for each warpgroup. */
template <class Mode, int N, bool pairs>
__device__ __forceinline__ void run_epilogue(const parameters &layer, const shared_layout &shared, int storer, int lane)
{
    constexpr int PARTS = pairs ? 4 : 2;
    const int warpgroup = storer / WARPGROUP_EPILOGUE_WARPS, warp = storer % WARPGROUP_EPILOGUE_WARPS;
    const staging_pipeline buffers = staging_pipeline::of<Mode, N, pairs>(layer, shared, warpgroup);
    const uint32_t staged = shared_address(shared.staging);
    pipeline_state table = {0, 0}, staging = {0, 0};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_record &tile = shared.records[table.at];
        mbarrier_wait(shared.offsets_full + 8 * table.at, table.parity);
#pragma unroll 1
        for (int mma = 0; mma < (pairs ? 1 : Mode::MMA_TILES); mma++) {
            if (!pairs && layer.mma_pixel[warpgroup][mma] >= layer.stage_pixels)
                continue;
            const int m_tile = layer.mma_m_tile[warpgroup][mma];
            const int64_t *offset_table =
                shared.offsets + table.at * layer.block_n + layer.mma_position[warpgroup][mma];
#pragma unroll 1
            for (int i = 0; i < PARTS; i++, offset_table += N / PARTS) {
                const uint32_t buffer = buffers.first + staging.at * buffers.bytes;
                mbarrier_wait(buffers.full + 8 * staging.at, staging.parity);
                if constexpr (pairs)
                    store_staged_quarter<Mode, N>(layer, tile, m_tile, offset_table, shared.staging + buffer, warp,
                                                  lane);
                else
                    store_staged_half<Mode, N>(layer, tile, m_tile, offset_table, staged + buffer, warp, lane);
                __syncwarp();
                if (arrives_for_warp(lane))
                    mbarrier_arrive(buffers.empty + 8 * staging.at);
                staging.next(layer.staging_buffers);
            }
        }
        __syncwarp();
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.offsets_empty + 8 * table.at);
        table.next(layer.tables);
    }
}

} // namespace tconv::igemm

#endif
