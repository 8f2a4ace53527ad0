/* What the roles of the wgmma kernel share: their numbers, the types of factors, where buffers and barriers lie, and which tile
 * a number is. */
#ifndef TCONV_CUDA_WGMMA_TILE_CUH
#define TCONV_CUDA_WGMMA_TILE_CUH

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/wgmma.cuh"
#include "parameters.h"

namespace tconv::wgmma
{

constexpr int WARP = 32, GROUP_WARPS = 4, CONSUMER_WARPS = TCONV_WGMMA_GROUPS * GROUP_WARPS;
constexpr int UNITS = TCONV_WGMMA_UNITS, CONVERTERS = 4;
constexpr int BOX_WARP = CONVERTERS, SLOT_WARP = CONVERTERS + 1, FIRST_STORE_WARP = CONVERTERS + 2;
constexpr int STAGED_ROWS = 16;                        /* of M, that a warp stages at once */
constexpr uint32_t PRODUCT_BYTES = TCONV_WGMMA_M * 32; /* one plane of the weights of one product */
constexpr uint32_t PRODUCT_ROWS = PRODUCT_BYTES / 16;

/* What differs among types of factors. Registers: of a thread that multiplies, of any other. Warps that store: for each
 * warpgroup that multiplies. */
struct tf32_mode {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr bool STRICT = false, TRANSPOSED = false; /* the latter: boxes are operands as they lie */
    static constexpr int PLANES = 1, CONSUMER_REGISTERS = 168, OTHER_REGISTERS = 48;
    static constexpr int THREADS = tconv_wgmma_threads(TCONV_WGMMA_TF32);
    static constexpr int STORE_WARPS = tconv_wgmma_store_warps(TCONV_WGMMA_TF32);
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true;
    static constexpr int PLANES = 2, CONSUMER_REGISTERS = 216, OTHER_REGISTERS = 40;
    static constexpr int THREADS = tconv_wgmma_threads(TCONV_WGMMA_STRICT);
    static constexpr int STORE_WARPS = tconv_wgmma_store_warps(TCONV_WGMMA_STRICT);
};
struct f16_mode : tf32_mode {
    using Element = __half;
    static constexpr wgmma_type TYPE = WGMMA_F16;
};
struct bf16_mode : tf32_mode {
    using Element = __nv_bfloat16;
    static constexpr wgmma_type TYPE = WGMMA_BF16;
};
struct f16_transposed_mode : f16_mode {
    static constexpr wgmma_type TYPE = WGMMA_F16_MN_MAJOR;
    static constexpr bool TRANSPOSED = true;
};
struct bf16_transposed_mode : bf16_mode {
    static constexpr wgmma_type TYPE = WGMMA_BF16_MN_MAJOR;
    static constexpr bool TRANSPOSED = true;
};

/* The barriers, and where the buffers begin. */
struct shared_layout {
    uint32_t stage_full, stage_empty, box_full, box_empty, slot_full, slot_empty, staged_full, staged_empty;
    uint32_t boxes, stages, slots;
    char *staged;
};

constexpr int TURNS = 2; /* in which a warp hands over its sums of a tile: see staging */
constexpr int BARRIERS = 6 * TCONV_WGMMA_STAGES + 2 * CONSUMER_WARPS * TURNS;

struct tile_place {
    int block, row, column, image; /* row and column: the first position */
    int group, channel;            /* of the layer; the first output channel of it */
};

__device__ __forceinline__ tile_place find_tile(const tconv_wgmma_parameters &layer, int number)
{
    tile_place tile;
    quotient left = divide(number, layer.by_blocks);
    tile.block = left.rest;
    const quotient of_group = divide(tile.block, layer.by_group_blocks);
    tile.group = of_group.whole;
    tile.channel = of_group.rest * layer.tile_channels;
    left = divide(left.whole, layer.by_column_tiles);
    tile.column = left.rest * layer.tile_columns;
    left = divide(left.whole, layer.by_row_tiles);
    tile.row = left.rest * layer.tile_rows;
    tile.image = left.whole;
    return tile;
}

/* The first column of src that a tile reads. */
__device__ __forceinline__ int first_column(const tconv_wgmma_parameters &layer, const tile_place &tile)
{
    return (tile.column << layer.fold_log2) + layer.first_column;
}

/* The first column of the box: rounded down, because the copy engine wants addresses that are multiples of 16 bytes. */
__device__ __forceinline__ int box_column(const tconv_wgmma_parameters &layer, const tile_place &tile)
{
    return first_column(layer, tile) & -layer.column_alignment;
}

/* The first column of what is converted. */
__device__ __forceinline__ int stage_column(const tconv_wgmma_parameters &layer, const tile_place &tile)
{
    return first_column(layer, tile) & -layer.stage_alignment;
}

} // namespace tconv::wgmma

#endif
