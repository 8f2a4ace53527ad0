/*
 * How the sums of a gradient of weights lie in memory before they are added up. Each kernel that computes them cuts the
 * terms, which are pixels, into parts, and writes the sums of a part to a slice of its own: tile by tile, each a matrix of
 * input channels by (tap, output channel). Then sums.cu adds the slices, in order.
 */
#ifndef TCONV_CUDA_WGRAD_TILES_H
#define TCONV_CUDA_WGRAD_TILES_H

#include <cstdint>

#include "../../core/problem.h"

#ifdef __CUDACC__
#define TCONV_BOTH __host__ __device__ __forceinline__
#else
#define TCONV_BOTH inline
#endif

namespace tconv::wgrad
{

/* The taps of an axis in the order in which tiles have them: those that reach the same residue of the outputs one after
 * another (core/phases.h: they are kernel_step apart), in groups. */
struct tap_order {
    int kernel;
    int kernel_step;
    int group_taps; /* of a group; the last may have fewer */
    int groups;
};

/* Returns the place of kernel index k in the order. */
TCONV_BOTH int place_of(const tap_order &order, int k)
{
    const int residue = k % order.kernel_step, longer = order.kernel % order.kernel_step;
    return residue * (order.kernel / order.kernel_step) + (residue < longer ? residue : longer) + k / order.kernel_step;
}

/* Returns the kernel index at a place in the order: the inverse. */
TCONV_BOTH int tap_at(const tap_order &order, int place)
{
    const int floor = order.kernel / order.kernel_step, longer = order.kernel % order.kernel_step;
    const int rest = place - longer * (floor + 1); /* behind the residues with one tap more */
    const int residue = rest < 0 ? place / (floor + 1) : longer + rest / floor;
    return residue + (rest < 0 ? place % (floor + 1) : rest % floor) * order.kernel_step;
}

/* A tile has block_m input channels of a group, and block_n pairs of a tap and an output channel, which runs fastest: the
 * taps of a group of rows and of columns, and a chunk of the output channels. */
struct sum_tiles {
    int64_t groups, group_in, group_out; /* of the layer */
    tap_order rows, columns;
    int block_m;
    int64_t block_n;
    int64_t chunk; /* output channels of a chunk, those included that are padding */
    int64_t m_tiles, chunks;
    int64_t count; /* tiles of a slice */
};

struct tile_at {
    int64_t group, m_tile, chunk;
    int row_group, column_group;
};

/* Number: a type that holds the number of tiles. */
template <class Number> TCONV_BOTH tile_at find_tile(const sum_tiles &tiles, Number number)
{
    const Number columns = (Number)tiles.columns.groups, rows = (Number)tiles.rows.groups;
    const Number chunks = (Number)tiles.chunks, m_tiles = (Number)tiles.m_tiles;
    tile_at found;
    found.column_group = (int)(number % columns);
    number /= columns;
    found.row_group = (int)(number % rows);
    number /= rows;
    found.chunk = number % chunks;
    number /= chunks;
    found.m_tile = number % m_tiles;
    found.group = number / m_tiles;
    return found;
}

/* The tiles of a kernel that has all pairs of a tap and an output channel, in the kernel's order, for block_m input channels
 * of a group. */
inline sum_tiles tiles_of_all_pairs(const tconv_problem *problem, int block_m)
{
    const int rows = (int)problem->h.kernel, columns = (int)problem->w.kernel;
    sum_tiles tiles = {};
    tiles.groups = problem->groups;
    tiles.group_in = problem->group_in;
    tiles.group_out = tiles.chunk = problem->group_out;
    tiles.rows = {rows, 1, rows, 1};
    tiles.columns = {columns, 1, columns, 1};
    tiles.block_m = block_m;
    tiles.block_n = problem->group_out * problem->h.kernel * problem->w.kernel;
    tiles.chunks = 1;
    tiles.m_tiles = (problem->group_in - 1) / block_m + 1;
    tiles.count = tiles.groups * tiles.m_tiles;
    return tiles;
}

inline int64_t slice_sums(const sum_tiles &tiles)
{
    return tiles.count * tiles.block_m * tiles.block_n;
}

} // namespace tconv::wgrad

#endif
