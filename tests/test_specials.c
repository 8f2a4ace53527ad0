/*
 * NaN and Inf, by every implementation at every instruction set, go where the formula, which skips missing taps, takes
 * them. These are tests of the suites implementations and implementations_cuda.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>

#include "harness.h"
#include "support/cases.h"
#include "support/ways.h"

static struct way ways[MAX_WAYS];
static size_t way_count;

/* Makes about one in rarity elements special. */
static void sprinkle(const harness_view *view, tconv_dtype dtype, void *data, harness_random *random, int64_t rarity)
{
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    if (harness_random_integer(random, 1, rarity) == 1)
                        make_special(dtype, data, harness_view_index(view, a, b, c, d), random);
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

/* Whether a kernel that multiplies more than the taps of image n, or splits factors, may get NaN from their NaN and
 * Inf. */
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

/* Whether got may be the output for which the formula gives value: NaN, Inf or finite alike. On tensor cores an output
 * that is not finite stays so, and another output may become NaN beside it (spread). */
static bool right_kind(bool skips, double got, double value, bool spread)
{
    if (skips)
        return same_kind(got, value);
    return isfinite(value) ? isfinite(got) || spread : !isfinite(got);
}

/* Checks that every output is NaN, Inf or finite as the formula, which skips missing taps, has it; finite ones are
 * exact. Returns how many are not finite. */
static int64_t check_kinds(const harness_case *test, const harness_output *output, const struct way *way)
{
    const int64_t *shape = test->dst_view.shape;
    const tconv_dtype dtype = test->layer.desc.dtype;
    /* On CUDA planes beyond a volume are zeros that are multiplied, whoever multiplies. */
    const bool skips =
        way_skips_taps(way) && !(way->backend == TCONV_BACKEND_CUDA && harness_has_depth(&test->layer.desc));
    int64_t special = 0;
    for (int64_t n = 0; n < shape[0]; n++) {
        const bool spread = !skips && may_spread(test, n);
        for (int64_t c = 0; c < shape[1]; c++)
            for (int64_t h = 0; h < shape[2]; h++)
                for (int64_t w = 0; w < shape[3]; w++) {
                    const int64_t at[4] = {n, c, h, w};
                    double value, bound, got;
                    harness_element_answer(test, HARNESS_DST, at, &value, &bound);
                    got = harness_element_get(dtype, output->dst.data, harness_view_index(&test->dst_view, n, c, h, w));
                    cr_assert(right_kind(skips, got, value, spread),
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
        layer.desc.accumulate = i % 4 == 3;
        harness_case test = make_case(&layer, HARNESS_INTEGERS, i);
        if (harness_case_adds_to(&test, HARNESS_DST))
            sprinkle(&test.dst_view, layer.desc.dtype, test.dst.data, &random, 60);
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

/* Layers large enough for implementations that take no small ones, with few channels per group, and few output
 * channels. */
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

/* With Inf weights throughout, an output that had a missing tap multiplied into it would be NaN (0 * Inf). */
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
