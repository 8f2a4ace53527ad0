/* The layout of cuda_wgrad's K-tiles in shared memory as lines of outputs. */
#ifndef TCONV_CUDA_WGRAD_PLAN_LINES_H
#define TCONV_CUDA_WGRAD_PLAN_LINES_H

#include "plan.h"

/* Returns whether a layer's gradient of dst can be loaded by lines. */
bool tconv_wgrad_can_be_lines(const tconv_problem *problem);

/* Lays the outputs of a K-tile out as lines, once the plan has its axes and channels, and describes to TMA what TMA
 * brings. */
void tconv_wgrad_lay_out_lines(const tconv_layer *layer, planned_layer *plan);

#endif
