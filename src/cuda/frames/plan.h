/* The plan of a layer. */
#ifndef TCONV_CUDA_FRAMES_PLAN_H
#define TCONV_CUDA_FRAMES_PLAN_H

#include "../model/work.h"
#include "parameters.h"

typedef struct frames_plan {
    parameters params; /* without addresses */
    frames_kernel kernel;
    bool by_vectors;    /* weights may be loaded by vectors, if their address may */
    int columns;        /* of a block, at most */
    int most_row_tiles; /* that several channels of a block may take */
    int narrow_columns; /* the same where a short chunk of a stream has the wide kernel leave it to the others; 0: never */
    int threads;
    int64_t blocks, shared_bytes;
} frames_plan;

/* Returns the blocks that a multiprocessor has at a time, as registers allow. */
int tconv_frames_resident(const frames_plan *plan);

/* Counts the work of a plan. */
tconv_cuda_work tconv_frames_work_of(const tconv_layer *layer, const frames_plan *plan);

#endif
