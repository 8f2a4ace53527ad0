/* The candidates for the block tile of an implicit GEMM, of which the one with the least predicted time is taken. */
#include "plan.h"
#include "../cuda_target.h"
#include "../epilogue/layer_posts.h"

#include "../../core/checked.h"

enum {
    LEAST_COLUMNS = 8, /* positions: narrower tiles are not tried where there are wider ones */

    /* Bytes of src, at most, for it to be transposed: reads after the first should come from the second-level cache,
     * and the workspace be small. */
    MOST_TRANSPOSED_BYTES = 48 << 20
};

/* Blocks of a cluster. */
static const int CLUSTERS[] = {2, 3, 4, MAX_CLUSTER_BLOCKS};

/* Returns the configs that there are for a search. */
static const kernel_config *configs_of(const tile_search *search)
{
    switch (numerics_of(search->layer)) {
    case NUMERICS_TF32: return tf32_configs;
    case NUMERICS_STRICT: return strict_configs;
    default: return search->sums ? half_sums_configs : half_configs;
    }
}

/* Returns whether src can be transposed in the workspace. */
static bool may_be_transposed(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t elements = tconv_src_images(problem) * tconv_src_channels(problem) * problem->h.in * problem->w.in;
    return problem->layout == TCONV_NCHW && !tconv_igemm_is_transposed_before(layer) &&
           elements <= MOST_TRANSPOSED_BYTES && tconv_igemm_transposed_bytes(problem) <= MOST_TRANSPOSED_BYTES;
}

/* Returns the partial sums that the sums of the phase with most taps are made of, or of as many phases as a tile sums
 * over. */
static int64_t most_partial_sums(const tconv_layer *layer, const parameters *params)
{
    return params->k_blocks * layer->rows.max_taps * layer->columns.max_taps * params->src_phases;
}

/* Returns whether tiles may be of the plan's config. Configs of fewer MMA tiles than the arithmetic's others are for
 * layers that do not fill the multiprocessors; not where pairs are stored, or where raw stages are transposed for each
 * tap, which more tiles do more often. */
static bool may_have(const tile_search *search, const tile_choice *choice, const layer_plan *plan)
{
    const tconv_layer *layer = search->layer;
    const parameters *params = &plan->params;
    return plan->config.mma_tiles == configs_of(search)[0].mma_tiles ||
           (params->tiles <= tconv_cuda_target_of(&layer->target).multiprocessors &&
            !(params->merged && tconv_igemm_has_pairs(layer, choice, params)) &&
            (params->src_channels_last || !params->per_tap));
}

/* Returns whether stages hold channels of one plane each, which TMA brings: where input channels are those of several. */
static bool finds_planes(const layer_plan *plan, const tconv_plane_taps *taps)
{
    const parameters *params = &plan->params;
    const int64_t planes = (params->tile_images - 1) * taps->image_step + 1; /* of a box */
    return taps->taps == 0 || (params->by_tma && params->src_channels_last && !params->im2col &&
                               taps->channels % params->k_block_channels == 0 &&
                               (planes == 1 || (planes <= MAX_TMA_BOX && taps->image_step <= MAX_BOX_STEP)));
}

/* Returns whether stages are of one volume each, where there are several. */
static bool finds_volumes(const layer_plan *plan)
{
    const parameters *params = &plan->params;
    return params->volumes == 1 || (!params->im2col && params->raw_stages == 0);
}

/* Describes the layer in tiles of this choice, and offers them with all stages that fit. */
static void offer_tile(tile_search *search, const tile_choice *choice)
{
    const tconv_layer *layer = search->layer;
    const kernel_config *config = &configs_of(search)[choice->config];
    const tconv_cuda_work least = tconv_igemm_least_work(search, choice, config);
    if (tconv_search_is_beyond(&search->best, &least) || (config->clustered && least.rounds > 1))
        return;
    layer_plan plan = {.arithmetic = numerics_of(layer),
                       .config = *config,
                       .config_place = choice->config,
                       .sums = search->sums,
                       .output_bytes = search->output_bytes};
    tconv_igemm_describe_layer(layer, choice->src_transposed, &plan);
    if (layer->phases_of_src && !plan.params.by_tma)
        return; /* a pixel between others would be gathered one by one */
    if (config->N % MMA_M != 0 && !tconv_igemm_is_fed_by_tma(&plan))
        return; /* N of 96 was timed there alone */
    tconv_igemm_describe_mma_tiles(layer, choice, &plan);
    if (!tconv_igemm_describe_tile(layer, choice, &plan) ||
        (!config->long_sums && most_partial_sums(layer, &plan.params) > STRICT_ADDITIONS) ||
        !may_have(search, choice, &plan) || !finds_planes(&plan, &layer->problem.plane_taps) || !finds_volumes(&plan) ||
        (config->clustered && plan.params.raw_stages > 0) ||
        !tconv_igemm_describe_cluster(layer, choice->cluster_blocks, &plan))
        return;
    const tconv_cuda_work tile = tconv_igemm_tile_work(search, &plan);
    if (!tconv_search_is_beyond(&search->best, &tile))
        tconv_igemm_offer_stages(search, choice, &tile, &plan);
}

/* Offers all tiles of so many M tiles: rows of positions in equal parts, as many rows and images as fit. */
static void offer_tiles(tile_search *search, tile_choice choice, const kernel_config *config)
{
    const position_space space = tconv_igemm_space_of_choice(search->layer, &choice);
    const int64_t block_n = mma_tiles_of(config) / choice.m_tiles * config->N;
    for (int64_t tiles = tconv_ceil_div(space.columns, block_n);; tiles += 1 + tiles / 8) {
        const int64_t columns = tiles == 1 && space.columns < block_n ? space.columns
                                : space.flat                          ? block_n
                                                                      : tconv_ceil_div(space.columns, tiles);
        const int64_t pitch = columns + space.column_halo;
        int64_t rows = tconv_min(space.rows, (block_n - columns) / pitch + 1);
        rows = tconv_ceil_div(space.rows, tconv_ceil_div(space.rows, rows));
        const int64_t image = (rows + space.row_halo) * pitch, first = (rows - 1) * pitch + columns;
        choice.columns = (int)columns;
        choice.rows = (int)rows;
        choice.images = 1;
        if (rows == space.rows && columns == space.columns)
            choice.images = (int)tconv_min(tconv_min(space.images, MAX_TMA_BOX), (block_n - first) / image + 1);
        offer_tile(search, &choice);
        if (space.flat || columns <= LEAST_COLUMNS)
            return;
    }
}

/* Offers the narrow tiles of so many M tiles: MMA tiles below and beside one another. */
static void offer_narrow_tiles(tile_search *search, tile_choice choice, const kernel_config *config)
{
    const int n_tiles = mma_tiles_of(config) / choice.m_tiles;
    choice.per_tap = false;
    choice.images = 1;
    for (choice.across = 1; choice.across <= n_tiles; choice.across *= 2) {
        choice.columns = choice.across * CORE_ROWS;
        choice.rows = n_tiles / choice.across * config->N / CORE_ROWS;
        offer_tile(search, &choice);
    }
}

/* Returns whether the kernel of a config runs the layer's post-ops. */
static bool runs_posts(const tile_search *search, const kernel_config *config)
{
    return tconv_cuda_steps_are_affine(&search->given->problem) ||
           runs_any_posts(config->N, config->mma_tiles, search->output_bytes);
}

/* Returns whether the kernels of clusters take the layer. */
static bool may_be_clustered(const tile_search *search)
{
    return !search->sums && search->runs.rows == 1 && tconv_cuda_count_steps(&search->given->problem) == 0;
}

/* Offers all tiles of a config, by clusters of so many blocks. */
static void offer_config(tile_search *search, tile_choice choice, const kernel_config *config)
{
    const tconv_layer *layer = search->layer;
    /* Without a halo a plain tile is as good as a narrow one, and in NCHW a row should have many neighbours. */
    const position_space space = tconv_igemm_space(layer, false, false);
    const bool halo = space.row_halo + space.column_halo > 0;
    for (choice.m_tiles = 1; choice.m_tiles <= mma_tiles_of(config); choice.m_tiles *= 2)
        for (int src_transposed = 0; src_transposed <= (may_be_transposed(layer) ? 1 : 0); src_transposed++) {
            choice.src_transposed = src_transposed == 1;
            for (int per_tap = 0; per_tap < 2; per_tap++) {
                choice.per_tap = per_tap == 1;
                offer_tiles(search, choice, config);
            }
            choice.im2col = layer->problem.plane_taps.taps == 0 && tconv_igemm_may_be_im2col(layer);
            if (choice.im2col)
                offer_tiles(search, choice, config);
            choice.im2col = false;
            if (halo && (choice.src_transposed || tconv_igemm_is_transposed_before(layer) ||
                         layer->problem.layout == TCONV_NHWC))
                offer_narrow_tiles(search, choice, config);
        }
}

void tconv_igemm_offer_candidates(tile_search *search)
{
    tile_choice choice = {0};
    const kernel_config *config = configs_of(search);
    for (; choice.config < CONFIGS && config->N > 0; choice.config++, config++) {
        choice.cluster_blocks = 1;
        if (!config->clustered && runs_posts(search, config))
            offer_config(search, choice, config);
        for (size_t i = 0; config->clustered && may_be_clustered(search) && i < sizeof CLUSTERS / sizeof *CLUSTERS;
             i++) {
            choice.cluster_blocks = CLUSTERS[i];
            offer_config(search, choice, config);
        }
    }
}
