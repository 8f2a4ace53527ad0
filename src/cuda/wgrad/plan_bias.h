/* This file finds the plans whose products sum the gradient of the bias, and what they sum for it. */
#ifndef TCONV_CUDA_WGRAD_PLAN_BIAS_H
#define TCONV_CUDA_WGRAD_PLAN_BIAS_H

#include "plan.h"

/* Returns the partial sums of the gradient of the bias that blocks of the plan write for each output channel, and sets which taps
 * they sum; 0: they write none. */
int64_t tconv_wgrad_plan_bias(const tconv_layer *layer, planned_layer *plan);

#endif
