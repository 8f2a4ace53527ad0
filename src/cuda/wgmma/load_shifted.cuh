/* Boxes of planes that are operands, but where channels do not begin at multiples of 16 bytes, as the copy engine wants them
 * to: it brings each from the multiple before, and the warps that would convert move it to where it belongs. */
#ifndef TCONV_CUDA_WGMMA_LOAD_SHIFTED_CUH
#define TCONV_CUDA_WGMMA_LOAD_SHIFTED_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "load.cuh"

namespace tconv::wgmma
{

constexpr int ROW_BYTES = 128;   /* of a channel in a swizzled box */
constexpr int SWIZZLED_ROWS = 8; /* after which channels are swizzled alike, and come from the same copy */

/* So many bytes of a channel at a multiple of them, or 4 of which either half is at a multiple of 2. */
template <int alignment> struct shifted_word {
    static constexpr int BYTES = alignment == 8 ? 8 : 4;
    uint32_t low, high;
    __device__ __forceinline__ void load(uint32_t from)
    {
        if (alignment == 8) {
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(from) : "memory");
        } else if (alignment == 4) {
            low = load_word(from);
        } else {
            asm volatile("ld.shared.u16 %0, [%1];" : "=r"(low) : "r"(from) : "memory");
            asm volatile("ld.shared.u16 %0, [%1 + 2];" : "=r"(high) : "r"(from) : "memory");
        }
    }
    __device__ __forceinline__ void store(uint32_t to) const
    {
        if (alignment == 8)
            asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
        else
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(alignment == 4 ? low : low | high << 16) : "memory");
    }
};

/* As copy_boxes, from the multiple of 16 bytes before each channel's first pixel. */
__device__ __forceinline__ void copy_shifted_boxes(const tconv_wgmma_parameters &layer, const CUtensorMap *map,
                                                   const shared_layout &shared)
{
    const int group_rows = layer.group_in / layer.row_channels, chunk_rows = layer.chunk_channels / layer.row_channels;
    const int channel = (int)layer.src_channel, alignment = layer.column_alignment;
    pipeline_state box = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        int row = tile.group * group_rows; /* of the map */
#pragma unroll 1
        for (int chunk = 0; chunk < layer.chunks; chunk++, row += chunk_rows) {
            const uint32_t full = shared.box_full + 8 * box.at;
            uint32_t to = shared.boxes + box.at * layer.box_bytes;
            int first = layer.src_shift + tile.column;
            mbarrier_wait(shared.box_empty + 8 * box.at, box.parity);
            mbarrier_arrive_expect_tx(full, layer.copied_bytes);
#pragma unroll 1
            for (int part = 0; part < layer.box_parts; part++, first += layer.part_pixels) {
#pragma unroll 1
                for (int copy = 0, pixel = first; copy < layer.row_channels; copy++, pixel += channel) {
                    tma_load(to, map, pixel & -alignment, 0, row, tile.image, full);
                    to += layer.copy_bytes;
                }
            }
            box.next(layer.boxes);
        }
    }
}

/* Where the copies of a chunk put the first pixel of one of its first channels. */
__device__ __forceinline__ uint32_t shifted_channel(const tconv_wgmma_parameters &layer, int channel)
{
    const int copy = channel & (layer.row_channels - 1), row = channel >> __popc(layer.row_channels - 1);
    const int shift = (layer.src_shift + copy * (int)layer.src_channel) & (layer.column_alignment - 1);
    return copy * layer.copy_bytes + (row * layer.part_pitch + shift) * 2;
}

/* A word of every eighth channel of a chunk, of 64 or 32. */
template <class Word>
__device__ __forceinline__ void shift_words(uint32_t from, uint32_t from_step, uint32_t to, bool of_64)
{
    constexpr int ALL = 8, HALF = 4, TO_STEP = SWIZZLED_ROWS * ROW_BYTES;
    Word words[ALL];
#pragma unroll
    for (int i = 0; i < HALF; i++)
        words[i].load(from + i * from_step);
    if (of_64)
#pragma unroll
        for (int i = HALF; i < ALL; i++)
            words[i].load(from + i * from_step);
#pragma unroll
    for (int i = 0; i < HALF; i++)
        words[i].store(to + i * TO_STEP);
    if (of_64)
#pragma unroll
        for (int i = HALF; i < ALL; i++)
            words[i].store(to + i * TO_STEP);
}

/* Columns beyond the tile are left as they are: their sums are not stored. */
template <int alignment>
__device__ __forceinline__ void shift_boxes(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                            int lane)
{
    using Word = shifted_word<alignment>;
    constexpr int PIXELS = Word::BYTES / 2, ROW_WORDS = ROW_BYTES / Word::BYTES;
    constexpr int ROWS = CONVERTERS * WARP / ROW_WORDS, ROUNDS = SWIZZLED_ROWS / ROWS; /* channels at a time */
    const int own = warp * WARP + lane, own_pixel = own % ROW_WORDS * PIXELS;
    const uint32_t from_step = (SWIZZLED_ROWS >> __popc(layer.row_channels - 1)) * layer.part_pitch * 2;
    const uint32_t part_bytes = layer.row_channels * layer.copy_bytes;
    const bool of_64 = layer.chunk_channels == 64;
    uint32_t from_own[ROUNDS], to_own[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int channel = own / ROW_WORDS + i * ROWS;
        from_own[i] = shared.boxes + shifted_channel(layer, channel) + own_pixel * 2;
        to_own[i] = shared.stages + channel * ROW_BYTES + ((own_pixel * 2) ^ channel * TCONV_WGMMA_QUAD);
    }
    pipeline_state box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int end = min(layer.tile_columns, layer.in_columns - tile.column);
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            uint32_t from_part = box.at * layer.box_bytes, to = stage.at * layer.stage_bytes;
            mbarrier_wait(shared.box_full + 8 * box.at, box.parity);
            mbarrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
#pragma unroll 1
            for (int part = own_pixel; part < end; part += layer.part_pixels, from_part += part_bytes) {
                const int part_end = min(part + layer.part_pixels, end);
                uint32_t from = from_part;
#pragma unroll 1
                for (int pixel = part; pixel < part_end; pixel += TCONV_WGMMA_BOX) {
#pragma unroll
                    for (int i = 0; i < ROUNDS; i++)
                        shift_words<Word>(from + from_own[i], from_step, to + to_own[i], of_64);
                    from += ROW_BYTES;
                    to += layer.pixels_leading;
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.stage_full + 8 * stage.at);
                mbarrier_arrive(shared.box_empty + 8 * box.at);
            }
            box.next(layer.boxes);
            stage.next(layer.stages);
        }
    }
}

} // namespace tconv::wgmma

#endif
