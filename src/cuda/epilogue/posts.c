/* Translates a layer's list of post-ops to the steps of a kernel. */
#include "posts.h"

#include <string.h>

#include "../../core/operation.h"
#include "../../core/post.h"

static post_number number_of(const tconv_problem *problem, double value)
{
    post_number number;
    memset(&number, 0, sizeof number);
    if (problem->dtype == TCONV_F64)
        number.f64 = value;
    else
        number.f32 = (float)value;
    return number;
}

post_steps tconv_cuda_post_steps(const tconv_problem *problem, const void *const operands[TCONV_MAX_POST_OPS])
{
    const tconv_desc *desc = &problem->desc;
    post_steps steps;
    memset(&steps, 0, sizeof steps);
    for (int i = 0; i < desc->post_count; i++) {
        const tconv_post_op *post = &desc->post[i];
        const size_t size = tconv_dtype_size(tconv_role_dtype(problem, (tconv_role)(TCONV_ROLE_POST + i)));
        post_step *step = &steps.of[steps.count++];
        step->kind = (int)post->kind;
        step->alpha = number_of(problem, post->alpha);
        step->beta = number_of(problem, post->beta);
        if (tconv_post_channel_vectors(post->kind) > 0)
            step->first = operands[i];
        if (tconv_post_channel_vectors(post->kind) > 1)
            step->second = (const char *)operands[i] + (size_t)problem->out_channels * size;
        if (tconv_post_scales_and_shifts(desc, i)) {
            step->kind = POST_MUL_ADD_CHANNEL;
            step->second = operands[++i];
        }
    }
    return steps;
}

bool tconv_cuda_posts_begin_at_multiples(const post_steps *steps, int64_t bytes)
{
    for (int i = 0; i < steps->count; i++)
        if ((uintptr_t)steps->of[i].first % (uintptr_t)bytes != 0 ||
            (uintptr_t)steps->of[i].second % (uintptr_t)bytes != 0)
            return false;
    return true;
}
