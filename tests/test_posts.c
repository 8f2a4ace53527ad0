/*
 * Post-ops: the rule of each field, lists that an older caller does not know, and the text of a layer with post-ops. Calls
 * are in test_post_calls.c, formulas in test_post_formulas.c, and outputs of every implementation in test_post_outputs.c.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "../src/core/post.h"
#include "../src/cuda/epilogue/posts.h"
#include "harness.h"
#include "support/desc_numbers.h"
#include "support/expect.h"

static tconv_issue issue;

/* A layer with the list of a text, as --problem has it. */
static tconv_desc with_posts(const char *list)
{
    tconv_desc desc = uneven_layer();
    char message[256];
    cr_assert(harness_posts_parse(list, strlen(list), &desc, message, sizeof message), "%s", message);
    return desc;
}

static void expect_refused(const tconv_desc *desc, const char *field, const char *rule)
{
    expect_failure(tconv_validate(desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, field, rule);
    cr_assert_eq(strncmp(issue.message, field, strlen(field)), 0, "\"%s\" does not begin with %s", issue.message,
                 field);
}

static const char *field_of(int index, const char *member)
{
    static char field[32];
    snprintf(field, sizeof field, "post[%d]%s%s", index, member[0] != '\0' ? "." : "", member);
    return field;
}

/* --------------------------------------------------------------------------------------------------------------- rules */

Test(posts, count_is_0_to_8)
{
    const int32_t wrong[] = {-1, TCONV_MAX_POST_OPS + 1, INT32_MIN, INT32_MAX};
    tconv_desc desc = with_posts("tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh");
    cr_assert_eq(desc.post_count, TCONV_MAX_POST_OPS);
    expect_success(tconv_validate(&desc, &issue), issue);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        desc.post_count = wrong[i];
        expect_refused(&desc, "post_count", "must be 0 to 8");
        cr_assert_not_null(strstr(issue.message, stated("post_count", wrong[i])), "%s", issue.message);
    }
}

Test(posts, are_of_forward_alone)
{
    for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        tconv_desc desc = with_posts("tanh");
        desc.op = (tconv_op)op;
        expect_refused(&desc, "post_count", "must be 0 in a gradient");
    }
}

Test(posts, kind_and_reserved)
{
    const int kinds[] = {0, -1, TCONV_POST_SNAKE + 1, INT32_MAX};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++) {
        tconv_desc desc = with_posts("tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh");
        for (size_t k = 0; k < COUNT(kinds); k++) {
            desc.post[i].kind = (tconv_post_kind)kinds[k];
            expect_refused(&desc, field_of(i, "kind"), "must be a tconv_post_kind");
        }
        desc.post[i].kind = TCONV_POST_TANH;
        desc.post[i].reserved = -1;
        expect_refused(&desc, field_of(i, "reserved"), "must be 0");
    }
}

/* Each kind takes the numbers that its formula has, and these may be anything finite; bounds may be infinite. */
Test(posts, numbers_are_those_of_the_kind)
{
    const double numbers[] = {1, -DBL_MAX, DBL_MIN, INFINITY, -INFINITY, NAN};
    for (int kind = 1; kind <= TCONV_POST_SNAKE; kind++)
        for (int which = 0; which < 2; which++)
            for (size_t n = 0; n < COUNT(numbers); n++) {
                const bool has = which < harness_post_numbers((tconv_post_kind)kind);
                const bool fits = kind == TCONV_POST_CLAMP ? !isnan(numbers[n]) : isfinite(numbers[n]);
                tconv_desc desc = with_posts("tanh,tanh");
                desc.post[1] = (tconv_post_op){(tconv_post_kind)kind, 0, 0, 0};
                if (kind == TCONV_POST_CLAMP) /* so that the bounds are in order */
                    desc.post[1].alpha = -INFINITY, desc.post[1].beta = INFINITY;
                *(which == 0 ? &desc.post[1].alpha : &desc.post[1].beta) = numbers[n];
                if (has && fits)
                    expect_success(tconv_validate(&desc, &issue), issue);
                else
                    expect_refused(&desc, field_of(1, which == 0 ? "alpha" : "beta"), has ? "must be" : "must be 0");
            }
}

Test(posts, bounds_of_a_clamp_are_in_order)
{
    tconv_desc desc = with_posts("tanh,clamp:0.5:0.5");
    expect_success(tconv_validate(&desc, &issue), issue);
    desc.post[1].beta = nextafter(0.5, 0);
    expect_refused(&desc, "post[1].beta", "must be at least alpha");
}

Test(posts, entries_past_the_count_are_0)
{
    for (int count = 0; count < TCONV_MAX_POST_OPS; count++)
        for (int past = count; past < TCONV_MAX_POST_OPS; past++)
            for (int member = 0; member < 4; member++) {
                tconv_desc desc = with_posts("tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh");
                memset(&desc.post[count], 0, (size_t)(TCONV_MAX_POST_OPS - count) * sizeof desc.post[0]);
                desc.post_count = count;
                expect_success(tconv_validate(&desc, &issue), issue);
                tconv_post_op *post = &desc.post[past];
                post->kind = (tconv_post_kind)(member == 0);
                post->reserved = member == 1;
                post->alpha = member == 2, post->beta = member == 3;
                expect_refused(&desc, field_of(past, ""), "must be 0");
            }
}

Test(posts, have_one_addend)
{
    for (int first = 0; first < TCONV_MAX_POST_OPS; first++)
        for (int second = first + 1; second < TCONV_MAX_POST_OPS; second++) {
            tconv_desc desc = with_posts("tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh");
            desc.post[first].kind = TCONV_POST_ADD_TENSOR;
            expect_success(tconv_validate(&desc, &issue), issue);
            desc.post[second].kind = TCONV_POST_ADD_TENSOR;
            expect_refused(&desc, field_of(second, "kind"), "second addend");
        }
}

/* ---------------------------------------------------------------------------------------------------------- the addend */

Test(posts, addend_strides_need_an_addend)
{
    for (int i = 0; i < 4; i++) {
        char field[32];
        tconv_desc desc = with_posts("mul_channel");
        desc.addend_strides[i] = 1;
        snprintf(field, sizeof field, "addend_strides[%d]", i);
        expect_refused(&desc, field, "no post-op has an addend");
    }
}

/* Whatever dst_strides may be, addend_strides may be, and nothing else. */
Test(posts, addend_strides_have_the_rules_of_dst_strides)
{
    harness_random random;
    int taken = 0, refused = 0;
    harness_random_seed(&random, 1);
    for (int i = 0; i < 20000; i++) {
        tconv_desc desc = uneven_layer();
        int64_t strides[4];
        tconv_issue of_dst, of_addend;
        desc.layout = (tconv_layout)(i % 2);
        harness_draw_slice_of_addend(&random, &desc);
        memcpy(strides, desc.addend_strides, sizeof strides);
        memset(desc.addend_strides, 0, sizeof strides);
        if (harness_random_chance(&random, 70)) /* one of them is some other number */
            strides[harness_random_integer(&random, 0, 3)] += harness_random_integer(&random, -9, 9);
        memcpy(desc.dst_strides, strides, sizeof strides);
        const tconv_status dst = tconv_validate(&desc, &of_dst);
        memset(desc.dst_strides, 0, sizeof strides);
        desc.post_count = 1;
        desc.post[0].kind = TCONV_POST_ADD_TENSOR;
        memcpy(desc.addend_strides, strides, sizeof strides);
        cr_assert_eq(tconv_validate(&desc, &of_addend), dst, "\"%s\" and \"%s\"", of_dst.message, of_addend.message);
        taken += dst == TCONV_SUCCESS;
        refused += dst != TCONV_SUCCESS;
        if (dst != TCONV_SUCCESS)
            cr_assert(strncmp(of_addend.field, "addend_strides[", 15) == 0 &&
                          strcmp(of_addend.field + 15, of_dst.field + 12) == 0,
                      "%s is refused as %s, and as dst's as %s", of_addend.message, of_addend.field, of_dst.field);
    }
    cr_assert(taken > 1000 && refused > 1000, "%d taken, %d refused", taken, refused);
}

/* ----------------------------------------------------------------------------------------------------------- versions */

/* A caller that does not know the fields has no post-ops, whatever lies behind its struct. */
Test(posts, an_older_desc_has_none)
{
    const size_t end = offsetof(tconv_desc, post_count);
    tconv_desc desc = uneven_layer();
    tconv_options options;
    tconv_plan *plan;
    char text[4096];
    desc.struct_size = end;
    memset((char *)&desc + end, 0xa5, sizeof desc - end);
    expect_success(tconv_validate(&desc, &issue), issue);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    expect_success(tconv_plan_create(&desc, &options, &plan, &issue), issue);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    cr_assert_null(strstr(text, "post="), "%s", text);
    tconv_plan_destroy(plan);
}

/* ---------------------------------------------------------------------------------------------------------------- text */

Test(posts, the_harness_knows_the_librarys_kinds)
{
    for (int i = -1; i <= TCONV_POST_SNAKE + 1; i++) {
        const tconv_post_kind kind = (tconv_post_kind)i;
        const char *name = tconv_post_name(kind);
        cr_assert_str_eq(harness_post_name(kind), name != NULL ? name : "?");
        cr_assert_eq(harness_post_numbers(kind), tconv_post_numbers(kind), "%s", name);
        cr_assert_eq(harness_post_vectors(kind), tconv_post_channel_vectors(kind), "%s", name);
        cr_assert_eq(harness_post_has_operand(kind), tconv_post_has_operand(kind), "%s", name);
    }
}

/* Expects that the text that a plan gives of a layer is the layer. */
static void expect_text_of_plan(const harness_layer *layer)
{
    tconv_options options;
    tconv_plan *plan;
    harness_layer again;
    char text[8192], message[256];
    size_t length;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = "cpu_reference";
    expect_success(tconv_plan_create(&layer->desc, &options, &plan, &issue), issue);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, &length), TCONV_SUCCESS);
    cr_assert_lt(length, sizeof text);
    tconv_plan_destroy(plan);
    char *problem = strstr(text, "--problem \"");
    cr_assert_not_null(problem, "%s", text);
    problem += strlen("--problem \"");
    *strchr(problem, '"') = '\0';
    cr_assert(harness_problem_parse(problem, &again, message, sizeof message), "%s: %s", problem, message);
    cr_assert_eq(again.desc.post_count, layer->desc.post_count, "%s", problem);
    cr_assert_arr_eq(again.desc.post, layer->desc.post, sizeof again.desc.post, "%s", problem);
    again.desc.layout = layer->desc.layout;
    for (int i = 0; i < layer->desc.post_count; i++) {
        const harness_role role = (harness_role)(HARNESS_POST + i);
        const harness_view ours = harness_view_of(&layer->desc, role), theirs = harness_view_of(&again.desc, role);
        cr_assert_arr_eq(&ours, &theirs, sizeof ours, "%s", problem);
    }
}

/* Expects the same of the harness's own text. */
static void expect_text_of_harness(const harness_layer *layer)
{
    harness_layer again;
    char text[HARNESS_LAYER_TEXT], message[256];
    const int length = harness_layer_format(layer, text, sizeof text);
    cr_assert(length > 0 && (size_t)length < sizeof text, "%d", length);
    char *problem = strchr(text, '"') + 1;
    *strchr(problem, '"') = '\0';
    cr_assert(harness_problem_parse(problem, &again, message, sizeof message), "%s: %s", problem, message);
    again.desc.dtype = layer->desc.dtype;
    again.desc.layout = layer->desc.layout;
    again.desc.weight_layout = layer->desc.weight_layout;
    again.desc.math = layer->desc.math;
    cr_assert_eq(memcmp(&again.desc, &layer->desc, sizeof again.desc), 0, "%s", problem);
}

Test(posts, text_is_read_back)
{
    harness_random random;
    harness_layer layer;
    size_t with_addend = 0;
    harness_random_seed(&random, 2);
    for (int i = 0; i < 2000; i++) {
        harness_random_layer(&random, &layer);
        harness_draw_posts(&random, &layer.desc);
        expect_success(tconv_validate(&layer.desc, &issue), issue);
        expect_text_of_harness(&layer);
        if (i % 10 == 0)
            expect_text_of_plan(&layer);
        with_addend += layer.desc.addend_strides[0] != 0;
    }
    cr_assert_gt(with_addend, 100);
}

/* Every number is as long as it may be, so that a text that does not fit shows. */
Test(posts, the_longest_text_is_whole)
{
    harness_layer layer = {.desc = with_posts("tanh"), .has_bias = true};
    layer.desc.accumulate = 1;
    layer.desc.post_count = TCONV_MAX_POST_OPS;
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        layer.desc.post[i] = (tconv_post_op){TCONV_POST_LINEAR, 0, -DBL_MAX, -2.2250738585072014e-308};
    layer.desc.post[7] = (tconv_post_op){TCONV_POST_ADD_TENSOR, 0, -1.7976931348623157e-308, 0};
    layer.desc.addend_strides[0] = 1000000000000000000;
    expect_text_of_harness(&layer);
    expect_text_of_plan(&layer);
}

Test(posts, texts_that_are_refused)
{
    static const struct {
        const char *problem, *message;
    } texts[] = {
        {"post=", "post-op \"\" is none of add_channel mul_channel"},
        {"post=relu", "post-op \"relu\" is none of"},
        {"post=tanh,", "post-op \"\" is none of"},
        {"post=tanh:1", "post-op \"tanh:1\" has more than 0 numbers"},
        {"post=clamp:0:6:7", "post-op \"clamp:0:6:7\" has more than 2 numbers"},
        {"post=elu:x", "post-op \"elu:x\" must have numbers"},
        {"post=elu:", "post-op \"elu:\" must have numbers"},
        {"post=elu:1e", "post-op \"elu:1e\" must have numbers"},
        {"post=elu:0x1", "post-op \"elu:0x1\" must have numbers"},
        {"post=elu:nan", "post-op \"elu:nan\" must have numbers"},
        {"post=tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh,tanh", "has more than 8 post-ops"},
        {"post=tanh post=tanh", "post= appears twice"},
        {"as=1x2x3", "as takes 4 numbers, not 3"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        char problem[256], message[256];
        harness_layer layer;
        snprintf(problem, sizeof problem, "ci=2 h=3 w=4 co=5 k=2 %s", texts[i].problem);
        cr_assert_not(harness_problem_parse(problem, &layer, message, sizeof message), "%s", problem);
        cr_assert_not_null(strstr(message, texts[i].message), "%s: \"%s\"", problem, message);
    }
}

/* ---------------------------------------------------------------------------------------------------------- merging */

/* What kernels make of a value by a list of products and bounds, in f32. */
static float run_steps(const post_steps *steps, float y)
{
    for (int i = 0; i < steps->count; i++) {
        const post_step *step = &steps->of[i];
        if (step->kind == TCONV_POST_LINEAR)
            y = fmaf(step->alpha.f32, y, step->beta.f32);
        else
            y = y < step->alpha.f32 ? step->alpha.f32 : y > step->beta.f32 ? step->beta.f32 : y;
    }
    return y;
}

static post_steps steps_of(const tconv_desc *desc)
{
    static const void *const none[TCONV_MAX_POST_OPS] = {NULL};
    tconv_problem problem;
    expect_success(tconv_problem_init(&problem, desc, &issue), issue);
    return tconv_cuda_post_steps(&problem, none);
}

/* The steps of one post-op at a time are those of the list before anything is merged. */
static float run_one_by_one(const tconv_desc *desc, float y)
{
    for (int i = 0; i < desc->post_count; i++) {
        tconv_desc one = *desc;
        tconv_remove_posts(&one);
        one.post_count = 1;
        one.post[0] = desc->post[i];
        const post_steps steps = steps_of(&one);
        y = run_steps(&steps, y);
    }
    return y;
}

Test(posts, merging_steps_keeps_every_value)
{
    static const double numbers[] = {0, 1, 2, 0.5, 4, 0.25, -1, -2, 3, 0x1p126, -0x1p127, 0x1p-126, 0x1p-149};
    static const double factors[] = {1, 2, 0.5, 4, 0.25, 3, -2, 0x1p100, 0x1p-100, 0x1p127};
    static const float values[] = {0.0F,      -0.0F,      1.0F,      -1.0F,      0.3F,
                                   0x1p-149F, -0x1p-140F, 0x1p-126F, 0x1.8p127F, -0x1.fp127F};
    harness_random random;
    int merged = 0;
    harness_random_seed(&random, 7);
    for (int round = 0; round < 3000; round++) {
        tconv_desc desc = with_posts("linear:1:0");
        desc.dtype = TCONV_F32;
        desc.post_count = 1 + (int)harness_random_integer(&random, 0, TCONV_MAX_POST_OPS - 1);
        for (int i = 0; i < desc.post_count; i++) {
            tconv_post_op *post = &desc.post[i];
            const bool bounds = harness_random_integer(&random, 0, 1) == 0;
            double a = numbers[harness_random_integer(&random, 0, 12)],
                   b = numbers[harness_random_integer(&random, 0, 12)];
            a = harness_random_integer(&random, 0, 7) == 0 ? -INFINITY : a;
            b = harness_random_integer(&random, 0, 7) == 0 ? INFINITY : b;
            post->kind = bounds ? TCONV_POST_CLAMP : TCONV_POST_LINEAR;
            post->alpha = bounds ? fmin(a, b) : factors[harness_random_integer(&random, 0, 9)];
            post->beta = bounds ? fmax(a, b) : harness_random_integer(&random, 0, 3) == 0 ? 1 : 0;
        }
        const post_steps steps = steps_of(&desc);
        merged += steps.count < desc.post_count;
        for (int i = 0; i < 60; i++) {
            union {
                uint32_t bits;
                float value;
            } y = {.bits = (uint32_t)harness_random_bits(&random)};
            const float from = i < 10 ? values[i] : i == 10 ? INFINITY : i == 11 ? -INFINITY : i == 12 ? NAN : y.value;
            const float expected = run_one_by_one(&desc, from), found = run_steps(&steps, from);
            cr_assert(expected == found || (isnan(expected) && isnan(found)), "round %d: %a to %a, not %a", round,
                      (double)from, (double)found, (double)expected);
        }
    }
    cr_assert_gt(merged, 500);
}

/* Hardtanh, a product, Hardtanh and a division, as networks have them, are one bound. */
Test(posts, bounds_and_products_are_one_bound)
{
    const tconv_desc desc = with_posts("clamp:0:1,linear:2:0,clamp:0:1,linear:0.5:0");
    const post_steps steps = steps_of(&desc);
    cr_assert_eq(steps.count, 1);
    cr_assert_eq(steps.of[0].kind, (int)TCONV_POST_CLAMP);
    cr_assert_float_eq(steps.of[0].beta.f32, 0.5F, 0);
}
