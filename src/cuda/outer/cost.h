/* What a K-tile takes a block of cuda_outer, as fitted to measurements. */
#ifndef TCONV_CUDA_OUTER_COST_H
#define TCONV_CUDA_OUTER_COST_H

#include "../model/planned.h"
#include "plan.h"

namespace tconv::outer
{

/* Elements of 16 bytes. */
inline int vector_length(const tconv_problem *problem)
{
    return model::VECTOR_BYTES / (int)problem->element_size;
}

/* Whether a pixel's channels are vectors of 16 bytes, where the first one's address is aligned. */
inline bool has_vectors(const tconv_problem *problem, const tconv_strides *strides, int64_t group_channels)
{
    const int64_t vector = vector_length(problem);
    return problem->layout == TCONV_NHWC && strides->c == 1 && group_channels % vector == 0 &&
           model::begins_at_multiples(problem, strides, vector);
}

/* Cycles of a K-tile of all blocks of a multiprocessor; slots: those of a block. */
double tile_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);

/* The same of a kernel by wgmma. */
double warpgroup_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);

/* The same of a kernel by boxes. */
double box_cycles(const planned_layer *plan, int64_t slots);

} // namespace tconv::outer

#endif
