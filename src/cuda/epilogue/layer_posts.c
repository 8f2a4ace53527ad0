/* Fills the parameters of kernels that run a layer's post-ops on a few values. */
#include "layer_posts.h"

#include <string.h>

#include "../../core/post.h"

static const double LANES = 128;      /* instructions of a multiprocessor in a cycle */
static const double STEP_CYCLES = 40; /* of a step: its kind and numbers are read, and branched on */

layer_posts tconv_cuda_layer_posts(const tconv_problem *problem, const tconv_arguments *arguments)
{
    const int addend = tconv_post_addend(&problem->desc);
    layer_posts posts;
    memset(&posts, 0, sizeof posts);
    if (!tconv_has_posts(problem))
        return posts;
    posts.steps = tconv_cuda_post_steps(problem, arguments->post);
    if (addend >= 0) {
        posts.addend = arguments->post[addend];
        posts.addend_strides = problem->addend;
    }
    return posts;
}

double tconv_cuda_post_cycles(const tconv_problem *problem, double outputs)
{
    return problem->desc.post_count * STEP_CYCLES + outputs * tconv_cuda_post_instructions(problem) / LANES;
}
