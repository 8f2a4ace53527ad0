/* Shares out shared memory among pipeline stages, and lays out the weights of an A stage and the order in which they
 * are multiplied. */
#include "plan.h"

#include "../../core/checked.h"

enum {
    SWIZZLE_ALIGNMENT = 1024, /* bytes at whose multiples a swizzled box begins in shared memory: eight rows of 128 */
    REALIGNED_K_STEPS = 2,    /* K steps that the transpose warps realign at once */
    LEAST_COLUMN_A_STAGES = 4 /* of one column of taps each, which are short */
};

typedef struct stage_counts {
    int b_stages, raw_stages;
    int a_stages; /* 0: those of all weights */
    int staging_buffers;
} stage_counts;

/* From the fewest stages to those beyond which there is no use: the last that fits is taken. */
static const stage_counts THROUGH_RAW_STAGES[] = {{2, 1, 2, 1}, {2, 2, 2, 1}, {2, 2, 3, 1}, {2, 2, 4, 1}, {3, 2, 4, 1},
                                                  {3, 3, 5, 1}, {3, 3, 6, 1}, {2, 2, 4, 2}, {2, 2, 6, 2}, {2, 3, 6, 2},
                                                  {3, 3, 6, 2}, {3, 4, 8, 2}, {4, 4, 8, 2}};
static const stage_counts IN_PLACE[] = {{2, 0, 2, 1}, {2, 0, 4, 1}, {3, 0, 4, 1}, {3, 0, 6, 1}, {2, 0, 3, 2},
                                        {2, 0, 4, 2}, {2, 0, 6, 2}, {2, 0, 8, 2}, {3, 0, 3, 2}, {3, 0, 4, 2},
                                        {3, 0, 6, 2}, {3, 0, 8, 2}, {4, 0, 6, 2}, {4, 0, 8, 2}};
static const stage_counts RESIDENT[] = {{2, 0, 0, 1}, {3, 0, 0, 1}, {2, 0, 0, 2}, {3, 0, 0, 2}, {4, 0, 0, 2}};

/* Returns the bytes of one staging buffer of all consumer warps. */
static int64_t staging_bytes(const tconv_layer *layer, int N)
{
    return (int64_t)WARPGROUP_WARPS * WARPGROUPS * staged_bytes(N, (int)layer->problem.element_size);
}

/* Returns the order in which an MMA tile with so many taps in a row multiplies. */
static mma_schedule schedule_of(const parameters *params, int taps, int mma_rows)
{
    mma_schedule schedule;
    const int k_steps = params->k_steps << params->space_to_depth_log2;
    const uint32_t k_step_weights = (uint32_t)params->k_step_weights, k_step_pixels = (uint32_t)params->k_step_pixels;
    const bool pairs = taps == 2 && k_steps % 2 == 0, along_k = taps == 1;
    schedule.outer = pairs || along_k ? 1 : k_steps;
    schedule.inner = pairs || along_k ? k_steps * taps : taps;
    schedule.outer_weights = k_step_weights;
    schedule.outer_pixels = k_step_pixels;
    schedule.weights = along_k ? k_step_weights : (uint32_t)mma_rows;
    schedule.pixels = along_k ? k_step_pixels : (uint32_t)-params->column_step;
    schedule.pair_weights = pairs ? k_step_weights : 2 * schedule.weights;
    schedule.pair_pixels = pairs ? k_step_pixels : 2 * schedule.pixels;
    return schedule;
}

/*
 * Lays out the weights of a stack that overlap: an A stage is then, for each core and column of taps, the stack's zeros
 * and the taps of its rows, and at last zeros again. The two rows of a stack of 32 channels take 0 a, a b, b c and c 0
 * of 0 a b c 0. It has all columns of taps if all weights stay.
 */
static void lay_out_overlapping(tile_plan *plan)
{
    const tile_choice *choice = &plan->choice;
    parameters *params = &plan->params;
    const int rows = params->max_k_block_a_stages, columns = choice->resident ? params->column_taps[0] : 1;
    const int strip = rows * params->mma_tile_channels, row_step = params->a_stage_step;
    mma_schedule schedule;
    schedule.outer = columns;
    schedule.inner = rows;
    schedule.outer_weights = (uint32_t)strip;
    schedule.outer_pixels = (uint32_t)-params->column_step;
    schedule.weights = (uint32_t)params->mma_tile_channels;
    schedule.pixels = (uint32_t)-row_step;
    schedule.pair_weights = 2 * schedule.weights;
    schedule.pair_pixels = 2 * schedule.pixels;
    for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
        params->schedule[mma_tile] = schedule;
    params->weights_leading_bytes = (uint32_t)(columns * strip * CORE_ROW_BYTES);
    params->a_stage_bytes = 2 * params->weights_leading_bytes +
                            (uint32_t)((choice->stack - 1) * params->mma_tile_channels * CORE_ROW_BYTES);
    params->max_k_block_a_stages = params->k_block_a_stages[0] = params->k_block_a_stages[1] =
        params->column_taps[0] / columns;
    params->a_stage_step = params->column_step;
    plan->a_stage_columns = columns;
}

/* Takes these stages if they fit. */
static bool take(const stage_counts *counts, int64_t staging, parameters *params)
{
    const int a_stages = counts->a_stages > 0 ? counts->a_stages : params->k_blocks * params->max_k_block_a_stages;
    if (a_stages > MAX_STAGES || (int64_t)counts->b_stages * params->b_stage_bytes +
                                         (int64_t)counts->raw_stages * params->raw_stage_bytes +
                                         (int64_t)a_stages * params->a_stage_bytes + counts->staging_buffers * staging >
                                     SHARED_MEMORY_BYTES)
        return false;
    params->b_stages = counts->b_stages;
    params->raw_stages = counts->raw_stages;
    params->a_stages = a_stages;
    params->staging_buffers = counts->staging_buffers;
    return true;
}

/* Takes the last stages of a list that fit, of those with no fewer A stages than a limit; false where none do. */
static bool take_last(const stage_counts *list, size_t count, int least_a_stages, int64_t staging, parameters *params)
{
    bool fits = false;
    for (size_t i = 0; i < count; i++)
        fits |= list[i].a_stages >= least_a_stages && take(&list[i], staging, params);
    return fits;
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Takes the most stages that fit; false where none do. */
static bool take_stages(int64_t staging, const tile_choice *choice, bool overlap, parameters *params)
{
    params->resident = choice->resident;
    if (choice->resident)
        return take_last(RESIDENT, COUNT(RESIDENT), 0, staging, params);
    if (choice->in_place)
        return take_last(IN_PLACE, COUNT(IN_PLACE), overlap ? LEAST_COLUMN_A_STAGES : 0, staging, params);
    return take_last(THROUGH_RAW_STAGES, COUNT(THROUGH_RAW_STAGES), 0, staging, params);
}

/*
 * Does the same where B is MN-major, whether from boxes or realigned. Best is to keep a block's weights, but with
 * stages enough to load beside them; a second staging buffer is worth more than a fifth A stage.
 */
static bool take_mn_major_stages(int64_t staging, parameters *params)
{
    const int all = params->k_blocks * params->max_k_block_a_stages;
    const struct {
        int a_stages, staging_buffers, least; /* least: raw stages, and B stages where planes are realigned */
    } counts[] = {{all, 2, 3}, {all, 1, 3}, {all, 1, 2}, {4, 2, 3}, {3, 2, 2}, {4, 1, 3}, {2, 1, 2}};
    for (size_t i = 0; i < COUNT(counts); i++) {
        const int64_t left = SHARED_MEMORY_BYTES - counts[i].a_stages * (int64_t)params->a_stage_bytes -
                             counts[i].staging_buffers * staging - counts[i].least * (int64_t)params->b_stage_bytes;
        const int64_t raw_stages = tconv_min(left / params->raw_stage_bytes, MAX_STAGES);
        if (counts[i].a_stages > MAX_STAGES || left <= 0 || raw_stages < counts[i].least)
            continue;
        params->b_stages = counts[i].least;
        params->raw_stages = (int)raw_stages;
        params->a_stages = counts[i].a_stages;
        params->staging_buffers = counts[i].staging_buffers;
        params->resident = counts[i].a_stages == all;
        return true;
    }
    return false;
}

/* Lays out an MN-major B operand, which is a swizzled box of 64 pixels after another. */
static void lay_out_mn_major(const tconv_layer *layer, tile_plan *plan)
{
    parameters *params = &plan->params;
    const int64_t row = SWIZZLE_PIXELS * (int64_t)layer->problem.element_size; /* of a channel */
    const int64_t boxes = tconv_ceil_div(params->tile_columns, SWIZZLE_PIXELS);
    params->pixels_leading_bytes = (uint32_t)(params->k_block_channels * row);
    params->k_step_pixels = (int)(params->k_block_channels / params->k_steps * row / CORE_ROW_BYTES);
    params->stage_boxes = (int)boxes;
    params->raw_stage_bytes = (uint32_t)(boxes * params->pixels_leading_bytes);
    params->b_stage_bytes = 0;
    if (plan->choice.realigned) {
        /* Rows begin at a multiple of 16 bytes before the first pixel, so that they are longer. */
        const int64_t beside = params->column_alignment, element = (int64_t)layer->problem.element_size;
        const int64_t pixels = tconv_min(params->tile_columns, params->in_columns),
                      most = MAX_TMA_BOX / SWIZZLE_PIXELS - 1;
        const int64_t parts = pixels + beside <= MAX_TMA_BOX ? 1 : tconv_ceil_div(boxes, most);
        params->box_parts = (int)parts;
        params->part_pixels = (int)(tconv_ceil_div(boxes, parts) * SWIZZLE_PIXELS);
        params->part_pitch = (int)tconv_round_up(tconv_min(pixels, params->part_pixels) + beside - 1, beside);
        params->map_row_channels = tconv_wgmma_aligned_channels(&layer->problem);
        params->expected_bytes = (uint32_t)(parts * params->k_block_channels * params->part_pitch * element);
        params->box_step_bytes = (uint32_t)tconv_round_up(
            params->k_block_channels / params->map_row_channels * params->part_pitch * element, BOX_DESTINATION);
        params->b_stage_bytes = params->raw_stage_bytes;
        params->raw_stage_bytes =
            (uint32_t)tconv_round_up(parts * params->map_row_channels * params->box_step_bytes, SWIZZLE_ALIGNMENT);
    }
    for (int warpgroup = 0; warpgroup < WARPGROUPS; warpgroup++)
        for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
            params->mma_tile_first_pixel[warpgroup][mma_tile] =
                (int)((uint32_t)(params->mma_tile_first_column[warpgroup][mma_tile] / SWIZZLE_PIXELS) *
                      params->pixels_leading_bytes / CORE_ROW_BYTES);
}

bool tconv_wgmma_weights_overlap(const tconv_layer *layer, const tile_choice *choice)
{
    return choice->in_place && choice->stack > 1 && choice->k_steps == 1 && layer->columns.count == 1;
}

int64_t tconv_wgmma_commit_groups(const parameters *params, int mma_tile)
{
    return (int64_t)params->k_blocks * params->max_k_block_a_stages * params->schedule[mma_tile].outer *
           tconv_ceil_div(params->schedule[mma_tile].inner, COMMIT_GROUP_MMAS);
}

bool tconv_wgmma_lay_out_stages(const tconv_layer *layer, tile_plan *plan)
{
    const tile_choice *choice = &plan->choice;
    parameters *params = &plan->params;
    const int planes = operand_planes(plan->arithmetic), element = (int)layer->problem.element_size;
    const int mma_bytes = planes * MMA_M * 2 * CORE_ROW_BYTES, mma_rows = mma_bytes / CORE_ROW_BYTES;
    const bool own_weights = layer->rows.count == 2 || choice->split_channels; /* each warpgroup's */
    const bool column_phases = layer->columns.count == 2;
    const int depth = choice->space_to_depth ? 2 : 1;
    const int taps = params->column_taps[0] + (column_phases ? params->column_taps[1] : 0);
    params->k_steps = choice->k_steps;
    params->k_block_channels = choice->k_steps * 2 * CORE_ROW_BYTES / element;
    params->k_blocks = (int)tconv_ceil_div(layer->problem.group_in, params->k_block_channels);
    params->k_step_weights = taps * mma_rows;
    params->k_step_pixels = 2 * params->patch;
    if (choice->space_to_depth) /* from the first columns of pairs to the second ones */
        params->k_step_pixels =
            tconv_wgmma_space_to_depth_first(layer) == 0 ? params->pitch / 2 : 1 - params->pitch / 2;
    params->pixels_leading_bytes = (uint32_t)params->patch * CORE_ROW_BYTES;
    params->mma_tile_weights = column_phases ? params->column_taps[0] * mma_rows : 0;
    params->warpgroup_weights = own_weights ? depth * params->k_steps * params->k_step_weights : 0;
    params->a_stage_bytes = (uint32_t)((own_weights ? 2 : 1) * depth * params->k_steps * taps * mma_bytes);
    params->raw_stage_bytes = (uint32_t)(params->k_block_channels * params->box_patch * element);
    params->b_stage_bytes = (uint32_t)(planes * 2 * params->k_steps * params->patch * CORE_ROW_BYTES);
    /* Two warps go over each of two cores, or one over each of four; a lane takes pairs of 16-bit pixels. */
    params->transpose_step = (params->k_steps == 1 ? 2 : 1) * WARP * (4 / element);
    params->transpose_columns = params->transpose_step % params->box_pitch;
    params->transpose_pixels = params->transpose_step / params->box_pitch * params->pitch + params->transpose_columns;
    if (plan->choice.mn_major)
        lay_out_mn_major(layer, plan);
    for (int mma_tile = 0; mma_tile < MMA_TILES; mma_tile++)
        params->schedule[mma_tile] = schedule_of(params, params->column_taps[mma_tile], mma_rows);
    params->weights_leading_bytes = MMA_M * CORE_ROW_BYTES;
    if (tconv_wgmma_weights_overlap(layer, choice))
        lay_out_overlapping(plan);
    params->same_schedule = params->column_taps[0] == params->column_taps[1];
    const int64_t staging = staging_bytes(layer, plan->N);
    /* A K-block must not reach into the next group. */
    return (layer->problem.groups == 1 || layer->problem.group_in % params->k_block_channels == 0) &&
           (!plan->choice.realigned || params->k_steps % REALIGNED_K_STEPS == 0) &&
           (plan->choice.mn_major ? take_mn_major_stages(staging, params)
                                  : take_stages(staging, choice, tconv_wgmma_weights_overlap(layer, choice), params));
}
