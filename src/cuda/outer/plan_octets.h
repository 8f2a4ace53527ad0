/* How cuda_outer's K-tiles lie in shared memory by octets. */
#ifndef TCONV_CUDA_OUTER_PLAN_OCTETS_H
#define TCONV_CUDA_OUTER_PLAN_OCTETS_H

#include "plan.h"

namespace tconv::outer
{

/* Tries the kernels by octets of a list, where tensors lie so. */
void try_octets(const tconv_layer *layer, kernel_list list, planned_layer *trial, planned_layer *best);

} // namespace tconv::outer

#endif
