/*
 * Packs the weights for both kernels: for each channel group, cell of output channels, tap schedule and K-block, its
 * weight tiles one after another, each
 *
 *     [wgmma step][big, small][half of MMA_K][tap][output channel of the cell][4 input channels]
 *
 * of which only strict f32 has small parts (tf32.cuh). The last two axes are core matrix rows of 16 bytes, K-major
 * without swizzle. Where the layer has no such channel, the weight is zero. In 16 bits a tap is two columns of the kernel,
 * and the last axis [4 input channels][2 columns].
 */
#include "../pack/vectors.cuh"
#include "parameters.h"

namespace tconv::cells
{

namespace
{

struct order : vector_order {
    parameters layer;
    cells::packing packing;

    template <int> __device__ __forceinline__ pack_vector vector_of(int64_t number) const
    {
        int tap_column;
        pack_vector vector = vector_and_column_of(number, &tap_column);
        vector.from += tap_column * strides.w;
        return vector;
    }
    __device__ __forceinline__ pack_vector vector_and_column_of(int64_t number, int *tap_column) const
    {
        const int core_rows = 2 * layer.mma_steps;                         /* of a B row's big part of a K-block */
        const int64_t schedule_unit = (int64_t)layer.k_blocks * core_rows; /* vectors of a B row of a schedule */
        const int64_t cell = number / (layer.b_rows * schedule_unit);
        int64_t rest = number - cell * (layer.b_rows * schedule_unit);
        int p = layer.schedule_count - 1;
        while (rest < layer.schedules[p].first_b_row * schedule_unit)
            p--;
        const tap_schedule &schedule = layer.schedules[p];
        rest -= schedule.first_b_row * schedule_unit;
        int in_tile = take_index(rest, schedule.b_rows * core_rows), t = schedule.end_weight_tile - 1;
        while (in_tile < layer.weight_tiles[t].first_b_row * core_rows)
            t--;
        const weight_tile tile = layer.weight_tiles[t];
        in_tile -= tile.first_b_row * core_rows;
        const int core_row = in_tile / tile.b_rows, b_row = in_tile % tile.b_rows;
        const auto tap = packing.taps[packing.first_tap[t] + (b_row >> layer.cell_channels_log2)];
        pack_vector vector;
        vector.at = planes * (number - in_tile) + (core_row / 2 * planes * 2 + core_row % 2) * tile.b_rows + b_row;
        vector.plane_step = 2 * tile.b_rows;
        vector.from = cell / layer.channel_tiles * packing.group_step + tap.row * strides.h;
        *tap_column = tap.column;
        vector.in = (int)rest * layer.block_k + core_row * 4;
        vector.out = (int)(cell % layer.channel_tiles) * layer.cell_channels + (b_row & (layer.cell_channels - 1));
        vector.odd_in = 1;
        vector.odd_out = 0;
        vector.upper_in = 2;
        return vector;
    }
};

/* Packs weights of 16 bits, a pair of columns of four channels to a vector. */
__global__ void __launch_bounds__(PACK_THREADS)
    pack_words(const __grid_constant__ order order, const void *__restrict__ weights, void *packed)
{
    constexpr int ELEMENTS = 8;
    launch_dependents();
    for (int64_t number = (int64_t)blockIdx.x * PACK_THREADS + threadIdx.x; number < order.vectors;
         number += (int64_t)gridDim.x * PACK_THREADS) {
        int tap_column;
        const pack_vector vector = order.vector_and_column_of(number, &tap_column);
        const uint16_t *from = static_cast<const uint16_t *>(weights) + vector.from;
        element_vector<uint16_t, ELEMENTS> values;
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) {
            const int in = vector.in + i / 2, column = 2 * tap_column + order.packing.word_column + i % 2;
            const bool exists = in < order.group_in && vector.out < order.group_out &&
                                column >= order.packing.first_column && column < order.packing.end_column;
            values.at[i] =
                exists ? from[in * order.strides.in + vector.out * order.strides.out + column * order.strides.w] : 0;
        }
        static_cast<element_vector<uint16_t, ELEMENTS> *>(packed)[vector.at] = values;
    }
}

} // namespace

extern "C" tconv_status tconv_cells_pack(const parameters *layer, const packing *packing, numerics mode,
                                         const void *weights, void *packed, void *stream, tconv_issue *issue)
{
    const bool strict = numerics_split(mode);
    order order = {order_of(packing->strides, layer->group_in, layer->group_out, strict), *layer, *packing};
    order.vectors = packing->core_rows;
    if (numerics_bytes(mode) == 2)
        return launch_vectors(pack_words, order, weights, packed, stream, issue);
    return launch_vectors(strict ? pack_by_vectors<cells::order, uint32_t, 2>
                                 : pack_by_vectors<cells::order, uint32_t, 1>,
                          order, weights, packed, stream, issue);
}

} // namespace tconv::cells
