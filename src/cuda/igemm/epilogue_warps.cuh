/* From a warpgroup's sums in registers to dst through buffers that other warps store, while the next tile is multiplied. */
#ifndef TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH
#define TCONV_CUDA_IGEMM_EPILOGUE_WARPS_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/memory.cuh"
#include "epilogue.cuh"

namespace tconv::igemm
{

/* A half of a unit that is handed over: a pixel's 64 channels are vectors of 16 bytes, swizzled by the pixel, so that
 * neither side meets itself in a bank. Eight pixels whose sums a warp has at once differ in the bits of the mask. */
template <class Element> constexpr int HALF_PIXEL = TCONV_IGEMM_M *(int)sizeof(Element);
template <class Element, int N, bool pairs>
constexpr int HALF_BYTES = tconv_igemm_half_bytes(N, sizeof(Element), pairs);
template <class Element> constexpr int SWIZZLE_MASK = sizeof(Element) == 4 ? 6 : 7;

template <int N, int first>
__device__ __forceinline__ void put_half(const float (&sums)[N / 2], const float (&bias)[2], uint32_t buffer, int warp,
                                         int lane, float)
{
    const int pixel = lane % 4 * 2;
    const uint32_t to = buffer + pixel * HALF_PIXEL<float> + lane / 4 % 4 * 4;
    const uint32_t vector = ((warp * 4 + lane / 16) ^ pixel) * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        asm volatile(
            "st.shared.f32 [%0], %1;" ::"r"(to + (vector ^ i / 2 % 2 * 32) + (i / 4 * 8 + i % 2) * HALF_PIXEL<float>),
            "f"(sums[first + i] + bias[i / 2 % 2])
            : "memory");
}
template <int N, int first, class Half>
__device__ __forceinline__ void put_half(const float (&sums)[N / 2], const float (&bias)[2], uint32_t buffer, int warp,
                                         int lane, Half)
{
    const uint32_t to = buffer + lane % 8 * HALF_PIXEL<Half> + ((warp * 2 + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i += 4)
        store_transposed(to + i * 2 * HALF_PIXEL<Half>,
                         pack_pair<Half>(sums[first + i] + bias[0], sums[first + i + 1] + bias[0]),
                         pack_pair<Half>(sums[first + i + 2] + bias[1], sums[first + i + 3] + bias[1]));
}

/* The halves of a warpgroup, as it and the warps that store them walk them. */
struct half_buffers {
    uint32_t full, empty, bytes, first; /* of the first: from the first warpgroup's on */
    template <class Mode, int N, bool pairs>
    static __device__ __forceinline__ half_buffers of(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                                      int group)
    {
        constexpr uint32_t bytes = HALF_BYTES<typename Mode::Element, N, pairs>;
        const uint32_t barriers = group * 8 * TCONV_IGEMM_HALVES;
        return {shared.staged_full + barriers, shared.staged_empty + barriers, bytes, group * layer.halves * bytes};
    }
};

/* A warp's share of the next half, which put() writes to where it is told. */
template <class Put>
__device__ __forceinline__ void hand_over_half(const tconv_igemm_parameters &layer, const half_buffers &buffers,
                                               pipeline_state &half, int lane, Put put)
{
    mbarrier_wait(buffers.empty + 8 * half.at, half.parity);
    put(buffers.first + half.at * buffers.bytes);
    __syncwarp();
    if (arrives_for_warp(lane))
        mbarrier_arrive(buffers.full + 8 * half.at);
    half.next(layer.halves);
}

/* Where a warp's strip of a pair lies in a buffer. */
template <class Element, int N> constexpr int STRIP_BYTES = TCONV_IGEMM_STAGED *STAGED_ROW<Element, N>;

/* All of a warp's sums of a tile, to those that store them. */
template <class Mode, int N, bool pairs>
__device__ __forceinline__ void hand_over(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                          const float (&sums)[Mode::UNITS][N / 2], const tile_record &tile,
                                          pipeline_state &half, int warp, int lane)
{
    using Element = typename Mode::Element;
    const int group = warp / GROUP_WARPS, strip = warp % GROUP_WARPS, row = strip * TCONV_IGEMM_STAGED + lane / 4;
    const half_buffers buffers = half_buffers::of<Mode, N, pairs>(layer, shared, group);
#pragma unroll
    for (int unit = 0; unit < (pairs ? 1 : Mode::UNITS); unit++) {
        if (!pairs && layer.unit_pixel[group][unit] >= layer.patch)
            continue; /* none is there */
        const float *of_block = tile.bias[layer.unit_block[group][unit]];
        const float bias[2] = {of_block[row], of_block[row + 8]};
        if constexpr (pairs) {
            char *strips = shared.staged + strip * STRIP_BYTES<Element, N>;
            const float(&even)[N / 2] = sums[0], (&odd)[N / 2] = sums[1];
            hand_over_half(layer, buffers, half, lane,
                           [&](uint32_t at) { stage_pairs<N, 0>(even, odd, bias, strips + at, lane, Element{}); });
            hand_over_half(layer, buffers, half, lane,
                           [&](uint32_t at) { stage_pairs<N, N / 8>(even, odd, bias, strips + at, lane, Element{}); });
            hand_over_half(layer, buffers, half, lane,
                           [&](uint32_t at) { stage_pairs<N, N / 4>(even, odd, bias, strips + at, lane, Element{}); });
            hand_over_half(layer, buffers, half, lane, [&](uint32_t at) {
                stage_pairs<N, 3 * N / 8>(even, odd, bias, strips + at, lane, Element{});
            });
        } else {
            const uint32_t staged = shared_address(shared.staged);
            hand_over_half(layer, buffers, half, lane,
                           [&](uint32_t at) { put_half<N, 0>(sums[unit], bias, staged + at, strip, lane, Element{}); });
            hand_over_half(layer, buffers, half, lane, [&](uint32_t at) {
                put_half<N, N / 4>(sums[unit], bias, staged + at, strip, lane, Element{});
            });
        }
    }
}

/* A half to dst, a Vector (an element, or 16 bytes of them) at a time. */
template <class Element, int N, class Vector>
__device__ __forceinline__ void store_half_pixels(char *dst, int channels, const int64_t *outputs, uint32_t buffer,
                                                  int warp, int lane)
{
    constexpr int LENGTH = sizeof(Vector) / sizeof(Element), VECTORS = TCONV_IGEMM_M / LENGTH;
    constexpr int LANES = VECTORS < WARP ? VECTORS : WARP, STEP = GROUP_STORERS * WARP / LANES;
    constexpr int ROUNDS = N / 2 / STEP, AT_ONCE = ROUNDS % 4 == 0 ? 4 : 3;
    static_assert(N / 2 % STEP == 0 && ROUNDS % AT_ONCE == 0, "whole rounds");
    const int first_pixel = warp * (WARP / LANES) + lane / LANES;
    const uint32_t offset = shared_address(outputs + first_pixel);
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
                offsets[i] = load_offset(offset + (first + i) * STEP * (int)sizeof *outputs);
                load_staged(buffer + pixel * HALF_PIXEL<Element> + (byte ^ (pixel & SWIZZLE_MASK<Element>)*16),
                            vectors[i]);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (offsets[i] >= 0)
                    *reinterpret_cast<Vector *>(dst + byte + offsets[i]) = vectors[i];
        }
    }
}

/* A storing warp's share of a half of a unit. */
template <class Mode, int N>
__device__ __forceinline__ void store_half_of(const tconv_igemm_parameters &layer, const tile_record &tile, int block,
                                              const int64_t *outputs, uint32_t buffer, int warp, int lane)
{
    using Element = typename Mode::Element;
    const int channels = min(TCONV_IGEMM_M, tile.channels[block]);
    char *dst = static_cast<char *>(layer.dst) + tile.offset[block];
    if (layer.store_vectors)
        store_half_pixels<Element, N, uint4>(dst, channels, outputs, buffer, warp, lane);
    else
        store_half_pixels<Element, N, Element>(dst, channels, outputs, buffer, warp, lane);
}

/* The same of a quarter of a pair. */
template <class Mode, int N>
__device__ __forceinline__ void store_quarter_of(const tconv_igemm_parameters &layer, const tile_record &tile,
                                                 int block, const int64_t *outputs, const char *buffer, int warp,
                                                 int lane)
{
    using Element = typename Mode::Element;
    const int64_t channel_bytes = layer.to.c * (int64_t)sizeof(Element);
#pragma unroll 1
    for (int strip = warp; strip < GROUP_WARPS; strip += GROUP_STORERS) {
        const unit_place<Element> place(layer, tile, block, strip, lane);
        const char *staged = buffer + strip * STRIP_BYTES<Element, N>;
        if (!store_wide_rows<Element, N, N / 4>(place.dst, channel_bytes, outputs, staged, place.channels, lane))
            store_rows<Element, N, N / 4, typename two_columns<Element>::type>(place.dst, channel_bytes, outputs,
                                                                               staged, place.channels, lane);
    }
}

/* The role that stores what is handed over: GROUP_STORERS warps for each warpgroup. */
template <class Mode, int N, bool pairs>
__device__ __forceinline__ void store_handed(const tconv_igemm_parameters &layer, const shared_layout &shared,
                                             int storer, int lane)
{
    constexpr int PARTS = pairs ? 4 : 2;
    const int group = storer / GROUP_STORERS, warp = storer % GROUP_STORERS;
    const half_buffers buffers = half_buffers::of<Mode, N, pairs>(layer, shared, group);
    const uint32_t staged = shared_address(shared.staged);
    pipeline_state table = {0, 0}, half = {0, 0};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_record &tile = shared.records[table.at];
        mbarrier_wait(shared.outputs_full + 8 * table.at, table.parity);
#pragma unroll 1
        for (int unit = 0; unit < (pairs ? 1 : Mode::UNITS); unit++) {
            if (!pairs && layer.unit_pixel[group][unit] >= layer.patch)
                continue;
            const int block = layer.unit_block[group][unit];
            const int64_t *outputs = shared.outputs + table.at * layer.covered + layer.unit_output[group][unit];
#pragma unroll 1
            for (int i = 0; i < PARTS; i++, outputs += N / PARTS) {
                const uint32_t buffer = buffers.first + half.at * buffers.bytes;
                mbarrier_wait(buffers.full + 8 * half.at, half.parity);
                if constexpr (pairs)
                    store_quarter_of<Mode, N>(layer, tile, block, outputs, shared.staged + buffer, warp, lane);
                else
                    store_half_of<Mode, N>(layer, tile, block, outputs, staged + buffer, warp, lane);
                __syncwarp();
                if (arrives_for_warp(lane))
                    mbarrier_arrive(buffers.empty + 8 * half.at);
                half.next(layer.halves);
            }
        }
        __syncwarp();
        if (arrives_for_warp(lane))
            mbarrier_arrive(shared.outputs_empty + 8 * table.at);
        table.next(layer.tables);
    }
}

} // namespace tconv::igemm

#endif
