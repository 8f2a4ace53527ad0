/* Launches of a plan of cuda_wgrad. */
#ifndef TCONV_CUDA_WGRAD_LAUNCH_H
#define TCONV_CUDA_WGRAD_LAUNCH_H

#include "plan.h"
#include "sums.h"

/* Returns the bytes of the workspace of a plan: slices, copies, and partial sums of the bias, one behind another. */
int64_t tconv_wgrad_scratch(const tconv_layer *layer, const planned_layer *plan);

/* Returns whether the blocks of a plan sum the gradient of the bias: there are no blocks where there are no K-tiles. */
static inline bool has_bias_parts(const planned_layer *plan)
{
    return plan->bias_parts > 0 && plan->params.k_tiles > 0;
}

/* Launches the kernels that compute the gradient of the weights of a plan, and with it, where the plan's blocks do so
 * and the caller asks for the bias, partial sums of the bias. *slices gets what is added already. */
tconv_status tconv_wgrad_launch(const tconv_layer *layer, const planned_layer *plan, const tconv_arguments *arguments,
                                wgrad_slices *slices, tconv_issue *issue);

/* Computes the gradient of the bias alone, of a plan whose blocks sum it. */
tconv_status tconv_wgrad_execute_bias(const tconv_layer *layer, const planned_layer *plan,
                                      const tconv_arguments *arguments, tconv_issue *issue);

#endif
