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

/* Steps that have no numbers of channels, as many as come after another step in this order: a LINEAR, a CLAMP, and another
 * LINEAR. They are run with that step, while its values are in registers. Those that are not in the list change no bit. */
typedef struct post_tail {
    bool exists;
    float scale, shift, least, most, last_scale, last_shift;
} post_tail;

/* A layer's list in two parts, for kernels that stage sums in f32 before they are stored. */
typedef struct shared_posts {
    post_steps of_sums;                  /* those with which the list begins, if they are affine: of accumulators */
    post_steps of_staged;                /* the others: of what is staged, one on all values before the next */
    post_tail tails[TCONV_MAX_POST_OPS]; /* what comes after each of of_staged */
    const void *addend;                  /* of of_staged, or NULL; it lies as dst does */
} shared_posts;

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

/* The cost of a list in two parts is counted for each output. */
typedef struct shared_posts_cost {
    int steps_of_sums, steps_of_staged;
    double sums, staged; /* instructions */
} shared_posts_cost;

/* Returns what steps cost so, with the functions of strict f32 or with those of TF32 and of 16 bits. */
shared_posts_cost tconv_cuda_shared_posts_cost(const post_steps *steps, bool strict);

/* Returns the steps of a layer with operands as tconv_arguments have them. The addend is not among the steps: where it
 * lies is the kernel's to know. */
post_steps tconv_cuda_post_steps(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS]);

/* Returns the same in a plan, which has no operands. */
post_steps tconv_cuda_planned_steps(const tconv_problem *problem);

/* Returns steps of f32 in two parts. */
shared_posts tconv_cuda_share_posts(const post_steps *steps, const void *addend);

/* Returns whether each array of a number for each channel begins at a multiple of so many bytes. */
bool tconv_cuda_posts_begin_at_multiples(const post_steps *steps, int64_t bytes);

TCONV_ROOM_END

#endif
