/*
 * Packs the weights for both kernels: for each channel group, cell of output channels, tap schedule and K-block, its
 * weight tiles one after another, each
 *
 *     [wgmma step][big, small][half of MMA_K][tap][output channel of the cell][4 input channels]
 *
 * of which only strict f32 has small parts (tf32.cuh). The last two axes are core matrix rows of 16 bytes, K-major
 * without swizzle. Where the layer has no such channel, the weight is zero.
 */
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::cells
{

namespace
{

constexpr int PACK_THREADS = 256;
constexpr int CORE_ROW = 4; /* channels of a core matrix row of 16 bytes */

template <bool STRICT>
__global__ void __launch_bounds__(PACK_THREADS)
    pack_kernel(const __grid_constant__ parameters layer, const __grid_constant__ packing packing, const float *from,
                uint4 *to)
{
    launch_dependents();
    constexpr int PARTS = STRICT ? 2 : 1;
    const int core_rows = 2 * layer.mma_steps; /* of a B row's big part of a K-block */
    for (int64_t number = (int64_t)blockIdx.x * PACK_THREADS + threadIdx.x; number < packing.core_rows;
         number += (int64_t)gridDim.x * PACK_THREADS) {
        const int64_t cell_core_rows = (int64_t)layer.b_rows * layer.k_blocks * core_rows;
        const int64_t cell = number / cell_core_rows;
        int64_t rest = number - cell * cell_core_rows;
        int p = layer.schedule_count - 1;
        while (rest < (int64_t)layer.schedules[p].first_b_row * layer.k_blocks * core_rows)
            p--;
        const tap_schedule &schedule = layer.schedules[p];
        rest -= (int64_t)schedule.first_b_row * layer.k_blocks * core_rows;
        const int k_block = (int)(rest / (schedule.b_rows * core_rows));
        int in_tile = (int)(rest % (schedule.b_rows * core_rows)), t = schedule.end_weight_tile - 1;
        while (in_tile < layer.weight_tiles[t].first_b_row * core_rows)
            t--;
        const weight_tile tile = layer.weight_tiles[t];
        in_tile -= tile.first_b_row * core_rows;
        const int core_row = in_tile / tile.b_rows, b_row = in_tile % tile.b_rows;
        const auto tap = packing.taps[packing.first_tap[t] + (b_row >> layer.cell_channels_log2)];
        const int64_t group = cell / layer.channel_tiles;
        const int64_t out = cell % layer.channel_tiles * layer.cell_channels + (b_row & (layer.cell_channels - 1));
        const int64_t in = (int64_t)k_block * layer.block_k + core_row * CORE_ROW;
        const float *source = from + (group * layer.group_in + in) * packing.strides.in + out * packing.strides.out +
                              tap.row * packing.strides.h + tap.column * packing.strides.w;
        uint32_t big[CORE_ROW], small[CORE_ROW];
#pragma unroll
        for (int i = 0; i < CORE_ROW; i++) {
            const bool exists = out < layer.group_out && in + i < layer.group_in;
            const uint32_t bits = exists ? __float_as_uint(source[i * packing.strides.in]) : 0;
            if (STRICT)
                split_to_tf32(bits, &big[i], &small[i]);
            else
                big[i] = round_to_tf32(bits);
        }
        uint4 *tile_to = to + PARTS * (number - ((int64_t)core_row * tile.b_rows + b_row));
        const int first = (core_row / 2 * PARTS * 2 + core_row % 2) * tile.b_rows + b_row;
        tile_to[first] = make_uint4(big[0], big[1], big[2], big[3]);
        if (STRICT)
            tile_to[first + 2 * tile.b_rows] = make_uint4(small[0], small[1], small[2], small[3]);
    }
}

} // namespace

tconv_status pack(const parameters *layer, const packing *packing, bool strict, const void *weights, void *packed,
                  void *stream, tconv_issue *issue)
{
    parameters layer_copy = *layer;
    cells::packing packing_copy = *packing;
    void *arguments[] = {&layer_copy, &packing_copy, &weights, &packed};
    const void *kernel = strict ? (const void *)pack_kernel<true> : (const void *)pack_kernel<false>;
    return launch_blocks(kernel, (packing->core_rows + PACK_THREADS - 1) / PACK_THREADS, PACK_THREADS, arguments,
                         stream, issue);
}

} // namespace tconv::cells
