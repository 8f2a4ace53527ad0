/* The producer warps of the streaming kernel: they fill the stages of both pipelines. */
#ifndef TCONV_CUDA_CELLS_LOAD_CUH
#define TCONV_CUDA_CELLS_LOAD_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/tma.cuh"
#include "tile.cuh"

namespace tconv::cells
{

constexpr int ELEMENTWISE_WARPS = 2; /* producer warps that load src where TMA cannot */

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

/* Loads pixels where TMA cannot: element by element, zeros outside of src; 16 bits by two, as which src is described. */
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
            for (int i = thread; i < count; i += ELEMENTWISE_WARPS * WARP) {
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
            __syncwarp();
            signal_for_warp(stage.full(), thread % WARP);
            stage.next();
        }
    }
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
