/* What a block computes when: the tile scheduler of the persistent kernel, the tap schedule of a K-block, and where the
 * positions of a tile are. */
#ifndef TCONV_CUDA_MMA_SCHEDULE_CUH
#define TCONV_CUDA_MMA_SCHEDULE_CUH

#include <cstdint>

#include "parameters.h"

namespace tconv::mma
{

/* The first image, row and column of a tile of positions. */
struct tile_origin {
    int image, row, column;
    int skew; /* columns before the first that is read: patches start at a multiple of a vector */
};

/* The tiles of a block of the persistent kernel, every gridDim.x-th for its weights, and their K-blocks, in order. */
struct tile_scheduler {
    const parameters &params;
    unsigned int number, step;
    int k_block;
    tile_origin tile;

    __device__ __forceinline__ explicit tile_scheduler(const parameters &params) : params(params), k_block(0)
    {
        const unsigned int blocks = (unsigned int)(params.groups * params.m_tiles * params.phase_sets);
        number = blockIdx.x / blocks;
        step = gridDim.x / blocks;
        find();
    }
    __device__ __forceinline__ bool exists() const
    {
        return number < params.n_tiles;
    }
    __device__ __forceinline__ void find()
    {
        const unsigned int rows = number / (unsigned int)params.column_tiles;
        const unsigned int images = rows / (unsigned int)params.row_tiles;
        tile.column = (int)(number - rows * (unsigned int)params.column_tiles) * params.tile_columns;
        tile.row = (int)(rows - images * (unsigned int)params.row_tiles) * params.tile_rows;
        tile.image = (int)images * params.tile_images;
        tile.skew = (tile.column + params.min_column_shift) & params.skew_mask;
    }
    __device__ __forceinline__ void next_k_block()
    {
        if (++k_block < params.k_blocks)
            return;
        k_block = 0;
        number += step;
        find();
    }
};

/* A position in its tile, packed: 12 bits of the image, 10 of the row, 10 of the column. */
constexpr uint32_t NO_POSITION = 0xffffffffu;

__device__ __forceinline__ int image_of(uint32_t position)
{
    return (int)(position >> 20);
}
__device__ __forceinline__ int row_of(uint32_t position)
{
    return (int)(position >> 10 & MAX_TILE_EXTENT);
}
__device__ __forceinline__ int column_of(uint32_t position)
{
    return (int)(position & MAX_TILE_EXTENT);
}

/* Writes the tap schedule, an entry for each step: where it reads the patch, in bytes, and in the upper 8 bits the
 * column phases that have a tap there; and the table of the tile's positions. By all threads of the block. */
__device__ __forceinline__ void make_tables(const parameters &params, uint32_t *shared)
{
    const int shift_steps = params.block_k_words / MMA_K_WORDS, bytes = params.patch_16bit ? 2 : 4;
    for (int i = (int)threadIdx.x; i < params.max_row_taps * params.steps; i += (int)blockDim.x) {
        const column_shift &column = params.columns[i % params.steps / shift_steps];
        const int row = (params.max_row_taps - 1 - i / params.steps) * params.row_shift_step;
        const int at = (row * params.patch_columns + column.shift) * params.pixel_pitch +
                       i % shift_steps * MMA_K_WORDS * params.word_pitch;
        shared[params.schedule_at + i] = (uint32_t)column.phases << 24 | (uint32_t)(at * bytes);
    }
    const unsigned int columns = (unsigned int)params.tile_columns, tile_rows = (unsigned int)params.tile_rows;
    const unsigned int positions = (unsigned int)params.tile_images * tile_rows * columns;
    for (unsigned int i = threadIdx.x; i < (unsigned int)params.block_n; i += blockDim.x) {
        const unsigned int rows = i / columns, images = rows / tile_rows;
        shared[params.positions_at + (int)i] =
            i < positions ? images << 20 | (rows - images * tile_rows) << 10 | (i - rows * columns) : NO_POSITION;
    }
}

} // namespace tconv::mma

#endif
