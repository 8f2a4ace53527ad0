/*
 * NaN and Inf in what the gradients read, by every implementation of the CPU at every instruction set, go where the
 * formula takes them, which has no term for a tap that reaches no output. These are tests of the suite gradients.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS  200
#define SPECIALS_ASKED 3 /* elements of a tensor that become special, about */

static struct way ways[MAX_WAYS];
static size_t way_count;

/* Calls visit for each element of a tensor that the case reads. */
static void visit_elements(harness_case *test, harness_role role,
                           void (*visit)(harness_case *test, harness_role role, const int64_t at[4], void *context),
                           void *context)
{
    const int64_t *shape = test->views[role].shape;
    int64_t at[4];
    for (at[0] = 0; at[0] < shape[0]; at[0]++)
        for (at[1] = 0; at[1] < shape[1]; at[1]++)
            for (at[2] = 0; at[2] < shape[2]; at[2]++)
                for (at[3] = 0; at[3] < shape[3]; at[3]++)
                    visit(test, role, at, context);
}

static void set(harness_case *test, harness_role role, const int64_t at[4], double value)
{
    harness_element_set(test->layer.desc.dtype, test->tensors[role].data,
                        harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]), value);
}

/* Makes few elements special. */
static void sprinkle(harness_case *test, harness_role role, const int64_t at[4], void *random)
{
    const int64_t rarity = 1 + harness_view_elements(&test->views[role]) / SPECIALS_ASKED;
    if (harness_random_integer(random, 1, rarity) == 1)
        make_special(test->layer.desc.dtype, test->tensors[role].data,
                     harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]), random);
}

static bool same_kind(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return isinf(a) || isinf(b) ? a == b : true;
}

/* What check_element counts. */
struct counts {
    const struct way *way;
    const harness_output *output;
    int64_t special, finite;
};

/* Checks that an element is NaN, Inf or finite as the formula has it; finite ones are exact. */
static void check_element(harness_case *test, harness_role role, const int64_t at[4], void *context)
{
    struct counts *counts = context;
    const tconv_dtype dtype = test->layer.desc.dtype;
    double value, bound;
    harness_element_answer(test, role, at, &value, &bound);
    const double got = harness_element_get(dtype, counts->output->tensors[role].data,
                                           harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]));
    const bool right = same_kind(got, value) && (!isfinite(value) || got == harness_element_round(dtype, value));
    char layer[HARNESS_LAYER_TEXT];
    counts->special += !isfinite(value);
    counts->finite += isfinite(value);
    if (right)
        return;
    harness_layer_format(&test->layer, layer, sizeof layer);
    cr_assert_fail("%s: diff_%s (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ") is %g, by the formula %g: %s",
                   counts->way->text, harness_role_name(role), at[0], at[1], at[2], at[3], got, value, layer);
}

/* Checks the case by all ways; adds to the counts. */
static void check_kinds(harness_case *test, int threads, struct counts *counts)
{
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        harness_output output;
        if (!run_way(test, &ways[w], threads, (w + (size_t)threads) % 2 != 0, &output))
            continue;
        counts->way = &ways[w], counts->output = &output;
        for (int role = 0; role < HARNESS_ROLES; role++)
            if (harness_case_writes(test, (harness_role)role))
                visit_elements(test, (harness_role)role, check_element, counts);
        harness_output_release(&output);
        taken++;
    }
    cr_assert_gt(taken, 0, "nothing takes the layer");
}

Test(gradients, nan_and_inf_go_where_the_arithmetic_takes_them)
{
    harness_random random;
    struct counts counts = {0};
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, 16);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        layer.desc.op = i % 2 == 0 ? TCONV_BACKWARD_DATA : TCONV_BACKWARD_WEIGHTS;
        layer.desc.accumulate = i % 5 == 4;
        if (!harness_has_integers(&layer))
            continue;
        harness_case test = make_case(&layer, HARNESS_INTEGERS, i);
        for (int role = 0, factor = 0; role < HARNESS_ROLES; role++)
            if (harness_case_reads(&test, (harness_role)role) && i / 2 % 3 != (uint64_t)factor++)
                visit_elements(&test, (harness_role)role, sprinkle, &random); /* in either factor, or in both */
        for (int role = 0; role < HARNESS_ROLES; role++)
            if (harness_case_adds_to(&test, (harness_role)role))
                visit_elements(&test, (harness_role)role, sprinkle, &random);
        check_kinds(&test, thread_counts[i % THREAD_COUNTS], &counts);
        harness_case_destroy(&test);
    }
    cr_assert(counts.special > 1000 && counts.finite > 1000, "%" PRId64 " special, %" PRId64 " finite", counts.special,
              counts.finite);
}

/* ------------------------------------------------------------------------------------------- elements without a part */

/* Whether kernel element k joins an input and an output of an axis. */
static bool joins(const tconv_desc *desc, bool columns, int64_t input, int64_t k, int64_t output)
{
    const int64_t stride = columns ? desc->stride_w : desc->stride_h;
    const int64_t dilation = columns ? desc->dilation_w : desc->dilation_h;
    return stride * input + dilation * k - (columns ? desc->pad_left : desc->pad_top) == output;
}

/* Whether an input (of_src) or output of an axis is joined with any of the other kind. */
static bool is_joined(const harness_case *test, bool of_src, bool columns, int64_t place)
{
    const tconv_desc *desc = &test->layer.desc;
    const int axis = columns ? 3 : 2;
    const int64_t others = of_src ? test->dst_view.shape[axis] : test->src_view.shape[axis];
    for (int64_t k = 0; k < (columns ? desc->kernel_w : desc->kernel_h); k++)
        for (int64_t other = 0; other < others; other++)
            if (joins(desc, columns, of_src ? place : other, k, of_src ? other : place))
                return true;
    return false;
}

/* Puts NaN into an input that reaches no output, or an output that has no tap: it has no part in any product. */
static void poison_idle(harness_case *test, harness_role role, const int64_t at[4], void *poisoned)
{
    const bool of_src = role == HARNESS_SRC;
    if (is_joined(test, of_src, false, at[2]) && is_joined(test, of_src, true, at[3]))
        return;
    set(test, role, at, NAN);
    ++*(int64_t *)poisoned;
}

/* In each layer rows or columns of diff_dst have no tap, or inputs reach no output. What is there meets no zero that
 * stands for something missing; the gradient of the bias alone counts it. */
Test(gradients, nan_of_idle_elements_reaches_the_bias_alone)
{
    static const char *const problems[] = {
        "n=2 ci=4 h=4 w=5 co=3 k=2x3 s=5x7 b=1",
        "ci=3 h=4 w=5 co=4 k=1 s=3 op=2 b=1",
        "n=2 ci=5 h=4 w=33 co=8 k=3x1 s=2x4 d=4x1 p=0 b=1",
        "n=2 ci=4 h=9 w=12 co=3 k=3x4 p=4x5x3x4 b=1",
        "n=2 ci=4 h=9 w=40 co=9 k=3 s=1x2 p=5x9x4x8 op=0x1",
        "ci=9 h=6 w=20 co=9 k=2 s=3 p=4 g=9",
        "n=2 ci=3 h=1 w=1 co=4 k=1 s=4 p=1x1x0x0 op=3 b=1",
    };
    struct counts counts = {0};
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++)
            for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
                harness_layer layer = gradient_layer(problems[p], (tconv_op)op);
                int64_t poisoned = 0;
                gradient_set_form(&layer, form);
                harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
                visit_elements(&test, HARNESS_DST, poison_idle, &poisoned);
                if (op == TCONV_BACKWARD_WEIGHTS)
                    visit_elements(&test, HARNESS_SRC, poison_idle, &poisoned);
                if (poisoned > 0)
                    check_kinds(&test, 2, &counts);
                else
                    cr_assert_eq(op, TCONV_BACKWARD_DATA, "%s has no idle element", problems[p]);
                harness_case_destroy(&test);
            }
}

/* With weights that are Inf throughout, an input that had an output which is not there multiplied into it would be NaN
 * (0 * Inf). So would a weight where src is Inf. */
Test(gradients, a_missing_output_is_skipped)
{
    static const char *const problems[] = {"ci=1 h=1 w=1 co=1 k=3 s=2 p=1", "ci=2 h=3 w=5 co=3 k=4x5 s=3x2 p=2x3 d=2x1",
                                           "n=2 ci=4 h=4 w=33 co=8 k=3 p=1 b=1", "ci=2 h=2 w=2 co=2 k=1 s=4 op=3",
                                           "ci=20 h=5 w=9 co=17 k=3 p=3 b=1"};
    struct counts counts = {0};
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++)
            for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
                const harness_role role = op == TCONV_BACKWARD_DATA ? HARNESS_WEIGHTS : HARNESS_SRC;
                harness_layer layer = gradient_layer(problems[p], (tconv_op)op);
                gradient_set_form(&layer, form);
                harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
                for (int64_t i = 0; i < test.views[role].extent; i++)
                    harness_element_set(layer.desc.dtype, test.tensors[role].data, i, INFINITY);
                for (int64_t i = 0; i < test.dst_view.extent; i++)
                    harness_element_set(layer.desc.dtype, test.dst.data, i, 1);
                check_kinds(&test, 2, &counts);
                harness_case_destroy(&test);
            }
    cr_assert(counts.special > 1000 && counts.finite > 100, "%" PRId64 " special, %" PRId64 " finite", counts.special,
              counts.finite);
}
