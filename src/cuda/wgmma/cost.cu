/*
 * Computes the cost of a tile in cycles, by which plan.cu compares the tiles of one layer. It has what differs between
 * tiles, the writing of dst in detail, and is not the time of the layer: work.cu has what that is predicted from.
 *
 * The roles work side by side, and the slowest counts for each K-block; each needs a stage for as long as it and its
 * neighbour take with it, divided by the stages that there are.
 */
#include <cmath>

#include "../../core/checked.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

namespace tconv::wgmma
{

namespace
{

constexpr int SECTOR = 32;    /* bytes that the second-level cache and the memory write at once */
constexpr int MAX_VECTOR = 4; /* elements that a lane stores at once */

/* All rates are of one multiprocessor. */
constexpr double SWIZZLED_L2_BYTES = 29; /* bytes a cycle of swizzled boxes from the second-level cache, measured */
constexpr double SHARED_BYTES = 128;     /* bytes a cycle of shared memory */
constexpr double TRANSPOSE_CYCLES = 40;  /* of a warp for 32 pixels of a core */
constexpr double WALK_CYCLES = 35;       /* more into a tight patch: what kb57, unet_up1 and s2_op in TF32 lost by it */
constexpr double REALIGN_CYCLES = 12;    /* of a warp to realign a word a lane, an assumption */
constexpr double REALIGN_K_BLOCK_CYCLES = 100; /* for each K-block that is realigned, an assumption */
constexpr double COMMIT_GROUP_CYCLES = 120;    /* of a commit group that its warpgroup cannot hide */
constexpr double ADD_CYCLES = 1.5;             /* for each sum of a commit group that is added in f32 */

/* A layer whose src is gathered by elements takes so many times as long. */
constexpr double GATHER_TIMES = 1.8;

constexpr double L2_BYTES = 22;        /* bytes a cycle of the second-level cache when all load, measured */
constexpr double WRITE_BYTES = 17.7;   /* bytes a cycle of the memory when all write, measured */
constexpr double PART_CYCLES = 9.75;   /* more for a sector that a row of a tile has only a part of, measured */
constexpr double LATENCY = 1500;       /* cycles from the issue of a load of src or weights to its end */
constexpr double BOX_ROW_CYCLES = 8;   /* of TMA for a row of a box, however short */
constexpr double K_BLOCK_CYCLES = 400; /* from a K-block to the next */
constexpr double SWIZZLED_K_BLOCK_CYCLES = 150; /* the same where boxes are the B operand */
constexpr double TILE_CYCLES = 1500;            /* at the end of a tile */
constexpr double ROW_CYCLES = 28;               /* of a bulk copy of a row, however short, measured */
constexpr double MISALIGNED_ROW_CYCLES = 40;    /* the same where channels lie differently modulo 16 bytes */
constexpr double VECTOR_CYCLES = 20;            /* of a warp to store a vector a lane */
/* This share of its MMAs' cycles is added to a tile: of two that wait equally long for something else, the one with
 * fewer MMAs is taken. */
constexpr double MMA_SHARE = 0.02;
constexpr double PARTS_SHARE = 0.6;           /* of the memory's cycles for parts of sectors that delay a tile */
constexpr double SPACE_TO_DEPTH_TIMES = 1.02; /* space-to-depth has to win by this: kb71 lost 6 % by it */

/* Tells whether raw stages are the B operand, swizzled; else boxes are rows, each of which takes TMA a while. */
bool b_is_raw_stages(const plan *made)
{
    return made->mn_major && !made->realigned;
}

/* Returns the cycles of TMA for the rows of a K-block's boxes. */
double box_rows(const plan *made)
{
    const parameters *params = &made->params;
    return b_is_raw_stages(made) ? 0 : BOX_ROW_CYCLES * params->k_block_channels * made->patch_rows * params->box_parts;
}

/* The parts of a tile's time. */
struct tile_work {
    double multiply;  /* cycles of a K-block */
    double transpose; /* cycles of the transpose warps for a K-block, whether they transpose or realign */
    double walk;      /* cycles by which a tight patch delays a K-block */
    double weights;   /* bytes of a K-block */
    double rows;      /* of a tile, that are stored */
};

tile_work tile_work_of(const plan *made)
{
    const parameters *params = &made->params;
    const bool strict = made->mode == arithmetic::STRICT;
    const double N = made->config.N, times = strict ? 3 : 1;
    const int stage_mmas =
        params->schedule[0].outer * params->schedule[0].inner + params->schedule[1].outer * params->schedule[1].inner;
    /* The slowest counts: the tensor cores; the shared memory that they, TMA and the transpose warps read and write;
     * one warpgroup by itself, which in strict f32 adds while it does not multiply. */
    const double mmas = (params->k_block_a_stages[0] + params->k_block_a_stages[1]) * stage_mmas * times;
    const double weights = params->resident ? 0 : (double)params->a_stage_bytes * params->max_k_block_a_stages;
    const double operands = mmas * (MMA_M + N) * 2 * CORE_ROW_BYTES;
    const double memory = (operands + 2.0 * params->raw_stage_bytes + params->b_stage_bytes + weights) / SHARED_BYTES;
    const bool together = params->same_schedule && !strict;
    const double commit_group_count =
        (double)(commit_groups(params, 0) + (together ? 0 : commit_groups(params, 1))) / params->k_blocks;
    const double add = strict ? N / 2 * ADD_CYCLES : 0;
    const double alone = mmas * N / 4 + commit_group_count * (COMMIT_GROUP_CYCLES + add);
    const double core_rows =
        2.0 * params->k_steps * params->box_patch / (4 * WARP); /* of a lane of the transpose warps */
    /* Words of 8 bytes of such a lane where planes are realigned. */
    const double words = params->k_block_channels * fmin(params->tile_columns, params->in_columns) * 2 / 8 / (4 * WARP);
    const double transpose = made->realigned  ? words * REALIGN_CYCLES + REALIGN_K_BLOCK_CYCLES
                             : made->mn_major ? 0
                                              : core_rows * TRANSPOSE_CYCLES * operand_planes(made->mode);
    const double walk = params->tight ? core_rows * WALK_CYCLES : 0;
    const double rows = MMA_M * WARPGROUPS * (params->position_columns == 2 ? 1 : MMA_TILES);
    return {fmax(fmax(mmas * N / 2, memory), alone), transpose, walk, weights, rows};
}

/*
 * Returns the cycles that the memory takes more for those sectors of a tile that are written in parts. Both ends of a
 * row are, but for the share of rows that begin with a sector; where tiles are as wide as dst, and between rows of a
 * flat layer, the other part is written at the same time.
 */
double part_cycles(const parameters *params, const tile_work &work, int element)
{
    int64_t alike = tconv_gcd(SECTOR, params->out_columns * (int64_t)element);
    alike = tconv_gcd(alike, params->dst_channel * element % SECTOR);
    alike = tconv_gcd(alike, (int64_t)params->position_columns * params->tile_columns * element);
    const double parts = params->column_tiles == 1 ? 0 : 2 * (1 - (double)alike / SECTOR);
    return work.rows * params->mma_tile_rows * parts * PART_CYCLES;
}

/* Returns how many times as long a layer takes because its src has to be gathered by elements; 1 where it has not. */
double gather_times(const plan *made)
{
    return made->aligned || made->mn_major ? 1 : GATHER_TIMES;
}

/* Returns the cycles that the memory takes to write a tile. */
double write_cycles(const parameters *params, const tile_work &work, int element)
{
    const int64_t row_bytes = (int64_t)params->position_columns * params->mma_tile_columns * element;
    return work.rows * params->mma_tile_rows * (double)row_bytes / WRITE_BYTES + part_cycles(params, work, element);
}

} // namespace

int64_t commit_groups(const parameters *params, int mma_tile)
{
    return (int64_t)params->k_blocks * params->max_k_block_a_stages * params->schedule[mma_tile].outer *
           tconv_ceil_div(params->schedule[mma_tile].inner, COMMIT_GROUP_MMAS);
}

double cost_among_tiles(const plan *made)
{
    const parameters *params = &made->params;
    const tile_work work = tile_work_of(made);
    const double multiply = work.multiply, transpose = work.transpose, weights = work.weights;
    const bool strict = made->mode == arithmetic::STRICT;
    const bool direct = b_is_raw_stages(made);
    const double bytes = direct ? SWIZZLED_L2_BYTES : L2_BYTES;
    const double box = fmax(params->raw_stage_bytes / bytes, box_rows(made));
    const double traffic = box + weights / bytes;
    const double load = params->in_place ? 0 : (LATENCY + box + (direct ? multiply : transpose)) / params->raw_stages;
    /* An A stage is held while it is multiplied. Strict f32 leaves that out: its tiles are slower where it is
     * counted. */
    const double a_load =
        params->max_k_block_a_stages * (LATENCY + params->a_stage_bytes / bytes) + (strict ? 0 : multiply);
    const double a_stage = params->resident ? 0 : a_load / params->a_stages;
    const double filled = params->in_place ? LATENCY + box : 0; /* before a B stage can be transposed */
    const double b_stage = direct ? 0 : (filled + transpose + multiply) / params->b_stages;
    const double k_block = fmax(fmax(fmax(multiply, transpose), fmax(load, a_stage)), fmax(b_stage, traffic));
    /* A flat layer is stored by vectors where its rows are short. */
    const int element = made->mode == arithmetic::TF32 || made->mode == arithmetic::STRICT ? 4 : 2;
    const bool misaligned = params->dst_channel * element % BOX_ALIGNMENT != 0;
    const double vectors = (double)params->column_phases * params->mma_tile_columns / MAX_VECTOR / WARP;
    const double rows =
        params->flat_columns > 0 ? 1 + (double)params->mma_tile_columns / params->flat_columns : params->mma_tile_rows;
    const double bulk = rows * (misaligned ? MISALIGNED_ROW_CYCLES : ROW_CYCLES);
    const double row = params->flat_columns > 0 ? fmin(bulk, vectors * VECTOR_CYCLES) : bulk;
    const double store = work.rows * row / epilogue_warps_of(made->mode);
    const double between = direct ? SWIZZLED_K_BLOCK_CYCLES : K_BLOCK_CYCLES;
    const double work_alone = params->k_blocks * (k_block + work.walk + between) + TILE_CYCLES;
    /* Writing parts of sectors delays the reading. With one staging buffer, the second subtile waits until the first is
     * stored and written, by a memory that the others' writing keeps busy for this share of the time. */
    const double write = write_cycles(params, work, element);
    const double delay = strict ? 0 : PARTS_SHARE * part_cycles(params, work, element);
    const double wait =
        delay + (params->staging_buffers == 2 ? 0 : store / 4 + fmin(1, write / work_alone) * write / 2);
    const double tile = fmax(work_alone + wait, store) + params->k_blocks * multiply * MMA_SHARE;
    const double cycles = tile * (params->space_to_depth_log2 > 0 ? SPACE_TO_DEPTH_TIMES : 1) *
                          (double)tconv_ceil_div(params->tiles, made->thread_blocks);
    return gather_times(made) * cycles;
}

} // namespace tconv::wgmma
