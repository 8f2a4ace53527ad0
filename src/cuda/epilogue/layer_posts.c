/* Fills the parameters of kernels that run a layer's post-ops on a few values. */
#include "layer_posts.h"

#include <string.h>

#include "../../core/post.h"

static const double LANES = 128;           /* instructions of a multiprocessor in a cycle */
static const double STEP_CYCLES = 40;      /* of a step: its kind and numbers are read, and branched on */
static const double HELD_INSTRUCTIONS = 2; /* that add what dst holds: those of ADD_TENSOR */

/* Whether what dst holds is the first step. Gradients of weights accumulate without steps. */
static bool holds(const tconv_problem *problem)
{
    return problem->desc.accumulate != 0 && problem->desc.op == TCONV_FORWARD;
}

tconv_status tconv_cuda_check_steps(const tconv_problem *problem, tconv_issue *issue)
{
    if (!holds(problem))
        return TCONV_SUCCESS;
    if (tconv_post_addend(&problem->desc) >= 0)
        return tconv_decline(issue, "does not accumulate with an addend");
    if (problem->desc.post_count == TCONV_MAX_POST_OPS)
        return tconv_decline(issue, "does not accumulate with %d post-ops", TCONV_MAX_POST_OPS);
    return TCONV_SUCCESS;
}

int tconv_cuda_count_steps(const tconv_problem *problem)
{
    return problem->desc.post_count + (holds(problem) ? 1 : 0);
}

bool tconv_cuda_has_addend(const tconv_problem *problem)
{
    return holds(problem) || tconv_post_addend(&problem->desc) >= 0;
}

bool tconv_cuda_steps_are_affine(const tconv_problem *problem)
{
    return !holds(problem) && tconv_cuda_posts_are_affine(problem);
}

double tconv_cuda_step_instructions(const tconv_problem *problem)
{
    return tconv_cuda_post_instructions(problem) + (holds(problem) ? HELD_INSTRUCTIONS : 0);
}

/* Puts the step that adds what dst holds before the others. */
static void begin_with_held(const tconv_problem *problem, post_steps *steps)
{
    post_step held;
    memset(&held, 0, sizeof held);
    held.kind = TCONV_POST_ADD_TENSOR;
    if (problem->dtype == TCONV_F64)
        held.alpha.f64 = 1;
    else
        held.alpha.f32 = 1;
    memmove(steps->of + 1, steps->of, (size_t)steps->count * sizeof held);
    steps->of[0] = held;
    steps->count++;
}

layer_posts tconv_cuda_layer_posts(const tconv_problem *problem, const tconv_arguments *arguments)
{
    const int addend = tconv_post_addend(&problem->desc);
    layer_posts posts;
    memset(&posts, 0, sizeof posts);
    if (tconv_has_posts(problem))
        posts.steps = tconv_cuda_post_steps(problem, arguments->post);
    if (holds(problem)) {
        begin_with_held(problem, &posts.steps);
        posts.addend = arguments->dst;
        posts.addend_strides = problem->dst;
    } else if (addend >= 0) {
        posts.addend = arguments->post[addend];
        posts.addend_strides = problem->addend;
    }
    return posts;
}

post_steps tconv_cuda_planned_layer_steps(const tconv_problem *problem)
{
    post_steps steps = tconv_cuda_planned_steps(problem);
    if (holds(problem))
        begin_with_held(problem, &steps);
    return steps;
}

double tconv_cuda_post_cycles(const tconv_problem *problem, double outputs)
{
    return tconv_cuda_count_steps(problem) * STEP_CYCLES + outputs * tconv_cuda_step_instructions(problem) / LANES;
}
