/*
 * The cost model: for a tile, the cycles of the tensor cores, of shared memory and of copies, of which the longest
 * counts, and how many waves of tiles the device takes.
 */
#include "plan.h"

namespace tconv::mma
{

namespace
{

/* Measured on an H200; their ratios matter more than they. */
constexpr double MMA_CYCLES = 8;       /* of an MMA, on one of TENSOR_CORES */
constexpr int TENSOR_CORES = 4;        /* of a multiprocessor */
constexpr double COPY_BYTES = 32;      /* a cycle, from the level-2 cache to a multiprocessor */
constexpr double MEMORY_BYTES = 19;    /* a cycle, of device memory, for a multiprocessor */
constexpr double K_BLOCK_CYCLES = 250; /* barrier, and what a warp waits for at the start of a K-block */
constexpr double TILE_CYCLES = 2500;   /* the latency of a tile's stores and first MMAs */
constexpr double LAUNCH_CYCLES = 3000; /* the first copies */

} // namespace

double cycles_of(const search *in, const parameters *params, const kernel_config *config)
{
    const double steps = params->block_k_words / MMA_K_WORDS, row_taps = set_taps(params, -1);
    const double warps = params->m_warps * params->n_warps; /* of a row phase */
    const double per_row_tap =
        (double)params->column_taps * config->mmas_m * config->mmas_n * steps * in->mmas_per_product;
    int most_taps = 0;
    for (int i = 0; i < params->row_phases; i++)
        most_taps = (int)tconv_max(most_taps, params->rows[i].taps);
    const int computing = block_warps(params);
    const double uneven = ceil_div(computing, TENSOR_CORES) * (double)TENSOR_CORES / computing;
    const int by_registers = config->warps / computing;
    const int by_shared = (in->shared_bytes + SHARED_RESERVED) / (params->shared_bytes + SHARED_RESERVED);
    const double resident = (double)tconv_min(by_registers, by_shared);
    const double mma =
        per_row_tap * MMA_CYCLES *
        (row_taps * warps / TENSOR_CORES * uneven > most_taps ? row_taps * warps / TENSOR_CORES * uneven : most_taps);
    const double shared =
        row_taps * warps * steps *
        (params->shifts * 2.0 * config->mmas_n + params->column_taps * config->mmas_m * params->a_fragments * 4.0);
    const bool weights_stay = params->k_blocks == 1;
    const double copied = 4.0 * (params->weights_at + (weights_stay ? 0 : params->a_tile_words)) / COPY_BYTES;
    double k_block = mma > shared ? mma : shared;
    k_block = (k_block > copied ? k_block : copied) + K_BLOCK_CYCLES;
    const double outputs = (double)params->warp_m * params->m_warps * params->tile_images * params->tile_rows *
                           params->tile_columns * params->phase_warps * config->stride_w;
    const double stores = outputs * in->element_size / MEMORY_BYTES;
    const double busy = params->k_blocks * k_block + stores;

    const double tiles = (double)params->n_tiles * params->groups * params->m_tiles * params->phase_sets /
                         in->layer->target.multiprocessors;
    const double waves = (double)(int64_t)(tiles / resident + 0.999);
    const double together = tiles < resident ? (double)(int64_t)(tiles + 0.999) : resident;
    const double wave = together * busy > busy + TILE_CYCLES ? together * busy : busy + TILE_CYCLES;
    return waves * wave + LAUNCH_CYCLES;
}

} // namespace tconv::mma
