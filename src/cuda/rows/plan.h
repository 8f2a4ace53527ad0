/* Between the host side's files: what a plan holds, and what it does. */
#ifndef TCONV_CUDA_ROWS_PLAN_H
#define TCONV_CUDA_ROWS_PLAN_H

#include "../model/work.h"
#include "../runtime/launch.h"
#include "parameters.h"

namespace tconv::rows
{

constexpr int64_t ACCESS = 16; /* bytes that a thread copies or stores at once */

/* What a plan holds. */
struct planned_layer {
    parameters params; /* without addresses; src_aligned as if src began at a multiple of ACCESS bytes */
    launch_grid grid;  /* overlaps: whether the launch may overlap one of packing */
    int64_t resident;  /* blocks that share a multiprocessor */
};

/* plan.cu: decides how to compute a layer. Returns why it is not taken, or NULL. */
const char *plan_layer(const tconv_layer *layer, planned_layer *made);

/* Positions of a warp. */
int64_t positions_of(const tconv_layer *layer);

/* Whether the sums of f16 and bf16 are left to the tensor cores; and whether their channels are half a step. */
bool is_direct(const tconv_layer *layer);
bool is_narrow(const tconv_layer *layer);

/* work.cu: what a plan does. */
tconv_cuda_work work_of(const tconv_layer *layer, const planned_layer *made);

} // namespace tconv::rows

#endif
