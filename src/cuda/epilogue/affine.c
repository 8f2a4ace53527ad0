/* Translates the steps of an affine list to rounds. */
#include "affine.h"

#include <math.h>
#include <string.h>

static affine_round begin_round(void)
{
    affine_round round;
    memset(&round, 0, sizeof round);
    round.factor = 1;
    round.term = -0.0F;
    round.slope = 1;
    round.least = -INFINITY;
    round.most = INFINITY;
    return round;
}

/* Returns the parts that a step gives a round. */
static int parts_of(const post_step *step)
{
    switch (step->kind) {
    case TCONV_POST_LEAKY_RELU: return ROUND_SLOPES;
    case TCONV_POST_CLAMP: return ROUND_BOUNDS_BELOW | ROUND_BOUNDS_ABOVE;
    default: return ROUND_SCALES;
    }
}

/* Gives a round, which has none of them yet, the parts of a step. */
static void add_step(affine_round *round, const post_step *step)
{
    switch (step->kind) {
    case TCONV_POST_LEAKY_RELU: round->slope = step->alpha.f32; break;
    case TCONV_POST_CLAMP:
        round->least = step->alpha.f32;
        round->most = step->beta.f32;
        break;
    case TCONV_POST_LINEAR:
        round->factor = step->alpha.f32;
        round->term = step->beta.f32;
        break;
    case TCONV_POST_ADD_CHANNEL: round->terms = step->first; break;
    default: round->factors = step->first; round->terms = step->second;
    }
    round->parts |= parts_of(step);
    if (round->least == -INFINITY)
        round->parts &= ~ROUND_BOUNDS_BELOW;
    if (round->most == INFINITY)
        round->parts &= ~ROUND_BOUNDS_ABOVE;
}

affine_posts tconv_cuda_affine_posts(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS])
{
    const post_steps steps = tconv_cuda_post_steps(problem, operands);
    affine_posts posts;
    memset(&posts, 0, sizeof posts);
    for (int i = 0; i < steps.count; i++) {
        const int parts = parts_of(&steps.of[i]);
        /* Parts are in the order of their bits: a step begins a round where the last one has such a part, or a later. */
        if (i == 0 || posts.rounds[posts.count - 1].parts >= (parts & -parts))
            posts.rounds[posts.count++] = begin_round();
        add_step(&posts.rounds[posts.count - 1], &steps.of[i]);
    }
    return posts;
}

bool tconv_cuda_posts_are_a_round(const tconv_problem *problem)
{
    static const void *const none[TCONV_MAX_POST_OPS] = {NULL};
    return tconv_cuda_posts_are_affine(problem) && tconv_cuda_affine_posts(problem, none).count == 1;
}
