/* The work of a plan of cuda_wgrad, by which the dispatcher compares it with other implementations. */
#ifndef TCONV_CUDA_WGRAD_WORK_H
#define TCONV_CUDA_WGRAD_WORK_H

#include "../model/work.h"
#include "plan.h"

/* Returns the work of the gradient of the weights by a plan. */
tconv_cuda_work tconv_wgrad_work(const tconv_layer *layer, const planned_layer *plan);

#endif
