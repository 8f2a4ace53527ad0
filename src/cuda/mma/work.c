/* Counts the work of a tiling of cuda_mma: see work.h. */
#include "../cuda_target.h"
#include "plan.h"

#include <math.h>

/* The corrections. */
static const double ISSUE_CYCLES = 2700;  /* of a K-block: barriers, addresses of the copies, the first operands */
static const double STRICT_CYCLES = 19.3; /* of an MMA in strict f32, in place of mma_chain: three are independent */
static const double TILE_CYCLES = 3830;   /* of a tile: tables of positions, and stores that wait for the last MMAs */

static const double SPLIT_TIMES = 1.5;  /* as long for a load in strict f32, whose operand is then split */
static const double HALVES_TIMES = 1.4; /* as long with a 16-bit patch: a B operand's word is put together from two */
static const double POST_CYCLES = 40;   /* of a step of the post-ops, beside its instructions; not measured */
enum {
    LANES = 128,   /* values of which a multiprocessor issues an instruction in a cycle */
    LOAD_BYTES = 4 /* the least that cp.async copies */
};

static void count_main_loop(const tiling_search *search, tconv_cuda_work *work)
{
    const parameters *params = &search->tried.params;
    const kernel_config *config = &search->tried.config;
    const bool strict = search->strict, halves = search->element_size == 2 && !params->nhwc;
    const int steps = params->block_k_words / MMA_K_WORDS;
    const int row_taps = search->most_row_taps, most_taps = params->max_row_taps;
    const double warps = params->m_warps * params->n_warps; /* of a row phase */
    const double all_warps = block_warps(params), uneven = ceil(all_warps / 4) * 4 / all_warps;
    const double per_row_tap =
        (double)params->column_taps * config->mmas_m * config->mmas_n * steps * (strict ? 3 : 1); /* MMAs of a warp */
    work->k_blocks = params->k_blocks;
    work->mma_sync = per_row_tap * row_taps * warps * uneven;
    work->mma_chain = strict ? 0 : per_row_tap * most_taps * (halves ? HALVES_TIMES : 1);
    work->slow_issues = strict ? per_row_tap * most_taps : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->issues = 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->shared_bytes =
        128 * row_taps * warps * steps *
        (params->shifts * 2.0 * config->mmas_n + params->column_taps * config->mmas_m * params->a_fragments * 4.0);
    work->loads = work->shared_bytes / (WARP * 4) * (strict ? SPLIT_TIMES : 1);
    work->box_bytes = 4.0 * params->weights_at;
    work->weight_bytes = params->k_blocks == 1 ? 0 : 4.0 * params->a_tile_words;
    work->stages = params->stages;
    /* Copies of less than 16 bytes are more instructions; those of less than 4 go through registers. */
    const int64_t bytes = (params->nhwc ? params->src_vector : search->src_row_vector) * search->element_size;
    if (bytes < VECTOR_BYTES)
        work->loads += work->box_bytes / WARP / (double)tconv_max(bytes, LOAD_BYTES);
    if (bytes < LOAD_BYTES)
        work->gather_bytes = work->box_bytes;
}

static void count_stores(const tiling_search *search, tconv_cuda_work *work)
{
    const parameters *params = &search->tried.params;
    const int stride = search->tried.config.stride_w;
    const double outputs = (double)params->warp_m * params->m_warps * params->tile_images * params->tile_rows *
                           params->tile_columns * params->phase_warps * stride;
    /* A thread has the columns of two neighbouring positions in NCHW, a run of channels in NHWC. */
    const int64_t run = 2 * (int64_t)stride;
    const int64_t vector = params->staged ? params->store_vector
                           : params->nhwc ? tconv_min(params->store_vector, tconv_max(params->channel_run, 1))
                                          : tconv_min(search->row_vector, run & -run);
    const double parts = params->nhwc || params->staged ? 1 : fmax(1, (double)run / (double)vector);
    const tconv_problem *problem = &search->layer->problem;
    work->tile_cycles +=
        outputs * tconv_cuda_post_instructions(problem) / LANES + POST_CYCLES * problem->desc.post_count;
    work->stores = outputs / WARP / (double)tconv_max(vector, 1);
    work->store_warps = block_warps(params);
    work->sectors = outputs * search->element_size / SECTOR_BYTES * parts;
}

/* Counts the tiles that a multiprocessor works off one after another. The blocks of a set of weights share out its tiles
 * along N: each set has as many blocks as there are places for. */
static void count_rounds(const tiling_search *search, tconv_cuda_work *work)
{
    const parameters *params = &search->tried.params;
    const tconv_cuda_target gpu = tconv_cuda_target_of(&search->layer->target);
    const int by_registers = search->tried.config.warps / block_warps(params);
    const int by_shared = (gpu.shared_bytes + SHARED_RESERVED) / (params->shared_bytes + SHARED_RESERVED);
    const int64_t most = tconv_min(by_registers, by_shared); /* blocks that share a multiprocessor */
    const int64_t sets = weight_sets_of(params), places = gpu.multiprocessors * most;
    const int64_t blocks = tconv_max(1, tconv_min(params->n_tiles, places / sets)); /* of a set */
    const int64_t rounds = tconv_ceil_div(params->n_tiles, blocks) * tconv_ceil_div(sets * blocks, places);
    const double even = (double)params->n_tiles * (double)sets / (double)places;
    work->rounds = (1 - TCONV_CUDA_IDLE_SHARE) * (double)rounds + TCONV_CUDA_IDLE_SHARE * even;
    work->resident = fmin((double)most, fmax(1, (double)(sets * blocks) / (double)gpu.multiprocessors));
}

tconv_cuda_work tconv_mma_count_work(const tiling_search *search)
{
    tconv_cuda_work work = search->begun;
    count_main_loop(search, &work);
    count_stores(search, &work);
    count_rounds(search, &work);
    return work;
}
