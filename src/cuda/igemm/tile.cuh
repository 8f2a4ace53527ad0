/* What the roles of the implicit matrix product share: their numbers, the types of factors, where buffers and barriers lie, and
 * which tile a number is. */
#ifndef TCONV_CUDA_IGEMM_TILE_CUH
#define TCONV_CUDA_IGEMM_TILE_CUH

#include "../numeric/divisor.h"
#include "../numeric/element.cuh"
#include "../ptx/wgmma.cuh"
#include "parameters.h"

namespace tconv::igemm
{

constexpr int WARP = 32, GROUP_WARPS = 4, CONSUMER_WARPS = TCONV_IGEMM_GROUPS * GROUP_WARPS;
constexpr int LOADERS = 4;
constexpr int BOX_WARP = LOADERS, SLOT_WARP = LOADERS + 1, FIRST_ADDRESS_WARP = LOADERS + 2, ADDRESS_WARPS = 2;
constexpr int GROUP_STORERS = LOADERS / TCONV_IGEMM_GROUPS; /* of the loaders, where these have nothing to load */
constexpr int TABLES = 3; /* of outputs, and records, at most: one is stored, one multiplied, one made */
constexpr uint32_t PRODUCT_BYTES = TCONV_IGEMM_M * TCONV_IGEMM_STEP; /* one plane of the weights of one product */
constexpr uint32_t PRODUCT_HALF = TCONV_IGEMM_M * TCONV_IGEMM_QUAD;  /* of it, of one quad */

/* What differs among types of factors. Units: of a warpgroup; in strict f32 registers hold a unit's partial sums as well.
 * Registers: of a thread that multiplies, of any other. */
struct tf32_mode {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr bool STRICT = false, COMPENSATED = false;
    static constexpr bool SPLITS = false; /* boxes of src, by the loading warps; TF32 the copy engine rounds */
    static constexpr int UNITS = 2, PLANES = 1, CONSUMER_REGISTERS = 176, OTHER_REGISTERS = 80;
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true, SPLITS = true;
    static constexpr int UNITS = 1, PLANES = 2, CONSUMER_REGISTERS = 200, OTHER_REGISTERS = 56;
};
struct strict_long_mode : strict_mode {
    static constexpr bool COMPENSATED = true;
};
struct f16_mode : tf32_mode {
    using Element = __half;
    static constexpr wgmma_type TYPE = WGMMA_F16;
    static constexpr int CONSUMER_REGISTERS = 184, OTHER_REGISTERS = 72;
};
struct bf16_mode : f16_mode {
    using Element = __nv_bfloat16;
    static constexpr wgmma_type TYPE = WGMMA_BF16;
};

/* One unit of a warpgroup: layers of few tiles keep more multiprocessors busy with smaller ones. */
template <class Mode> struct small_mode : Mode {
    static constexpr int UNITS = 1;
};

/* Whether the units of a warpgroup may be neighbouring column phases. */
template <class Mode> constexpr bool PAIRS = Mode::UNITS == 2;

/* What the warps that find outputs say of a tile to those that multiply and store, which then divide nothing. */
struct tile_record {
    int row_taps, column_taps;
    int first_shift;                    /* of the first tap in a stage of all taps, in pixels */
    int channels[TCONV_IGEMM_BLOCKS];   /* that exist of a block's; may be 0 or less */
    int64_t offset[TCONV_IGEMM_BLOCKS]; /* of its first channel, in bytes from a pixel's place in dst */
    float bias[TCONV_IGEMM_BLOCKS][TCONV_IGEMM_M];
};

/* The barriers, and where the buffers begin. */
struct shared_layout {
    uint32_t stage_full, stage_empty, box_full, box_empty, slot_full, slot_empty, outputs_full, outputs_empty;
    uint32_t staged_full, staged_empty;
    uint32_t boxes, stages, slots;
    uint32_t *places; /* of a stage's pixels: see find_places */
    int64_t *outputs;
    tile_record *records;
    char *staged;
};
constexpr int BARRIERS = 6 * TCONV_IGEMM_STAGES + 2 * TABLES + 2 * TCONV_IGEMM_GROUPS * TCONV_IGEMM_HALVES;

struct tile_place {
    int first_block, group;      /* of its phase's blocks; of channels */
    int row_phase, column_phase; /* where phases are merged, those of their only tap */
    int image, row, column;      /* the first position */
};

using quotient = quotient;

__device__ __forceinline__ tile_place find_tile(const tconv_igemm_parameters &layer, int number)
{
    tile_place tile;
    quotient left = divide(number, layer.by_block_tiles);
    tile.first_block = left.rest * layer.tile_blocks;
    tile.row_phase = tile.column_phase = 0;
    if (!layer.merged) {
        /* Phases differ in taps: turned a little further each time that all blocks of threads have had a tile, so that none
         * has the longest always. */
        const int of_phases = left.whole;
        left = divide(of_phases, layer.by_phases);
        const int turns = divide(left.whole, layer.by_phase_turn).whole;
        const quotient phase = divide(divide(of_phases + turns, layer.by_phases).rest, layer.by_column_phases);
        tile.column_phase = phase.rest;
        tile.row_phase = phase.whole;
    }
    left = divide(left.whole, layer.by_groups);
    tile.group = left.rest;
    left = divide(left.whole, layer.by_column_tiles);
    tile.column = left.rest * layer.tile_columns;
    left = divide(left.whole, layer.by_row_tiles);
    tile.row = left.rest * layer.tile_rows;
    tile.image = left.whole * layer.tile_images;
    return tile;
}

/* One block of a tile: which phase and which output channels. */
struct block_place {
    int row_phase, column_phase;
    int channel; /* of the group; may be past the last */
};

__device__ __forceinline__ block_place find_block(const tconv_igemm_parameters &layer, const tile_place &tile,
                                                  int of_tile)
{
    const int block = tile.first_block + of_tile;
    block_place place = {tile.row_phase, tile.column_phase, (layer.paired ? block / 2 : block) * TCONV_IGEMM_M};
    if (layer.merged) {
        const quotient of_columns = divide(block, layer.by_column_phases),
                       of_rows = divide(of_columns.whole, layer.by_channel_blocks);
        place.row_phase = min(of_rows.whole, layer.row_phases - 1);
        place.column_phase = of_columns.rest;
        place.channel = block < layer.blocks ? of_rows.rest * TCONV_IGEMM_M : layer.group_out;
    }
    return place;
}

/* The taps of a tile in the order in which they are multiplied: by rows. */
struct tap_walk {
    int row, column; /* taps */
    int row_taps, column_taps;
    __device__ __forceinline__ tap_walk(const tconv_igemm_parameters &layer, const tile_place &tile)
        : row(0), column(0), row_taps(layer.rows[tile.row_phase].taps),
          column_taps(layer.columns[tile.column_phase].taps)
    {
    }
    __device__ __forceinline__ explicit tap_walk(const tile_record &tile)
        : row(0), column(0), row_taps(tile.row_taps), column_taps(tile.column_taps)
    {
    }
    __device__ __forceinline__ int count() const
    {
        return row_taps * column_taps;
    }
    __device__ __forceinline__ void next()
    {
        if (++column == column_taps) {
            column = 0;
            if (++row == row_taps)
                row = 0;
        }
    }
};

/* Input of a tap, less its position. */
__device__ __forceinline__ int row_shift(const tconv_igemm_parameters &layer, const tile_place &tile,
                                         const tap_walk &tap)
{
    return layer.rows[tile.row_phase].first_shift - tap.row * layer.row_step;
}
__device__ __forceinline__ int column_shift(const tconv_igemm_parameters &layer, const tile_place &tile,
                                            const tap_walk &tap)
{
    return layer.columns[tile.column_phase].first_shift - tap.column * layer.column_step;
}

/* Stages of a chunk. */
__device__ __forceinline__ int stages_of(const tconv_igemm_parameters &layer, const tap_walk &tap)
{
    return layer.per_tap ? tap.count() : 1;
}

} // namespace tconv::igemm

#endif
