/* What the general implementation decides for a layer, once. */
#ifndef TCONV_CUDA_GENERAL_PLAN_H
#define TCONV_CUDA_GENERAL_PLAN_H

#include "../model/planned.h"
#include "parameters.h"

namespace tconv::general
{

struct planned_layer {
    kernel_choice shape;
    bool is_gemm;                   /* it is one of gemm_kernels, else of direct_kernels */
    bool is_narrow;                 /* indices fit in 32 bits */
    int64_t weights_at;             /* bytes of the packed buffer, the phase tables', before the weights */
    general::parameters parameters; /* without addresses, and as if src were aligned */
};

/* Counts the work of the plan. A K-block is one term of the outputs' sums: an input channel at a tap. */
tconv_cuda_work work_of(const tconv_layer *layer, const planned_layer *made);

} // namespace tconv::general

#endif
