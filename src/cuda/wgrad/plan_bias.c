/* This file finds the plans whose products sum the gradient of the bias, and what they sum for it. */
#include "plan_bias.h"

#include "../../core/checked.h"
#include "../../core/views.h"

enum {
    LEAST_SUMMED_CHANNELS = 32, /* of a chunk, for producers to sum the bias */
    MOST_REST = 4               /* one output in so many, at most, is not counted by products */
};

/* Returns the place of a kernel index in the order of tiles. */
static int place_of(const wgrad_tap_order *order, int64_t tap)
{
    const int64_t residue = tap % order->kernel_step, longer = order->kernel % order->kernel_step;
    return (int)(residue * (order->kernel / order->kernel_step) + tconv_min(residue, longer) +
                 tap / order->kernel_step);
}

/* Returns the last tap that reaches output `first` or one before it, of those whose outputs are whole strides from it; -1: there is
 * none. Outputs count from the padding's first. */
static int64_t last_tap_before(const tconv_axis *axis, int64_t first)
{
    int64_t tap = tconv_min(axis->kernel - 1, first / axis->dilation);
    while (tap >= 0 && (first - tap * axis->dilation) % axis->stride != 0)
        tap--;
    return tap;
}

/* Returns the inputs of the K-tiles of an axis, those included that do not exist. */
static int64_t inputs_of(const tile_axis *axis)
{
    return (int64_t)axis->tiles << axis->tile_log2;
}

/* Finds taps of an axis that have each of its first *counted outputs once, of so many inputs, those included that do not exist;
 * false where there are no such taps. *taps has a bit for each place of a tap in the order. */
static bool count_outputs(const tconv_axis *axis, const wgrad_tap_order *order, int64_t inputs, uint32_t *taps,
                          int *counted)
{
    int64_t each = 0; /* of the outputs that are whole strides apart */
    bool all = true, even = true;
    *taps = 0;
    for (int64_t i = 0; i < tconv_min(axis->stride, axis->out); i++) {
        const int64_t first = axis->pad + i, tap = i < axis->kernel ? last_tap_before(axis, first) : -1;
        if (tap < 0)
            return false;
        const int64_t found = inputs - (first - tap * axis->dilation) / axis->stride;
        all = all && found >= tconv_ceil_div(axis->out - i, axis->stride);
        even = even && (i == 0 || found == each);
        each = found;
        *taps |= UINT32_C(1) << place_of(order, tap);
    }
    *counted = (int)(all ? axis->out : each * axis->stride);
    return all || (even && each > 0);
}

/* Returns whether blocks read the outputs that products do not count where they lie: they are few, and counted in 32 bits. */
static bool can_read_rest(const tconv_problem *problem, const parameters *params)
{
    const int64_t plane = problem->h.out * problem->w.out;
    const int64_t rest = plane - (int64_t)params->counted_rows * params->counted_columns;
    return rest * MOST_REST <= plane && problem->batch * rest <= INT32_MAX;
}

/* Returns whether the rows of a chunk of copies are those of the layer's images, so that its outputs are the layer's. */
static bool copies_whole_images(const tconv_problem *problem, const copy_cut *copies)
{
    return copies->row_parts == 1 && problem->h.pad == 0 && copies->out_rows == problem->h.out;
}

/* Finds such taps of both axes, for a kernel by boxes. Copies of other rows than an image's have what taps reach and no more, so that
 * the inputs that exist count, and all outputs must be counted; a chunk of rows has outputs of the next one too. */
static bool boxes_sum(const tconv_problem *problem, planned_layer *plan)
{
    parameters *params = &plan->params;
    const copy_cut *copies = &plan->copies;
    const bool cut = copies->images > 0 && !copies_whole_images(problem, copies);
    if (!plan->sums_outputs || (cut && copies->row_parts > 1 && !tconv_has_single_taps(&problem->h)) ||
        !count_outputs(&problem->h, &params->tiles.rows, cut ? problem->h.in : inputs_of(&params->rows),
                       &params->counting_rows, &params->counted_rows) ||
        !count_outputs(&problem->w, &params->tiles.columns, cut ? problem->w.in : inputs_of(&params->columns),
                       &params->counting_columns, &params->counted_columns))
        return false;
    if (!cut)
        return can_read_rest(problem, params);
    const bool all = params->counted_rows == problem->h.out && params->counted_columns == problem->w.out;
    params->counted_rows = params->rows.out; /* of a chunk */
    return all;
}

/* Returns whether the producers of a kernel by wgmma sum the bias of slots or lines (slot_bias.cuh). With fewer channels, few of
 * the threads that copy have a part; blocks that share lines wait for one another; and sums of slots take the memory of stages,
 * where a block that writes weights has its sums. */
static bool producers_sum(const tconv_problem *problem, const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const sum_tiles *tiles = &params->tiles;
    const int64_t line =
        ((int64_t)params->columns.stride << params->columns.tile_log2) * (int64_t)problem->element_size;
    if (tiles->chunk < LEAST_SUMMED_CHANNELS || params->sharers > 1 || plan->math == NUMERICS_STRICT ||
        plan->writes_weights || !producers_sum_bias(plan->load, problem->element_size == 2) ||
        !tconv_has_single_taps(&problem->h) || !tconv_has_single_taps(&problem->w))
        return false;
    return plan->load != LINES || (problem->layout == TCONV_NCHW && tiles->columns.groups == 1 &&
                                   line % LINE_BYTES == 0 && tiles->chunk <= MAX_LINE_CHANNELS);
}

int64_t tconv_wgrad_plan_bias(const tconv_layer *layer, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    const sum_tiles *tiles = &plan->params.tiles;
    const kernel_family family = plan->kernel->family;
    /* A plane has several taps of depth, or none. */
    if (tconv_has_depth(problem) || family == BY_MMA ||
        !(family == BY_BOXES ? boxes_sum(problem, plan) : producers_sum(problem, plan)))
        return 0;
    return plan->params.splits * tiles->m_tiles * tiles->rows.groups * tiles->columns.groups;
}
