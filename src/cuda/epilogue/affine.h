/* Affine lists of post-ops as rounds, which affine.cuh runs. */
#ifndef TCONV_CUDA_EPILOGUE_AFFINE_H
#define TCONV_CUDA_EPILOGUE_AFFINE_H

#include "posts.h"

TCONV_ROOM_BEGIN(tconv)

/* A round of an affine list, each part of which may be missing:
 *
 *     y = min(max(leaky_relu(factor * y + term, slope), least), most)
 *
 * So the lists that layers have are one round, the text of which has no loop over steps and no choice among kinds. */
typedef struct affine_round {
    int parts; /* ROUND_... */
    /* The factor is 1, and the term -0, where the round only adds or multiplies: neither changes a bit. */
    float factor, term;
    float slope, least, most;
    const float *factors, *terms; /* of each output channel; NULL: the same of all, as above */
} affine_round;

enum { ROUND_SCALES = 1, ROUND_SLOPES = 2, ROUND_BOUNDS_BELOW = 4, ROUND_BOUNDS_ABOVE = 8 };

typedef struct affine_posts {
    int count;
    affine_round rounds[TCONV_MAX_POST_OPS];
} affine_posts;

/* Returns a list that is affine as rounds, in f32. */
affine_posts tconv_cuda_affine_posts(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS]);

/* Returns whether a layer's list is affine and one round of parts. */
bool tconv_cuda_posts_are_a_round(const tconv_problem *problem);

TCONV_ROOM_END

#endif
