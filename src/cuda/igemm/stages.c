/* The shared memory of an implicit GEMM: pipeline stages of A and B beside the staging buffers of the epilogue. */
#include "plan.h"

#include "../../core/checked.h"

enum {
    /* Stages of B, at least, for which the consumers' own staging is left out beside that of the epilogue warps: tiles
     * that only fit so took longer than predicted (kb57: 1.2 times). */
    MANY_STAGES = 3,

    /* Cycles from an A stage to the next where TMA brings all that wgmma reads, however little is multiplied
     * (measured). */
    A_STAGE_PERIOD = 670
};

/* K-blocks of a tile, at least, for quarters of MMA tiles to be staged: outputs wait for them, but where a stage of B
 * has one K-block a stage more is worth it. */
static const double LONG_TILE = 32;

/* Stages of B and of A, from the least to the most that is of use. The last pair that fits is taken. */
static const int STAGES[][2] = {{2, 2}, {2, 3}, {3, 3}, {3, 4}, {4, 4}, {4, 5}, {5, 6}, {6, 6}, {7, 8}, {8, 8}};

/* Returns whether rows of dst begin at whole vectors of 16 bytes, if dst does. */
static bool has_vector_rows(const tconv_problem *problem)
{
    return tconv_rows_begin_at_multiples(&problem->dst, VECTOR_BYTES / (int64_t)problem->element_size);
}

/* Fills in as many stages as fit, of A tiles of so many taps, beside so many staging buffers for epilogue warps (0:
 * there are none). */
static bool describe_stages(int staging_buffers, int a_stage_taps, layer_plan *plan)
{
    parameters *params = &plan->params;
    const int element = plan->output_bytes;
    const size_t consumers = (plan->config.clustered ? 0
                                                     : (size_t)WARPGROUPS * WARPGROUP_WARPS *
                                                           (size_t)warp_staging_bytes(plan->config.N, element)) +
                             (size_t)tconv_min(params->stage_pixels, MAX_COORDINATES) * sizeof(uint32_t);
    const size_t epilogue = (size_t)WARPGROUPS * (size_t)staging_buffers *
                            (size_t)staging_buffer_bytes(plan->config.N, element, params->paired, plan->config.parts);
    /* The tile that epilogue warps store is another than the one that is multiplied. */
    params->tables = staging_buffers > 0 ? 3 : 2;
    const size_t others = (size_t)params->raw_stages * params->raw_stage_bytes +
                          (size_t)params->tables * (size_t)params->block_n * sizeof(int64_t);
    params->epilogue_warps = staging_buffers > 0;
    params->staging_buffers = staging_buffers;
    params->a_stage_taps = a_stage_taps;
    params->b_stages = 0;
    for (size_t i = 0; i < sizeof STAGES / sizeof STAGES[0]; i++) {
        const size_t larger = consumers > epilogue ? consumers : epilogue;
        const size_t staging = staging_buffers == 0 ? consumers : STAGES[i][0] >= MANY_STAGES ? epilogue : larger;
        const size_t bytes = (size_t)STAGES[i][0] * params->b_stage_bytes +
                             (size_t)STAGES[i][1] * (size_t)a_stage_taps * params->a_tile_bytes + others + staging;
        if (bytes <= (size_t)SHARED_MEMORY) {
            params->b_stages = STAGES[i][0];
            params->a_stages = STAGES[i][1];
        }
    }
    return params->b_stages > 0 &&
           (!plan->config.clustered || (int64_t)params->b_stages * params->b_stage_bytes +
                                               (int64_t)params->a_stages * a_stage_taps * params->a_tile_bytes >=
                                           tconv_igemm_cluster_bytes(params));
}

/* Does the same, and fills in the stages that there are without epilogue warps: addresses may be such that TMA cannot
 * read src, or vectors cannot be stored. */
static bool describe_both_stages(int staging_buffers, int a_stage_taps, layer_plan *plan)
{
    if (staging_buffers > 0) {
        if (!describe_stages(0, a_stage_taps, plan))
            return false;
        plan->without_epilogue_warps = (fewer_stages){
            .tables = plan->params.tables, .b_stages = plan->params.b_stages, .a_stages = plan->params.a_stages};
    }
    return describe_stages(staging_buffers, a_stage_taps, plan);
}

/* Returns the taps of the phase with the fewest. */
static int64_t least_taps(const tconv_phase_table *table)
{
    int64_t least = table->max_taps;
    for (int64_t i = 0; i < table->count; i++)
        least = tconv_min(least, table->phases[i].taps);
    return least;
}

/* Returns the taps that an A stage may hold: more than one where there is little to multiply for each, but no more than
 * every phase has. */
static int most_a_stage_taps(const tconv_layer *layer, const layer_plan *plan)
{
    const parameters *params = &plan->params;
    const int64_t taps = least_taps(&layer->rows) * least_taps(&layer->columns);
    const int cycles = params->k_steps * mma_tiles_of(&plan->config) * plan->config.N / 2;
    return params->per_tap || !tconv_igemm_is_fed_by_tma(plan) || cycles > A_STAGE_PERIOD
               ? 1
               : (int)tconv_min(taps, MAX_A_STAGE_TAPS);
}

/* Offers a tile with stages beside so many staging buffers. before: the stages, for each number of taps of an A stage,
 * beside more staging buffers. Fewer staging buffers beside as many stages take no less. */
static void offer_staging(tile_search *search, int staging_buffers, const layer_plan *tile, const tconv_cuda_work *work,
                          int (*before)[2])
{
    layer_plan with = *tile;
    for (int taps = 1; taps <= most_a_stage_taps(search->layer, tile); taps++) {
        if (!describe_both_stages(staging_buffers, taps, &with) ||
            (staging_buffers > 0 && with.params.b_stages == before[taps][0] && with.params.a_stages == before[taps][1]))
            continue;
        before[taps][0] = with.params.b_stages;
        before[taps][1] = with.params.a_stages;
        tconv_cuda_work counted = *work;
        tconv_igemm_count_stages(search, &with, &counted);
        tconv_search_offer(&search->best, &with, &counted);
    }
}

bool tconv_igemm_is_fed_by_tma(const layer_plan *plan)
{
    return plan->params.by_tma && plan->params.src_channels_last && !numerics_split(plan->arithmetic);
}

void tconv_igemm_offer_stages(tile_search *search, const tile_choice *choice, const tconv_cuda_work *tile,
                              const layer_plan *plan)
{
    const tconv_layer *layer = search->layer;
    /* More staging buffers leave fewer pipeline stages. NHWC always has epilogue warps where TMA leaves warps free for
     * them. Column pairs gain by them where all accumulators of a tile find room and are stored by vectors: the
     * epilogue warps are few, and the consumers should not wait for them. */
    const bool fed = tconv_igemm_is_fed_by_tma(plan), always = fed && plan->params.dst_channels_last;
    const bool pairs = fed && plan->params.paired && choice->across > 0 && has_vector_rows(&layer->problem);
    int before[MAX_A_STAGE_TAPS + 1][2] = {{0}};
    const bool one_tap = plan->params.per_tap || plan->mean_taps == 1;
    if (plan->config.clustered) {
        offer_staging(search, 0, plan, tile, before);
        return;
    }
    if (plan->config.parts == QUARTERS) {
        if (always && one_tap && tile->k_blocks >= LONG_TILE)
            offer_staging(search, 1, plan, tile, before);
        return;
    }
    for (int buffers = always || pairs ? MAX_STAGING_BUFFERS : 0; buffers > 0; buffers = always ? buffers / 2 : 0)
        offer_staging(search, buffers, plan, tile, before);
    if (!always)
        offer_staging(search, 0, plan, tile, before);
}
