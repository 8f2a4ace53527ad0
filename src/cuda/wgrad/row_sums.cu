/* Adds the slices of a gradient of many weights: a block has a run of rows of a tile, each of all pairs of a tap and an
 * output channel with an input channel, which lie side by side in a slice. Those of an input channel are neighbours
 * among the weights as well, if in another order: the sums change places in shared memory. Where slices are many,
 * threads of their own add parts of them, which are added in order. */
#include "row_sums.h"

#include "../epilogue/finish.cuh"
#include "../numeric/divisor.cuh"
#include "../ptx/dependent_launch.cuh"
#include "bias_parts.cuh"
#include "tiles.cuh"

namespace tconv::wgrad
{

namespace
{

constexpr int THREADS = ROW_SUMS_THREADS, MOST_PAIRS = ROW_SUMS_COLUMNS, MOST_TAPS = ROW_SUMS_TAPS;
constexpr int LOADS = 2; /* sums of a thread at once */

template <class Element, class Sum>
__global__ void __launch_bounds__(THREADS)
    add_rows_kernel(const __grid_constant__ row_sums_parameters p, const Sum *slices, Element *weights)
{
    __shared__ double sums[MOST_PAIRS + MOST_PAIRS / 2];
    __shared__ int64_t taps[MOST_TAPS]; /* where a tap's weights lie; -1: there is none */
    const sum_tiles &tiles = p.tiles;
    const int all_taps = p.by_taps.divisor, pitch = all_taps | 1, row_sums = p.by_chunk.divisor * pitch;
    const int count = p.by_sums.divisor, part_sums = p.rows * row_sums;
    launch_dependents();
    int64_t run = blockIdx.x;
#pragma unroll 1
    for (; run < p.runs; run += gridDim.x) {
        const uint32_t first = (uint32_t)run * p.rows; /* row of all tiles, see tconv_wgrad_adds_rows */
        const tile_at at = find_tile(tiles, first / tiles.block_m);
        const int64_t channel = at.m_tile * tiles.block_m + first % tiles.block_m, out = at.chunk * tiles.chunk;
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < all_taps; i += THREADS) {
            const int y = at.row_group * tiles.rows.group_taps + i / tiles.columns.group_taps;
            const int x = at.column_group * tiles.columns.group_taps + i % tiles.columns.group_taps;
            taps[i] = y < tiles.rows.kernel && x < tiles.columns.kernel
                          ? tap_at(tiles.rows, y) * p.strides.h + tap_at(tiles.columns, x) * p.strides.w
                          : -1;
        }
        wait_for_kernel_ahead();
#pragma unroll 1
        for (int begin = (int)threadIdx.x; begin < count * p.parts; begin += LOADS * THREADS) {
            const Sum *from[LOADS];
            int to[LOADS], left[LOADS]; /* slices */
            double sum[LOADS] = {};
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                const quotient part = divide(min(begin + j * THREADS, count * p.parts - 1), p.by_sums);
                const quotient row = divide(part.rest, p.by_pairs);
                const quotient tap = divide(row.rest, p.by_chunk);
                const int slice = part.whole * p.part_slices;
                from[j] = slices + slice * p.slice_sums + (int64_t)(first + row.whole) * tiles.block_n + row.rest;
                to[j] = part.whole * part_sums + row.whole * row_sums + tap.rest * pitch + tap.whole;
                left[j] = (int)p.slices - slice;
            }
#pragma unroll 4
            for (int s = 0; s < p.part_slices; s++)
#pragma unroll
                for (int j = 0; j < LOADS; j++)
                    sum[j] += s < left[j] ? (double)from[j][s * p.slice_sums] : 0;
#pragma unroll
            for (int j = 0; j < LOADS; j++)
                sums[to[j]] = sum[j];
        }
        __syncthreads();
        Element *to = weights + (at.group * tiles.group_in + channel) * p.strides.in + out * p.strides.out +
                      plane_of_tile(tiles, first / tiles.block_m) * p.strides.d;
        const int outputs = (int)min(tiles.group_out - out, tiles.chunk);
        const int inputs = (int)min(tiles.group_in - channel, (int64_t)p.rows);
#pragma unroll 2
        for (int i = (int)threadIdx.x; i < count; i += THREADS) {
            const quotient row = divide(i, p.by_pairs);
            const quotient by = divide(row.rest, p.outputs_inner ? p.by_chunk : p.by_taps);
            const int tap = p.outputs_inner ? by.whole : by.rest, output = p.outputs_inner ? by.rest : by.whole;
            if (row.whole >= inputs || output >= outputs || taps[tap] < 0)
                continue;
            Element *weight = to + row.whole * p.strides.in + output * p.strides.out + taps[tap];
            const double *from = sums + row.whole * row_sums + output * pitch + tap;
            double sum = *from;
#pragma unroll 1
            for (int part = 1; part < p.parts; part++)
                sum += from[part * part_sums];
            *weight = finish_total<Element>(sum + (p.accumulates ? static_cast<double>(*weight) : 0));
        }
        __syncthreads();
    }
    wait_for_kernel_ahead();
#pragma unroll 1
    for (int64_t block = run - p.runs; block < p.bias.blocks; block += gridDim.x)
        add_bias_parts<Element>(p.bias, block);
}

} // namespace

const void *tconv_wgrad_row_sums_kernel(tconv_dtype dtype, bool are_double)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        return are_double ? (const void *)add_rows_kernel<Element, double>
                          : (const void *)add_rows_kernel<Element, float>;
    });
}

} // namespace tconv::wgrad
