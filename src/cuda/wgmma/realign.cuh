/* MN-major planes whose channels do not begin at multiples of 16 bytes, as TMA wants them to: it loads each from the
 * multiple before, and the transpose warps move it to where it belongs. */
#ifndef TCONV_CUDA_WGMMA_REALIGN_CUH
#define TCONV_CUDA_WGMMA_REALIGN_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/tma.cuh"
#include "transpose.cuh"

namespace tconv::wgmma
{

constexpr int SWIZZLE_ROW_BYTES = 128; /* a channel in a swizzled box */
constexpr int SWIZZLE_ROWS = 8;        /* channels after which they are swizzled alike, and come by the same box */

/* As many bytes of a channel as the alignment allows to move at once: 8 or 4, or 4 whose halves are loaded by
 * themselves. */
template <int alignment> struct realigned_word {
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

/* Loads raw stages from the multiple of 16 bytes before each channel's first pixel. */
__device__ __forceinline__ void load_misaligned_raw_stages(const parameters &params, const CUtensorMap *map,
                                                           const shared_layout &shared)
{
    const int group_rows = params.group_in / params.map_row_channels,
              k_block_rows = params.k_block_channels / params.map_row_channels;
    const int channel = (int)params.src_channel, alignment = params.column_alignment;
    pipeline_state raw = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        int row = tile.group * group_rows; /* of the map */
#pragma unroll 1
        for (int k_block = 0; k_block < params.k_blocks; k_block++, row += k_block_rows) {
            const uint32_t full = shared.raw_full + 8 * raw.at;
            uint32_t to = shared.raw_stages + raw.at * params.raw_stage_bytes;
            int first = params.src_misalignment + tile.column;
            mbarrier_wait(shared.raw_empty + 8 * raw.at, raw.parity);
            mbarrier_arrive_expect_tx(full, params.expected_bytes);
#pragma unroll 1
            for (int part = 0; part < params.box_parts; part++, first += params.part_pixels) {
#pragma unroll 1
                for (int box = 0, pixel = first; box < params.map_row_channels; box++, pixel += channel) {
                    tma_load(to, map, pixel & -alignment, 0, row, tile.image, full);
                    to += params.box_step_bytes;
                }
            }
            raw.next(params.raw_stages);
        }
    }
}

/* Returns the offset in a raw stage of the first pixel of one of its first channels. */
__device__ __forceinline__ uint32_t misaligned_channel(const parameters &params, int channel)
{
    const int box = channel & (params.map_row_channels - 1), row = channel >> __popc(params.map_row_channels - 1);
    const int before = (params.src_misalignment + box * (int)params.src_channel) & (params.column_alignment - 1);
    return box * params.box_step_bytes + (row * params.part_pitch + before) * 2;
}

/* Moves a word of every eighth channel of a K-block, of 64 or 32. */
template <class Word>
__device__ __forceinline__ void realign_words(uint32_t from, uint32_t from_step, uint32_t to, bool of_64)
{
    constexpr int ALL = 8, HALF = 4, TO_STEP = SWIZZLE_ROWS * SWIZZLE_ROW_BYTES;
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

/* Moves raw stages into B stages. Columns beyond the tile are left as they are: their accumulators are not stored. */
template <int alignment>
__device__ __forceinline__ void realign_raw_stages(const parameters &params, const shared_layout &shared, int warp,
                                                   int lane)
{
    using Word = realigned_word<alignment>;
    constexpr int PIXELS = Word::BYTES / 2, ROW_WORDS = SWIZZLE_ROW_BYTES / Word::BYTES;
    constexpr int ROWS = TRANSPOSE_WARPS * WARP / ROW_WORDS, ROUNDS = SWIZZLE_ROWS / ROWS; /* channels at a time */
    const int own = warp * WARP + lane, own_pixel = own % ROW_WORDS * PIXELS;
    const uint32_t from_step = (SWIZZLE_ROWS >> __popc(params.map_row_channels - 1)) * params.part_pitch * 2;
    const uint32_t part_bytes = params.map_row_channels * params.box_step_bytes;
    const bool of_64 = params.k_block_channels == 64;
    uint32_t from_own[ROUNDS], to_own[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const int channel = own / ROW_WORDS + i * ROWS;
        from_own[i] = shared.raw_stages + misaligned_channel(params, channel) + own_pixel * 2;
        to_own[i] = shared.b_stages + channel * SWIZZLE_ROW_BYTES + ((own_pixel * 2) ^ channel * CORE_ROW_BYTES);
    }
    pipeline_state raw = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(params, number);
        const int end = min(params.tile_columns, params.in_columns - tile.column);
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            uint32_t from_part = raw.at * params.raw_stage_bytes, to = stage.at * params.b_stage_bytes;
            mbarrier_wait(shared.raw_full + 8 * raw.at, raw.parity);
            mbarrier_wait(shared.b_empty + 8 * stage.at, stage.parity);
#pragma unroll 1
            for (int part = own_pixel; part < end; part += params.part_pixels, from_part += part_bytes) {
                const int part_end = min(part + params.part_pixels, end);
                uint32_t from = from_part;
#pragma unroll 1
                for (int pixel = part; pixel < part_end; pixel += SWIZZLE_PIXELS) {
#pragma unroll
                    for (int i = 0; i < ROUNDS; i++)
                        realign_words<Word>(from + from_own[i], from_step, to + to_own[i], of_64);
                    from += SWIZZLE_ROW_BYTES;
                    to += params.pixels_leading_bytes;
                }
            }
            fence_proxy_async();
            __syncwarp();
            if (arrives_for_warp(lane)) {
                mbarrier_arrive(shared.b_full + 8 * stage.at);
                mbarrier_arrive(shared.raw_empty + 8 * raw.at);
            }
            raw.next(params.raw_stages);
            stage.next(params.b_stages);
        }
    }
}

} // namespace tconv::wgmma

#endif
