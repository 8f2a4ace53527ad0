/* Boxes of planes that are operands, but where channels do not begin at multiples of 16 bytes, as the copy engine wants them
 * to: it brings each from the multiple before, and the warps that would convert move it to where it belongs. */
#ifndef TCONV_CUDA_WGMMA_SHIFT_CUH
#define TCONV_CUDA_WGMMA_SHIFT_CUH

#include "wgmma_copy.cuh"

namespace tconv_wgmma
{

constexpr int ROW_BYTES = 128;   /* of a channel in a swizzled box */
constexpr int SWIZZLED_ROWS = 8; /* after which channels are swizzled alike; they come from the same copy, too */

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

/* Where a copy of a tile's chunk puts pixel `pixel` of channel `channel`. */
__device__ __forceinline__ uint32_t shifted_pixel(const tconv_wgmma_parameters &layer, int channel, int pixel)
{
    const int of_row = channel & (layer.row_channels - 1);
    const int shift = (layer.src_shift + of_row * (int)layer.src_channel) & (layer.column_alignment - 1);
    const tconv_cuda_quotient copy = divide(pixel + shift, layer.by_copy_pixels);
    return (copy.whole * layer.row_channels + of_row) * layer.copy_bytes +
           ((channel >> __popc(layer.row_channels - 1)) * layer.copy_pitch + copy.rest) * 2;
}

/* Columns beyond the tile are left as they are: their sums are not stored. */
template <int alignment>
__device__ __forceinline__ void shift_boxes(const tconv_wgmma_parameters &layer, const shared_layout &shared, int warp,
                                            int lane)
{
    using Word = shifted_word<alignment>;
    constexpr int PIXELS = Word::BYTES / 2, ROW_WORDS = ROW_BYTES / Word::BYTES;
    constexpr int ROWS = CONVERTERS * WARP / ROW_WORDS; /* channels at a time */
    constexpr int AT_ONCE = 4;
    const int own = warp * WARP + lane, first_channel = own / ROW_WORDS, own_pixel = own % ROW_WORDS * PIXELS;
    const uint32_t from_step = SWIZZLED_ROWS / layer.row_channels * layer.copy_pitch * 2;
    ring box = {0, 0}, stage = {0, 1};
    for (int number = (int)blockIdx.x; number < layer.tiles; number += (int)gridDim.x) {
        const tile_place tile = find_tile(layer, number);
        const int end = min(layer.tile_columns, layer.in_columns - tile.column);
        for (int chunk = 0; chunk < layer.chunks; chunk++) {
            barrier_wait(shared.box_full + 8 * box.at, box.parity);
            barrier_wait(shared.stage_empty + 8 * stage.at, stage.parity);
#pragma unroll 1
            for (int first = first_channel; first < SWIZZLED_ROWS; first += ROWS) {
                uint32_t to_row = shared.stages + stage.at * layer.stage_bytes + first * ROW_BYTES +
                                  ((own_pixel * 2) ^ first * TCONV_WGMMA_QUAD);
#pragma unroll 1
                for (int pixel = own_pixel; pixel < end; pixel += TCONV_WGMMA_BOX, to_row += layer.pixels_leading) {
                    uint32_t from = shared.boxes + box.at * layer.box_bytes + shifted_pixel(layer, first, pixel),
                             to = to_row;
#pragma unroll 1
                    for (int channel = 0; channel < layer.chunk_channels; channel += AT_ONCE * SWIZZLED_ROWS) {
                        Word words[AT_ONCE];
#pragma unroll
                        for (int i = 0; i < AT_ONCE; i++)
                            words[i].load(from + i * from_step);
#pragma unroll
                        for (int i = 0; i < AT_ONCE; i++)
                            words[i].store(to + i * SWIZZLED_ROWS * ROW_BYTES);
                        from += AT_ONCE * from_step;
                        to += AT_ONCE * SWIZZLED_ROWS * ROW_BYTES;
                    }
                }
            }
            fence_for_async_proxy();
            __syncwarp();
            if (lane == 0) {
                barrier_arrive(shared.stage_full + 8 * stage.at);
                barrier_arrive(shared.box_empty + 8 * box.at);
            }
            box.next(layer.boxes);
            stage.next(layer.stages);
        }
    }
}

} // namespace tconv_wgmma

#endif
