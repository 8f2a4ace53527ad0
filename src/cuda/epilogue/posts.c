/* Translates a layer's list of post-ops to the steps of a kernel. */
#include "posts.h"

#include <float.h>
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

/* ------------------------------------------------------------------------------------------------------------ merging */

static bool is_power_of_two(float number)
{
    int exponent;
    return number >= 1 && isfinite(number) && frexpf(number, &exponent) == 0.5F;
}

/* Whether a step only multiplies, by a power of two from 1 on: exactly, but where the product is too large. */
static bool multiplies_up(const post_step *step)
{
    return step->kind == TCONV_POST_LINEAR && step->beta.f32 == 0 && is_power_of_two(step->alpha.f32);
}

static float within(float y, float least, float most)
{
    return y < least ? least : y > most ? most : y;
}

static bool is_quotient_exact(float number, float divisor)
{
    const float quotient = number / divisor;
    return isfinite(number) && quotient * divisor == number && (quotient == 0 || fabsf(quotient) >= FLT_MIN);
}

/* Takes a step out of the list. */
static void remove_step(post_steps *steps, int index)
{
    steps->count--;
    for (int i = index; i < steps->count; i++)
        steps->of[i] = steps->of[i + 1];
}

/* Merges two bounds, one after the other. */
static bool merge_bounds(post_steps *steps, int i)
{
    post_step *first = &steps->of[i], *second = first + 1;
    if (i + 1 >= steps->count || first->kind != TCONV_POST_CLAMP || second->kind != TCONV_POST_CLAMP)
        return false;
    first->alpha.f32 = within(first->alpha.f32, second->alpha.f32, second->beta.f32);
    first->beta.f32 = within(first->beta.f32, second->alpha.f32, second->beta.f32);
    remove_step(steps, i + 1);
    return true;
}

/* Puts a product behind bounds before them: s * clamp(y, a, b) = clamp(s * y, s * a, s * b), also where s * y is too large. */
static bool exchange_bounds(post_steps *steps, int i)
{
    post_step *first = &steps->of[i], *second = first + 1;
    if (i + 1 >= steps->count || first->kind != TCONV_POST_CLAMP || !multiplies_up(second))
        return false;
    const float factor = second->alpha.f32, bounds[2] = {first->alpha.f32 * factor, first->beta.f32 * factor};
    if (isfinite(first->alpha.f32) != isfinite(bounds[0]) || isfinite(first->beta.f32) != isfinite(bounds[1]))
        return false;
    const post_step bound = *first;
    *first = *second;
    *second = bound;
    second->alpha.f32 = bounds[0];
    second->beta.f32 = bounds[1];
    return true;
}

/* Merges a product, finite bounds, and the division by the same number: clamp(s * y, a, b) / s = clamp(y, a / s, b / s). */
static bool merge_scaled_bounds(post_steps *steps, int i)
{
    post_step *scale = &steps->of[i], *bound = scale + 1, *divide = scale + 2;
    if (i + 2 >= steps->count || !multiplies_up(scale) || bound->kind != TCONV_POST_CLAMP ||
        divide->kind != TCONV_POST_LINEAR || divide->beta.f32 != 0 || divide->alpha.f32 * scale->alpha.f32 != 1 ||
        !is_quotient_exact(bound->alpha.f32, scale->alpha.f32) || !is_quotient_exact(bound->beta.f32, scale->alpha.f32))
        return false;
    bound->alpha.f32 /= scale->alpha.f32;
    bound->beta.f32 /= scale->alpha.f32;
    remove_step(steps, i + 2);
    remove_step(steps, i);
    return true;
}

/* Merges steps of f32 where every value stays, for instance clamp(clamp(y, 0, 1) * 2, 0, 1) / 2 to one bound. Each change
 * takes a step out of the list or puts a product further to the front. */
static void merge(post_steps *steps)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < steps->count; i++)
            changed = changed || merge_bounds(steps, i) || merge_scaled_bounds(steps, i) || exchange_bounds(steps, i);
    }
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
        if (tconv_post_channel_vectors(post->kind) > 1 && operands[i] != NULL)
            step->second = (const char *)operands[i] + (size_t)problem->out_channels * size;
        if (tconv_post_scales_and_shifts(desc, i)) {
            step->kind = POST_MUL_ADD_CHANNEL;
            step->second = operands[++i];
        }
    }
    if (problem->dtype != TCONV_F64)
        merge(&steps);
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
    return tconv_cuda_check_posts(problem, NULL) == TCONV_SUCCESS;
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
static double instructions_of(tconv_post_kind kind, bool strict)
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
    case TCONV_POST_SIGMOID: return strict ? 23 : 11;
    case TCONV_POST_TANH: return strict ? 23 : 13;
    case TCONV_POST_SILU: return strict ? 25 : 12;
    case TCONV_POST_MISH: return strict ? 29 : 13;
    case TCONV_POST_SOFTPLUS: return strict ? 30 : 18;
    case TCONV_POST_GELU_TANH: return 43;
    case TCONV_POST_GELU: return strict ? 55 : 29;
    }
    return 0;
}

static double instructions_of_step(const post_step *step, bool strict)
{
    return step->kind == POST_MUL_ADD_CHANNEL ? 1 : instructions_of((tconv_post_kind)step->kind, strict);
}

post_steps tconv_cuda_planned_steps(const tconv_problem *problem)
{
    static const void *const none[TCONV_MAX_POST_OPS] = {NULL};
    return tconv_cuda_post_steps(problem, none);
}

double tconv_cuda_post_instructions(const tconv_problem *problem)
{
    const post_steps steps = tconv_cuda_planned_steps(problem);
    double instructions = 0;
    for (int i = 0; i < steps.count; i++)
        instructions += instructions_of_step(&steps.of[i], true);
    return instructions;
}

/* ------------------------------------------------------------------------------------------------- lists in two parts */

/* Makes the tail of a step from the steps after it; returns how many those are. */
static int take_tail(const post_step *after, int count, post_tail *tail)
{
    int taken = 0;
    *tail = (post_tail){false, 1, -0.0F, -INFINITY, INFINITY, 1, -0.0F};
    if (taken < count && after[taken].kind == TCONV_POST_LINEAR) {
        tail->scale = after[taken].alpha.f32;
        tail->shift = after[taken++].beta.f32;
    }
    if (taken < count && after[taken].kind == TCONV_POST_CLAMP) {
        tail->least = after[taken].alpha.f32;
        tail->most = after[taken++].beta.f32;
    }
    if (taken < count && after[taken].kind == TCONV_POST_LINEAR) {
        tail->last_scale = after[taken].alpha.f32;
        tail->last_shift = after[taken++].beta.f32;
    }
    tail->exists = taken > 0;
    return taken;
}

shared_posts tconv_cuda_share_posts(const post_steps *steps, const void *addend)
{
    shared_posts shared;
    memset(&shared, 0, sizeof shared);
    shared.addend = addend;
    int i = 0;
    for (; i < steps->count && post_step_is_affine(steps->of[i].kind); i++)
        shared.of_sums.of[shared.of_sums.count++] = steps->of[i];
    while (i < steps->count) {
        const int step = shared.of_staged.count++;
        shared.of_staged.of[step] = steps->of[i++];
        i += take_tail(&steps->of[i], steps->count - i, &shared.tails[step]);
    }
    return shared;
}

shared_posts_cost tconv_cuda_shared_posts_cost(const post_steps *steps, bool strict)
{
    static const double TAIL_INSTRUCTIONS = 6; /* bounds take two turns */
    const shared_posts shared = tconv_cuda_share_posts(steps, NULL);
    shared_posts_cost cost = {shared.of_sums.count, shared.of_staged.count, 0, 0};
    for (int i = 0; i < shared.of_sums.count; i++)
        cost.sums += instructions_of_step(&shared.of_sums.of[i], strict);
    for (int i = 0; i < shared.of_staged.count; i++)
        cost.staged +=
            instructions_of_step(&shared.of_staged.of[i], strict) + (shared.tails[i].exists ? TAIL_INSTRUCTIONS : 0);
    return cost;
}
