/* Tiles of sums (tiles.h) as kernels find them. */
#ifndef TCONV_CUDA_WGRAD_TILES_CUH
#define TCONV_CUDA_WGRAD_TILES_CUH

#include "tiles.h"

namespace tconv::wgrad
{

/* Returns the place of kernel index k in the order. */
static __device__ __forceinline__ int place_of(const wgrad_tap_order &order, int k)
{
    const int residue = k % order.kernel_step, longer = order.kernel % order.kernel_step;
    return residue * (order.kernel / order.kernel_step) + (residue < longer ? residue : longer) + k / order.kernel_step;
}

/* Returns the kernel index at a place in the order: the inverse. */
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

/* Returns the kernel plane of the tile of a number. */
static __device__ __forceinline__ int plane_of_tile(const sum_tiles &tiles, uint32_t number)
{
    return (int)(number / ((uint32_t)tiles.count / (uint32_t)tiles.planes));
}

} // namespace tconv::wgrad

#endif
