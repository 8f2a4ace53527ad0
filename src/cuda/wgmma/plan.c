/*
 * Chooses the tile of a layer: tiles for each N that there is a kernel for are tried, and the one with the least
 * predicted time is taken.
 */
#include "plan.h"
#include "../cuda_target.h"

#include <limits.h>
#include <string.h>

#include "../../core/checked.h"
#include "../maps/hopper.h"

enum {
    MAX_MMA_TILE_ROWS = 16, /* the most that are tried */
    MAX_K_STEPS = 4         /* the same */
};

/* Tells whether planes of src can be an MN-major B operand, realigned or not: 16-bit types alone have such MMAs. */
static bool src_can_be_mn_major(const tconv_problem *problem)
{
    return problem->element_size == 2 && tconv_wgmma_is_aligned(problem->src.n, problem) &&
           problem->in_channels % tconv_wgmma_aligned_channels(problem) == 0 && problem->src.c < HOPPER_MAX_EXTENT;
}

/* Fills in the numbers that the kernel divides by. */
static void describe_divisors(parameters *params)
{
    const int tile =
        (params->flat_columns > 0 ? params->flat_columns : params->tile_columns) * params->position_columns;
    const int last = params->out_columns - (params->column_tiles - 1) * tile;
    params->by_m_blocks = divisor_of(params->m_blocks);
    params->by_group_m_blocks = divisor_of(params->group_m_blocks);
    params->by_column_tiles = divisor_of(params->column_tiles);
    params->by_row_tiles = divisor_of(params->row_tiles);
    params->by_flat_columns = divisor_of((int)tconv_max(params->flat_columns, 1));
    params->by_row = divisor_of(tile);
    params->by_last_row = params->flat_columns > 0 ? params->by_row : divisor_of(last);
}

/* Describes where channels of several planes are; false where a K-block has some of two. */
static bool describe_planes(const tconv_problem *problem, const tile_choice *choice, parameters *params)
{
    const tconv_plane_taps *taps = &problem->plane_taps;
    params->src_images = (int)tconv_src_images(problem);
    params->by_plane_channels = divisor_of(INT_MAX);
    params->held_channels = INT_MAX;
    if (taps->taps == 0)
        return true;
    params->by_plane_channels = divisor_of((int)taps->channels);
    params->held_channels = (int)taps->held;
    params->first_plane = (int)taps->first;
    params->plane_step = (int)taps->step;
    return !choice->realigned && taps->image_step == 1 && taps->channels % params->k_block_channels == 0;
}

/* Makes the plan of the layer in tiles of this choice; false where that does not fit. */
static bool make_plan(const tconv_layer *layer, const tile_choice *choice, tile_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &plan->params;
    memset(params, 0, sizeof *params);
    plan->arithmetic = numerics_of(layer);
    plan->choice = *choice;
    plan->aligned = tconv_wgmma_is_aligned(problem->src.n, problem) && tconv_wgmma_is_aligned(problem->src.c, problem);
    plan->a_stage_columns = 0;
    plan->N = config_N(plan->arithmetic, choice->config);
    if (!tconv_wgmma_lay_out_tile(layer, plan) || !tconv_wgmma_lay_out_stages(layer, plan) ||
        (plan->arithmetic == NUMERICS_STRICT &&
         tconv_max(tconv_wgmma_commit_groups(params, 0), tconv_wgmma_commit_groups(params, 1)) > STRICT_ADDITIONS))
        return false;
    if (!describe_planes(problem, choice, params))
        return false;
    params->src_image = problem->src.n;
    params->src_channel = problem->src.c;
    params->dst_image = problem->dst.n;
    params->dst_channel = problem->dst.c;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->group_m_blocks = (int)tconv_ceil_div(problem->group_out, params->tile_channels);
    params->m_blocks = (int)problem->groups * params->group_m_blocks;
    params->row_tiles = (int)tconv_ceil_div(params->out_rows, layer->rows.stride * params->tile_rows);
    if (params->flat_columns > 0)
        params->row_tiles = 1;
    describe_divisors(params);
    const int64_t tiles = problem->batch * params->m_blocks * params->row_tiles * params->column_tiles;
    if (tiles >= HOPPER_MAX_EXTENT)
        return false;
    params->tiles = (int)tiles;
    plan->thread_blocks = (int)tconv_max(1, tconv_min(tiles, tconv_cuda_target_of(&layer->target).multiprocessors));
    if (params->resident) /* a thread block takes every so manieth tile: those of the same output channels */
        plan->thread_blocks = (int)tconv_max(plan->thread_blocks / params->m_blocks, 1) * params->m_blocks;
    return true;
}

/* Offers the plan of this choice; false where it does not fit. */
static bool offer(tile_search *search, const tile_choice *choice)
{
    tile_plan plan;
    if (!make_plan(search->layer, choice, &plan))
        return false;
    const tconv_cuda_work work = tconv_wgmma_work(search, &plan);
    tconv_search_offer(&search->best, &plan, &work);
    return true;
}

/* Which tiles a layer may have. */
typedef struct tile_kinds {
    bool flat, stack, split_channels, mn_major, in_place, space_to_depth;
} tile_kinds;

static tile_kinds kinds_of(const tconv_layer *layer)
{
    const bool strict = numerics_of(layer) == NUMERICS_STRICT;
    tile_kinds kinds;
    kinds.flat = tconv_cuda_is_flat(layer);
    kinds.stack = !kinds.flat && layer->rows.stride == 1 && layer->rows.shift_step == 1;
    kinds.split_channels = layer->rows.count == 1 && layer->problem.group_out > MMA_M;
    kinds.mn_major = kinds.flat && src_can_be_mn_major(&layer->problem);
    kinds.in_place = !kinds.flat && !strict;
    /* Rows that are transposed in place can be; a kernel of one column would have as many taps. */
    kinds.space_to_depth = kinds.in_place && layer->columns.stride == 1 && layer->columns.kernel_step == 1 &&
                           layer->columns.shift_step == 1 && layer->problem.w.kernel > 1;
    return kinds;
}

/* Offers a tile with every way to load its patch. */
static void offer_loads(tile_search *search, const tile_kinds *kinds, tile_choice choice)
{
    const tconv_problem *problem = &search->layer->problem;
    choice.mn_major = choice.realigned = choice.tight = choice.in_place = choice.resident = choice.space_to_depth =
        false;
    /* MN-major only where K-major fits as well, for addresses that TMA does not take. */
    const bool fits = offer(search, &choice);
    choice.in_place = kinds->in_place;
    if (choice.in_place)
        offer(search, &choice);
    choice.resident = choice.in_place && tconv_wgmma_weights_overlap(search->layer, &choice);
    if (choice.resident)
        offer(search, &choice);
    choice.resident = false;
    choice.space_to_depth = kinds->space_to_depth && choice.k_steps == 1 && choice.mma_tile_rows == 1 &&
                            choice.stack == 1 && !choice.split_channels;
    if (choice.space_to_depth)
        offer(search, &choice);
    choice.in_place = choice.space_to_depth = false;
    choice.mn_major = fits && kinds->mn_major && choice.config < MN_MAJOR_CONFIGS;
    choice.realigned = choice.mn_major && !tconv_wgmma_is_aligned(problem->src.c, problem);
    if (choice.mn_major)
        offer(search, &choice);
    choice.mn_major = choice.realigned = false;
    choice.tight = choice.mma_tile_rows > 1;
    if (choice.tight)
        offer(search, &choice);
}

const char *tconv_wgmma_make_plans(tile_search *search, planned_layer *planned)
{
    const tconv_layer *layer = search->layer;
    const tile_kinds kinds = kinds_of(layer);
    const numerics arithmetic = numerics_of(layer);
    const int most_rows = kinds.flat ? 1 : MAX_MMA_TILE_ROWS;
    tile_choice choice = {0};
    for (; choice.config < CONFIGS && config_N(arithmetic, choice.config) > 0; choice.config++)
        for (choice.k_steps = 1; choice.k_steps <= MAX_K_STEPS; choice.k_steps *= 2)
            for (choice.mma_tile_rows = 1; choice.mma_tile_rows <= most_rows; choice.mma_tile_rows++)
                for (choice.stack = 1; choice.stack <= (kinds.stack && choice.mma_tile_rows == 1 ? 2 : 1);
                     choice.stack++)
                    for (int split = 0; split <= (kinds.split_channels && choice.stack == 1 ? 1 : 0); split++) {
                        choice.split_channels = split == 1;
                        offer_loads(search, &kinds, choice);
                    }
    planned->count = search->best.found;
    if (!search->best.found || !planned->plans[0].choice.mn_major)
        return tconv_search_refusal(&search->best,
                                    "no tile fits in shared memory, or sums are too long for strict f32");
    choice = planned->plans[0].choice;
    if (!choice.realigned) {
        choice.realigned = true;
        planned->count += make_plan(layer, &choice, &planned->plans[planned->count]);
    }
    choice.mn_major = choice.realigned = false; /* it fits: else MN-major is not offered */
    planned->count += make_plan(layer, &choice, &planned->plans[planned->count]);
    return NULL;
}
