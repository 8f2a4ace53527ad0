/* The producer warps of the streaming kernel: they fill the stages of both pipelines. */
#ifndef TCONV_CUDA_CELLS_LOAD_CUH
#define TCONV_CUDA_CELLS_LOAD_CUH

#include "../numeric/divisor.cuh"
#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::cells
{

constexpr int COPY_WARPS = 3; /* producer warps that load src where TMA cannot */

__device__ __forceinline__ void load_pixels_tma(const parameters &layer, const CUtensorMap *map,
                                                const shared_layout &shared)
{
    stage_walk stage(shared.pixels, 1);
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_coord tile = find_tile(layer, number);
        const int row = tile.row * layer.row_step * layer.src_row_step, column = stage_column(layer, tile);
        int channel = tile.group * layer.group_in;
#pragma unroll 1
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
#pragma unroll 1
            for (int phase = 0; phase < layer.row_phases; phase++) {
                stage.expect(layer.pixel_stage_bytes);
                tma_load(stage.buffer(), map, column, row + layer.first_rows[phase], channel, tile.image, stage.full());
                stage.next();
            }
            channel += layer.block_k;
        }
    }
}

/* A thread's copies, of COPY_CHANNELS channels: where the first one's come from and go to in a stage; `channels` exist. */
struct copy_item {
    const uint32_t *from;
    uint32_t to;
    int channels;
};

/* Where a stage's pixels come from. */
struct copy_origin {
    const uint32_t *from; /* the first channel's pixel in the first row and column, where these are in src */
    int image, row, column, channels;
};

template <int words>
__device__ __forceinline__ copy_item find_copy(const parameters &layer, const copy_origin &origin, int number)
{
    const quotient columns = divide(number, layer.by_copy_columns);
    const quotient rows = divide(columns.whole, layer.by_copy_rows);
    const quotient parts = divide(rows.whole, layer.by_copy_channels);
    const int column = columns.rest * words, row = rows.rest * layer.src_row_step, channel = parts.rest * COPY_CHANNELS;
    const bool inside = (unsigned)(origin.column + column) < (unsigned)layer.in_columns &&
                        (unsigned)(origin.row + row) < (unsigned)layer.in_rows &&
                        origin.image + parts.whole < layer.images;
    return {origin.from + parts.whole * layer.src_strides.n + channel * layer.src_strides.c +
                row * layer.src_strides.h + column * layer.src_strides.w,
            (uint32_t)(parts.whole * layer.image_pitch + channel * layer.channel_pitch + rows.rest * layer.row_pitch +
                       column) *
                (uint32_t)sizeof(uint32_t),
            inside ? origin.channels - channel : 0};
}

template <int words>
__device__ __forceinline__ void copy_channels(const parameters &layer, copy_item item, uint32_t buffer)
{
    constexpr int BYTES = words * (int)sizeof(uint32_t);
    item.to += buffer;
#pragma unroll
    for (int c = 0; c < COPY_CHANNELS; c++) {
        cp_async_padded<BYTES>(item.to, item.from, c < item.channels ? BYTES : 0);
        item.from += layer.src_strides.c;
        item.to += layer.channel_pitch * (uint32_t)sizeof(uint32_t);
    }
}

/* Copies pixels where TMA cannot: so many words of 4 bytes at once; zeros outside of src. */
template <int words>
__device__ __forceinline__ void copy_pixels(const parameters &layer, const shared_layout &shared, int thread)
{
    constexpr int THREADS = COPY_WARPS * WARP;
    stage_walk stage(shared.pixels, 1);
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_coord tile = find_tile(layer, number);
        const int tile_row = tile.row * layer.row_step * layer.src_row_step, column = stage_column(layer, tile);
        const uint32_t *from = static_cast<const uint32_t *>(layer.src) + tile.image * layer.src_strides.n +
                               tile.group * (int64_t)layer.group_in * layer.src_strides.c +
                               tile_row * layer.src_strides.h + column * layer.src_strides.w;
#pragma unroll 1
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
#pragma unroll 1
            for (int phase = 0; phase < layer.row_phases; phase++) {
                const copy_origin origin = {from + layer.first_rows[phase] * layer.src_strides.h, tile.image,
                                            tile_row + layer.first_rows[phase], column,
                                            layer.group_in - k_block * layer.block_k};
                stage.wait_empty();
                int i = thread;
                /* Two at once: finding where they come from is a long chain. */
#pragma unroll 1
                for (; i + THREADS < layer.copies; i += 2 * THREADS) {
                    const copy_item one = find_copy<words>(layer, origin, i);
                    const copy_item other = find_copy<words>(layer, origin, i + THREADS);
                    copy_channels<words>(layer, one, stage.buffer());
                    copy_channels<words>(layer, other, stage.buffer());
                }
                if (i < layer.copies)
                    copy_channels<words>(layer, find_copy<words>(layer, origin, i), stage.buffer());
                cp_async_arrive(stage.full());
                stage.next();
            }
            from += layer.block_k * layer.src_strides.c;
        }
    }
}

/* Loads pixels element by element where not even words begin at multiples of 4 bytes; 16 bits by two, as which src is
 * described. */
template <class Element>
__device__ __forceinline__ void load_pixels_elementwise(const parameters &layer, const shared_layout &shared,
                                                        int thread)
{
    stage_walk stage(shared.pixels, 1);
    using bits = std::conditional_t<sizeof(Element) == 2, uint16_t, uint32_t>;
    constexpr int WORD = (int)(sizeof(uint32_t) / sizeof(Element)); /* elements */
    const bits *src = static_cast<const bits *>(layer.src);
    const int rows = layer.channel_pitch / layer.row_pitch, count = (int)(layer.pixel_stage_bytes / sizeof(float));
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_coord tile = find_tile(layer, number);
        const int tile_row = tile.row * layer.row_step * layer.src_row_step, first_column = stage_column(layer, tile);
        const int stages = layer.k_blocks * layer.row_phases;
#pragma unroll 1
        for (int number = 0; number < stages; number++) {
            const int k_block = number / layer.row_phases, phase = number % layer.row_phases;
            const int first_row = tile_row + layer.first_rows[phase];
            stage.wait_empty();
            const uint32_t to = stage.buffer();
#pragma unroll 1
            for (int i = thread; i < count; i += COPY_WARPS * WARP) {
                int rest = i / layer.row_pitch;
                const int column = first_column + i - rest * layer.row_pitch;
                const int row = first_row + rest % rows * layer.src_row_step;
                rest /= rows;
                const int channel = k_block * layer.block_k + rest % layer.block_k;
                const int image = tile.image + rest / layer.block_k;
                const bool inside = column >= 0 && column < layer.in_columns && row >= 0 && row < layer.in_rows &&
                                    channel < layer.group_in && image < layer.images;
                uint32_t value = 0;
                if (inside) {
                    const bits *at =
                        src + WORD * (image * layer.src_strides.n +
                                      (tile.group * (int64_t)layer.group_in + channel) * layer.src_strides.c +
                                      row * layer.src_strides.h + column * layer.src_strides.w);
                    value = at[0] | (WORD == 2 ? (uint32_t)at[WORD - 1] << 16 : 0);
                }
                store_shared(to + i * (int)sizeof(float), value);
            }
            mbarrier_arrive(stage.full());
            stage.next();
        }
    }
}

/* Fills stages where TMA cannot: all lanes arrive at their barriers. */
template <class Element>
__device__ __forceinline__ void load_pixels(const parameters &layer, const shared_layout &shared, int thread)
{
    if (layer.copy_words == 2)
        copy_pixels<2>(layer, shared, thread);
    else if (sizeof(Element) == sizeof(uint32_t) || layer.copy_words == 1)
        copy_pixels<1>(layer, shared, thread);
    else
        load_pixels_elementwise<Element>(layer, shared, thread);
}

/* Copies the block's part of each weight tile to all blocks of the cluster. */
__device__ __forceinline__ void load_weights(const parameters &layer, const shared_layout &shared)
{
    stage_walk stage(shared.weights, 1);
    const char *weights = static_cast<const char *>(layer.weights);
    for (int number = first_tile(); number < layer.tiles; number += tile_step()) {
        const tile_coord tile = find_tile(layer, number);
        const tap_schedule &schedule = layer.schedules[tile.schedule];
        const int64_t cell = tile.group * layer.channel_tiles + (tile.channel >> layer.cell_channels_log2);
        int64_t b_row = (cell * layer.b_rows + schedule.first_b_row) * layer.k_blocks;
#pragma unroll 1
        for (int k_block = 0; k_block < layer.k_blocks; k_block++) {
#pragma unroll 1
            for (int t = schedule.first_weight_tile; t < schedule.end_weight_tile; t++) {
                const uint32_t bytes = layer.weight_tiles[t].b_rows * layer.b_row_bytes;
                const uint32_t part = bytes / CLUSTER_BLOCKS, first = part * cluster_rank();
                stage.expect(bytes);
                bulk_load_multicast(stage.buffer() + first, weights + b_row * layer.b_row_bytes + first, part,
                                    stage.full(), ALL_BLOCKS);
                b_row += layer.weight_tiles[t].b_rows;
                stage.next();
            }
        }
    }
}

} // namespace tconv::cells

#endif
