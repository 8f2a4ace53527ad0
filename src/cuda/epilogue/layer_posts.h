/* A layer's post-ops with all that they read, for kernels that run the list on a few values in registers
 * (layer_posts.cuh). */
#ifndef TCONV_CUDA_EPILOGUE_LAYER_POSTS_H
#define TCONV_CUDA_EPILOGUE_LAYER_POSTS_H

#include "../../core/impl.h"
#include "posts.h"

TCONV_ROOM_BEGIN(tconv)

typedef struct layer_posts {
    post_steps steps;
    const void *addend; /* or NULL */
    tconv_strides addend_strides;
} layer_posts;

/* Returns the post-ops of a layer, none where it has none, with operands as an execute has them. */
layer_posts tconv_cuda_layer_posts(const tconv_problem *problem, const tconv_arguments *arguments);

/* Returns the cycles of a multiprocessor in which the list is run on so many outputs of a tile: for each step about what
 * it takes to read and branch, and the instructions. 0 without post-ops. */
double tconv_cuda_post_cycles(const tconv_problem *problem, double outputs);

TCONV_ROOM_END

#endif
