/* The number of split-K slices of a plan of cuda_wgrad. */
#ifndef TCONV_CUDA_WGRAD_PLAN_SPLITS_H
#define TCONV_CUDA_WGRAD_PLAN_SPLITS_H

#include "../model/search.h"
#include "plan.h"

enum { COPIED_SLICES_BYTES = 20 << 20 }; /* of all slices, beside copies, at most */

/* Chooses the number of slices, and predicts the time of the plan; false where the plan would not be kept, for certain. begun: see
 * tconv_wgrad_begin_work. */
bool tconv_wgrad_choose_splits(const tconv_search *search, const tconv_cuda_work *begun, planned_layer *plan);

/* Returns whether no plan with such a block tile would be kept, for certain: as plans have at most so many resident blocks, and
 * at least so many K-tiles, of at most so many pixels, as this plan has. */
bool tconv_wgrad_is_beyond(const tconv_search *search, const tconv_cuda_work *begun, const planned_layer *plan);

/* Returns how many times as many bytes move as are written where a block writes its weights: memory moves whole sectors. */
double tconv_wgrad_written_part(const planned_layer *plan);

#endif
