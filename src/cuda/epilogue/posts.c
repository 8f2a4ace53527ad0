/* Translates a layer's list of post-ops to the steps of a kernel. */
#include "posts.h"

#include <math.h>
#include <string.h>

#include "../../core/impl.h"
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

/* ReLU is a bound: two instructions, and no product of 0 and what is not finite. */
static bool is_relu(const tconv_post_op *post)
{
    return post->kind == TCONV_POST_LEAKY_RELU && post->alpha == 0;
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
        if (is_relu(post)) {
            step->kind = TCONV_POST_CLAMP;
            step->beta = number_of(problem, INFINITY);
        }
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

bool tconv_cuda_posts_are_affine(const tconv_problem *problem)
{
    for (int i = 0; i < problem->desc.post_count; i++)
        if (!post_step_is_affine((int)problem->desc.post[i].kind))
            return false;
    return true;
}

tconv_status tconv_cuda_check_addend(const tconv_problem *problem, tconv_issue *issue)
{
    const tconv_strides *addend = &problem->addend, *dst = &problem->dst;
    if (tconv_post_addend(&problem->desc) < 0 ||
        (addend->n == dst->n && addend->c == dst->c && addend->h == dst->h && addend->w == dst->w))
        return TCONV_SUCCESS;
    return tconv_decline(issue, "needs an addend with the strides of dst");
}

tconv_status tconv_cuda_check_posts(const tconv_problem *problem, tconv_issue *issue)
{
    for (int i = 0; i < problem->desc.post_count; i++)
        if (!post_step_is_affine((int)problem->desc.post[i].kind))
            return tconv_decline(issue, "applies no post-op of kind %s", tconv_post_name(problem->desc.post[i].kind));
    return TCONV_SUCCESS;
}

/* Instructions of machine code for a value of f32, counted in the epilogue of cuda_wgmma for sm_90a. */
static double instructions_of(tconv_post_kind kind)
{
    switch (kind) {
    case TCONV_POST_ADD_CHANNEL:
    case TCONV_POST_MUL_CHANNEL:
    case TCONV_POST_LINEAR: return 1;
    case TCONV_POST_CLAMP:
    case TCONV_POST_ADD_TENSOR: return 2;
    case TCONV_POST_LEAKY_RELU: return 3;
    case TCONV_POST_HARDSWISH: return 12;
    case TCONV_POST_ELU: return 19;
    case TCONV_POST_SNAKE: return 22;
    case TCONV_POST_SIGMOID:
    case TCONV_POST_TANH: return 23;
    case TCONV_POST_SILU: return 25;
    case TCONV_POST_MISH: return 29;
    case TCONV_POST_SOFTPLUS: return 30;
    case TCONV_POST_GELU_TANH: return 43;
    case TCONV_POST_GELU: return 55;
    }
    return 0;
}

double tconv_cuda_post_instructions(const tconv_problem *problem)
{
    double instructions = 0;
    for (int i = 0; i < problem->desc.post_count; i++)
        instructions += instructions_of(problem->desc.post[i].kind);
    return instructions;
}

int tconv_cuda_first_affine_posts(const tconv_problem *problem, double *instructions)
{
    int count = 0;
    *instructions = 0;
    for (; count < problem->desc.post_count && post_step_is_affine((int)problem->desc.post[count].kind); count++)
        *instructions += instructions_of(problem->desc.post[count].kind);
    return count;
}
