/* Between the host side's files: what plans hold, the search for a tiling (plan.c, work.c) and the plan of the row
 * kernel (row_plan.c). */
#ifndef TCONV_CUDA_MMA_PLAN_H
#define TCONV_CUDA_MMA_PLAN_H

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../model/search.h"
#include "../runtime/launch.h"
#include "row_parameters.h"

enum {
    MIN_COMPUTE_CAPABILITY = 80, /* TF32, bf16 and asynchronous copies */
    SHARED_RESERVED = 1024,      /* bytes of shared memory that a block takes beside what it asks for */
    SHARED_BARRIERS = 128        /* bytes of SHARED_RESERVED that count towards a block's limit */
};

/* A kernel's warp tile, mmas_m x mmas_n MMAs for each of stride_w column phases. */
typedef struct kernel_config {
    int number; /* of the kernel, in the list of its arithmetic's shapes */
    int stride_w, mmas_m, mmas_n;
    int warps; /* that fit on a multiprocessor by their registers; 0: there is no kernel */
} kernel_config;

/* A plan of cuda_mma. */
typedef struct mma_plan {
    /* Without addresses; vectors are as wide as they may be where addresses are multiples of 16 bytes. */
    parameters params;
    numerics numerics;
    bool compensated; /* the kernel also keeps what additions lost */
    kernel_config config;
} mma_plan;

/* The search for the tiling of the least time. */
typedef struct tiling_search {
    const tconv_layer *layer;
    int shared_bytes;                    /* that a block may ask for */
    int element_size;                    /* bytes */
    int row_halo, column_halo;           /* pixels of a patch beyond those of its tile */
    int position_rows, position_columns; /* of an image */

    /* The part of the work that all tilings have in common. */
    tconv_cuda_work begun; /* the layer's own counts, the rest 0 */
    bool strict;
    int64_t row_vector, src_row_vector; /* elements, see model/planned.h */

    /* The tiling that is considered. */
    mma_plan tried;
    int most_row_taps; /* of any set of row phases, with the tiling's phase_warps */

    tconv_search best;
} tiling_search;

/* Returns the bytes of shared memory that a block may ask for beside its barriers. */
static inline int shared_limit(const tconv_layer *layer)
{
    return tconv_cuda_target_of(&layer->target).shared_bytes - SHARED_BARRIERS;
}

static inline int block_warps(const parameters *params)
{
    return params->m_warps * params->phase_warps * params->n_warps;
}

/* Counts the sets of output channels and row phases that have their own weights. */
static inline int64_t weight_sets_of(const parameters *params)
{
    return (int64_t)params->groups * params->m_tiles * params->phase_sets;
}

static inline int ceil_div(int value, int divisor)
{
    return (value + divisor - 1) / divisor;
}

static inline int round_up(int value, int multiple)
{
    return ceil_div(value, multiple) * multiple;
}

/* plan.c: chooses the kernel and the tiling of a layer that take the least time below a limit, and counts their work.
 * Returns why there is no plan, or NULL. */
const char *tconv_mma_choose(const tconv_layer *layer, double limit, mma_plan *plan, tconv_cuda_work *work);

/* work.c: counts the work of the tiling that is considered. */
tconv_cuda_work tconv_mma_count_work(const tiling_search *search);

/* launch.c: launches a kernel on the current device. params has the addresses. packs: a launch that packs the weights is
 * ahead on the stream. */
tconv_status tconv_mma_launch(const tconv_layer *layer, const void *kernel, parameters *params, bool packs,
                              void *stream, tconv_issue *issue);

/* A plan of cuda_rows. */
typedef struct row_plan {
    row_parameters params; /* without addresses; src_aligned as if src began at a multiple of 16 bytes */
    row_sums sums;
    launch_grid grid; /* without the kernel; overlaps: whether the launch may overlap one of packing */
    int64_t resident; /* blocks that share a multiprocessor */
} row_plan;

/* row_plan.c: decides how to compute a layer. plan is zeros before. Returns why the layer is not taken, or NULL. */
const char *tconv_mma_plan_rows(const tconv_layer *layer, row_plan *plan);

#endif
