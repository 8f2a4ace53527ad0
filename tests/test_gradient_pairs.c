/*
 * The gradient of src of bf16 by pairs of output channels (AVX512_BF16), which takes what is subnormal for zero: where
 * numbers or products are so small, or so large that sums may not be finite, it has the bits of AVX-512, which multiplies
 * in f32. These are tests of the suite gradients.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cpu/correlation_task.h"
#include "../src/cpu/cpu_backend.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Odd and even numbers of output channels, one phase and several, a stride beyond those that are split by vectors; pixels,
 * of whole rows and of parts of them. */
struct problem {
    const char *text;
    tconv_layout layout;
};

static const struct problem problems[] = {
    {"n=2 ci=9 h=13 w=37 co=6 k=3 p=1", TCONV_NCHW},          {"n=3 ci=5 h=6 w=7 co=7 k=4 s=2 p=1", TCONV_NCHW},
    {"n=1 ci=30 h=9 w=33 co=10 k=2x3 s=2x3 g=2", TCONV_NCHW}, {"n=2 ci=3 h=2 w=40 co=3 k=1x2 s=1x17", TCONV_NCHW},
    {"n=3 ci=16 h=9 w=11 co=12 k=3 s=2 p=1", TCONV_NHWC},     {"n=2 ci=40 h=7 w=13 co=20 k=3 s=4 g=2", TCONV_NHWC},
};

/* Of each problem the gradient of dst, of which some elements are of another magnitude, and weights. */
struct factors {
    double dst, some, weights;
};

/* Returns the case, its tensors scaled; no scale rounds, but to numbers that are subnormal. */
static harness_case scaled_case(const harness_layer *layer, const struct factors *factors)
{
    enum { EVERY = 97 };
    harness_case test = make_case(layer, HARNESS_REALS, 3);
    for (int64_t i = 0; i < test.views[HARNESS_DST].extent; i++)
        harness_element_set(TCONV_BF16, test.dst.data, i,
                            harness_element_get(TCONV_BF16, test.dst.data, i) *
                                (i % EVERY == EVERY / 2 ? factors->some : factors->dst));
    for (int64_t i = 0; i < test.views[HARNESS_WEIGHTS].extent; i++)
        harness_element_set(TCONV_BF16, test.weights.data, i,
                            harness_element_get(TCONV_BF16, test.weights.data, i) * factors->weights);
    return test;
}

/* Returns the layer of a problem. */
static harness_layer layer_of(const struct problem *problem)
{
    harness_layer layer = gradient_layer(problem->text, TCONV_BACKWARD_DATA);
    layer.desc.dtype = TCONV_BF16;
    layer.desc.layout = problem->layout;
    return layer;
}

/* Runs the case at an instruction set; returns the gradient of src. */
static harness_buffer run_at(const struct problem *problem, const harness_case *test, tconv_cpu_isa isa)
{
    const struct bare_target machine = {.isa = isa, .threads = 2};
    harness_buffer src = harness_buffer_create(test->views[HARNESS_SRC].extent, sizeof(uint16_t), 0);
    tconv_layer bare;
    bare_layer_make(&bare, problem->text, TCONV_BF16, problem->layout, &machine);
    bare_layer_run(&bare, &tconv_cpu_correlation,
                   &(struct bare_tensors){.src = src.data, .weights = test->weights.data, .dst = test->dst.data});
    bare_layer_release(&bare);
    return src;
}

/* Whether AVX512_BF16 has the bits of AVX-512. */
static bool is_same(const struct problem *problem, const struct factors *factors)
{
    const harness_layer layer = layer_of(problem);
    harness_case test = scaled_case(&layer, factors);
    harness_buffer floats = run_at(problem, &test, TCONV_CPU_ISA_AVX512);
    harness_buffer pairs = run_at(problem, &test, TCONV_CPU_ISA_AVX512_BF16);
    const size_t bytes = (size_t)test.views[HARNESS_SRC].extent * sizeof(uint16_t);
    const bool same = memcmp(floats.data, pairs.data, bytes) == 0;
    harness_buffer_release(&floats);
    harness_buffer_release(&pairs);
    harness_case_destroy(&test);
    return same;
}

/* Whether the case is summed by pairs. */
static bool is_by_pairs(const struct problem *problem, const struct factors *factors)
{
    const struct bare_target machine = {.isa = TCONV_CPU_ISA_AVX512_BF16, .threads = 3};
    const harness_layer layer = layer_of(problem);
    tconv_cpu_pair_range weights = TCONV_CPU_NO_PAIR_RANGE;
    tconv_cpu_correlation_plan plan;
    tconv_layer bare;
    tconv_issue issue;
    harness_case test = scaled_case(&layer, factors);
    bare_layer_make(&bare, problem->text, TCONV_BF16, problem->layout, &machine);
    cr_assert_eq(tconv_cpu_correlation_plan_init(&plan, &bare, false, &issue), TCONV_SUCCESS);
    cr_assert(tconv_cpu_has_correlation_pairs(&plan, &bare));
    cr_assert_eq(tconv_cpu_correlation_plan_init(&plan, &bare, true, &issue), TCONV_SUCCESS);
    char *scratch = aligned_alloc(TCONV_ALIGNMENT, (size_t)tconv_cpu_shared_bytes());
    cr_assert_not_null(scratch);
    plan.pairs->find_range(&weights, test.weights.data, test.views[HARNESS_WEIGHTS].extent);
    const bool by_pairs = tconv_cpu_are_in_range(&bare, &plan, test.dst.data, &weights, scratch);
    free(scratch);
    bare_layer_release(&bare);
    harness_case_destroy(&test);
    return by_pairs;
}

Test(gradients, pairs_multiply_what_they_can)
{
    static const struct factors inside[] = {{1, 1, 1}, {0x1p-30, 0x1p-30, 0x1p-30}, {0x1p60, 0x1p60, 0x1p60}};
    static const struct factors outside[] = {
        {0x1p-120, 0x1p-120, 1},  {0x1p-128, 0x1p-128, 1},  {1, 1, 0x1p-130},      {0x1p-70, 0x1p-70, 0x1p-60},
        {1, 0x1p-120, 0x1p-10},   {1, 0x1p-130, 1},         {1, 0x1p-60, 0x1p-60}, {0x1p128, 0x1p128, 1},
        {1, (double)INFINITY, 1}, {1, (double)NAN, 0x1p-3}, {1, 1, 0x1p128},       {1, 1, (double)INFINITY},
    };
    if (!tconv_cpu_has_isa(TCONV_CPU_ISA_AVX512_BF16))
        cr_skip_test("skipped: this needs AVX512_BF16");
    for (size_t p = 0; p < COUNT(problems); p++) {
        for (size_t f = 0; f < COUNT(inside); f++)
            cr_expect(is_by_pairs(&problems[p], &inside[f]), "%s, factors %zu", problems[p].text, f);
        for (size_t f = 0; f < COUNT(outside); f++) {
            cr_expect(!is_by_pairs(&problems[p], &outside[f]), "%s, factors %zu", problems[p].text, f);
            cr_expect(is_same(&problems[p], &outside[f]), "%s, factors %zu", problems[p].text, f);
        }
    }
}
