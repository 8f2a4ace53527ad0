/*
 * The gradients of bf16 by pairs (AVX512_BF16), that of src of output channels and that of weights of columns, which takes
 * what is subnormal for zero: where numbers or products are so small, or so large that sums may not be finite, they have
 * the bits of AVX-512, which multiplies in f32. These are tests of the suite gradients.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cpu/blocking/pair_range.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/cpu/dgrad/task.h"
#include "../src/cpu/wgrad/plan.h"
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

/* Of each problem the gradient of dst, of which some elements are of another magnitude, and what it is multiplied by:
 * weights, or src. */
struct factors {
    double dst, some, others;
};

/* A layer for processors that make more pairs than multiply-adds. */
static void make_bare(tconv_layer *layer, const struct problem *problem, const struct bare_target *machine)
{
    bare_layer_make(layer, problem->text, TCONV_BF16, problem->layout, machine);
    tconv_cpu_target cpu = tconv_cpu_target_of(&layer->target);
    cpu.tuning = TCONV_CPU_TUNING_COMMON;
    tconv_cpu_target_set(&layer->target, cpu);
}

/* The gradient of src, or of weights. */
struct gradient {
    tconv_op op;
    harness_role others, result;
    const tconv_implementation *implementation;
};

static const struct gradient gradients[] = {
    {TCONV_BACKWARD_DATA, HARNESS_WEIGHTS, HARNESS_SRC, &tconv_cpu_dgrad},
    {TCONV_BACKWARD_WEIGHTS, HARNESS_SRC, HARNESS_WEIGHTS, &tconv_cpu_wgrad},
};

/* A gradient of a problem, and its factors. */
struct given {
    const struct gradient *gradient;
    const struct problem *problem;
    const struct factors *factors;
};

/* Returns the case, its tensors scaled; no scale rounds, but to numbers that are subnormal. */
static harness_case scaled_case(const struct given *given)
{
    enum { EVERY = 97 };
    const harness_role others = given->gradient->others;
    harness_layer layer = gradient_layer(given->problem->text, given->gradient->op);
    layer.desc.dtype = TCONV_BF16;
    layer.desc.layout = given->problem->layout;
    harness_case test = make_case(&layer, HARNESS_REALS, 3);
    for (int64_t i = 0; i < test.views[HARNESS_DST].extent; i++)
        harness_element_set(TCONV_BF16, test.dst.data, i,
                            harness_element_get(TCONV_BF16, test.dst.data, i) *
                                (i % EVERY == EVERY / 2 ? given->factors->some : given->factors->dst));
    for (int64_t i = 0; i < test.views[others].extent; i++)
        harness_element_set(TCONV_BF16, test.tensors[others].data, i,
                            harness_element_get(TCONV_BF16, test.tensors[others].data, i) * given->factors->others);
    return test;
}

/* Runs the case at an instruction set; returns the gradient. */
static harness_buffer run_at(const struct given *given, const harness_case *test, tconv_cpu_isa isa)
{
    const struct bare_target machine = {.isa = isa, .threads = 2};
    harness_buffer result = harness_buffer_create(test->views[given->gradient->result].extent, sizeof(uint16_t), 0);
    struct bare_tensors tensors = {.src = result.data, .weights = test->weights.data, .dst = test->dst.data};
    tconv_layer bare;
    if (given->gradient->result == HARNESS_WEIGHTS) {
        tensors.src = test->src.data;
        tensors.weights = result.data;
    }
    make_bare(&bare, given->problem, &machine);
    bare_layer_run(&bare, given->gradient->implementation, &tensors);
    bare_layer_release(&bare);
    return result;
}

/* Whether AVX512_BF16 has the bits of AVX-512. */
static bool is_same(const struct given *given)
{
    harness_case test = scaled_case(given);
    harness_buffer floats = run_at(given, &test, TCONV_CPU_ISA_AVX512);
    harness_buffer pairs = run_at(given, &test, TCONV_CPU_ISA_AVX512_BF16);
    const size_t bytes = (size_t)test.views[given->gradient->result].extent * sizeof(uint16_t);
    const bool same = memcmp(floats.data, pairs.data, bytes) == 0;
    harness_buffer_release(&floats);
    harness_buffer_release(&pairs);
    harness_case_destroy(&test);
    return same;
}

/* Whether the implementation has a plan by pairs. */
static bool has_pairs(const struct given *given, const tconv_layer *layer)
{
    tconv_cpu_dgrad_plan data;
    tconv_cpu_wgrad_plan weights;
    tconv_issue issue;
    if (given->gradient->op == TCONV_BACKWARD_DATA)
        return tconv_cpu_dgrad_plan_init(&data, layer, false, &issue) == TCONV_SUCCESS &&
               tconv_cpu_has_dgrad_pairs(&data, layer) &&
               tconv_cpu_dgrad_plan_init(&data, layer, true, &issue) == TCONV_SUCCESS;
    return tconv_cpu_wgrad_plan_init(&weights, layer, false) == NULL && tconv_cpu_has_wgrad_pairs(&weights, layer) &&
           tconv_cpu_wgrad_plan_init(&weights, layer, true) == NULL;
}

/* Whether the case is summed by pairs. */
static bool is_by_pairs(const struct given *given)
{
    const struct bare_target machine = {.isa = TCONV_CPU_ISA_AVX512_BF16, .threads = 3};
    tconv_cpu_pair_range others = TCONV_CPU_NO_PAIR_RANGE, of_dst;
    tconv_layer bare;
    harness_case test = scaled_case(given);
    make_bare(&bare, given->problem, &machine);
    cr_assert(has_pairs(given, &bare), "%s, op %d", given->problem->text, (int)given->gradient->op);
    const tconv_cpu_pair_tensor dst = tconv_cpu_pairs_of_dst(&bare.problem, test.dst.data);
    char *scratch = aligned_alloc(TCONV_ALIGNMENT, (size_t)tconv_cpu_shared_bytes());
    cr_assert_not_null(scratch);
    tconv_cpu_find_pair_kernels(TCONV_CPU_ISA_AVX512_BF16)
        ->find_range(&others, test.tensors[given->gradient->others].data, test.views[given->gradient->others].extent);
    const bool by_pairs = tconv_cpu_find_pair_range(&bare.target, 3, &dst, &others, &of_dst, scratch);
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
    for (size_t i = 0; i < COUNT(problems) * COUNT(gradients); i++) {
        struct given given = {.gradient = &gradients[i % COUNT(gradients)], .problem = &problems[i / COUNT(gradients)]};
        for (size_t f = 0; f < COUNT(inside); f++) {
            given.factors = &inside[f];
            cr_expect(is_by_pairs(&given), "%s, op %d, factors %zu", given.problem->text, (int)given.gradient->op, f);
        }
        for (size_t f = 0; f < COUNT(outside); f++) {
            given.factors = &outside[f];
            cr_expect(!is_by_pairs(&given), "%s, op %d, factors %zu", given.problem->text, (int)given.gradient->op, f);
            cr_expect(is_same(&given), "%s, op %d, factors %zu", given.problem->text, (int)given.gradient->op, f);
        }
    }
}

/* Makes a layer for plans that do not run, on a processor that has the pairs, whether this one has them or not. Skips the
 * test where the build has none. */
static void make_planned(tconv_layer *layer, const char *problem, tconv_cpu_tuning tuning)
{
    const struct bare_target machine = {.threads = 1};
    if (tconv_cpu_find_pair_kernels(TCONV_CPU_ISA_AVX512_BF16) == NULL)
        cr_skip_test("skipped: this build has no AVX512_BF16");
    bare_layer_make(layer, problem, TCONV_BF16, TCONV_NCHW, &machine);
    tconv_cpu_target cpu = tconv_cpu_target_of(&layer->target);
    cpu.cpu_isa = TCONV_CPU_ISA_AVX512_BF16;
    cpu.tuning = tuning;
    tconv_cpu_target_set(&layer->target, cpu);
}

/* Bytes of the packed weights of the gradient of src, which pairs take beside f32's. */
static size_t packed_bytes(tconv_cpu_tuning tuning)
{
    tconv_layer bare;
    tconv_memory_sizes sizes;
    tconv_issue issue;
    void *made;
    make_planned(&bare, "n=1 ci=32 h=9 w=33 co=16 k=3", tuning);
    cr_assert_eq(bare_layer_plan(&bare, &tconv_cpu_dgrad, &made, &sizes, &issue), TCONV_SUCCESS, "%s", issue.message);
    free(made);
    bare_layer_release(&bare);
    return sizes.packed;
}

/* Xeons multiply half as many. */
Test(gradients, pairs_of_src_are_taken_where_they_are_faster)
{
    cr_expect_gt(packed_bytes(TCONV_CPU_TUNING_COMMON), packed_bytes(TCONV_CPU_TUNING_XEON));
}

/* A Xeon makes fewer pairs than multiply-adds. */
Test(gradients, pairs_of_weights_go_by_the_processor)
{
    tconv_cpu_wgrad_plan plan = {0};
    tconv_layer bare;
    make_planned(&bare, problems[0].text, TCONV_CPU_TUNING_COMMON);
    cr_assert_null(tconv_cpu_wgrad_plan_init(&plan, &bare, false));
    cr_expect(tconv_cpu_has_wgrad_pairs(&plan, &bare));
    tconv_cpu_target cpu = tconv_cpu_target_of(&bare.target);
    cpu.tuning = TCONV_CPU_TUNING_XEON;
    tconv_cpu_target_set(&bare.target, cpu);
    cr_expect_not(tconv_cpu_has_wgrad_pairs(&plan, &bare));
    bare_layer_release(&bare);
}
