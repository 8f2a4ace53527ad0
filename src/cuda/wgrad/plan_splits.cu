/* Into how many parts K-tiles are cut, each for blocks of its own. */
#include "plan_splits.h"

#include "../../core/checked.h"
#include "../model/planned.h"

namespace tconv::wgrad
{

namespace
{

constexpr size_t SLICES_BYTES = (size_t)60 << 20; /* of all slices, where one of them is not more than half of it */

constexpr int64_t LEAST_SUMMED_CHANNELS = 32; /* of a chunk, of whose outputs blocks sum the bias */

/* What the prediction is made of beside cost.h: */
constexpr double BEGIN_CYCLES = 5000; /* of a block, until its first product */
constexpr double STORE_BYTES = 32;    /* a cycle, of a block's sums */
constexpr double ADD_BYTES = 8;       /* a cycle of every multiprocessor, of all slices */

/* Whether blocks that have all terms of their sums can write the weights. */
bool can_write_weights(const planned_layer *plan)
{
    const parameters *p = &plan->parameters;
    return plan->kernel.by_warpgroups && p->k_tiles < p->flush_tiles && parts_of(plan->copies) <= 1 &&
           (int64_t)p->tiles.block_m * p->weights.pitch * (int64_t)sizeof(float) +
                   weight_table_bytes(p->tiles.block_n) <=
               (int64_t)p->stages * p->stage_bytes;
}

/* How many times as much moves as is written, where a block writes its weights: whole sectors. */
double written_part(const planned_layer *plan, int element_size)
{
    const sum_tiles *tiles = &plan->parameters.tiles;
    int64_t run = tiles->columns.group_taps;
    if (plan->parameters.weights.outputs_inner)
        run = tiles->chunk;
    else if (tiles->columns.groups == 1)
        run *= tiles->rows.group_taps * (tiles->rows.groups == 1 ? tiles->chunk : 1);
    const double bytes = (double)run * element_size;
    return bytes >= SECTOR_BYTES ? 1 : SECTOR_BYTES / bytes;
}

/* Whether each output of an axis is of one tap. */
bool has_single_taps(const tconv_axis *axis)
{
    return axis->kernel == axis->stride && axis->dilation == 1 && axis->pad == 0 &&
           axis->out == axis->in * axis->stride;
}

} // namespace

int64_t bias_parts_of(const tconv_layer *layer, const planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const parameters *p = &plan->parameters;
    const sum_tiles *tiles = &p->tiles;
    const int64_t line = ((int64_t)p->columns.stride << p->columns.tile_log2) * (int64_t)problem->element_size;
    /* With fewer channels, few of the threads that copy have a part; blocks that share lines wait for one another. */
    if (tiles->chunk < LEAST_SUMMED_CHANNELS || p->sharers > 1)
        return 0;
    if (!plan->kernel.by_warpgroups || plan->mode == MODE_STRICT || plan->writes_weights ||
        !sums_bias(plan->reading, problem->element_size == 2) || !has_single_taps(&problem->h) ||
        !has_single_taps(&problem->w))
        return 0;
    if (plan->reading == LINES && (problem->layout != TCONV_NCHW || tiles->columns.groups > 1 ||
                                   line % LINE_BYTES != 0 || tiles->chunk > MAX_LINE_CHANNELS))
        return 0;
    return p->splits * tiles->m_tiles * tiles->rows.groups * tiles->columns.groups;
}

void choose_splits(const tconv_layer *layer, planned_layer *plan, double cycles)
{
    parameters *p = &plan->parameters;
    const int64_t places = (int64_t)layer->target.multiprocessors * plan->resident;
    const double tile_bytes = (double)p->tiles.block_m * (double)p->tiles.block_n * 4;
    const double slice_bytes = tile_bytes * (double)p->tiles.count;
    const int64_t most = tconv_min(tconv_max(1, p->k_tiles), tconv_ceil_div(4 * places, p->tiles.count));
    const double most_bytes = plan->copies.images > 0 ? (double)COPIED_SLICES_BYTES : (double)SLICES_BYTES;
    for (int64_t splits = 1; splits <= most; splits++) {
        if (splits > 1 && slice_bytes * (double)splits * (keeps_lost(plan, splits) ? 2 : 1) > most_bytes)
            continue;
        const double rounds = (double)tconv_ceil_div(splits * p->tiles.count, places);
        const double block = BEGIN_CYCLES + (double)tconv_ceil_div(p->k_tiles, splits) * cycles +
                             plan->resident * tile_bytes / STORE_BYTES;
        const double lines = written_part(plan, (int)layer->problem.element_size) - 1;
        const bool writes = splits == 1 && lines < 1 && can_write_weights(plan);
        const double added =
            (writes ? lines : (double)splits) * slice_bytes / (ADD_BYTES * layer->target.multiprocessors);
        const double all = rounds * block + added;
        if (splits == 1 || all < plan->cycles) {
            plan->cycles = all;
            p->splits = (int)splits;
            plan->writes_weights = writes;
        }
    }
    plan->blocks = p->splits * p->tiles.count;
}

} // namespace tconv::wgrad
