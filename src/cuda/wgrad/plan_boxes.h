/* The boxes of K-tiles that TMA brings in NHWC. */
#ifndef TCONV_CUDA_WGRAD_PLAN_BOXES_H
#define TCONV_CUDA_WGRAD_PLAN_BOXES_H

#include "plan.h"

/* Returns whether no side of a map's box is longer than TMA takes. */
bool tconv_wgrad_has_box(const tensor_map_recipe *map);

/* Describes the boxes of a K-tile to TMA where the plan's load mode has boxes; false where the kernel needs boxes and
 * TMA cannot bring them. */
bool tconv_wgrad_describe_boxes(const tconv_layer *layer, planned_layer *plan);

#endif
