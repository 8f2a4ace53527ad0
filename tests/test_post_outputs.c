/*
 * Outputs with post-ops by every implementation that applies them, in every way that it can run: random lists, outputs
 * without taps, one rounding; and mistakes that the judge must see.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "harness.h"
#include "support/cases.h"
#include "support/expect.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS 600

static tconv_issue issue;

static harness_layer layer_of(const char *problem, tconv_dtype dtype)
{
    harness_layer layer;
    char message[256];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
    layer.desc.dtype = dtype;
    return layer;
}

/* Checks a layer by all ways of a backend, with what each fill has. Returns how many took it. */
static size_t check_layer(const harness_layer *layer, const struct way ways[MAX_WAYS], size_t way_count, uint64_t seed)
{
    size_t taken = 0;
    for (int fill = HARNESS_INTEGERS; fill <= HARNESS_REALS; fill++) {
        harness_case test;
        if (fill == HARNESS_INTEGERS && !harness_has_integers(layer))
            continue;
        expect_success(harness_case_create(&test, layer, (harness_fill)fill, seed, &issue), issue);
        for (size_t w = 0; w < way_count; w++)
            taken += check_way(&test, &ways[w], (int)(1 + (seed + w) % 3), (seed + w) % 2 == 0);
        harness_case_destroy(&test);
    }
    return taken;
}

static void check_random_lists(tconv_backend backend)
{
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    harness_random random;
    size_t taken = 0;
    harness_random_seed(&random, 11);
    for (size_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        layer.desc.accumulate = i % 5 == 0;
        harness_draw_posts(&random, &layer.desc);
        if (in_part(i))
            taken += check_layer(&layer, ways, way_count, i);
    }
    cr_assert_gt(taken, 0);
}

Test(post_outputs, random_lists)
{
    check_random_lists(TCONV_BACKEND_CPU);
}

Test(post_outputs_cuda, random_lists)
{
    skip_without_cuda();
    check_random_lists(TCONV_BACKEND_CUDA);
}

/* Each kind alone, in each dtype and layout, on a layer where some outputs have no tap and one where all have many. */
static void check_each_kind(tconv_backend backend)
{
    static const char *const problems[] = {"n=2 ci=5 h=6 w=9 co=7 k=2x1 s=3 b=1",
                                           "n=1 ci=40 h=8 w=33 co=24 k=4 s=2 p=1 b=1"};
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    for (int kind = 1; kind <= TCONV_POST_SNAKE; kind++)
        for (int form = 0; form < 16; form++) {
            harness_layer layer = layer_of(problems[form / 8], (tconv_dtype)(form % 4));
            tconv_post_op *post = &layer.desc.post[0];
            layer.desc.layout = (tconv_layout)(form / 4 % 2);
            layer.desc.post_count = 1;
            post->kind = (tconv_post_kind)kind;
            post->alpha = harness_post_numbers(post->kind) > 0 ? 0.5 : 0;
            post->beta = harness_post_numbers(post->kind) > 1 ? 1.5 : 0;
            cr_assert_gt(check_layer(&layer, ways, way_count, (uint64_t)form), 0, "%s", harness_post_name(post->kind));
        }
}

Test(post_outputs, each_kind)
{
    check_each_kind(TCONV_BACKEND_CPU);
}

Test(post_outputs_cuda, each_kind)
{
    skip_without_cuda();
    check_each_kind(TCONV_BACKEND_CUDA);
}

/* ------------------------------------------------------------------------------------------------ mistakes by name */

/* Runs `wrong` by the reference on the tensors of a case of `right`, which must not pass for an answer to `right`. */
static void expect_seen(const char *right, const char *wrong, tconv_dtype dtype, harness_fill fill)
{
    const harness_layer of_right = layer_of(right, dtype), of_wrong = layer_of(wrong, dtype);
    tconv_options options;
    harness_case test;
    harness_output output;
    harness_failure failure;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = "cpu_reference";
    expect_success(harness_case_create(&test, &of_right, fill, 1, &issue), issue);
    expect_success(harness_run(&test, &options, false, &output, &issue), issue);
    cr_assert(harness_compare(&test, &output, &failure), "%s", failure.text);
    harness_output_release(&output);
    test.layer = of_wrong;
    expect_success(harness_run(&test, &options, false, &output, &issue), issue);
    test.layer = of_right;
    cr_assert_not(harness_compare(&test, &output, &failure), "\"%s\" passes for \"%s\" in %s", wrong, right,
                  harness_dtype_name(dtype));
    harness_output_release(&output);
    harness_case_destroy(&test);
}

#define PROBLEM "n=2 ci=3 h=4 w=5 co=4 k=2 s=3 b=1 post="

Test(post_outputs, the_judge_sees_mistakes)
{
    static const struct {
        const char *right, *wrong;
        bool has_integers;
    } rows[] = {
        {PROBLEM "mul_channel,add_channel", PROBLEM "mul_channel", true},         /* the last one forgotten */
        {PROBLEM "clamp:-0.5:0.25", PROBLEM "clamp:-0.25:0.25", true},            /* another bound */
        {PROBLEM "linear:2:0,linear:1:1", PROBLEM "linear:1:1,linear:2:0", true}, /* the order */
        {PROBLEM "leaky_relu:0.5", PROBLEM "leaky_relu:0.25", true},              /* another slope */
        {PROBLEM "add_tensor:1", PROBLEM "add_tensor:-1", true},                  /* the sign */
        {PROBLEM "add_tensor:1", PROBLEM "add_tensor:2", true},                   /* the addend, twice */
        {PROBLEM "gelu", PROBLEM "gelu_tanh", false},                             /* the approximation */
        {PROBLEM "gelu", PROBLEM "silu", false},
        {PROBLEM "silu", PROBLEM "mish", false},
        {PROBLEM "silu", PROBLEM "hardswish", false},
        {PROBLEM "tanh", PROBLEM "tanh,tanh", false},
        {PROBLEM "elu:1", PROBLEM "elu:1.01", false},
        {PROBLEM "softplus", PROBLEM "leaky_relu:0", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int dtype = TCONV_F32; dtype <= TCONV_F64; dtype++) {
            expect_seen(rows[i].right, rows[i].wrong, (tconv_dtype)dtype, HARNESS_REALS);
            if (rows[i].has_integers)
                expect_seen(rows[i].right, rows[i].wrong, (tconv_dtype)dtype, HARNESS_INTEGERS);
        }
}

/* An addend that is read by dst's strides. */
Test(post_outputs, the_judge_sees_an_addend_of_other_strides)
{
    static const char right[] = "n=2 ci=3 h=4 w=5 co=4 k=1 post=add_tensor:1 as=100x21x5x1";
    static const char wrong[] = "n=2 ci=3 h=4 w=5 co=4 k=1 post=add_tensor:1 as=80x20x5x1";
    expect_seen(right, wrong, TCONV_F32, HARNESS_INTEGERS);
    expect_seen(right, wrong, TCONV_BF16, HARNESS_REALS);
}

/* The bound of an error grows as little as the steps let it: an error of a thousandth is seen after any list. */
Test(post_outputs, the_bound_stays_small)
{
    harness_random random;
    harness_random_seed(&random, 12);
    for (uint64_t i = 0; i < 300; i++) {
        harness_layer layer = layer_of("n=1 ci=4 h=3 w=4 co=5 k=2 s=2 b=1", i % 2 == 0 ? TCONV_F32 : TCONV_F64);
        harness_case test;
        harness_draw_posts(&random, &layer.desc);
        expect_success(harness_case_create(&test, &layer, HARNESS_REALS, i, &issue), issue);
        for (int64_t c = 0; c < 5; c++) {
            const int64_t at[4] = {0, c, 1, 1};
            double value, bound;
            harness_element_answer(&test, HARNESS_DST, at, &value, &bound);
            double error = 16 * (i % 2 == 0 ? 0x1p-24 : 0x1p-53) * bound;
            harness_apply_posts(&test, at, &value, &error);
            /* eight slopes of at most 1.75, from a sum of at most 10 */
            cr_assert(isfinite(value) && error < (i % 2 == 0 ? 0x1p-24 : 0x1p-53) * 1e5, "value %g, error %g", value,
                      error);
        }
        harness_case_destroy(&test);
    }
}

/* ---------------------------------------------------------------------------------------------------------- roundings */

/* The sum 61 * 67 = 4087 is no number of f16, nor of bf16; what remains of it after the shift is one. */
static void check_one_rounding(tconv_backend backend)
{
    static const struct {
        tconv_dtype dtype;
        double a, b;
        const char *problem;
        double expected;
    } rows[] = {{TCONV_F16, 61, 67, "ci=1 h=1 w=1 co=1 k=1 post=linear:1:-4084", 3},
                {TCONV_BF16, 61, 67, "ci=1 h=1 w=1 co=1 k=1 post=linear:1:-4084", 3},
                {TCONV_BF16, 61, 67, "ci=1 h=1 w=1 co=1 k=1 post=linear:1:-4086,leaky_relu:0", 1}};
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    size_t taken = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const harness_layer layer = layer_of(rows[i].problem, rows[i].dtype);
        harness_case test;
        expect_success(harness_case_create(&test, &layer, HARNESS_REALS, 1, &issue), issue);
        harness_element_set(rows[i].dtype, test.src.data, 0, rows[i].a);
        harness_element_set(rows[i].dtype, test.weights.data, 0, rows[i].b);
        for (size_t w = 0; w < way_count; w++) {
            harness_output output;
            if (!run_way(&test, &ways[w], 1, false, &output))
                continue;
            taken++;
            cr_assert_eq(harness_element_get(rows[i].dtype, output.dst.data, 0), rows[i].expected, "%s: %s: %g",
                         ways[w].text, rows[i].problem, harness_element_get(rows[i].dtype, output.dst.data, 0));
            harness_output_release(&output);
        }
        harness_case_destroy(&test);
    }
    cr_assert_gt(taken, 0);
}

Test(post_outputs, rounded_before_the_post_ops)
{
    check_one_rounding(TCONV_BACKEND_CPU);
}

Test(post_outputs_cuda, rounded_before_the_post_ops)
{
    skip_without_cuda();
    check_one_rounding(TCONV_BACKEND_CUDA);
}
