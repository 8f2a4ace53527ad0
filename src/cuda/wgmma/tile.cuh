/* This is what the roles of the kernel share: which warps they are, what differs among types of factors, where pipeline
 * stages and barriers lie in shared memory, and which tile a number is. */
#ifndef TCONV_CUDA_WGMMA_TILE_CUH
#define TCONV_CUDA_WGMMA_TILE_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.cuh"
#include "../numeric/element.cuh"
#include "parameters.h"

namespace tconv::wgmma
{

constexpr int CONSUMER_WARPS = WARPGROUPS * WARPGROUP_WARPS;

/* The roles of the other warps, numbered from the first that is no consumer. */
constexpr int TRANSPOSE_WARPS = 4;
constexpr int SRC_WARP = TRANSPOSE_WARPS;
constexpr int WEIGHTS_WARP = SRC_WARP + 1;

constexpr uint32_t MMA_A_ROWS = MMA_A_BYTES / CORE_ROW_BYTES;

struct tf32_mode {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr bool STRICT = false;
    static constexpr bool MN_MAJOR = false;        /* whether planes of src are the B operand as they lie */
    static constexpr int PLANES = 1;               /* of a factor: 2 where it is split */
    static constexpr int CONSUMER_REGISTERS = 168; /* of a thread */
    static constexpr int TRANSPOSE_REGISTERS = 48;
    static constexpr int LOAD_REGISTERS = 32;
    static constexpr int EPILOGUE_REGISTERS = 64;
    static constexpr int FIRST_EPILOGUE_WARP = 2 * WARPGROUP_WARPS; /* in a warpgroup of its own, for its registers */
    static constexpr int THREADS = threads_of(NUMERICS_TF32);
    static constexpr int EPILOGUE_WARPS = epilogue_warps_of(NUMERICS_TF32); /* for each warpgroup */
    static constexpr int STAGED_POST_CHANNELS = 8; /* that post-ops are run on at once, as registers allow */
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true;
    static constexpr int PLANES = 2;
    static constexpr int CONSUMER_REGISTERS = 216;
    static constexpr int TRANSPOSE_REGISTERS = 40;
    static constexpr int LOAD_REGISTERS = 40;
    static constexpr int EPILOGUE_REGISTERS = 40;
    static constexpr int FIRST_EPILOGUE_WARP = WEIGHTS_WARP + 1;
    static constexpr int THREADS = threads_of(NUMERICS_STRICT);
    static constexpr int EPILOGUE_WARPS = epilogue_warps_of(NUMERICS_STRICT);
    static constexpr int STAGED_POST_CHANNELS = 4;
};
struct f16_mode : tf32_mode {
    using Element = __half;
    static constexpr wgmma_type TYPE = WGMMA_F16;
};
struct bf16_mode : tf32_mode {
    using Element = __nv_bfloat16;
    static constexpr wgmma_type TYPE = WGMMA_BF16;
};
struct f16_mn_major_mode : f16_mode {
    static constexpr wgmma_type TYPE = WGMMA_F16_MN_MAJOR;
    static constexpr bool MN_MAJOR = true;
};
struct bf16_mn_major_mode : bf16_mode {
    static constexpr wgmma_type TYPE = WGMMA_BF16_MN_MAJOR;
    static constexpr bool MN_MAJOR = true;
};

constexpr int SUBTILES = 2; /* parts in which a warp stages its part of a tile: see staging */

/* The pipelines in shared memory, and staging. */
struct shared_layout {
    stage_ring raw, a, b;
    uint32_t staged_full, staged_empty, staged;
};
constexpr int BARRIERS = 3 * STAGE_BARRIERS + 2 * CONSUMER_WARPS * SUBTILES;

struct tile_place {
    int m_block, row, column, image; /* row and column: the first position */
    int group;                       /* of channels */
    int channel;                     /* the first output channel, of its group */
};

__device__ __forceinline__ tile_place find_tile(const parameters &params, int number)
{
    tile_place tile;
    quotient left = divide(number, params.by_m_blocks);
    tile.m_block = left.rest;
    const quotient of_group = divide(tile.m_block, params.by_group_m_blocks);
    tile.group = of_group.whole;
    tile.channel = of_group.rest * params.tile_channels;
    left = divide(left.whole, params.by_column_tiles);
    tile.column = left.rest * params.tile_columns;
    left = divide(left.whole, params.by_row_tiles);
    tile.row = left.rest * params.tile_rows;
    tile.image = left.whole;
    return tile;
}

/* Returns the output channel, in its group, of row lane / 4 (0) or lane / 4 + 8 (1) of the 16 rows of M that a warp
 * has. */
__device__ __forceinline__ int accumulator_channel(const parameters &params, const tile_place &tile, int warpgroup,
                                                   int warp, int lane, int row)
{
    const int m = params.space_to_depth_log2 == 1 ? warp * SPACE_TO_DEPTH_CHANNELS + lane / 4
                                                  : warp * WARP_M + lane / 4 + 8 * row;
    return tile.channel + warpgroup * params.warpgroup_channels + (m & (params.mma_tile_channels - 1)); /* 32 or 64 */
}

/* Returns the first column of src that a tile reads. */
__device__ __forceinline__ int first_column(const parameters &params, const tile_place &tile)
{
    return (tile.column << params.space_to_depth_log2) + params.first_column;
}

/* Returns the first column of the box: rounded down, because TMA wants addresses that are multiples of 16 bytes. */
__device__ __forceinline__ int box_column(const parameters &params, const tile_place &tile)
{
    return first_column(params, tile) & -params.column_alignment;
}

/* Returns the first column of a B stage. */
__device__ __forceinline__ int stage_column(const parameters &params, const tile_place &tile)
{
    return first_column(params, tile) & -params.stage_alignment;
}

/* The image and the channel of it that a K-block begins with. */
struct plane_place {
    int image, channel;
    __device__ __forceinline__ plane_place(const parameters &params, const tile_place &tile, int first_channel)
    {
        const quotient plane = divide(first_channel, params.by_plane_channels);
        image = tile.image + params.first_plane + plane.whole * params.plane_step;
        channel = plane.rest;
    }
};

} // namespace tconv::wgmma

#endif
