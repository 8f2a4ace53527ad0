/* What TMA brings of K-tiles that lie by channels (NHWC). */
#ifndef TCONV_CUDA_WGRAD_PLAN_BOXES_H
#define TCONV_CUDA_WGRAD_PLAN_BOXES_H

#include "plan.h"

namespace tconv::wgrad
{

/* Whether the boxes of a map are none too long. */
bool has_box(const tensor_map_recipe *map);

/* Describes what TMA brings of a K-tile; false where the kernel cannot do without. */
bool describe_boxes(const tconv_layer *layer, planned_layer *plan);

} // namespace tconv::wgrad

#endif
