/* The plan of a layer: the kernel for it, and how the layer is cut into blocks. */
#ifndef TCONV_CUDA_COL2IM_PLAN_H
#define TCONV_CUDA_COL2IM_PLAN_H

#include "../model/work.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"

enum { MMA_KERNEL = -1 }; /* the kernel for any device, in place of a config of Hopper's */

/* How the output rows are cut into strips. */
typedef struct row_cut {
    int64_t quotients; /* of the rows that are cut */
    int64_t others;    /* blocks of each strip */
    int64_t step;      /* rows of src at a time */
} row_cut;

typedef struct planned_launch {
    int64_t blocks;
    int64_t resident; /* blocks on a multiprocessor */
    int64_t shared_bytes;
    int threads;
    parameters params; /* without addresses, and as if these were multiples of all that is asked for */
} planned_launch;

/* A layer's plan. */
typedef struct col2im_plan {
    int config;             /* number of the config of Hopper's kernels, or MMA_KERNEL */
    int n_tiles;            /* of the packed weights */
    int64_t packed_bytes;   /* of the weights */
    row_cut cut;            /* the same for both launches */
    planned_launch any_src; /* of the kernel that copies src as it lies */
    bool has_tma;           /* by_tma is taken instead where the tensor map of src can be made */
    planned_launch by_tma;
    tensor_map_recipe src; /* without the address; for by_tma */
} col2im_plan;

/* Plans a layer into what is all zero. Returns the reason why no kernel takes it, else NULL. */
const char *tconv_col2im_make_plan(const tconv_layer *layer, col2im_plan *plan);

/* Fills in the strips for `places` blocks at a time. */
void tconv_col2im_cut_rows(const tconv_problem *problem, const row_cut *cut, int64_t places, parameters *params);

/* Counts the work of a plan. */
tconv_cuda_work tconv_col2im_work_of(const tconv_layer *layer, const col2im_plan *plan);

#endif
