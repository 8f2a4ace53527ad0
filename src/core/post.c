/* Rules and text of a layer's post-ops. */
#include "post.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shape.h"
#include "status.h"

static const struct post_kind {
    const char *name;
    int numbers; /* of alpha and beta */
} kinds[] = {
    [TCONV_POST_ADD_CHANNEL] = {"add_channel", 0},
    [TCONV_POST_MUL_CHANNEL] = {"mul_channel", 0},
    [TCONV_POST_ADD_TENSOR] = {"add_tensor", 1},
    [TCONV_POST_LINEAR] = {"linear", 2},
    [TCONV_POST_CLAMP] = {"clamp", 2},
    [TCONV_POST_LEAKY_RELU] = {"leaky_relu", 1},
    [TCONV_POST_SIGMOID] = {"sigmoid", 0},
    [TCONV_POST_TANH] = {"tanh", 0},
    [TCONV_POST_SILU] = {"silu", 0},
    [TCONV_POST_GELU] = {"gelu", 0},
    [TCONV_POST_GELU_TANH] = {"gelu_tanh", 0},
    [TCONV_POST_MISH] = {"mish", 0},
    [TCONV_POST_ELU] = {"elu", 1},
    [TCONV_POST_SOFTPLUS] = {"softplus", 0},
    [TCONV_POST_HARDSWISH] = {"hardswish", 0},
    [TCONV_POST_SNAKE] = {"snake", 0},
};

const char *tconv_post_name(tconv_post_kind kind)
{
    return (int)kind > 0 && (int)kind <= TCONV_POST_SNAKE ? kinds[kind].name : NULL;
}

int tconv_post_numbers(tconv_post_kind kind)
{
    return tconv_post_name(kind) != NULL ? kinds[kind].numbers : 0;
}

int tconv_post_addend(const tconv_desc *desc)
{
    for (int i = 0; i < desc->post_count; i++)
        if (desc->post[i].kind == TCONV_POST_ADD_TENSOR)
            return i;
    return -1;
}

/* Fails with the field of one post-op. */
static tconv_status fail_at(tconv_issue *issue, int index, const char *member, double value, const char *rule)
{
    char field[32];
    snprintf(field, sizeof field, "post[%d].%s", index, member);
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = %g: %s", field, value, rule);
}

/* Checks alpha, or beta, which a kind may not have. */
static tconv_status check_number(const tconv_post_op *post, int index, bool is_beta, tconv_issue *issue)
{
    const double value = is_beta ? post->beta : post->alpha;
    const char *member = is_beta ? "beta" : "alpha";
    const bool is_clamp = post->kind == TCONV_POST_CLAMP;
    if (tconv_post_numbers(post->kind) <= (is_beta ? 1 : 0) && (value != 0 || isnan(value)))
        return fail_at(issue, index, member, value, "must be 0, this kind has no such number");
    if (is_clamp ? isnan(value) : !isfinite(value))
        return fail_at(issue, index, member, value, is_clamp ? "must be a number" : "must be finite");
    return TCONV_SUCCESS;
}

static tconv_status check_post(const tconv_post_op *post, int index, tconv_issue *issue)
{
    tconv_status status;
    if (tconv_post_name(post->kind) == NULL)
        return fail_at(issue, index, "kind", (int)post->kind, "must be a tconv_post_kind, 1 to 16");
    if (post->reserved != 0)
        return fail_at(issue, index, "reserved", post->reserved, "must be 0");
    if ((status = check_number(post, index, false, issue)) || (status = check_number(post, index, true, issue)))
        return status;
    if (post->kind == TCONV_POST_CLAMP && post->alpha > post->beta)
        return fail_at(issue, index, "beta", post->beta, "must be at least alpha");
    return TCONV_SUCCESS;
}

/* Checks that nothing is said of post-ops that are not there. */
static tconv_status check_unused(const tconv_desc *desc, tconv_issue *issue)
{
    for (int i = desc->post_count; i < TCONV_MAX_POST_OPS; i++) {
        const tconv_post_op *post = &desc->post[i];
        char field[32];
        if ((int)post->kind == 0 && post->reserved == 0 && post->alpha == 0 && post->beta == 0)
            continue;
        snprintf(field, sizeof field, "post[%d]", i);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s: must be 0, post_count is %" PRId32, field,
                          desc->post_count);
    }
    for (int i = 0; i < 5 && tconv_post_addend(desc) < 0; i++) {
        const int64_t stride = i < 4 ? desc->addend_strides[i] : desc->addend_stride_d;
        char field[32];
        if (stride == 0)
            continue;
        if (i < 4)
            snprintf(field, sizeof field, "addend_strides[%d]", i);
        else
            snprintf(field, sizeof field, "addend_stride_d");
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                          "%s = %" PRId64 ": must be 0, no post-op has an addend", field, stride);
    }
    return TCONV_SUCCESS;
}

tconv_status tconv_posts_check(const tconv_desc *desc, tconv_issue *issue)
{
    tconv_status status;
    if (desc->post_count < 0 || desc->post_count > TCONV_MAX_POST_OPS)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "post_count",
                          "post_count = %" PRId32 ": must be 0 to %d", desc->post_count, TCONV_MAX_POST_OPS);
    if (desc->post_count > 0 && desc->op != TCONV_FORWARD)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "post_count",
                          "post_count = %" PRId32 ": must be 0 in a gradient", desc->post_count);
    for (int i = 0; i < desc->post_count; i++) {
        if ((status = check_post(&desc->post[i], i, issue)))
            return status;
        if (desc->post[i].kind == TCONV_POST_ADD_TENSOR && tconv_post_addend(desc) < i)
            return fail_at(issue, i, "kind", TCONV_POST_ADD_TENSOR, "must be no second addend");
    }
    return check_unused(desc, issue);
}

/* Appends ":" and the number, whose point is a dot in every locale. */
static void append_number(double number, tconv_text *text)
{
    char written[32];
    size_t to = 0;
    bool is_point = false;
    snprintf(written, sizeof written, "%.17g", number);
    for (size_t from = 0; written[from] != '\0'; from++) {
        const bool was_point = is_point;
        is_point = strchr("+-0123456789aefin", written[from]) == NULL; /* of one byte or more */
        if (!is_point || !was_point)
            written[to++] = (char)(is_point ? '.' : written[from]);
    }
    tconv_text_append(text, ":%.*s", (int)to, written);
}

void tconv_posts_format(const tconv_problem *problem, tconv_text *text)
{
    const tconv_desc *desc = &problem->desc;
    for (int i = 0; i < desc->post_count; i++) {
        const tconv_post_op *post = &desc->post[i];
        tconv_text_append(text, "%s%s", i == 0 ? " post=" : ",", tconv_post_name(post->kind));
        if (tconv_post_numbers(post->kind) > 0)
            append_number(post->alpha, text);
        if (tconv_post_numbers(post->kind) > 1)
            append_number(post->beta, text);
    }
    tconv_strides_format(&problem->addend, desc->addend_strides, desc->addend_stride_d, tconv_has_depth(problem), "as",
                         text);
}
