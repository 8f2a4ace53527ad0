/* Into how many parts cuda_wgrad cuts K-tiles. */
#ifndef TCONV_CUDA_WGRAD_PLAN_SPLITS_H
#define TCONV_CUDA_WGRAD_PLAN_SPLITS_H

#include "plan.h"

namespace tconv::wgrad
{

constexpr int64_t COPIED_SLICES_BYTES = (int64_t)20 << 20; /* of all slices, beside copies */

/* Chooses the number of parts, and predicts the whole; cycles: of a K-tile. */
void choose_splits(const tconv_layer *layer, planned_layer *plan, double cycles);

/* How many parts of the gradient of the bias the blocks of a plan write for a channel, who sum it of the slots that they read:
 * where each output is in those of one tap, and all outputs are. 0: they do not. */
int64_t bias_parts_of(const tconv_layer *layer, const planned_layer *plan);

} // namespace tconv::wgrad

#endif
