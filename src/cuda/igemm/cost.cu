/* The cost model by which tiles of the implicit GEMM are chosen. */
#include <algorithm>
#include <cmath>
#include <functional>

#include "../../core/checked.h"
#include "plan.h"

namespace tconv::igemm
{

namespace
{

constexpr int SECTOR = 32; /* bytes, of the memory and the second-level cache */

/* All constants that follow are fitted to measured times: of 45 layers in both layouts and three kinds of arithmetic;
 * where TMA feeds wgmma, and at the end of a tile, of 9,000 tiles of 42 layers in 16 bits and TF32, so that the tiles
 * that are chosen are those that took the least time. */

/* The loader warps. */
constexpr double GATHER_BYTES = 2.9;       /* bytes a cycle of B stages that they gather */
constexpr double SPLIT_PARTS_BYTES = 12;   /* bytes a cycle of B stages that they split */
constexpr double RAW_TRANSPOSE_BYTES = 11; /* bytes a cycle of B stages that they make of raw stages */

/* The consumer warpgroups, beside their wgmmas. */
constexpr double K_BLOCK_CYCLES = 60;         /* cycles for a K-block and tap */
constexpr double STRICT_K_BLOCK_CYCLES = 850; /* the same in strict f32, where it waits for its wgmmas */
constexpr double ADD_CYCLES = 1.5;            /* cycles for a partial sum to join its accumulator */
constexpr double COMPENSATED_CYCLES = 26;     /* the same with compensation */

/* The launch before. */
constexpr double TRANSPOSE_CYCLES = 1050;      /* cycles of transposing src, whatever its size */
constexpr double TRANSPOSE_BYTES = 5.7;        /* bytes a cycle that a multiprocessor transposes */
constexpr double SCALAR_TRANSPOSE_TIMES = 1.5; /* longer where pixels are read one by one */

/* The epilogue of consumers. */
constexpr double TILE_CYCLES = 3700; /* cycles at the end of a tile, until it is stored */
constexpr double ROW_CYCLES = 2.4;   /* NCHW: cycles for 32 outputs, as instructions */
constexpr double ROW_BYTES = 19;     /* NCHW: bytes a cycle where columns are stored together, in whole sectors */
constexpr double SPLIT_BYTES = 8; /* NCHW: bytes a cycle where a phase is stored by itself, in parts of each sector */
constexpr double ROW_WRITE_BYTES = 8.5; /* NCHW: bytes a cycle that the memory takes from each multiprocessor */

/* The epilogue warps. */
constexpr double STAGING_CYCLES = 2700;  /* cycles at the end of a tile, until consumers have staged it */
constexpr double M_TILE_CYCLES = 360;    /* cycles for each M tile beside that */
constexpr double STORE_BYTES = 38;       /* bytes a cycle that they store, of pixels */
constexpr double PAIR_STORE_BYTES = 8.2; /* bytes a cycle that they store, of pairs of columns */

/* The share of their time by which multiprocessors are faster while others have no tile: cache and memory are
 * theirs. */
constexpr double IDLE_SHARE = 0.1;

struct cost_rates {
    double b_latency;       /* cycles from the issue of TMA to the arrival of its box, from the memory */
    double a_latency;       /* cycles from the issue of an A stage's copy to its arrival, from the second-level cache */
    double l2_bytes;        /* bytes a cycle from that cache to each multiprocessor when all load */
    double shared_bytes;    /* bytes a cycle of shared memory */
    double write_bytes;     /* bytes a cycle that the memory takes from each multiprocessor */
    double product_share;   /* of its products: added to a tile, so that among equals the one with fewer wins */
    double a_stages_in_use; /* A stages that no copy can be ahead in */
};
constexpr cost_rates RATES = {560, 560, 31, 128, 10, 0.02, 0};
constexpr cost_rates TMA_FED_RATES = {1540, 760, 64, 160, 15, 0.053, 0.26};

/* The cycles in which the launch that packs the weights transposes src. */
double transpose_cycles(const tconv_layer *layer)
{
    const bool scalar = !transpose_of(&layer->problem).vectors;
    return TRANSPOSE_CYCLES + (double)transposed_bytes(&layer->problem) /
                                  (TRANSPOSE_BYTES * layer->target.multiprocessors) *
                                  (scalar ? SCALAR_TRANSPOSE_TIMES : 1);
}

bool has_split_sectors(const parameters *of)
{
    return !of->dst_channels_last && of->column_stride > 1 && !of->paired;
}

/* The bytes of sectors that a tile writes for each byte of its outputs in NCHW: both ends of a piece of a row are in
 * sectors of which others write the rest, but for the share of pieces that begin with a sector. */
double sector_share(const tconv_layer *layer, const parameters *of)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, columns = of->paired ? 2 : 1;
    const bool whole = of->flat && of->column_stride == 1; /* rows follow one another */
    const int64_t pixels = whole            ? of->block_n
                           : of->flat       ? of->flat_columns
                           : of->across > 0 ? CORE_ROWS
                                            : of->tile_columns;
    const int64_t piece = pixels * columns * element;
    const int64_t alike =
        tconv_gcd(tconv_gcd(SECTOR, piece), (whole ? problem->dst.c : problem->dst.h) * element % SECTOR);
    return 1 + (double)((SECTOR - alike) * columns) / (double)(piece * of->column_stride);
}

/* The share of a pair's products that there is: an MMA tile may lack a tap that the other has. */
double pair_share(const parameters *of)
{
    return of->uneven ? (double)(of->mma_taps[0] + of->mma_taps[1]) / (2.0 * of->column_taps) : 1;
}

/* The 6-norm: the largest, and a little more for each that is nearly as large. */
double soft_max(double a, double b, double c, double d)
{
    const double all[] = {a * a * a, b * b * b, c * c * c, d * d * d};
    return cbrt(sqrt(all[0] * all[0] + all[1] * all[1] + all[2] * all[2] + all[3] * all[3]));
}

} // namespace

double mean_tile_taps(const parameters *of, int multiprocessors)
{
    if (of->merged)
        return 1;
    int taps[MAX_PHASES * MAX_PHASES];
    int64_t sum = 0;
    const int phases = of->row_phases * of->column_phases;
    for (int i = 0; i < phases; i++)
        sum += taps[i] = of->rows[i / of->column_phases].taps * of->columns[i % of->column_phases].taps;
    const int64_t tiles = tconv_ceil_div(of->tiles, multiprocessors), left = tiles % phases;
    sum *= tiles / phases;
    if (left > 0)
        std::partial_sort(taps, taps + left, taps + phases, std::greater<int>());
    for (int64_t i = 0; i < left; i++)
        sum += taps[i];
    return (double)sum / (double)tiles;
}

bool is_fed_by_tma(const layer_plan *plan)
{
    return plan->parameters.by_tma && plan->parameters.src_channels_last && plan->mode != MODE_STRICT;
}

/*
 * The cycles are those of the multiprocessor with most tiles. The roles work side by side: the slowest of them counts,
 * and each occupies its stages for as long as it and its neighbour take with one.
 */
double cost(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *of = &plan->parameters;
    const int multiprocessors = layer->target.multiprocessors;
    const bool strict = plan->mode == MODE_STRICT;
    const int warpgroups = of->mma_pixel[1][0] < of->stage_pixels ? 2 : 1; /* that have positions */
    const double N = plan->config.N, mma_tiles = warpgroups * plan->config.mma_tiles;
    const double taps = mean_tile_taps(of, multiprocessors);
    const double b_stage_taps = of->per_tap ? 1 : taps, a_stage_taps = taps / ceil(taps / of->a_stage_taps);
    const bool fed = is_fed_by_tma(plan);
    const cost_rates &rates = fed ? TMA_FED_RATES : RATES;
    /* A K-block and tap takes the tensor cores, the shared memory that they and the copies use, and one warpgroup by
     * itself, which in strict f32 adds while it does not multiply. */
    const double products = of->k_steps * mma_tiles * pair_share(of) * (strict ? 3 : 1),
                 bytes = (double)of->stage_pixels * of->pixel_bytes;
    const double memory =
        (products * (MMA_M + N) * MMA_K_BYTES + of->a_tile_bytes + bytes * (strict ? 4 : 1) / b_stage_taps) /
        rates.shared_bytes;
    const double add =
        strict ? N * plan->config.mma_tiles / 2 * (plan->config.long_sums ? COMPENSATED_CYCLES : ADD_CYCLES) : 0;
    const double alone = fed ? A_STAGE_PERIOD / a_stage_taps
                             : products / warpgroups * N / 2 + (strict ? STRICT_K_BLOCK_CYCLES : K_BLOCK_CYCLES) + add;
    const double multiply = fmax(fmax(products * N / 2, memory), alone);
    /* A B stage takes the loader warps and TMA. */
    const double own = !of->by_tma              ? bytes / GATHER_BYTES
                       : !of->src_channels_last ? bytes / RAW_TRANSPOSE_BYTES
                       : strict                 ? bytes / SPLIT_PARTS_BYTES
                                                : 0;
    const double b_bytes = !of->by_tma ? 0 : of->src_channels_last ? bytes : of->raw_stage_bytes * b_stage_taps / taps;
    const double load = own + b_bytes / rates.l2_bytes;
    const double traffic = b_bytes / rates.l2_bytes / b_stage_taps + of->a_tile_bytes / rates.l2_bytes;
    const double b_wait = (rates.b_latency + load + b_stage_taps * (traffic + multiply)) / of->b_stages / b_stage_taps;
    const double a_wait =
        (rates.a_latency / a_stage_taps + traffic + multiply) / (of->a_stages - rates.a_stages_in_use);
    const double k_block = fed ? soft_max(multiply, traffic, b_wait, a_wait)
                               : fmax(fmax(multiply, traffic), fmax(fmax(b_wait, a_wait), own / b_stage_taps));
    const double element = (double)layer->problem.element_size;
    const int64_t pixels = of->across > 0 ? of->block_n : tconv_min(of->block_n, of->stage_pixels);
    const double sums = (double)pixels * of->m_tiles * MMA_M * element;
    double end = TILE_CYCLES, last = 0, stored = sums, write_bytes = rates.write_bytes;
    if (!of->dst_channels_last) {
        const double rate = has_split_sectors(of) ? SPLIT_BYTES : ROW_BYTES;
        end += fmax(sums / element / WARP * ROW_CYCLES, sums * sector_share(layer, of) / rate);
        write_bytes = ROW_WRITE_BYTES;
    }
    if (of->epilogue_warps) {
        const double store_bytes = of->paired ? PAIR_STORE_BYTES : STORE_BYTES;
        const double staged =
            (double)warpgroups * of->staging_buffers * staging_buffer_bytes(plan->config.N, (int)element, of->paired);
        end = STAGING_CYCLES + of->m_tiles * M_TILE_CYCLES + fmax(0, sums - staged) / store_bytes;
        last = sums / store_bytes;
        stored = sums * of->group_out / ((double)of->channel_m_tiles * MMA_M);
    }
    const double roles = of->k_blocks * taps * k_block + end, writes = stored / write_bytes;
    const double tile = (of->epilogue_warps ? soft_max(roles, writes, 0, 0) : fmax(roles, writes)) +
                        of->k_blocks * taps * multiply * rates.product_share;
    const double rounds = (1 - IDLE_SHARE) * (double)tconv_ceil_div(of->tiles, multiprocessors) +
                          IDLE_SHARE * of->tiles / multiprocessors;
    return tile * rounds + last + rates.b_latency + load + (of->src_transposed ? transpose_cycles(layer) : 0);
}

} // namespace tconv::igemm
