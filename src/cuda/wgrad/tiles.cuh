/* Tiles of sums (tiles.h) as kernels find them. */
#ifndef TCONV_CUDA_WGRAD_TILES_CUH
#define TCONV_CUDA_WGRAD_TILES_CUH

#include "../numeric/divisor.cuh"
#include "parameters.h"
#include "tiles.h"

namespace tconv::wgrad
{

/* Returns the kernel index at a place in the order. */
static __device__ __forceinline__ int tap_at(const wgrad_tap_order &order, int place)
{
    const int floor = order.kernel / order.kernel_step, longer = order.kernel % order.kernel_step;
    const int rest = place - longer * (floor + 1); /* behind the residues with one tap more */
    const int residue = rest < 0 ? place / (floor + 1) : longer + rest / floor;
    return residue + (rest < 0 ? place % (floor + 1) : rest % floor) * order.kernel_step;
}

struct tile_at {
    int64_t group, m_tile, chunk;
    int row_group, column_group;
};

/* Return the place of kernel index k in the order, and the kernel index at a place, by divisors that the host has made. */
static __device__ __forceinline__ int place_of(const tap_divisors &by, int k)
{
    const quotient of_step = divide(k, by.step);
    return of_step.rest * by.whole + min(of_step.rest, by.longer) + of_step.whole;
}
static __device__ __forceinline__ int tap_at(const tap_divisors &by, int place)
{
    const int rest = place - by.longer * (by.whole + 1);
    const quotient at = rest < 0 ? divide(place, by.more_taps) : divide(rest, by.whole_taps);
    return (rest < 0 ? at.whole : by.longer + at.whole) + at.rest * by.step.divisor;
}

/* Returns where the tile of a number lies. Number: a type that holds the number of tiles. */
template <class Number> __device__ __forceinline__ tile_at find_tile(const sum_tiles &tiles, Number number)
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
    number /= m_tiles;
    found.group = tiles.planes > 1 ? number % (Number)tiles.groups : number;
    return found;
}

static __device__ __forceinline__ tile_at find_tile(const block_divisors &by, int number)
{
    const quotient columns = divide(number, by.column_groups), rows = divide(columns.whole, by.row_groups);
    const quotient chunks = divide(rows.whole, by.chunks), m_tiles = divide(chunks.whole, by.m_tiles);
    return {divide(m_tiles.whole, by.groups).rest, m_tiles.rest, chunks.rest, rows.rest, columns.rest};
}

/* Returns the kernel plane of the tile of a number. */
static __device__ __forceinline__ int plane_of_tile(const sum_tiles &tiles, uint32_t number)
{
    return tiles.planes == 1 ? 0 : (int)(number / ((uint32_t)tiles.count / (uint32_t)tiles.planes));
}

} // namespace tconv::wgrad

#endif
