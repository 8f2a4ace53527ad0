/* The number of split-K slices of a plan of cuda_wgrad. */
#ifndef TCONV_CUDA_WGRAD_PLAN_SPLITS_H
#define TCONV_CUDA_WGRAD_PLAN_SPLITS_H

#include "../model/machine.h"
#include "plan.h"

enum { COPIED_SLICES_BYTES = 20 << 20 }; /* of all slices, beside copies, at most */

/* Chooses the number of slices, and predicts the time of the plan. layer: the whole layer, also where the plan is for copies of a
 * part of it. */
void tconv_wgrad_choose_splits(const tconv_layer *layer, const tconv_cuda_machine *machine, planned_layer *plan);

/* Returns how many times as many bytes move as are written where a block writes its weights: memory moves whole sectors. */
double tconv_wgrad_written_part(const planned_layer *plan);

/* Returns how many partial sums of the gradient of the bias the blocks of a plan write for a channel. They sum it from
 * the outputs that they read, which is right where each output has exactly one tap. 0: they do not sum it. */
int64_t tconv_wgrad_bias_parts(const tconv_layer *layer, const planned_layer *plan);

#endif
