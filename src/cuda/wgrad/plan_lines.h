/* How cuda_wgrad's K-tiles lie in shared memory as lines. */
#ifndef TCONV_CUDA_WGRAD_PLAN_LINES_H
#define TCONV_CUDA_WGRAD_PLAN_LINES_H

#include "plan.h"

namespace tconv::wgrad
{

/* Whether a layer's tensors have lines. */
bool can_be_lines(const tconv_problem *problem);

/* Lays the slots of a K-tile out as lines, where its axes and channels are known, and describes to TMA what it brings. */
void lay_out_lines(const tconv_layer *layer, planned_layer *plan);

} // namespace tconv::wgrad

#endif
