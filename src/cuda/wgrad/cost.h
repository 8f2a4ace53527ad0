/* What a K-tile takes a block of cuda_wgrad, as fitted to measurements. */
#ifndef TCONV_CUDA_WGRAD_COST_H
#define TCONV_CUDA_WGRAD_COST_H

#include "../model/planned.h"
#include "plan.h"
#include "vectors.h"

namespace tconv::wgrad
{

/* Elements of 16 bytes. */
inline int vector_length(const tconv_problem *problem)
{
    return VECTOR_BYTES / (int)problem->element_size;
}

/* Whether a pixel's channels are vectors of 16 bytes, where the first one's address is aligned. */
inline bool has_vectors(const tconv_problem *problem, const tconv_strides *strides, int64_t group_channels)
{
    return tconv_cuda_has_vectors(problem, strides, group_channels);
}

/* Cycles of a K-tile of all blocks of a multiprocessor; slots: those of a block. */
double tile_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);

/* The same of a kernel by wgmma. */
double warpgroup_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);

/* The same of a kernel by boxes. */
double box_cycles(const planned_layer *plan, int64_t slots);

} // namespace tconv::wgrad

#endif
