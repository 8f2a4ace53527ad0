/* The number of split-K slices: each slice has blocks of its own. */
#include "plan_splits.h"
#include "../cuda_target.h"

#include "../../core/checked.h"

enum {
    SLICES_BYTES = 60 << 20,    /* of all slices, at most, where there are several */
    LEAST_SUMMED_CHANNELS = 32, /* of a chunk, for its blocks to sum the bias */

    /* How many bytes a weight takes in the tables of a block that writes weights (store_weights.cuh): an int and an
     * int64_t. */
    WEIGHT_TABLE_BYTES = 12
};

/* The prediction is made of these beside cost.c. */
#define BEGIN_CYCLES 5000.0 /* of a block, until its first product */
#define STORE_BYTES  32.0   /* of a block's sums, in a cycle */
#define ADD_BYTES    8.0    /* of all slices, in a cycle of every multiprocessor */
#define SECTOR_TIMES 0.5 /* of a byte of a slice, that a byte takes by which a sector of weights is more than the run */

/* Returns whether blocks that have all terms of their sums can write the weights: the sums and the tables of a block
 * fit in the memory of its stages. */
static bool can_write_weights(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const int64_t tables = params->tiles.block_n * WEIGHT_TABLE_BYTES + (int64_t)sizeof(int);
    return plan->kernel->family != BY_MMA && params->k_tiles < params->flush_tiles && chunks_of(&plan->copies) <= 1 &&
           (int64_t)params->tiles.block_m * params->weights.pitch * (int64_t)sizeof(float) + tables <=
               (int64_t)params->stages * params->stage_bytes;
}

/* Returns how many times as many bytes move as are written where a block writes its weights: memory moves whole
 * sectors. */
static double written_part(const planned_layer *plan, int element_size)
{
    const sum_tiles *tiles = &plan->params.tiles;
    int64_t run = tiles->columns.group_taps;
    if (plan->params.weights.outputs_inner)
        run = tiles->chunk;
    else if (tiles->columns.groups == 1)
        run *= tiles->rows.group_taps * (tiles->rows.groups == 1 ? tiles->chunk : 1);
    const double bytes = (double)run * element_size;
    return bytes >= SECTOR_BYTES ? 1 : SECTOR_BYTES / bytes;
}

/* Returns whether each output of an axis has exactly one tap. */
static bool has_single_taps(const tconv_axis *axis)
{
    return axis->kernel == axis->stride && axis->dilation == 1 && axis->pad == 0 &&
           axis->out == axis->in * axis->stride;
}

int64_t tconv_wgrad_bias_parts(const tconv_layer *layer, const planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *params = &plan->params;
    const sum_tiles *tiles = &params->tiles;
    const int64_t line =
        ((int64_t)params->columns.stride << params->columns.tile_log2) * (int64_t)problem->element_size;
    /* With fewer channels, few of the threads that copy have a part; blocks that share lines wait for one another. */
    if (tiles->chunk < LEAST_SUMMED_CHANNELS || params->sharers > 1)
        return 0;
    if (plan->kernel->family == BY_MMA || plan->math == NUMERICS_STRICT || plan->writes_weights ||
        !sums_bias(plan->load, problem->element_size == 2) || !has_single_taps(&problem->h) ||
        !has_single_taps(&problem->w))
        return 0;
    if (plan->load == LINES && (problem->layout != TCONV_NCHW || tiles->columns.groups > 1 || line % LINE_BYTES != 0 ||
                                tiles->chunk > MAX_LINE_CHANNELS))
        return 0;
    return params->splits * tiles->m_tiles * tiles->rows.groups * tiles->columns.groups;
}

void tconv_wgrad_choose_splits(const tconv_layer *layer, planned_layer *plan, double cycles)
{
    parameters *params = &plan->params;
    const sum_tiles *tiles = &params->tiles;
    const int64_t places = (int64_t)tconv_cuda_target_of(&layer->target).multiprocessors * plan->resident;
    const double tile_bytes = (double)tiles->block_m * (double)tiles->block_n * 4;
    const double slice_bytes = tile_bytes * (double)tiles->count;
    const int element_size = (int)layer->problem.element_size;
    const double weight_bytes = slice_bytes / sizeof(float) * element_size;
    const double written = (written_part(plan, element_size) - 1) * weight_bytes * SECTOR_TIMES;
    const int64_t most = tconv_min(tconv_max(1, params->k_tiles), tconv_ceil_div(4 * places, tiles->count));
    const double most_bytes = plan->copies.images > 0 ? (double)COPIED_SLICES_BYTES : (double)SLICES_BYTES;
    for (int64_t splits = 1; splits <= most; splits++) {
        if (splits > 1 && slice_bytes * (double)splits * (keeps_lost(plan, splits) ? 2 : 1) > most_bytes)
            continue;
        const double rounds = (double)tconv_ceil_div(splits * tiles->count, places);
        const double block = BEGIN_CYCLES + (double)tconv_ceil_div(params->k_tiles, splits) * cycles +
                             plan->resident * tile_bytes / STORE_BYTES;
        const bool writes = splits == 1 && written < slice_bytes && can_write_weights(plan);
        const double added = (writes ? written : (double)splits * slice_bytes) /
                             (ADD_BYTES * tconv_cuda_target_of(&layer->target).multiprocessors);
        const double all = rounds * block + added;
        if (splits == 1 || all < plan->cycles) {
            plan->cycles = all;
            params->splits = (int)splits;
            plan->writes_weights = writes;
        }
    }
    plan->blocks = params->splits * tiles->count;
}
