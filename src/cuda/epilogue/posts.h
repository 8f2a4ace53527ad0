/* A layer's post-ops as kernels take them: a list by value in their parameters, which posts.cuh runs. */
#ifndef TCONV_CUDA_EPILOGUE_POSTS_H
#define TCONV_CUDA_EPILOGUE_POSTS_H

#include "../../core/problem.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

/* The kind of a step that is two post-ops, MUL_CHANNEL and the ADD_CHANNEL that follows it at once: one rounding. Other
 * steps have the numbers of tconv_post_kind. */
enum { POST_MUL_ADD_CHANNEL = 0 };

/* A number in the type of sums. */
typedef union post_number {
    float f32;
    double f64;
} post_number;

typedef struct post_step {
    int kind;
    post_number alpha, beta;
    /* Arrays of a number for each output channel, in the type of sums; NULL where the kind has none. The second is what
     * POST_MUL_ADD_CHANNEL adds, and what SNAKE multiplies with. */
    const void *first, *second;
} post_step;

typedef struct post_steps {
    int count;
    post_step of[TCONV_MAX_POST_OPS];
} post_steps;

/* Whether a step is affine: a number times the value and another added, bounds, or a slope below zero. Such a step is one
 * to three instructions, so that a kernel may take all of a tile's accumulators through it in their registers. */
static inline bool post_step_is_affine(int kind)
{
    return kind == POST_MUL_ADD_CHANNEL || kind == TCONV_POST_ADD_CHANNEL || kind == TCONV_POST_MUL_CHANNEL ||
           kind == TCONV_POST_LINEAR || kind == TCONV_POST_CLAMP || kind == TCONV_POST_LEAKY_RELU;
}

/* Whether all steps of a layer's list are affine; an empty list is. */
bool tconv_cuda_posts_are_affine(const tconv_problem *problem);

/* Declines a layer with an addend that does not lie as dst does, for kernels that find its elements by the outputs'. */
tconv_status tconv_cuda_check_addend(const tconv_problem *problem, tconv_issue *issue);

/* Declines a layer whose list is not affine, for an implementation that takes no others. */
tconv_status tconv_cuda_check_posts(const tconv_problem *problem, tconv_issue *issue);

/* Returns about how many instructions the list takes for each output. */
double tconv_cuda_post_instructions(const tconv_problem *problem);

/* Returns how many post-ops at the beginning of the list are affine, and the instructions of those. */
int tconv_cuda_first_affine_posts(const tconv_problem *problem, double *instructions);

/* Returns the steps of a layer with operands as tconv_arguments have them. The addend is not among the steps: where it
 * lies is the kernel's to know. */
post_steps tconv_cuda_post_steps(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS]);

/* Returns whether each array of a number for each channel begins at a multiple of so many bytes. */
bool tconv_cuda_posts_begin_at_multiples(const post_steps *steps, int64_t bytes);

TCONV_ROOM_END

#endif
