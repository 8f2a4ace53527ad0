/* The work of a candidate of cuda_igemm, see model/work.h. A K-block is that of parameters.h, at one tap. */
#include "../cuda_target.h"
#include "../epilogue/layer_posts.h"
#include "plan.h"

#include "../../core/checked.h"
#include "../pack/transpose.h"

#include <math.h>

/* The corrections. */
static const double ISSUE_CYCLES = 515;  /* of a warpgroup, from its products of an A stage to those of the next */
static const double TILE_CYCLES = 1330;  /* until a tile's sums may be stored, and the next tile is known */
static const double M_TILE_CYCLES = 289; /* the same for each M tile */

/* The time of a store of a run, which is put together of single elements, to that of another store. */
static const double RUN_STORES = 1.5;

/* A cluster, beside a block that has its tile to itself: cycles, in TF32 and in other modes (in 16 bits such blocks take less time
 * than predicted, and strict f32 adds in double); and bytes of the others' sums that a block reads in a cycle. */
static const double CLUSTER_CYCLES[2] = {1400, 3500}, CLUSTER_BYTES = 14;

/* The instructions of an addition with compensation, to one of a plain addition. */
static const double COMPENSATED_ADDS = 17;

/* The time of gathering pairs of columns, to that of single columns: of long rows; of short ones, by their sectors. */
static const double PAIRS_TIMES = 0.7, SHORT_TIMES = 0.6;

/* The stages that are read beside the one that is multiplied: 3 took 1.1 times as long as 4. */
static const double READ_STAGES = 0.6;

/* Post-ops: cycles of each one of sums until its operands are there; of the others cycles of an instruction of a warp that
 * has a scheduler to itself, instructions beside a step's own, which load and store what is staged; and cycles of a warp for
 * a vector of the addend, and for a vector that is rounded to 16 bits and stored: where its elements lie side by side,
 * and where they do not. */
static const double AFFINE_POST_CYCLES = 40, STAGED_CYCLES = 1.6, STAGED_OVERHEAD = 10;
static const double ADDEND_CYCLES[2] = {1200, 2400}, ROUNDED_CYCLES[2] = {60, 1000};

enum {
    LANES = 128,        /* instructions of threads that a multiprocessor issues in a cycle */
    SCHEDULERS = 4,     /* of a multiprocessor */
    EPILOGUE_WARPS = 4, /* that store while others multiply */
    CONSUMER_WARPS = WARPGROUPS * WARPGROUP_WARPS
};

/* Returns the bytes that gathering a stage moves. Pairs come by whole sectors of a row, of which one more than it
 * fills. */
static double gathered_bytes(const layer_plan *plan, double pixels_bytes)
{
    const parameters *params = &plan->params;
    const double row = (double)params->pitch * (double)params->pixel_bytes / params->k_block_channels;
    return pixels_bytes * (params->gathers_pairs ? fmax(PAIRS_TIMES, SHORT_TIMES * (row + SECTOR_BYTES) / row) : 1);
}

static void count_main_loop(const layer_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const bool strict = numerics_split(plan->arithmetic), gathers = !params->by_tma;
    const bool transposes = params->by_tma && !params->src_channels_last;
    const double N = plan->config.N, taps = plan->mean_taps;
    const double warpgroups = params->mma_pixel[1][0] < params->stage_pixels ? 2 : 1; /* that have pixels */
    const double b_stage_taps = params->per_tap ? 1 : taps;
    const double pairs = params->uneven ? (params->mma_taps[0] + params->mma_taps[1]) / (2.0 * params->column_taps) : 1;
    const double products = params->k_steps * warpgroups * plan->config.mma_tiles * pairs * (strict ? 3 : 1);
    const double pixels_bytes = (double)params->stage_pixels * params->pixel_bytes / b_stage_taps;
    work->k_blocks = plan->k_blocks;
    work->wgmma = products * N / 8;
    work->wgmma_chain = products / warpgroups * N / 8;
    work->shared_bytes = products * (MMA_M + N) * MMA_K_BYTES + params->a_tile_bytes + pixels_bytes * (strict ? 4 : 1);
    work->adds = strict ? N * plan->config.mma_tiles / 2 * (plan->config.long_sums ? COMPENSATED_ADDS : 1) : 0;
    work->issue_cycles = ISSUE_CYCLES;
    work->tile_cycles = TILE_CYCLES + params->m_tiles * M_TILE_CYCLES;
    if (params->cluster_blocks > 1)
        work->tile_cycles += CLUSTER_CYCLES[plan->arithmetic == NUMERICS_TF32 ? 0 : 1] +
                             tconv_igemm_cluster_bytes(params) * (1 - 1.0 / params->cluster_blocks) / CLUSTER_BYTES;
    work->transpose_bytes = transposes ? pixels_bytes : 0;
    work->split_bytes = strict && !transposes ? pixels_bytes : 0;
    work->gather_bytes = gathers ? gathered_bytes(plan, pixels_bytes) : 0;
    work->box_bytes = gathers ? 0 : params->src_channels_last ? pixels_bytes : params->raw_stage_bytes / taps;
    work->weight_bytes = params->a_tile_bytes;
}

/* Returns the elements that a lane stores at once. wanted: as many as there would be if all lay at multiples of
 * them. */
static int64_t store_vector(const tile_search *search, const parameters *params, int64_t *wanted)
{
    const tconv_problem *problem = &search->given->problem;
    *wanted = VECTOR_BYTES / search->output_bytes;
    if (params->dst_channels_last)
        return search->one_pixel ||
                       (params->to.w % *wanted == 0 && (problem->groups == 1 || problem->group_out % *wanted == 0))
                   ? *wanted
                   : 1;
    if (search->runs.rows > 1)
        return *wanted = tconv_igemm_run_vector(&search->runs, problem, search->output_bytes);
    *wanted = params->paired ? 2 : 1;
    return tconv_rows_begin_at_multiples(&problem->dst, *wanted) ? *wanted : 1;
}

/* Returns the parts of sectors for each byte that a tile stores, of so many columns of a pixel: in NCHW those at the
 * ends of its pieces of rows, in NHWC those at the ends of its pieces of pixels, where several tiles share a pixel. */
static double part_share(const tile_search *search, const parameters *params, int64_t columns)
{
    const tconv_problem *problem = &search->given->problem;
    const int64_t element = search->output_bytes;
    if (params->dst_channels_last && (problem->groups > 1 || params->tiles_along_m > 1)) {
        const int64_t piece = tconv_min(params->group_out, MMA_M * params->m_tiles) * element;
        return tconv_cuda_part_ends(piece, 0) / (double)piece;
    }
    if (params->dst_channels_last)
        return 0;
    const bool whole = params->flat && params->column_stride == 1; /* rows follow one another */
    const int64_t pixels = whole                ? params->block_n
                           : params->flat       ? params->flat_columns
                           : params->across > 0 ? CORE_ROWS
                                                : params->tile_columns;
    const int64_t piece = pixels * (params->paired ? 2 : columns) * element;
    return tconv_cuda_part_ends(piece, (whole ? params->to.c : params->to.h) * element) / (double)piece;
}

static void count_stores(const tile_search *search, const parameters *params, tconv_cuda_work *work)
{
    const double element = search->output_bytes;
    const double pixels =
        (double)(params->across > 0 ? params->block_n : tconv_min(params->block_n, params->stage_pixels));
    const double channels = (double)params->channel_m_tiles * MMA_M;
    const double outputs =
        pixels * params->m_tiles * MMA_M * fmin(1, params->group_out / channels) / params->cluster_blocks;
    int64_t wanted;
    const int64_t vector = store_vector(search, params, &wanted);
    /* In NCHW each column phase writes its own part of a sector, and so does each element where they are not stored
     * together. */
    const bool splits = !params->dst_channels_last && params->column_stride > 1 && !params->paired;
    const double parts = splits ? fmin(params->column_stride, fmax(1, 32 / element / search->runs.columns))
                         : params->dst_channels_last || vector > 1 ? 1
                                                                   : (double)wanted;
    work->stores = outputs / WARP / (double)vector * (search->runs.rows > 1 ? RUN_STORES : 1);
    const double stored = outputs * search->runs.columns / search->runs.rows;
    work->sectors = stored * element / SECTOR_BYTES * parts;
    work->part_sectors = stored * element * part_share(search, params, search->runs.columns);
}

/* Returns the taps of all phases. */
static int64_t taps_of(const tconv_phase_table *table)
{
    int64_t taps = 0;
    for (int64_t i = 0; i < table->count; i++)
        taps += table->phases[i].taps;
    return taps;
}

int tconv_igemm_run_vector(const column_runs *runs, const tconv_problem *problem, int64_t element)
{
    const tconv_strides *dst = &problem->dst;
    const int64_t multiples[] = {runs->columns, runs->begin, runs->end, problem->volumes.written,
                                 dst->n,        dst->c,      dst->h};
    int64_t vector = VECTOR_BYTES / element;
    for (size_t i = 0; i < sizeof multiples / sizeof multiples[0]; i++)
        vector = tconv_gcd(vector, multiples[i]);
    return (int)vector;
}

tile_search tconv_igemm_begin_search(const tconv_layer *layer, const layer_view *view, bool sums, double limit,
                                     layer_plan *best)
{
    const tconv_layer *viewed = &view->layer;
    const tconv_problem *problem = &viewed->problem;
    const int element = (int)problem->element_size;
    const int pixel_bytes = tconv_igemm_pixel_bytes(problem);
    tile_search search = {.given = layer,
                          .layer = viewed,
                          .runs = view->runs,
                          .one_pixel = view->one_pixel,
                          .sums = sums,
                          .output_bytes = sums ? (int)sizeof(float) : element,
                          .best = tconv_search_begin(layer, limit, best, sizeof *best),
                          .begun = tconv_cuda_begin_work(layer)};
    tconv_cuda_add_fill(layer, &search.begun);
    for (int transposed = 0; transposed < 2; transposed++)
        search.spaces[transposed] = tconv_igemm_space(viewed, true, transposed == 1);
    search.im2col = tconv_igemm_im2col_space(viewed);
    const double phases =
        viewed->phases_of_src ? 1 : (double)(viewed->rows.count * viewed->columns.count); /* of tiles */
    search.mean_taps = (double)(taps_of(&viewed->rows) * taps_of(&viewed->columns)) / phases /
                       ((double)problem->groups / (double)tconv_igemm_src_groups(problem));
    search.m_tiles = phases * (double)(problem->groups * tconv_ceil_div(problem->group_out, MMA_M));
    search.k_blocks = (double)tconv_ceil_div(problem->group_in, pixel_bytes / element);
    const int k_steps = pixel_bytes / MMA_K_BYTES;
    search.products = k_steps * (tconv_cuda_is_strict(layer) ? 3 : 1);
    return search;
}

tconv_cuda_work tconv_igemm_least_work(const tile_search *search, const tile_choice *choice,
                                       const kernel_config *config)
{
    const position_space *space = choice->im2col ? &search->im2col : &search->spaces[choice->src_transposed ? 1 : 0];
    const int64_t positions = (int64_t)choice->images * choice->rows * choice->columns;
    const int alone = choice->m_tiles > 1 ? config->N : config->mma_tiles * config->N; /* that one warpgroup may take */
    const double warpgroups = choice->across == 0 && positions > alone ? WARPGROUPS : 1;
    /* Block tiles, were they full along M. */
    const double tiles =
        (double)(space->volumes * tconv_ceil_div(space->images, choice->images) *
                 tconv_ceil_div(space->rows, choice->rows) * tconv_ceil_div(space->columns, choice->columns)) *
        search->m_tiles / choice->m_tiles;
    tconv_cuda_work work = search->begun;
    work.k_blocks = search->k_blocks * search->mean_taps / choice->cluster_blocks;
    work.wgmma = search->products * warpgroups * config->mma_tiles * config->N / 8;
    work.tile_cycles = TILE_CYCLES + choice->m_tiles * M_TILE_CYCLES;
    work.rounds =
        tconv_cuda_rounds(tiles * choice->cluster_blocks, tconv_cuda_target_of(&search->given->target).multiprocessors);
    return work;
}

tconv_cuda_work tconv_igemm_tile_work(const tile_search *search, const layer_plan *plan)
{
    const int multiprocessors = tconv_cuda_target_of(&search->given->target).multiprocessors;
    const parameters *params = &plan->params;
    tconv_cuda_work work = search->begun;
    count_main_loop(plan, &work);
    /* Pixels of less than a sector come one by one (measured where phases are those of src: twice as long). */
    const int64_t pixel = search->layer->problem.in_channels * (int64_t)search->layer->problem.element_size;
    if (search->layer->phases_of_src && params->by_tma && pixel < SECTOR_BYTES)
        work.box_rows = params->stage_pixels / (params->per_tap ? 1 : plan->mean_taps);
    count_stores(search, params, &work);
    work.rounds = tconv_cuda_rounds((double)params->tiles * params->cluster_blocks, multiprocessors);
    if (params->src_transposed) {
        const tconv_problem *problem = &search->given->problem;
        const int64_t src_channels = tconv_src_channels(problem);
        const double src = (double)(tconv_src_images(problem) * src_channels) * (double)(problem->h.in * problem->w.in);
        work.passes += 1;
        /* A tile of few channels takes as long as a full one, which tells for the larger planes of gradients of src. */
        const int64_t tile = 4 * TRANSPOSE_WORDS / (int64_t)problem->element_size;
        const int64_t channels = tconv_round_up(src_channels, tile);
        const double full = search->layer->phases_of_src ? (double)channels / (double)src_channels : 1;
        work.pass_bytes += ((double)tconv_igemm_transposed_bytes(problem) + src * (double)problem->element_size) * full;
    }
    return work;
}

/* Adds the post-ops: those of sums and those of consumers to what a tile takes beside its K-blocks, those of epilogue warps
 * to their stores. */
static void count_posts(const tile_search *search, const layer_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const tconv_problem *problem = &search->given->problem;
    const double outputs = (double)params->m_tiles * MMA_M * params->block_n;
    const post_steps steps = tconv_cuda_planned_layer_steps(problem);
    const shared_posts_cost cost = tconv_cuda_shared_posts_cost(&steps, numerics_split(plan->arithmetic));
    work->tile_cycles += outputs * cost.sums / LANES + cost.steps_of_sums * AFFINE_POST_CYCLES;
    if (cost.steps_of_staged == 0)
        return;
    const double values = outputs / WARP / work->store_warps; /* of a lane */
    const int by_elements = params->dst_channels_last ? 0 : 1;
    const int under_way = params->epilogue_warps && plan->arithmetic == NUMERICS_TF32 ? 2 : 1; /* vectors */
    const double beside = (tconv_cuda_has_addend(problem) ? ADDEND_CYCLES[by_elements] / under_way : 0) +
                          (search->output_bytes == 2 ? ROUNDED_CYCLES[by_elements] : 0);
    const double cycles = values * (params->epilogue_warps ? 1 : CONSUMER_WARPS / SCHEDULERS) * STAGED_CYCLES *
                              (cost.staged + cost.steps_of_staged * STAGED_OVERHEAD) +
                          values / 4 * beside;
    if (params->epilogue_warps)
        work->stores += cycles * work->store_warps / search->best.machine.store;
    else
        work->tile_cycles += cycles;
}

void tconv_igemm_count_stages(const tile_search *search, const layer_plan *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const double taps = plan->mean_taps, a_stage_taps = taps / ceil(taps / params->a_stage_taps);
    work->issues = numerics_split(plan->arithmetic) ? 1 : 1 / a_stage_taps;
    work->stage_k_blocks = params->per_tap ? 1 : taps;
    /* Of stages of one tap, those of phases of src wait for one that is still read. */
    const double held = params->src_phases > 1 && work->stage_k_blocks == 1 ? READ_STAGES : 0;
    work->stages = (params->b_stages - held) * work->stage_k_blocks;
    work->weight_stages = params->a_stages;
    work->weight_waits = 1 / a_stage_taps;
    work->store_warps = params->epilogue_warps ? EPILOGUE_WARPS : CONSUMER_WARPS;
    work->overlaps = params->epilogue_warps;
    const double sums = (double)params->m_tiles * MMA_M * params->block_n * plan->output_bytes;
    const double staged = (double)WARPGROUPS * params->staging_buffers *
                          staging_buffer_bytes(plan->config.N, plan->output_bytes, params->paired, plan->config.parts);
    work->exposed = params->epilogue_warps ? fmax(0, 1 - staged / sums) : 0;
    count_posts(search, plan, work);
}
