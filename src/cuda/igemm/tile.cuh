/* The definitions that the roles of the implicit GEMM's warps share: their numbers, the modes of arithmetic, where
 * shared memory has what, and which block tile a number is. */
#ifndef TCONV_CUDA_IGEMM_TILE_CUH
#define TCONV_CUDA_IGEMM_TILE_CUH

#include "../gemm/pipeline.cuh"
#include "../numeric/divisor.cuh"
#include "parameters.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tconv::igemm
{

/* The roles of a thread block's warps: consumers, then these. */
constexpr int CONSUMER_WARPS = WARPGROUPS * WARPGROUP_WARPS;
constexpr int LOADER_WARPS = 4;          /* write or split B stages; where they need not, they are epilogue warps */
constexpr int B_WARP = LOADER_WARPS;     /* issues TMA of src */
constexpr int A_WARP = LOADER_WARPS + 1; /* issues bulk copies of weights */
constexpr int FIRST_ADDRESS_WARP = LOADER_WARPS + 2;
constexpr int ADDRESS_WARPS = 2;                                    /* find where positions go in dst */
constexpr int WARPGROUP_EPILOGUE_WARPS = LOADER_WARPS / WARPGROUPS; /* that store one warpgroup's accumulators */

constexpr int MAX_TABLES = 3; /* of offsets and records: of the tile stored, the one multiplied, the one prepared */

constexpr uint32_t MMA_A_CORE_BYTES = MMA_M * CORE_ROW_BYTES; /* of one column of its core matrices */

/* What a warp stages: of a pixel, of a row of M, and in all. */
template <class Element> constexpr int STAGED_PIXEL_BYTES = staged_pixel_bytes(sizeof(Element));
template <class Element, int N> constexpr int STAGED_ROW_BYTES = staged_row_bytes(N, sizeof(Element));
template <class Element, int N> constexpr int WARP_STAGING_BYTES = warp_staging_bytes(N, sizeof(Element));

/* A mode of arithmetic. Registers are a thread's, of consumers and of others (setmaxnreg). In strict f32 they hold an
 * MMA tile's partial sums as well. */
struct tf32_mode {
    using Element = float;
    using Output = float; /* of dst */
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr bool STRICT = false;
    static constexpr bool COMPENSATED = false;
    static constexpr bool SPLITS = false;    /* loader warps split B stages in place; in TF32 the tensor map rounds */
    static constexpr int MMA_TILES = 2;      /* of a warpgroup */
    static constexpr int PLANES = 1;         /* of an operand */
    static constexpr int STAGED_PARTS = 2;   /* of an MMA tile, in staging buffers */
    static constexpr bool CLUSTERED = false; /* blocks of a cluster share out the K-blocks of a tile */
    static constexpr int CONSUMER_REGISTERS = 176;
    static constexpr int OTHER_REGISTERS = 80;
};
struct strict_mode : tf32_mode {
    static constexpr bool STRICT = true;
    static constexpr bool SPLITS = true;
    static constexpr int MMA_TILES = 1;
    static constexpr int PLANES = 2;
    static constexpr int CONSUMER_REGISTERS = 200;
    static constexpr int OTHER_REGISTERS = 56;
};
struct strict_long_mode : strict_mode {
    static constexpr bool COMPENSATED = true;
};
struct f16_mode : tf32_mode {
    using Element = __half;
    using Output = __half;
    static constexpr wgmma_type TYPE = WGMMA_F16;
    static constexpr int CONSUMER_REGISTERS = 184;
    static constexpr int OTHER_REGISTERS = 72;
};
struct bf16_mode : f16_mode {
    using Element = __nv_bfloat16;
    using Output = __nv_bfloat16;
    static constexpr wgmma_type TYPE = WGMMA_BF16;
};

/* Staging buffers of quarters of an MMA tile leave room for a stage more. */
template <class Mode> struct quarters_mode : Mode {
    static constexpr int STAGED_PARTS = QUARTERS;
};

/* dst is of sums in f32, which are parts of outputs. */
template <class Mode> struct sums_mode : Mode {
    using Output = float;
};

/* One MMA tile to a warpgroup: smaller block tiles keep more multiprocessors busy in layers that have few of them. */
template <class Mode> struct small_mode : Mode {
    static constexpr int MMA_TILES = 1;
};

/* The blocks of a cluster have the same tile, and each a part of its K-blocks: layers of few tiles keep more multiprocessors
 * busy. */
template <class Mode> struct clustered_mode : Mode {
    static constexpr bool CLUSTERED = true;
};

/* Tells whether the MMA tiles of a warpgroup may be neighbouring column phases. */
template <class Mode> constexpr bool PAIRS = Mode::MMA_TILES == 2 && !Mode::CLUSTERED;

/* The address warps tell the consumers and epilogue warps of a tile, which then divide nothing. */
struct tile_record {
    int row_taps, column_taps;
    int first_shift;             /* pixels from a B stage's first to that of the first tap */
    int row_phase, column_phase; /* the first */
    int channels[MAX_M_TILES];   /* output channels that an M tile has; may be 0 or less */
    int first[MAX_M_TILES];      /* its first output channel, of all channel groups */
    int64_t offset[MAX_M_TILES]; /* bytes from a position's offset in dst to that of the M tile's first channel */
    float bias[MAX_M_TILES][MMA_M];
};

/* The pipelines in shared memory, and what lies beside them. */
struct shared_layout {
    stage_ring b, a, raw;      /* raw: of raw stages; its barriers also of B stages that wait for the split */
    stage_ring tables;         /* of offsets and records */
    uint32_t staging_barriers; /* of the first warpgroup's staging buffers, then of the second's */
    uint32_t *coordinates;     /* of a B stage's pixels: see fill_coordinates */
    int64_t *offsets;          /* tables of positions' offsets in dst */
    tile_record *records;
    uint32_t staging;
};
constexpr int BARRIERS = STAGE_BARRIERS * (4 + WARPGROUPS);

/* The place of a block tile in the layer. */
struct tile_place {
    int first_m_tile;            /* of its phase's M tiles; merged: of all phases' */
    int group;                   /* channel group of dst */
    int src_group;               /* of src, and of the weights */
    int row_phase, column_phase; /* merged: those of the only tap */
    int volume;
    int image, row, column; /* first position */
    __device__ __forceinline__ void next_phase(const parameters &layer)
    {
        if (++column_phase == layer.column_phases) {
            column_phase = 0;
            row_phase++;
        }
    }
};

__device__ __forceinline__ tile_place find_tile(const parameters &layer, int number)
{
    tile_place tile;
    quotient left = divide(number, layer.by_tiles_along_m);
    tile.first_m_tile = left.rest * layer.m_tiles;
    tile.row_phase = tile.column_phase = 0;
    if (!layer.merged && !layer.sums_phases) {
        /* Phases differ in taps: their order is rotated each time that all thread blocks have had a tile, so that none
         * always has the longest. */
        const int of_phases = left.whole;
        left = divide(of_phases, layer.by_phases);
        const int rotations = divide(left.whole, layer.by_phase_rotation).whole;
        const quotient phase = divide(divide(of_phases + rotations, layer.by_phases).rest, layer.by_column_phases);
        tile.column_phase = phase.rest;
        tile.row_phase = phase.whole;
    }
    left = divide(left.whole, layer.by_groups);
    tile.group = tile.src_group = left.rest;
    if (layer.src_groups < layer.groups) { /* phases in parts */
        const quotient part = divide(left.rest, layer.by_src_groups);
        const quotient phase = divide(part.whole * layer.src_phases, layer.by_column_phases);
        tile.src_group = part.rest;
        tile.row_phase = phase.whole;
        tile.column_phase = phase.rest;
    }
    left = divide(left.whole, layer.by_column_tiles);
    tile.column = left.rest * layer.tile_columns;
    left = divide(left.whole, layer.by_row_tiles);
    tile.row = left.rest * layer.tile_rows;
    left = divide(left.whole, layer.by_image_tiles);
    tile.image = left.rest * layer.tile_images;
    tile.volume = left.whole;
    return tile;
}

/* The block tiles of a thread block: from one on, so far apart. A cluster has but one. */
template <class Mode> __device__ __forceinline__ int first_tile(const parameters &layer)
{
    return Mode::CLUSTERED ? (int)blockIdx.x / layer.cluster_blocks : (int)blockIdx.x;
}
template <class Mode> __device__ __forceinline__ int tile_step(const parameters &layer)
{
    return Mode::CLUSTERED ? layer.tiles : (int)gridDim.x;
}

/* The K-blocks of a tile that a thread block takes, in the order of the main loop: of phases of src, or of the only one. */
template <class Mode> struct k_share {
    const k_place *const begin; /* the end follows */
    const int k_blocks, phases;
    __device__ __forceinline__ explicit k_share(const parameters &layer)
        : begin(layer.k_begins + (Mode::CLUSTERED ? (int)blockIdx.x % layer.cluster_blocks : 0)),
          k_blocks(layer.k_blocks), phases(layer.src_phases)
    {
    }
    __device__ __forceinline__ int first_phase() const
    {
        return Mode::CLUSTERED ? begin->phase : 0;
    }
    __device__ __forceinline__ int end_phase() const
    {
        return Mode::CLUSTERED ? begin[1].phase + (begin[1].k_block > 0 ? 1 : 0) : phases;
    }
    __device__ __forceinline__ int first_k_block(int phase) const
    {
        return Mode::CLUSTERED && phase == begin->phase ? begin->k_block : 0;
    }
    __device__ __forceinline__ int end_k_block(int phase) const
    {
        return Mode::CLUSTERED && phase == begin[1].phase ? begin[1].k_block : k_blocks;
    }
    __device__ __forceinline__ int count(int phase) const
    {
        return end_k_block(phase) - first_k_block(phase);
    }
    /* Moves a tile, whose phase of src is the first, to that of the first K-block. */
    __device__ __forceinline__ void skip_phases(const parameters &layer, tile_place &tile) const
    {
        if (!Mode::CLUSTERED || begin->phase == 0)
            return;
        const quotient phase = divide(begin->phase, layer.by_column_phases);
        tile.row_phase = phase.whole;
        tile.column_phase = phase.rest;
    }
};

/* The place of an M tile of a block tile. */
struct m_tile_place {
    int row_phase, column_phase;
    int channel; /* of the channel group; may be past the last */
};

__device__ __forceinline__ m_tile_place find_m_tile(const parameters &layer, const tile_place &tile, int of_tile)
{
    const int m_tile = tile.first_m_tile + of_tile;
    m_tile_place place = {tile.row_phase, tile.column_phase, (layer.paired ? m_tile / 2 : m_tile) * MMA_M};
    if (layer.merged) {
        const quotient of_columns = divide(m_tile, layer.by_column_phases),
                       of_rows = divide(of_columns.whole, layer.by_channel_m_tiles);
        place.row_phase = min(of_rows.whole, layer.row_phases - 1);
        place.column_phase = of_columns.rest;
        place.channel = m_tile < layer.phase_m_tiles ? of_rows.rest * MMA_M : layer.group_out;
    }
    return place;
}

/* The channel of dst that an output channel of all channel groups is part of; some channel for one that does not
 * exist. */
__device__ __forceinline__ int channel_of_dst(const parameters &layer, int channel)
{
    return divide(divide(channel, layer.by_bias_outputs).whole, layer.by_bias_channels).rest;
}

/* The taps of a tile in the order of the main loop: by rows. */
struct tap_walk {
    int row, column; /* of the tap */
    int row_taps, column_taps;
    __device__ __forceinline__ tap_walk(const parameters &layer, const tile_place &tile)
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

/* The row (column) of src that a tap reads, less its position's. */
__device__ __forceinline__ int row_shift(const parameters &layer, const tile_place &tile, const tap_walk &tap)
{
    return layer.rows[tile.row_phase].first_shift - tap.row * layer.row_step;
}
__device__ __forceinline__ int column_shift(const parameters &layer, const tile_place &tile, const tap_walk &tap)
{
    return layer.columns[tile.column_phase].first_shift - tap.column * layer.column_step;
}

/* The B stages of a K-block of channels. */
__device__ __forceinline__ int b_stages_of(const parameters &layer, const tap_walk &tap)
{
    return layer.per_tap ? tap.count() : 1;
}

} // namespace tconv::igemm

#endif
