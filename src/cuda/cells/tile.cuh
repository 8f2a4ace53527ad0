/* The coordinates of the streaming kernel's tiles and positions, and its layout of shared memory. */
#ifndef TCONV_CUDA_CELLS_TILE_CUH
#define TCONV_CUDA_CELLS_TILE_CUH

#include "../gemm/pipeline.cuh"
#include "parameters.h"

namespace tconv::cells
{

constexpr int CONSUMER_WARPS = CONSUMER_WARPGROUPS * WARPGROUP_WARPS;
constexpr uint16_t ALL_BLOCKS = (1 << CLUSTER_BLOCKS) - 1; /* multicast mask */

/* Shared memory: both pipelines, and the address of the partial sums of segments. */
struct shared_layout {
    stage_ring pixels, weights;
    uint32_t partial_sums;
};

/* The outputs and positions of a tile. */
struct tile_coord {
    int channel;            /* first output channel, of the group */
    int schedule, group;    /* tap schedule, channel group */
    int image, row, column; /* the first position */
    bool exists;            /* else a copy of the last tile, because the cluster has none left for this block */
};

/* The tile scheduler of the streaming kernel: a cluster takes every tile_step()-th tile from first_tile() on. Its
 * blocks differ in their positions alone. */
__device__ __forceinline__ int first_tile()
{
    return (int)blockIdx.x / CLUSTER_BLOCKS;
}
__device__ __forceinline__ int tile_step()
{
    return (int)gridDim.x / CLUSTER_BLOCKS;
}
__device__ __forceinline__ int cluster_rank()
{
    return (int)blockIdx.x % CLUSTER_BLOCKS;
}

__device__ __forceinline__ tile_coord find_tile(const parameters &layer, int number)
{
    tile_coord tile;
    tile.channel = number % layer.channel_tiles * layer.cell_channels;
    number /= layer.channel_tiles;
    tile.schedule = number % layer.schedule_count;
    number /= layer.schedule_count;
    tile.group = number % layer.groups;
    number = number / layer.groups * CLUSTER_BLOCKS + cluster_rank();
    tile.exists = number < layer.m_tiles;
    number = min(number, layer.m_tiles - 1);
    tile.column = number % layer.column_tiles * layer.tile_columns;
    number /= layer.column_tiles;
    tile.row = number % layer.row_tiles * layer.tile_rows;
    tile.image = number / layer.row_tiles * layer.tile_images;
    return tile;
}

/* Returns the first column of a tile's stage: a TMA box must begin at a multiple of 16 bytes. */
__device__ __forceinline__ int stage_column(const parameters &layer, const tile_coord &tile)
{
    return (tile.column * layer.column_step + layer.first_column) & ~(COLUMN_ALIGNMENT - 1);
}

/* A position of a tile. */
struct position_coord {
    int image, row, column;
    bool exists;
};

__device__ __forceinline__ position_coord find_position(const parameters &layer, int number)
{
    position_coord position;
    position.column = number % layer.tile_columns;
    number /= layer.tile_columns;
    position.row = number % layer.tile_rows;
    position.image = number / layer.tile_rows;
    position.exists = position.image < layer.tile_images;
    return position;
}

/* Returns one of a thread's two positions, half 0 or 1. */
__device__ __forceinline__ int own_position(const parameters &layer, int warp, int lane, int half)
{
    return warp * WARP_M + warp_position(layer.neighbours, lane / 4, half);
}

} // namespace tconv::cells

#endif
