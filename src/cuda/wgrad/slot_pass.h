/* The gradient of the bias as the products sum it (slot_bias.cuh), where they do not: in the same order, so that a plan
 * gives the same bits whether that of the weights is asked for as well, and at any address. */
#ifndef TCONV_CUDA_WGRAD_SLOT_PASS_H
#define TCONV_CUDA_WGRAD_SLOT_PASS_H

#include "plan.h"

namespace tconv::wgrad
{

/* Launches the kernel that writes the parts of a plan that has bias_parts, those of all of its launches. */
tconv_status sum_slots(const tconv_layer *layer, const planned_layer *made, const void *diff_dst, void *bias_parts,
                       void *stream, tconv_issue *issue);

} // namespace tconv::wgrad

#endif
