/* Tells which layers may be Hopper's. */
#include "hopper.h"
#include "../cuda_target.h"

/* Whether pixels of src fit in 32 bits where phases are its own, those past the last of a tile too. */
static bool fits_src(const tconv_phase_table *table)
{
    const double most = HOPPER_MAX_EXTENT, tile = 1024;
    const tconv_phase *first = &table->phases[0], *last = &table->phases[table->count - 1];
    return ((double)first->outputs + (double)table->max_shift + tile) * (double)table->stride < most &&
           (double)first->residue > -most && (double)last->residue < most;
}

const char *tconv_cuda_why_not_hopper(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->h.in,
                               problem->w.in,
                               problem->h.out,
                               problem->w.out,
                               problem->in_channels,
                               problem->out_channels,
                               problem->h.kernel * problem->h.dilation,
                               problem->w.kernel * problem->w.dilation,
                               problem->batch};
    if (tconv_cuda_target_of(&layer->target).compute_capability != 90)
        return "needs compute capability 9.0";
    if (!tconv_cuda_target_of(&layer->target).has_sm90a)
        return "the build has no sm_90a code";
    if (layer->phases_of_src && !(fits_src(&layer->rows) && fits_src(&layer->columns)))
        return "needs strides and paddings that keep pixels of src below 2^28";
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] >= HOPPER_MAX_EXTENT)
            return "needs extents below 2^28";
    return NULL;
}

bool tconv_cuda_is_flat(const tconv_layer *layer)
{
    const tconv_phase_table *rows = &layer->rows, *columns = &layer->columns;
    const tconv_axis *h = &layer->problem.h, *w = &layer->problem.w;
    return rows->max_taps == 1 && columns->max_taps == 1 && rows->min_shift == 0 && rows->max_shift == 0 &&
           columns->min_shift == 0 && columns->max_shift == 0 && h->out == h->in * rows->stride &&
           w->out == w->in * columns->stride && h->in * w->out < HOPPER_MAX_EXTENT;
}
