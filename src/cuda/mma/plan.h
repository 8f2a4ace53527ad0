/* Between the host side's files: what plans hold, the search for a tiling (plan.cu, work.cu) and the plan of the row
 * kernel (row_plan.cu). */
#ifndef TCONV_CUDA_MMA_PLAN_H
#define TCONV_CUDA_MMA_PLAN_H

#include "../../core/checked.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "row_parameters.h"

namespace tconv::mma
{

constexpr int MIN_COMPUTE_CAPABILITY = 80; /* TF32, bf16 and asynchronous copies */
constexpr int SHARED_RESERVED = 1024;      /* bytes of shared memory that a block takes beside what it asks for */
constexpr int SHARED_BARRIERS = 128;       /* bytes of SHARED_RESERVED that count towards a block's limit */

/* In strict f32 the additions of what tensor cores have accumulated may be off by a quarter of their number (like
 * terms): so many are within the bound of 16. */
constexpr int MAX_ADDITIONS = 48;

/* What a plan of cuda_mma holds. */
struct planned_layer {
    /* Without addresses; vectors are as wide as they may be where addresses are multiples of 16 bytes. */
    parameters params;
    mode arithmetic;
    const kernel_config *config;
};

/* The search for the tiling of the least time. */
struct search {
    const tconv_layer *layer;
    int shared_bytes;                    /* that a block may ask for */
    int element_size;                    /* bytes */
    int row_halo, column_halo;           /* pixels of a patch beyond those of its tile */
    int position_rows, position_columns; /* of an image */

    /* What the work of all tilings has in common. */
    tconv_cuda_machine machine;
    tconv_cuda_work begun; /* what is the layer's own, the rest 0 */
    bool strict;
    int64_t row_vector, src_row_vector; /* elements, see model/planned.h */

    /* What is considered. */
    planned_layer tried;
    int most_row_taps; /* of any set of row phases, with the tiling's phase_warps */

    planned_layer *best; /* its config is NULL: none yet */
    tconv_cuda_work best_work;
    double best_seconds;
};

/* Bytes of shared memory that a block may ask for beside its barriers. */
inline int shared_limit(const tconv_layer *layer)
{
    return layer->target.shared_bytes - SHARED_BARRIERS;
}

inline int block_warps(const parameters *params)
{
    return params->m_warps * params->phase_warps * params->n_warps;
}

/* Counts the sets of output channels and row phases that have their own weights. */
inline int64_t weight_sets_of(const parameters *params)
{
    return (int64_t)params->groups * params->m_tiles * params->phase_sets;
}

template <class Int> Int ceil_div(Int value, Int by)
{
    return (value + by - 1) / by;
}

template <class Int> Int round_up(Int value, Int multiple)
{
    return ceil_div(value, multiple) * multiple;
}

/* plan.cu: chooses the kernel and the tiling of a layer, and counts its work. Returns why there is none, or NULL. */
const char *choose(const tconv_layer *layer, planned_layer *made, tconv_cuda_work *work);

/* work.cu: counts what the tiling that is considered does. */
tconv_cuda_work work_of(const search *in);

/* What a plan of cuda_rows holds. */
struct planned_rows {
    row_parameters params; /* without addresses; src_aligned as if src began at a multiple of 16 bytes */
    row_sums sums;
    launch_grid grid; /* overlaps: whether the launch may overlap one of packing */
    int64_t resident; /* blocks that share a multiprocessor */
};

/* row_plan.cu: decides how to compute a layer. Returns why it is not taken, or NULL. */
const char *plan_rows(const tconv_layer *layer, planned_rows *made);

} // namespace tconv::mma

#endif
