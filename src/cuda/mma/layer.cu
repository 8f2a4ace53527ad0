/* What the kernels are told of a layer itself: extents, and the taps of its phases. */
#include "plan.h"

#include <cstring>

namespace tconv::mma
{

namespace
{

void fill_rows(const tconv_layer *layer, parameters *params)
{
    params->row_phases = (int)tconv_min(layer->problem.h.stride, layer->problem.h.out);
    for (int i = 0; i < params->row_phases; i++)
        params->rows[i] = {0, 0, 0};
    for (int64_t i = 0; i < layer->rows.count; i++) {
        const tconv_phase *phase = &layer->rows.phases[i];
        params->rows[phase->residue] = {(int)phase->taps, (int)phase->first_kernel,
                                        (int)(phase->first_shift - layer->rows.min_shift)};
    }
}

/* The place of a shift in the sorted list, made if it is not there; -1 where the list is full. */
int place_of_shift(parameters *params, int shift)
{
    int at = 0;
    while (at < params->shifts && params->columns[at].shift < shift)
        at++;
    if (at < params->shifts && params->columns[at].shift == shift)
        return at;
    if (params->shifts == MAX_COLUMN_SHIFTS)
        return -1;
    memmove(&params->columns[at + 1], &params->columns[at], (size_t)(params->shifts - at) * sizeof params->columns[0]);
    memset(&params->columns[at], 0, sizeof params->columns[at]);
    params->columns[at].shift = (short)shift;
    params->shifts++;
    return at;
}

bool fill_columns(const tconv_layer *layer, parameters *params)
{
    params->shifts = params->column_taps = 0;
    for (int64_t i = 0; i < layer->columns.count; i++) {
        const tconv_phase *phase = &layer->columns.phases[i];
        for (int64_t tap = 0; tap < phase->taps; tap++) {
            const int at = place_of_shift(
                params, (int)(phase->first_shift - tap * layer->columns.shift_step - layer->columns.min_shift));
            if (at < 0)
                return false;
            params->columns[at].phases = (short)(params->columns[at].phases | 1 << phase->residue);
            params->columns[at].kernel[phase->residue] =
                (short)(phase->first_kernel + tap * layer->columns.kernel_step);
        }
    }
    for (int i = 0; i < params->shifts; i++) {
        params->columns[i].before = (short)params->column_taps;
        params->column_taps += __builtin_popcount((unsigned int)params->columns[i].phases);
    }
    return true;
}

} // namespace

const char *fill_layer(const tconv_layer *layer, parameters *params)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->batch, problem->in_channels, problem->out_channels,
                               problem->h.in,  problem->w.in,        problem->h.out,
                               problem->w.out, problem->h.kernel,    problem->w.kernel};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] > MAX_EXTENT)
            return "an extent of 2^29 or more";
    if (problem->h.stride > MAX_STRIDE_H || problem->w.stride > MAX_STRIDE_W)
        return "strides of at most 16 x 8";
    if (layer->rows.max_shift - layer->rows.min_shift > MAX_TILE_EXTENT ||
        layer->columns.max_shift - layer->columns.min_shift > MAX_TILE_EXTENT ||
        layer->rows.max_taps > MAX_TILE_EXTENT || problem->w.kernel > MAX_TILE_EXTENT)
        return "taps that lie too far apart for a patch in shared memory";
    memset(params, 0, sizeof *params);
    params->src_strides = problem->src;
    params->dst_strides = problem->dst;
    params->nhwc = problem->layout == TCONV_NHWC;
    params->batch = (int)problem->batch;
    params->group_in = (int)problem->group_in;
    params->group_out = (int)problem->group_out;
    params->groups = (int)problem->groups;
    params->src_rows = (int)problem->h.in;
    params->src_columns = (int)problem->w.in;
    params->dst_rows = (int)problem->h.out;
    params->dst_columns = (int)problem->w.out;
    params->stride_rows = (int)problem->h.stride;
    params->row_kernel_step = (int)layer->rows.kernel_step;
    params->row_shift_step = (int)layer->rows.shift_step;
    params->min_row_shift = (int)layer->rows.min_shift;
    params->min_column_shift = (int)layer->columns.min_shift;
    if (layer->rows.count == 0 || layer->columns.count == 0)
        return "outputs that are only bias";
    fill_rows(layer, params);
    params->max_row_taps = (int)layer->rows.max_taps;
    return fill_columns(layer, params) ? NULL : "at most 32 different column shifts";
}

} // namespace tconv::mma
