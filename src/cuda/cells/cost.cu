/* The cost model of both kernels, in cycles of the multiprocessor with most tiles on an H200. */
#include <cmath>

#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "plan.h"

namespace tconv::cells
{

namespace
{

/* These are for both kernels. The first two are fitted with the streaming kernel's. */
constexpr double L2_BYTES = 34;       /* bytes a cycle that a multiprocessor reads from L2 when all do */
constexpr double TMA_LATENCY = 1500;  /* cycles from the request of a copy to its arrival */
constexpr double MEMORY_BYTES = 2300; /* bytes a cycle of device memory, of all multiprocessors */

/* These are the streaming kernel's, in cycles, fitted to times of 106 layers (docs/performance-log.md). */
constexpr double ENTRY_CYCLES = 485;         /* of a warpgroup, of an entry beside its wgmmas, in TF32 */
constexpr double WHOLE_ENTRY_CYCLES = 225;   /* the same where each schedule is one entry with all of N */
constexpr double STEP_CYCLES = 73;           /* for each wgmma step of an entry, in TF32 */
constexpr double CONFLICT_CYCLES = 45;       /* for each such step and each cycle more of a load from a stage */
constexpr double STRICT_ENTRY_CYCLES = 1200; /* in strict f32, all of those together */
constexpr double TILE_CYCLES = 26;           /* at the end of a tile, for each output of a cell */
constexpr double STORE_CYCLES = 36;          /* of a warp's store of one register */

/* These are the weight-stationary kernel's, fitted to times of six layers. */
constexpr double STATIONARY_K_BLOCK_CYCLES = 360; /* of a K-block's wgmmas beside the stores of the other pair */
constexpr double STATIONARY_TILE_CYCLES = 960;    /* of a block tile, beside its K-blocks and stores */
constexpr double STATIONARY_STORE_CYCLES = 4000;  /* of the stores of a block tile */
constexpr int SECTOR = 32;                        /* bytes of an L2 sector */
constexpr int SECTOR_END_BYTES = 64;              /* bytes more that an output row costs that ends within a sector */

/* Returns the cycles of src and dst at the rate of device memory. */
double memory_cycles(const tconv_problem *problem)
{
    return (double)problem->element_size * (double)problem->batch *
           ((double)problem->in_channels * (double)problem->h.in * (double)problem->w.in +
            (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out) /
           MEMORY_BYTES;
}

} // namespace

/* Two warpgroups multiply alternately: an entry takes the wgmmas of both, or its own and what else the warpgroup has to
 * do. */
double cost_streaming(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->parameters;
    const int n = block_n(plan->strict), times = plan->strict ? 3 : 1;
    const bool whole = plan->config.mma_n == n;
    const double step = STEP_CYCLES + (plan->bank_cycles - 1) * CONFLICT_CYCLES;
    const double other =
        plan->strict ? STRICT_ENTRY_CYCLES : (whole ? WHOLE_ENTRY_CYCLES : ENTRY_CYCLES) + params->mma_steps * step;
    double tiles_cycles = 0; /* of a tile of each schedule */
    for (int p = 0; p < params->schedule_count; p++) {
        const tap_schedule *schedule = &params->schedules[p];
        double entries = 0;
        for (int e = schedule->first_entry; e < schedule->end_entry; e++) {
            const int window_n = whole ? n : params->entries[e].window % 16 * plan->config.mma_n;
            const double mma = times * params->mma_steps * window_n / 2.0;
            entries += fmax(CONSUMER_WARPGROUPS * mma, mma + other);
        }
        /* A stage is read, then filled again; all stages of a pipeline overlap. */
        const double weight_tiles = schedule->end_weight_tile - schedule->first_weight_tile;
        const double weights = (double)schedule->b_rows * params->b_row_bytes / CLUSTER_BLOCKS / L2_BYTES;
        const double pixels = params->pixel_stage_bytes / L2_BYTES;
        const double weight_stage = (entries + weight_tiles * TMA_LATENCY + weights) / params->weight_stages;
        const double pixel_stage = (entries + TMA_LATENCY + pixels) / params->pixel_stages;
        const double k_block = fmax(fmax(entries, weights + pixels), fmax(weight_stage, pixel_stage));
        tiles_cycles += params->k_blocks * k_block + n * TILE_CYCLES + n / 2.0 / params->cell_columns * STORE_CYCLES;
    }
    const int clusters = layer->target.multiprocessors / CLUSTER_BLOCKS;
    const double waves = (double)tconv_ceil_div(params->tiles, tconv_max(1, clusters));
    return HOPPER_LAUNCH_CYCLES + fmax(waves * tiles_cycles / params->schedule_count, memory_cycles(problem));
}

/* Stores and wgmmas slow each other down by what both take of the path to shared memory. */
double cost_stationary(const tconv_layer *layer, const layer_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->parameters;
    const double row = (double)problem->w.out * sizeof(float);
    const double ends = (int64_t)row % SECTOR != 0 ? 1 + SECTOR_END_BYTES / row : 1;
    const double tile =
        params->k_blocks * STATIONARY_K_BLOCK_CYCLES + STATIONARY_TILE_CYCLES + ends * STATIONARY_STORE_CYCLES;
    const double pixels = (double)params->k_blocks * params->pixel_stage_bytes / params->set_blocks / L2_BYTES;
    const double weights = (double)params->k_blocks * params->weight_stage_bytes / L2_BYTES + TMA_LATENCY;
    const double tiles = (double)tconv_ceil_div(params->m_tiles, params->tile_step);
    const double sets = (double)tconv_ceil_div(params->n_tile_sets, params->set_step);
    return HOPPER_LAUNCH_CYCLES + fmax(sets * (weights + tiles * fmax(tile, pixels)), memory_cycles(problem));
}

} // namespace tconv::cells
