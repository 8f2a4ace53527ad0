/* What a layer asks of an implementation. */
#ifndef TCONV_CORE_CAPABILITY_H
#define TCONV_CORE_CAPABILITY_H

#include "impl.h"
#include "post.h"

/* Returns why an implementation never takes layers like this one, by what it says of itself, as the words of a refusal; NULL
 * where nothing is missing. Its dtypes, and streams, are for the caller to check. */
static inline const char *tconv_missing_capability(const tconv_implementation *implementation, const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    return problem->desc.accumulate && !implementation->accumulates     ? "does not accumulate"
           : tconv_has_posts(problem) && !implementation->applies_posts ? "applies no post-ops"
           : (problem->plane_taps.taps > 0 || tconv_has_depth(problem)) && !implementation->sums_planes
               ? "sums no planes"
           : problem->volumes.images > 0 && !implementation->takes_volumes ? "takes images of one volume alone"
           : layer->stacked_rows && !implementation->stacks_rows           ? "stacks no planes"
                                                                           : NULL;
}

#endif
