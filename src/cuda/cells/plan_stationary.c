/* The weight-stationary kernel's part of a plan (kernel_stationary.cuh). */
#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../maps/hopper.h"
#include "plan.h"

void tconv_cells_offer_stationary(tile_search *search)
{
    enum { LEAST_CHANNELS = 8, MMA_STEPS = 4 };
    const tconv_layer *layer = search->layer;
    const tconv_strides *src = &layer->problem.src;
    const int64_t alignment = COLUMN_ALIGNMENT, columns = layer->columns.stride;
    const int64_t most = STATIONARY_BLOCK_N / LEAST_CHANNELS / columns;
    if (numerics_split(search->numerics) || !tconv_cells_is_flat(layer) ||
        layer->problem.h.in * layer->problem.w.in % alignment != 0 || src->c % alignment != 0 ||
        src->n % alignment != 0)
        return;
    /* All rows must consist of pairs of cells that vectors store: else each element would be stored by itself. */
    const int64_t cells = columns < 4 ? 2 : 1;
    if (layer->problem.w.in % cells != 0 || !tconv_rows_begin_at_multiples(&layer->problem.dst, cells * columns))
        return;
    /* Cells have all rows of a stride or, where there is no room for eight channels then, one. */
    for (int rows = 1; rows <= most; rows *= 2) {
        const tile_choice choice = {true, rows, MMA_STEPS, false, 1, 1, WARPGROUP_M};
        if (rows == 1 || rows == layer->rows.stride)
            tconv_cells_offer(search, &choice);
    }
}

/*
 * Cuts images into warpgroup tiles, and distributes the N tiles: with as many sets of them as the device has sets of
 * blocks, or fewer, each set of blocks has one set of N tiles, and as many others share it. Returns false where weights
 * do not fit, or where an image has no full warpgroup tile.
 */
bool tconv_cells_describe_stationary(const tconv_layer *layer, layer_plan *plan)
{
    enum { LEAST_STAGES = 3 };
    parameters *params = &plan->params;
    const int left = params->in_columns % WARPGROUP_M;
    params->image_warpgroup_tiles = params->in_columns / WARPGROUP_M;
    params->tail_columns = left;
    /* A box of tails has as many floats as any other. */
    for (params->tail_pitch = COLUMN_ALIGNMENT; params->tail_pitch < left || BOX_PITCH % params->tail_pitch != 0;
         params->tail_pitch += COLUMN_ALIGNMENT) {
    }
    if (left > 0)
        params->tail_images = (int)tconv_min(WARPGROUP_M / left, BOX_PITCH / params->tail_pitch);
    const int64_t warpgroup_tiles = (int64_t)params->images * params->image_warpgroup_tiles +
                                    (left > 0 ? tconv_ceil_div(params->images, params->tail_images) : 0);
    if (params->image_warpgroup_tiles == 0 || warpgroup_tiles >= HOPPER_MAX_EXTENT ||
        params->k_blocks > MAX_STATIONARY_K_BLOCKS)
        return false;
    params->warpgroup_tiles = (int)warpgroup_tiles;
    params->m_tiles = (int)tconv_ceil_div(warpgroup_tiles, PAIR_WARPGROUPS);
    const int group_n_tiles = params->channel_tiles * params->schedule_count;
    params->n_tiles = params->groups * group_n_tiles;
    params->set_blocks = group_n_tiles % CLUSTER_BLOCKS == 0 ? CLUSTER_BLOCKS : 1;
    params->n_tile_sets = params->n_tiles / params->set_blocks;
    const int block_sets =
        tconv_cuda_target_of(&layer->target).multiprocessors / CLUSTER_BLOCKS * CLUSTER_BLOCKS / params->set_blocks;
    params->set_step = (int)tconv_max(1, tconv_min(params->n_tile_sets, block_sets));
    params->tile_step = (int)tconv_max(1, tconv_min(block_sets / params->set_step, params->m_tiles));
    params->b_row_bytes = (uint32_t)params->block_k * (uint32_t)sizeof(float);
    params->weight_stage_bytes = (uint32_t)params->schedules[0].b_rows * params->b_row_bytes;
    params->pixel_stage_bytes = PAIR_WARPGROUPS * BOX_PITCH * (uint32_t)(params->block_k * (int)sizeof(float));
    params->pixel_stages = (int)tconv_min((SHARED_MEMORY - (int64_t)params->k_blocks * params->weight_stage_bytes) /
                                              params->pixel_stage_bytes,
                                          MAX_STAGES);
    return params->pixel_stages >= LEAST_STAGES;
}
