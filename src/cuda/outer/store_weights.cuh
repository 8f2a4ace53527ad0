/*
 * Where a block has all terms of its sums, it rounds them and writes them to the gradient of weights itself, instead of a slice.
 * Weights of an input channel lie beside each other, as the layer's strides have them: the sums change places in the memory
 * of the stages, of which none is under way any more.
 */
#ifndef TCONV_CUDA_OUTER_STORE_WEIGHTS_CUH
#define TCONV_CUDA_OUTER_STORE_WEIGHTS_CUH

#include "load.cuh"

namespace tconv::outer
{

/* The number of a pair of the block, in the order of weights: output channels or taps inside. */
static __device__ __forceinline__ int weight_number(const parameters &p, int pair)
{
    const int chunk = (int)p.tiles.chunk, columns = p.tiles.columns.group_taps,
              taps = p.tiles.rows.group_taps * columns;
    const int tap = pair / chunk, channel = pair % chunk;
    if (p.weights.outputs_inner || tap >= taps)
        return pair;
    const int row = tap / columns, column = tap % columns;
    return channel * taps + (p.tiles.rows.groups == 1 ? tap_at(p.tiles.rows, row) : row) * columns +
           (p.tiles.columns.groups == 1 ? tap_at(p.tiles.columns, column) : column);
}

/* Where a sum lies among those of an input channel: runs of banks are skewed, since lanes have neighbours a run apart. */
__device__ __forceinline__ int skewed(int number)
{
    return number + number / LANES;
}

/* Where the weight with a number lies, from that of the chunk's first channel; -1: there is none. */
static __device__ __forceinline__ int64_t weight_place(const parameters &p, const tile_at &tile, int number)
{
    const int chunk = (int)p.tiles.chunk, columns = p.tiles.columns.group_taps,
              taps = p.tiles.rows.group_taps * columns;
    const bool inner = p.weights.outputs_inner;
    const int tap = inner ? number / chunk : number % taps, channel = inner ? number % chunk : number / taps;
    if (number >= taps * chunk || channel >= p.tiles.group_out - tile.chunk * p.tiles.chunk)
        return -1;
    int row = tap / columns, column = tap % columns;
    if (inner || p.tiles.rows.groups > 1) {
        row += tile.row_group * p.tiles.rows.group_taps;
        row = row < p.tiles.rows.kernel ? tap_at(p.tiles.rows, row) : p.tiles.rows.kernel;
    }
    if (inner || p.tiles.columns.groups > 1) {
        column += tile.column_group * columns;
        column = column < p.tiles.columns.kernel ? tap_at(p.tiles.columns, column) : p.tiles.columns.kernel;
    }
    if (row >= p.tiles.rows.kernel || column >= p.tiles.columns.kernel)
        return -1;
    return channel * p.weights.strides.out + row * p.weights.strides.h + column * p.weights.strides.w;
}

constexpr int WEIGHT_ROW = 128; /* pairs that threads have side by side: tiles have multiples of it */

/* Writes the weights of a block's tile, whose sums lie channel by channel, in whole warps. */
template <class Element> __device__ __forceinline__ void write_weights(const parameters &p, crew by, const float *sums)
{
    int64_t number = find_work(p).number;
    asm volatile("" : "+l"(number)); /* or the block's tile is kept in registers through the main loop */
    const tile_at tile = find_tile(p.tiles, number);
    const int64_t first = tile.m_tile * p.tiles.block_m, input = tile.group * p.tiles.group_in + first;
    const int channels = (int)min(p.tiles.group_in - first, (int64_t)p.tiles.block_m);
    const int first_channel = by.thread / WEIGHT_ROW, step = by.threads / WEIGHT_ROW;
    for (int i = by.thread % WEIGHT_ROW; i < p.tiles.block_n; i += WEIGHT_ROW) {
        const int64_t place = weight_place(p, tile, i);
        if (place < 0)
            continue;
        Element *to = static_cast<Element *>(p.weights.at) + (input + first_channel) * p.weights.strides.in +
                      tile.chunk * p.tiles.chunk * p.weights.strides.out + place;
        const float *from = sums + skewed(i) + first_channel * p.weights.pitch;
        const auto write = [&](auto rounded) {
#pragma unroll 8
            for (int c = first_channel; c < channels; c += step) {
                *to = rounded(*from);
                to += step * p.weights.strides.in;
                from += step * p.weights.pitch;
            }
        };
        if (p.weights.accumulates)
            write([&](float sum) { return static_cast<Element>((double)sum + static_cast<double>(*to)); });
        else
            write([](float sum) { return static_cast<Element>(sum); });
    }
}

} // namespace tconv::outer

#endif
