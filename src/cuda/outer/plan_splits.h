/* Into how many parts cuda_outer cuts K-tiles. */
#ifndef TCONV_CUDA_OUTER_PLAN_SPLITS_H
#define TCONV_CUDA_OUTER_PLAN_SPLITS_H

#include "plan.h"

namespace tconv::outer
{

constexpr int64_t COPIED_SLICES_BYTES = (int64_t)20 << 20; /* of all slices, beside copies */

/* Chooses the number of parts, and predicts the whole; cycles: of a K-tile. */
void choose_splits(const tconv_layer *layer, planned_layer *plan, double cycles);

} // namespace tconv::outer

#endif
