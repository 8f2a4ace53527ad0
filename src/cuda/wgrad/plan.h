/* How cuda_wgrad cuts a gradient of weights into block tiles, K-tiles and split-K slices. */
#ifndef TCONV_CUDA_WGRAD_PLAN_H
#define TCONV_CUDA_WGRAD_PLAN_H

#include "../runtime/tensor_map.h"
#include "copies.h"
#include "kernels.h"
#include "parameters.h"

/* The groups of taps of an axis have at most: */
typedef struct axis_slots {
    int residues;
    int reach; /* slots from the first of a residue to the last tap's, for one input */
    int width; /* outputs from the first slot of the first residue to that of the last, both included */
} axis_slots;

/* The slots of a K-tile in the shared memory of a block. */
typedef struct tile_slots {
    axis_slots rows, columns;
    int64_t count;
} tile_slots;

typedef struct planned_layer {
    numerics math;
    load_mode load; /* where addresses are aligned */
    const kernel_choice *kernel;
    int threads;  /* of a block */
    int resident; /* blocks of a multiprocessor */
    int64_t blocks;
    tile_slots slots;
    bool writes_weights; /* blocks write the gradient of the weights, and no slices */
    int64_t bias_parts;  /* partial sums of the gradient of the bias that blocks write for a channel; 0: they do not */
    bool sums_outputs;   /* by boxes: a block has memory to sum the bias */
    bool bias_apart;     /* a pass sums the bias in a place of the workspace of its own, */
    bool bias_early;     /* beside the products, and not after them */
    double seconds;      /* predicted */
    tensor_map_recipe src, dst; /* of src and of the gradient of dst, without addresses; where TMA brings them */
    copy_cut copies;            /* that are read instead of src and of the gradient of dst; or none */
    parameters params;          /* without addresses, and as if all addresses were aligned */
} planned_layer;

/* Returns the bytes of dynamic shared memory of a block. */
static inline int shared_bytes_of(const parameters *params)
{
    return params->table_bytes + params->stages * params->stage_bytes;
}

/* Returns whether the blocks of so many slices keep what the additions to their slices lose: as many floats, which lie
 * behind the slices. */
static inline bool keeps_lost(const planned_layer *plan, int64_t splits)
{
    const parameters *params = &plan->params;
    return plan->math == NUMERICS_STRICT && plan->kernel->family != BY_MMA &&
           (params->k_tiles - 1) / splits >= params->flush_tiles;
}

/* Finds the plan with the least predicted time; false where there is none. *best is all zeros before. */
bool tconv_wgrad_choose(const tconv_layer *layer, planned_layer *best);

#endif
