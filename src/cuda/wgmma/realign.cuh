/* MN-major planes whose channels do not begin at multiples of 16 bytes, as TMA wants them to: it loads each from the
 * multiple before, and the transpose warps move it to where it belongs. */
#ifndef TCONV_CUDA_WGMMA_REALIGN_CUH
#define TCONV_CUDA_WGMMA_REALIGN_CUH

#include "transpose.cuh"

#include <type_traits>

namespace tconv::wgmma
{

constexpr int SWIZZLE_ROW_BYTES = 128; /* a channel in a swizzled box */
constexpr int SWIZZLE_ROWS = 8;        /* channels after which they are swizzled alike, and come by the same box */

/* As many bytes of a channel as the alignment allows to move at once: 8 or 4, or 4 whose halves are loaded by
 * themselves. */
template <int alignment> struct realigned_word {
    using Bits = std::conditional_t<alignment == 8, uint64_t, uint32_t>;
    static constexpr int BYTES = sizeof(Bits);
    Bits bits;
    __device__ __forceinline__ void load(uint32_t from)
    {
        if constexpr (alignment >= 4)
            bits = load_shared<Bits>(from);
        else
            bits = load_shared<uint16_t>(from) | (uint32_t)load_shared<uint16_t>(from + 2) << 16;
    }
};

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
        store_shared(to + i * TO_STEP, words[i].bits);
    if (of_64)
#pragma unroll
        for (int i = HALF; i < ALL; i++)
            store_shared(to + i * TO_STEP, words[i].bits);
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
        from_own[i] = misaligned_channel(params, channel) + own_pixel * 2;
        to_own[i] = channel * SWIZZLE_ROW_BYTES + ((own_pixel * 2) ^ channel * CORE_ROW_BYTES);
    }
    transform_raw_stages(params, shared, lane, [&](const tile_place &tile, uint32_t from_part, uint32_t to) {
        const int end = min(params.tile_columns, params.in_columns - tile.column);
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
    });
}

} // namespace tconv::wgmma

#endif
