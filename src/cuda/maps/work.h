/* The work in a layer, as the cost models count it. */
#ifndef TCONV_CUDA_MAPS_WORK_H
#define TCONV_CUDA_MAPS_WORK_H

#include "../../core/checked.h"
#include "../../core/impl.h"

namespace tconv
{

/* Outputs of a layer whose groups are padded to whole tiles of so many output channels. */
inline double padded_outputs(const tconv_problem *problem, int64_t tile_channels)
{
    const int64_t tiles = tconv_ceil_div(problem->group_out, tile_channels) * problem->groups;
    return (double)(tiles * tile_channels) * (double)problem->batch * (double)problem->h.out * (double)problem->w.out;
}

/* Taps of an output, on the average over the phases. */
inline double mean_taps(const tconv_layer *layer)
{
    return (double)(layer->problem.h.kernel * layer->problem.w.kernel) /
           ((double)layer->rows.stride * (double)layer->columns.stride);
}

} // namespace tconv

#endif
