/* What the general implementation decides for a layer, once. */
#ifndef TCONV_CUDA_GENERAL_PLAN_H
#define TCONV_CUDA_GENERAL_PLAN_H

#include "../model/work.h"
#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::general)

typedef struct planned_layer {
    bool is_gemm;          /* the kernel is an implicit GEMM, else a direct one */
    int number;            /* of the kernel's shape */
    kernel_shape shape;    /* gemm_shape or direct_shape */
    bool is_narrow;        /* indices fit in 32 bits */
    int64_t weights_begin; /* bytes of the packed buffer, the phase tables', before the weights */
    parameters params;     /* without addresses, and as if src were aligned */
} planned_layer;

/* Counts the work of the plan. A K-block is one term of the outputs' sums: an input channel at a tap. */
tconv_cuda_work tconv_general_work(const tconv_layer *layer, const planned_layer *plan);

TCONV_ROOM_END

#endif
