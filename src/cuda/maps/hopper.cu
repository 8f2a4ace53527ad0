/* Tells which layers may be Hopper's. */
#include "hopper.h"

namespace tconv
{

const char *why_not_hopper(const tconv_layer *layer)
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
    if (layer->target.compute_capability != 90)
        return "needs compute capability 9.0";
    if (!layer->target.has_sm90a)
        return "the build has no sm_90a code";
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] >= HOPPER_MAX_EXTENT)
            return "needs extents below 2^28";
    return NULL;
}

} // namespace tconv
