/*
 * Chooses the tile of a layer: tiles for each N that there is a kernel for are tried, and the one with the least
 * predicted time is taken.
 */
#include "../maps/hopper.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"
#include "plan.h"

#include <cstring>

namespace tconv::wgmma
{

namespace
{

constexpr int MAX_MMA_TILE_ROWS = 16; /* the most that are tried */
constexpr int MAX_K_STEPS = 4;        /* the same */

arithmetic mode_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return arithmetic::F16;
    if (layer->problem.dtype == TCONV_BF16)
        return arithmetic::BF16;
    return layer->target.math == TCONV_MATH_TF32 ? arithmetic::TF32 : arithmetic::STRICT;
}

const kernel_config *configs_of(arithmetic mode)
{
    const kernel_config *const configs[] = {tf32_configs, strict_configs, f16_configs, bf16_configs};
    return configs[(int)mode];
}

/* Tells whether planes of src can be an MN-major B operand, realigned or not: 16-bit types alone have such MMAs. */
bool src_can_be_mn_major(const tconv_problem *problem)
{
    return problem->element_size == 2 && is_aligned(problem->src.n, problem) &&
           problem->in_channels % aligned_channels(problem) == 0 && problem->src.c < HOPPER_MAX_EXTENT;
}

/* Returns the kernel of this N whose B operand is MN-major; NULL where there is none. */
const kernel_config *mn_major_config(arithmetic mode, int N)
{
    const kernel_config *configs = mode == arithmetic::F16 ? f16_mn_major_configs : bf16_mn_major_configs;
    for (int i = 0; i < MN_MAJOR_CONFIGS; i++)
        if (configs[i].N == N)
            return &configs[i];
    return NULL;
}

/* Fills in the numbers that the kernel divides by. */
void describe_divisors(parameters *params)
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

/* Makes the plan of the layer in tiles of this choice; false where that does not fit. */
bool make_plan(const tconv_layer *layer, const tile_choice *choice, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    parameters *params = &made->params;
    memset(params, 0, sizeof *params);
    made->mode = mode_of(layer);
    made->mn_major = choice->mn_major;
    made->realigned = choice->realigned;
    made->aligned = is_aligned(problem->src.n, problem) && is_aligned(problem->src.c, problem);
    made->a_stage_columns = 0;
    made->config = configs_of(made->mode)[choice->config];
    if (made->mn_major)
        made->config = *mn_major_config(made->mode, made->config.N);
    if (!lay_out_tile(layer, choice, made) || !lay_out_stages(layer, choice, made) ||
        (made->mode == arithmetic::STRICT &&
         tconv_max(commit_groups(params, 0), commit_groups(params, 1)) > STRICT_MAX_COMMIT_GROUPS))
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
    made->thread_blocks = (int)tconv_max(1, tconv_min(tiles, layer->target.multiprocessors));
    if (params->resident) /* a thread block takes every so manieth tile: those of the same output channels */
        made->thread_blocks = (int)tconv_max(made->thread_blocks / params->m_blocks, 1) * params->m_blocks;
    return true;
}

/* Makes the plan with the least predicted time, and tells its tile; false where no tile fits, or where strict sums
 * would be too long. */
bool choose_plan(const search *in, plan *best, tile_choice *best_choice)
{
    const tconv_layer *layer = in->layer;
    const arithmetic mode = mode_of(layer);
    const kernel_config *configs = configs_of(mode);
    const bool flat = is_flat(layer), can_stack = !flat && layer->rows.stride == 1 && layer->rows.shift_step == 1;
    const bool can_be_mn_major = flat && src_can_be_mn_major(&layer->problem);
    /* Rows that are transposed in place can be; a kernel of one column would have as many taps. */
    const bool can_space_to_depth = !flat && mode != arithmetic::STRICT && layer->columns.stride == 1 &&
                                    layer->columns.kernel_step == 1 && layer->columns.shift_step == 1 &&
                                    layer->problem.w.kernel > 1;
    const bool can_split = layer->rows.count == 1 && layer->problem.group_out > MMA_M;
    bool found = false;
    double least = 0;
    tile_choice choice;
    plan made = {};
    const auto consider = [&] {
        if (!make_plan(layer, &choice, &made))
            return false;
        const tconv_cuda_work work = work_of(in, &made);
        const double seconds = tconv_cuda_seconds_below(least, &in->machine, &work);
        if (!found || seconds < least) {
            *best = made;
            *best_choice = choice;
            least = seconds;
        }
        found = true;
        return true;
    };
    for (choice.config = 0; choice.config < CONFIGS && configs[choice.config].N > 0; choice.config++)
        for (choice.k_steps = 1; choice.k_steps <= MAX_K_STEPS; choice.k_steps *= 2)
            for (choice.mma_tile_rows = 1; choice.mma_tile_rows <= (flat ? 1 : MAX_MMA_TILE_ROWS);
                 choice.mma_tile_rows++)
                for (choice.stack = 1; choice.stack <= (can_stack && choice.mma_tile_rows == 1 ? 2 : 1); choice.stack++)
                    for (int split = 0; split <= (can_split && choice.stack == 1 ? 1 : 0); split++) {
                        choice.split_channels = split == 1;
                        choice.mn_major = choice.realigned = choice.tight = choice.in_place = choice.resident =
                            choice.space_to_depth = false;
                        /* MN-major only where K-major fits as well, for addresses that TMA does not take. */
                        const bool fits = consider();
                        choice.in_place = !flat && mode != arithmetic::STRICT;
                        if (choice.in_place)
                            consider();
                        choice.resident = choice.in_place && weights_overlap(layer, &choice);
                        if (choice.resident)
                            consider();
                        choice.resident = false;
                        choice.space_to_depth = can_space_to_depth && choice.k_steps == 1 &&
                                                choice.mma_tile_rows == 1 && choice.stack == 1 &&
                                                !choice.split_channels;
                        if (choice.space_to_depth)
                            consider();
                        choice.in_place = choice.space_to_depth = false;
                        choice.mn_major = fits && can_be_mn_major && mn_major_config(mode, configs[choice.config].N);
                        choice.realigned = choice.mn_major && !is_aligned(layer->problem.src.c, &layer->problem);
                        if (choice.mn_major)
                            consider();
                        choice.mn_major = choice.realigned = false;
                        choice.tight = choice.mma_tile_rows > 1;
                        if (choice.tight)
                            consider();
                    }
    return found;
}

} // namespace

bool make_plans(const search *in, planned_layer *made)
{
    const tconv_layer *layer = in->layer;
    tile_choice choice;
    if (!choose_plan(in, &made->plans[0], &choice))
        return false;
    made->count = 1;
    if (!choice.mn_major)
        return true;
    if (!choice.realigned) {
        choice.realigned = true;
        made->count += make_plan(layer, &choice, &made->plans[made->count]);
    }
    choice.mn_major = choice.realigned = false; /* it fits: else MN-major is not considered */
    made->count += make_plan(layer, &choice, &made->plans[made->count]);
    return true;
}

} // namespace tconv::wgmma
