/*
 * Every implementation, at every instruction set of this machine, against the reference, and the reference against the
 * formula: on random layers and on the corners, exact on integers and within the bounds of tconv.h on reals, in every
 * dtype and layout. Then what holds besides: the same bits for any number of threads, NaN and Inf where the arithmetic
 * takes them. That nothing else is touched is in test_bounds.c.
 *
 * The seed is fixed, so that a failure replays; its message holds the layer as `tconv bench` takes it.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/cases.h"
#include "support/ways.h"

#define RANDOM_LAYERS 400 /* a few seconds in a debug build with sanitizers */

#define SUM_UNITS 16 /* of 2^-24 sum |x||w|: the bound of f32 */

static struct way ways[MAX_WAYS];
static size_t way_count;

/* The layer by every way, in turn with other numbers of threads and with and without packing first. */
static void check_layer(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    harness_case test = make_case(layer, fill, seed);
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++)
        taken += check_way(&test, &ways[w], thread_counts[(seed + w) % THREAD_COUNTS], (seed / 2 + w) % 2 != 0);
    cr_assert_gt(taken, 0, "nothing takes the layer");
    harness_case_destroy(&test);
}

static void check_random_layers(tconv_backend backend, harness_fill fill, uint64_t seed)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, seed);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        check_layer(&layer, fill, i);
    }
}

static void check_corners(tconv_backend backend, harness_fill fill)
{
    way_count = list_ways(backend, ways);
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        harness_corner(i, &layer);
        check_layer(&layer, fill, i);
    }
}

/* ------------------------------------------------------------------------------------------------------ the reference */

/* All pixels of a layer, each computed straight from the formula by code that shares nothing with the library. */
static void check_reference(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    static const struct way reference = {"cpu_reference", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_DEFAULT,
                                         "cpu_reference"};
    harness_case test = make_case(layer, fill, seed);
    const int64_t *shape = test.dst_view.shape;
    int64_t element = 0;
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t c = 0; c < shape[1]; c++)
            for (int64_t h = 0; h < shape[2]; h++)
                for (int64_t w = 0; w < shape[3]; w++, element++) {
                    const int64_t at[4] = {n, c, h, w};
                    double value, bound;
                    harness_pixel(&test, at, &value, &bound);
                    cr_assert(fabs(test.expected[element] - value) <=
                                  (fill == HARNESS_INTEGERS ? 0 : 16 * 0x1p-53 * bound),
                              "layer %" PRIu64 ": (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                              ") is %.17g, by the formula %.17g",
                              seed, n, c, h, w, test.expected[element], value);
                }
    cr_assert(check_way(&test, &reference, 2, false), "the reference takes every layer");
    harness_case_destroy(&test);
}

Test(implementations, reference_is_the_formula_on_random_layers)
{
    harness_random random;
    harness_layer layer;
    harness_random_seed(&random, 1);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        check_reference(&layer, i % 2 == 0 ? HARNESS_INTEGERS : HARNESS_REALS, i);
    }
}

Test(implementations, reference_is_the_formula_on_corners)
{
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        harness_corner(i, &layer);
        check_reference(&layer, HARNESS_INTEGERS, i);
    }
}

Test(implementations, reference_comes_last)
{
    const char *name, *last = NULL;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++)
        last = name;
    cr_assert_str_eq(last, "cpu_reference");
}

/* -------------------------------------------------------------------------------------------------- every other one */

Test(implementations, integers_are_exact_on_random_layers)
{
    check_random_layers(TCONV_BACKEND_CPU, HARNESS_INTEGERS, 2);
}

Test(implementations, reals_are_in_bounds_on_random_layers)
{
    check_random_layers(TCONV_BACKEND_CPU, HARNESS_REALS, 3);
}

Test(implementations, integers_are_exact_on_corners)
{
    check_corners(TCONV_BACKEND_CPU, HARNESS_INTEGERS);
}

Test(implementations, reals_are_in_bounds_on_corners)
{
    check_corners(TCONV_BACKEND_CPU, HARNESS_REALS);
}

Test(implementations_cuda, integers_are_exact_on_random_layers)
{
    skip_without_cuda();
    check_random_layers(TCONV_BACKEND_CUDA, HARNESS_INTEGERS, 2);
}

Test(implementations_cuda, reals_are_in_bounds_on_random_layers)
{
    skip_without_cuda();
    check_random_layers(TCONV_BACKEND_CUDA, HARNESS_REALS, 3);
}

Test(implementations_cuda, integers_are_exact_on_corners)
{
    skip_without_cuda();
    check_corners(TCONV_BACKEND_CUDA, HARNESS_INTEGERS);
}

Test(implementations_cuda, reals_are_in_bounds_on_corners)
{
    skip_without_cuda();
    check_corners(TCONV_BACKEND_CUDA, HARNESS_REALS);
}

/* ------------------------------------------------------------------------------------------------------------- bits */

/* Runs of one way, threads and packing varied, all have the bits of the first. */
static void check_same_bits(const harness_case *test, const struct way *way, bool vary_threads)
{
    harness_output first, other;
    harness_failure failure;
    if (!run_way(test, way, thread_counts[0], false, &first))
        return;
    for (size_t i = 0; i < 2 * THREAD_COUNTS; i++) {
        int threads = vary_threads ? thread_counts[i / 2] : 0;
        cr_assert(run_way(test, way, threads, i % 2 != 0, &other));
        cr_assert(harness_same_bits(test, &first, &other, &failure), "%s, %d threads%s: %s", way->text, threads,
                  i % 2 != 0 ? ", packed" : "", failure.text);
        harness_output_release(&other);
    }
    harness_output_release(&first);
}

static void check_same_bits_on_random_layers(tconv_backend backend, int layers)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, 4);
    for (int i = 0; i < layers; i++) {
        harness_random_layer(&random, &layer);
        harness_case test = make_case(&layer, HARNESS_REALS, (uint64_t)i);
        for (size_t w = 0; w < way_count; w++)
            check_same_bits(&test, &ways[w], backend == TCONV_BACKEND_CPU);
        harness_case_destroy(&test);
    }
}

Test(implementations, same_bits_for_any_threads_packed_or_not)
{
    check_same_bits_on_random_layers(TCONV_BACKEND_CPU, 150);
}

Test(implementations, same_bits_where_threads_share_the_work)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < LARGER_LAYERS; i++)
        for (int form = 0; form < LARGER_FORMS; form++) {
            harness_layer layer = larger_layer(i, form);
            harness_case test = make_case(&layer, HARNESS_REALS, i);
            for (size_t w = 0; w < way_count; w++) {
                if (strcmp(ways[w].implementation, "cpu_reference") == 0)
                    continue; /* the answer itself, and slow */
                check_way(&test, &ways[w], 1, false);
                check_same_bits(&test, &ways[w], true);
            }
            harness_case_destroy(&test);
        }
}

Test(implementations_cuda, same_bits_in_every_run_packed_or_not)
{
    skip_without_cuda();
    check_same_bits_on_random_layers(TCONV_BACKEND_CUDA, 150);
}

/* -------------------------------------------------------------------------------------------------------- like terms */

/* A sum of like terms is the worst for running sums: all roundings may go the same way. */
static const char *const constant_problems[] = {
    "ci=48 h=9 w=40 co=64 k=1",
    "ci=64 h=9 w=40 co=64 k=1",
    "ci=128 h=9 w=40 co=64 k=2 s=2",
    "ci=64 h=9 w=40 co=64 k=3 p=1",
    "ci=900 h=5 w=40 co=64 k=1",
    "ci=113 h=9 w=40 co=64 k=3 p=1",
    "ci=512 h=6 w=40 co=64 k=4 s=2",
    "ci=64 h=9 w=72 co=64 k=5x7 p=2x3",
    "ci=4000 h=4 w=33 co=64 k=1",
    "ci=64 h=10 w=40 co=64 k=8 p=4",
    "ci=8000 h=4 w=33 co=32 k=1",
    "ci=10000 h=4 w=33 co=32 k=1",
    "ci=32 h=40 w=40 co=32 k=16 s=8 g=32",
    "ci=48 h=30 w=30 co=48 k=9 p=4 g=48",
    "ci=200 h=30 w=30 co=3 k=7 p=3",
};

#define CONSTANT_PAIRS  6
#define CONSTANT_PIXELS 200

/* The worst error of some pixels in units of 2^-24 sum |x||w|. */
static double worst_units(const harness_case *test, const harness_output *output, harness_random *random)
{
    double worst = 0;
    for (int i = 0; i < CONSTANT_PIXELS; i++) {
        int64_t at[4];
        double value, bound;
        for (int axis = 0; axis < 4; axis++)
            at[axis] = harness_random_integer(random, 0, test->dst_view.shape[axis] - 1);
        harness_pixel(test, at, &value, &bound);
        double got = harness_element_get(TCONV_F32, output->dst.data,
                                         harness_view_index(&test->dst_view, at[0], at[1], at[2], at[3]));
        double units = bound > 0 ? fabs(got - value) / (bound * 0x1p-24) : got == 0 ? 0 : INFINITY;
        worst = units <= worst ? worst : units; /* NaN is worse than anything */
    }
    return worst;
}

/* One layer, all x equal and all w equal; worst gathers, by way. */
static void check_constants(const char *problem, tconv_layout layout, harness_random *random, double worst[MAX_WAYS])
{
    harness_layer layer;
    harness_case test;
    tconv_issue issue;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
    layer.desc.layout = layout;
    cr_assert_eq(harness_case_create_unanswered(&test, &layer, HARNESS_REALS, 1, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    for (int pair = 0; pair < CONSTANT_PAIRS; pair++) {
        double x = 1 + fabs(harness_random_real(random)), w = 1 + fabs(harness_random_real(random));
        for (int64_t i = 0; i < test.src_view.extent; i++)
            harness_element_set(TCONV_F32, test.src.data, i, pair % 2 == 0 ? x : -x);
        for (int64_t i = 0; i < test.weights_view.extent; i++)
            harness_element_set(TCONV_F32, test.weights.data, i, w);
        for (size_t i = 0; i < way_count; i++) {
            harness_output output;
            if (ways[i].math == TCONV_MATH_TF32 || !run_way(&test, &ways[i], 2, pair % 2 != 0, &output))
                continue;
            double units = worst_units(&test, &output, random);
            if (units > SUM_UNITS)
                fprintf(stderr, "%s: %.1f units, %s %s\n", ways[i].text, units, problem, harness_layout_name(layout));
            worst[i] = units <= worst[i] ? worst[i] : units;
            harness_output_release(&output);
        }
    }
    harness_case_destroy(&test);
}

Test(implementations_cuda, constants_of_up_to_10000_terms_are_in_bounds)
{
    static double worst[MAX_WAYS];
    harness_random random;
    skip_without_cuda();
    way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    harness_random_seed(&random, 7);
    for (size_t p = 0; p < sizeof constant_problems / sizeof constant_problems[0]; p++)
        for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++)
            check_constants(constant_problems[p], (tconv_layout)layout, &random, worst);
    for (size_t i = 0; i < way_count; i++)
        if (ways[i].math != TCONV_MATH_TF32)
            fprintf(stderr, "%s: at most %.1f units\n", ways[i].text, worst[i]);
    for (size_t i = 0; i < way_count; i++)
        cr_assert(worst[i] <= SUM_UNITS, "%s: %.1f units of like terms, more than %d", ways[i].text, worst[i],
                  SUM_UNITS);
}

/* ----------------------------------------------------------------------------------------------------- NaN and Inf */

/* Replaces about one in rarity elements by NaN, Inf or -Inf. */
static void sprinkle(const harness_view *view, tconv_dtype dtype, void *data, harness_random *random, int64_t rarity)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    if (harness_random_integer(random, 1, rarity) == 1)
                        harness_element_set(dtype, data, harness_view_index(view, a, b, c, d),
                                            values[harness_random_integer(random, 0, 2)]);
}

static bool same_kind(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return isinf(a) || isinf(b) ? a == b : true;
}

/* Whether any of shape[1] x shape[2] x shape[3] elements from data on is NaN or Inf. */
static bool has_special(const harness_view *view, tconv_dtype dtype, const void *data, int64_t a)
{
    for (int64_t b = 0; b < view->shape[1]; b++)
        for (int64_t c = 0; c < view->shape[2]; c++)
            for (int64_t d = 0; d < view->shape[3]; d++)
                if (!isfinite(harness_element_get(dtype, data, harness_view_index(view, a, b, c, d))))
                    return true;
    return false;
}

/* Whether a kernel that multiplies more than the taps of image n, or splits factors, may get NaN from their specials. */
static bool may_spread(const harness_case *test, int64_t n)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    if (has_special(&test->src_view, dtype, test->src.data, n))
        return true;
    for (int64_t in = 0; in < test->weights_view.shape[0]; in++)
        if (has_special(&test->weights_view, dtype, test->weights.data, in))
            return true;
    return false;
}

/* Whether got may be the output of which the formula gives value: NaN, Inf or finite alike. On tensor cores whatever is not
 * finite stays so, and another output may become NaN beside it (spread). */
static bool right_kind(const struct way *way, double got, double value, bool spread)
{
    if (way_skips_taps(way))
        return same_kind(got, value);
    return isfinite(value) ? isfinite(got) || spread : !isfinite(got);
}

/* Every output is NaN, Inf or finite as the formula, which skips missing taps, has it; finite ones are exact. Returns how
 * many are not finite. */
static int64_t check_kinds(const harness_case *test, const harness_output *output, const struct way *way)
{
    const int64_t *shape = test->dst_view.shape;
    const tconv_dtype dtype = test->layer.desc.dtype;
    int64_t special = 0;
    for (int64_t n = 0; n < shape[0]; n++) {
        const bool spread = !way_skips_taps(way) && may_spread(test, n);
        for (int64_t c = 0; c < shape[1]; c++)
            for (int64_t h = 0; h < shape[2]; h++)
                for (int64_t w = 0; w < shape[3]; w++) {
                    const int64_t at[4] = {n, c, h, w};
                    double value, bound, got;
                    harness_pixel(test, at, &value, &bound);
                    got = harness_element_get(dtype, output->dst.data, harness_view_index(&test->dst_view, n, c, h, w));
                    cr_assert(right_kind(way, got, value, spread),
                              "%s %s: (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ") is %g, by the formula %g",
                              way->text, harness_dtype_name(dtype), n, c, h, w, got, value);
                    if (isfinite(value) && isfinite(got))
                        cr_assert(fabs(got - harness_element_round(dtype, value)) == 0, "%s: %g, not %g", way->text,
                                  got, value);
                    special += !isfinite(value);
                }
    }
    return special;
}

static void check_specials(tconv_backend backend)
{
    harness_random random;
    int64_t special = 0;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, 6);
    for (uint64_t i = 0; i < 150; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        layer.desc.math = TCONV_MATH_STRICT;
        harness_case test = make_case(&layer, HARNESS_INTEGERS, i);
        sprinkle(&test.src_view, layer.desc.dtype, test.src.data, &random, i % 3 == 0 ? 1000000 : 40);
        sprinkle(&test.weights_view, layer.desc.dtype, test.weights.data, &random, i % 3 == 1 ? 1000000 : 20);
        if (layer.has_bias && i % 5 == 0)
            harness_element_set(layer.desc.dtype, test.bias.data, 0, -INFINITY);
        for (size_t w = 0; w < way_count; w++) {
            harness_output output;
            if (!run_way(&test, &ways[w], thread_counts[i % THREAD_COUNTS], i % 2 != 0, &output))
                continue;
            special += check_kinds(&test, &output, &ways[w]);
            harness_output_release(&output);
        }
        harness_case_destroy(&test);
    }
    cr_assert_gt(special, 10000, "%" PRId64 " outputs were NaN or Inf", special);
}

Test(implementations, nan_and_inf_go_where_the_arithmetic_takes_them)
{
    check_specials(TCONV_BACKEND_CPU);
}

Test(implementations_cuda, nan_and_inf_go_where_the_arithmetic_takes_them)
{
    skip_without_cuda();
    check_specials(TCONV_BACKEND_CUDA);
}

static void check_kinds_in_all_ways(const harness_case *test, int threads)
{
    for (size_t w = 0; w < way_count; w++) {
        harness_output output;
        if (!run_way(test, &ways[w], threads, false, &output))
            continue;
        check_kinds(test, &output, &ways[w]);
        harness_output_release(&output);
    }
}

/* Layers large enough for what takes no small ones: few channels per group, and few output channels. */
Test(implementations_cuda, nan_and_inf_go_there_in_larger_layers)
{
    static const char *const problems[] = {"ci=20 h=9 w=12 co=3 k=4 s=2 p=1 b=1",
                                           "n=2 ci=72 h=8 w=33 co=2 k=3 p=1",
                                           "ci=17 h=8 w=10 co=1 k=9 s=4 p=4 op=3 b=1",
                                           "n=4 ci=17 h=8 w=10 co=1 k=9 s=4 p=4 op=3 b=1",
                                           "n=4 ci=40 h=9 w=20 co=3 k=4 s=2 p=1 b=1",
                                           "ci=17 h=6 w=70 co=2 k=3x2 s=2x1 p=1 b=1",
                                           "ci=48 h=9 w=9 co=4 k=3x5 s=2x3 p=1 d=2x1 g=2 b=1",
                                           "ci=4 h=9 w=16 co=4 k=4 s=2 p=1 g=4 b=1",
                                           "ci=3 h=9 w=16 co=3 k=16 s=8 p=4 g=3",
                                           "ci=3 h=9 w=17 co=6 k=5x3 p=2x1 g=3",
                                           "ci=6 h=9 w=16 co=6 k=3 p=1 g=6 b=1",
                                           "ci=6 h=9 w=16 co=6 k=3x4 s=2 p=1 g=6"};
    skip_without_cuda();
    harness_random random;
    way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    harness_random_seed(&random, 8);
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (int form = 0; form < LARGER_FORMS; form++) {
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.dtype = (tconv_dtype)(form / 2);
            layer.desc.layout = (tconv_layout)(form % 2);
            layer.desc.math = TCONV_MATH_STRICT;
            for (int where = 0; where < 3; where++) { /* in src, in the weights, in both */
                harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
                if (where != 1)
                    sprinkle(&test.src_view, layer.desc.dtype, test.src.data, &random, 300);
                if (where != 0)
                    sprinkle(&test.weights_view, layer.desc.dtype, test.weights.data, &random, 300);
                check_kinds_in_all_ways(&test, 1);
                harness_case_destroy(&test);
            }
        }
}

/* With Inf weights throughout, an output that a missing tap were multiplied into would be NaN (0 * Inf). */
Test(implementations, a_missing_tap_is_skipped)
{
    static const char *const problems[] = {"ci=1 h=1 w=1 co=1 k=3 s=2 p=1", "ci=2 h=3 w=5 co=3 k=4x5 s=3x2 p=2x3 d=2x1",
                                           "n=2 ci=4 h=4 w=33 co=8 k=3 p=1", "ci=2 h=2 w=2 co=2 k=1 s=4 op=3"};
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (int form = 0; form < LARGER_FORMS; form++) {
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.dtype = (tconv_dtype)(form / 2);
            layer.desc.layout = (tconv_layout)(form % 2);
            harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
            for (int64_t i = 0; i < test.weights_view.extent; i++)
                harness_element_set(layer.desc.dtype, test.weights.data, i, INFINITY);
            for (int64_t i = 0; i < test.src_view.extent; i++)
                harness_element_set(layer.desc.dtype, test.src.data, i, 1);
            check_kinds_in_all_ways(&test, 2);
            harness_case_destroy(&test);
        }
}
