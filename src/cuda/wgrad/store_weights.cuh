/*
 * A block that has all terms of its sums rounds them and writes them to the gradient of the weights, instead of to a
 * slice. The weights of an input channel are neighbours in memory, in the order of the layer's strides. So the block
 * transposes the sums in the shared memory of the stages, which are no longer in use.
 */
#ifndef TCONV_CUDA_WGRAD_STORE_WEIGHTS_CUH
#define TCONV_CUDA_WGRAD_STORE_WEIGHTS_CUH

#include "../epilogue/finish.cuh"
#include "load.cuh"

namespace tconv::wgrad
{

/* Returns the number of a pair of the block in the order of the weights, in which output channels run fastest, or
 * taps. */
static __device__ __forceinline__ int weight_number(const parameters &p, int pair)
{
    const int columns = p.tiles.columns.group_taps, taps = p.tiles.rows.group_taps * columns;
    const quotient tap = divide(pair, p.by.chunk), at = divide(tap.whole, p.by.column_taps);
    if (p.weights.outputs_inner || tap.whole >= taps)
        return pair;
    return tap.rest * taps + (p.tiles.rows.groups == 1 ? tap_at(p.by.rows, at.whole) : at.whole) * columns +
           (p.tiles.columns.groups == 1 ? tap_at(p.by.columns, at.rest) : at.rest);
}

/* Returns the place of a sum among the sums of an input channel. Each 32 places are followed by a gap, because lanes
 * have sums that are 32 places apart. */
__device__ __forceinline__ int skewed(int number)
{
    return number + number / WARP;
}

/* Returns the distance from the weight of the chunk's first channel to the weight with a number (weight_number); -1:
 * there is no such weight. */
static __device__ __forceinline__ int64_t weight_place(const parameters &p, const tile_at &tile, int number)
{
    const int chunk = (int)p.tiles.chunk, columns = p.tiles.columns.group_taps,
              taps = p.tiles.rows.group_taps * columns;
    const bool inner = p.weights.outputs_inner;
    const quotient of_inner = divide(number, inner ? p.by.chunk : p.by.taps);
    const int tap = inner ? of_inner.whole : of_inner.rest, channel = inner ? of_inner.rest : of_inner.whole;
    if (number >= taps * chunk || channel >= p.tiles.group_out - tile.chunk * p.tiles.chunk)
        return -1;
    const quotient of_tap = divide(tap, p.by.column_taps);
    int row = of_tap.whole, column = of_tap.rest;
    if (inner || p.tiles.rows.groups > 1) {
        row += tile.row_group * p.tiles.rows.group_taps;
        row = row < p.tiles.rows.kernel ? tap_at(p.by.rows, row) : p.tiles.rows.kernel;
    }
    if (inner || p.tiles.columns.groups > 1) {
        column += tile.column_group * columns;
        column = column < p.tiles.columns.kernel ? tap_at(p.by.columns, column) : p.tiles.columns.kernel;
    }
    if (row >= p.tiles.rows.kernel || column >= p.tiles.columns.kernel)
        return -1;
    return channel * p.weights.strides.out + row * p.weights.strides.h + column * p.weights.strides.w;
}

constexpr int WEIGHT_ROW = 128; /* pairs that threads write side by side; the pairs of a tile are a multiple */

/* Tables in shared memory behind the sums of a block's tile. The block finds each entry once: it takes longer to find
 * an entry than to write a weight. */
struct weight_tables {
    int *sums;        /* by pair: the place of its sum among the sums of an input channel */
    int64_t *weights; /* by number of a weight: its offset in the gradient; -1: there is none */
    int *channels;    /* one number: the input channels of the tile that exist */

    __device__ __forceinline__ weight_tables(const parameters &p, float *stages)
        : sums((int *)(stages + p.tiles.block_m * p.weights.pitch)), weights((int64_t *)(sums + p.tiles.block_n)),
          channels((int *)(weights + p.tiles.block_n))
    {
    }
};

/* Fills the tables of a block that writes weights. threads: the consumers. */
template <int threads> __device__ __forceinline__ const int *make_weight_tables(const parameters &p, float *stages)
{
    const weight_tables tables(p, stages);
    uint32_t number = find_work(p).number;
    asm volatile("" : "+r"(number)); /* or the block's tile is kept in registers through the main loop */
    const tile_at tile = find_tile(p.by, (int)number);
    const int64_t channel = tile.m_tile * p.tiles.block_m,
                  first = (tile.group * p.tiles.group_in + channel) * p.weights.strides.in +
                          tile.chunk * p.tiles.chunk * p.weights.strides.out +
                          plane_of_tile(p.tiles, number) * p.weights.strides.d;
    named_barrier_sync<threads>();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < p.tiles.block_n; i += threads) {
        const int64_t place = weight_place(p, tile, i);
        tables.sums[i] = skewed(weight_number(p, i));
        tables.weights[i] = place < 0 ? -1 : first + place;
    }
    if (threadIdx.x == 0)
        *tables.channels = (int)min(p.tiles.group_in - channel, (int64_t)p.tiles.block_m);
    named_barrier_sync<threads>();
    return tables.sums;
}

/* Stores the sums of 64 pairs by N channels to the sums of the block's tile. first, second: the places of the lane's
 * pairs. */
template <int N>
__device__ __forceinline__ void place_pairs(const parameters &p, const float (&sums)[N / 2], const float *stages,
                                            int first, int second, int lane)
{
    const uint32_t pitch = p.weights.pitch * (uint32_t)sizeof(float);
    uint32_t to = shared_address(stages) + lane % 4 * 2 * pitch;
#pragma unroll
    for (int i = 0; i < N / 2; i += 4) {
        asm volatile("" : "+r"(to)); /* addresses are computed here: there are no registers for more */
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float sum = sums[i + j];
            asm volatile("" : "+f"(sum)); /* not before products have been waited for: they would be one by one */
            store_shared(to + j % 2 * pitch + (j / 2 == 0 ? first : second) * (uint32_t)sizeof(float), sum);
        }
        to += 8 * pitch;
    }
}

/* Writes the weights of a block's tile, whose sums are in shared memory channel by channel. */
template <class Element, int threads> __device__ __forceinline__ void write_weights(const parameters &p, float *stages)
{
    const weight_tables tables(p, stages);
    const int first_channel = (int)threadIdx.x / WEIGHT_ROW, step = threads / WEIGHT_ROW;
    named_barrier_sync<threads>();
    const int channels = *tables.channels;
    for (int i = (int)threadIdx.x % WEIGHT_ROW; i < p.tiles.block_n; i += WEIGHT_ROW) {
        const int64_t place = tables.weights[i];
        if (place < 0)
            continue;
        Element *to = static_cast<Element *>(p.weights.at) + place + first_channel * p.weights.strides.in;
        const float *from = stages + skewed(i) + first_channel * p.weights.pitch;
        const auto write = [&](auto rounded) {
#pragma unroll 8
            for (int c = first_channel; c < channels; c += step) {
                *to = rounded(*from);
                to += step * p.weights.strides.in;
                from += step * p.weights.pitch;
            }
        };
        if (p.weights.accumulates)
            write([&](float sum) { return finish_total<Element>((double)sum + static_cast<double>(*to)); });
        else
            write([](float sum) { return finish_total<Element>(sum); });
    }
}

/* Writes the weights of a block that has all terms of its tile. for_sums calls its argument with the sums of 64 pairs
 * by N channels, the numbers of the lane's two pairs and the first channel, where it is not that of the tile. */
template <class Element, int N, int threads, class ForSums>
__device__ __forceinline__ void write_tile(const parameters &p, float *stages, int lane, const ForSums &for_sums)
{
    const int *places = make_weight_tables<threads>(p, stages);
    for_sums([&](auto &of, int first, int second, int channel = 0) {
        place_pairs<N>(p, of, stages + channel * p.weights.pitch, places[first], places[second], lane);
    });
    write_weights<Element, threads>(p, stages);
}

} // namespace tconv::wgrad

#endif
