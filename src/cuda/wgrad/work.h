/* The work of a plan of cuda_wgrad, by which the dispatcher compares it with other implementations. */
#ifndef TCONV_CUDA_WGRAD_WORK_H
#define TCONV_CUDA_WGRAD_WORK_H

#include "../model/work.h"
#include "plan.h"

/* Begins the work of a plan: what is the same for all candidates that read the layer's tensors, or all that read such copies. */
tconv_cuda_work tconv_wgrad_begin_work(const tconv_layer *layer, const copy_cut *copies);

/* The work of a plan, and what it is counted from with each number of slices. */
typedef struct wgrad_work {
    tconv_cuda_work all;
    double block_cycles; /* of a block, beside those that it takes to write its sums more often than once */
    /* Bytes of the lines of memory that a K-tile reads single elements of, and of the pieces of these lines. */
    double line_bytes, piece_bytes;
} wgrad_work;

/* Returns the work that is begun with what the number of slices does not change. */
wgrad_work tconv_wgrad_tile_work(const tconv_cuda_work *begun, const planned_layer *plan);

/* Returns the part of this work that is there however a block loads its K-tiles: the plan need have no more than its block tile, its
 * load mode, and the pixels of a K-tile. */
tconv_cuda_work tconv_wgrad_least_work(const tconv_cuda_work *begun, const planned_layer *plan);

/* Counts what the number of slices does change: the blocks, their K-tiles, and the pass that adds slices. */
void tconv_wgrad_count_slices(const tconv_cuda_machine *machine, const tconv_cuda_work *begun,
                              const planned_layer *plan, wgrad_work *work);

/* Returns the work of the gradient of the weights by a plan. */
tconv_cuda_work tconv_wgrad_work(const tconv_layer *layer, const planned_layer *plan);

#endif
