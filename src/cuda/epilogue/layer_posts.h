/* A layer's post-ops with all that they read, for kernels that run the list on a few values in registers
 * (layer_posts.cuh).
 *
 * A layer that accumulates has a step before those of its list: ADD_TENSOR with alpha 1, whose addend is dst itself. So
 * what dst holds is read where the output is stored, and the sum is rounded once. Such a kernel reads an output before
 * it writes that output, and writes each output once.
 */
#ifndef TCONV_CUDA_EPILOGUE_LAYER_POSTS_H
#define TCONV_CUDA_EPILOGUE_LAYER_POSTS_H

#include "../../core/impl.h"
#include "posts.h"

TCONV_ROOM_BEGIN(tconv)

typedef struct layer_posts {
    post_steps steps;
    const void *addend; /* the operand of ADD_TENSOR, or dst where the layer accumulates; NULL: neither */
    tconv_strides addend_strides;
} layer_posts;

/* Declines a layer that accumulates and has an addend of its own, or as many post-ops as a list has room for. */
tconv_status tconv_cuda_check_steps(const tconv_problem *problem, tconv_issue *issue);

/* Returns the steps that outputs go through: the layer's post-ops, before them what dst holds. */
int tconv_cuda_count_steps(const tconv_problem *problem);

/* Whether one of the steps adds a tensor of dst's shape. */
bool tconv_cuda_has_addend(const tconv_problem *problem);

/* Whether all steps are affine; a list of none is. */
bool tconv_cuda_steps_are_affine(const tconv_problem *problem);

/* Returns about how many instructions the steps take for each output. */
double tconv_cuda_step_instructions(const tconv_problem *problem);

/* Returns the steps of a layer, with operands as an execute has them. */
layer_posts tconv_cuda_layer_posts(const tconv_problem *problem, const tconv_arguments *arguments);

/* Returns the steps in a plan, which has no operands. */
post_steps tconv_cuda_planned_layer_steps(const tconv_problem *problem);

/* Returns the cycles of a multiprocessor in which the steps are run on so many outputs of a tile: for each step about
 * what it takes to read and branch, and the instructions. 0 without steps. */
double tconv_cuda_post_cycles(const tconv_problem *problem, double outputs);

TCONV_ROOM_END

#endif
