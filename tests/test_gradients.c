/*
 * The gradients belong to the forward, by every implementation at every instruction set, and nothing of the formulas is
 * needed to see it: <forward(x, w, b), y> = <x, diff_src(y, w)> + <b, diff_bias(y)> = <w, diff_weights(x, y)> +
 * <b, diff_bias(y)>, exactly in int64 on integers whose sums are exact in the dtype; and central differences of the
 * forward in f64. The suite goes on in test_gradient_ways.c and test_gradient_specials.c.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/gradients.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Layers whose sums have at most some hundred terms, in each direction, so that 16-bit results can be exact as well. */
static const char *const problems[] = {
    "ci=1 h=1 w=1 co=1 k=1 b=1",
    "ci=1 h=1 w=1 co=1 k=3x2 s=4x3 p=1x0x1x1 op=3x2 d=2x1 b=1",
    "n=2 ci=3 h=5 w=4 co=2 k=3x4 s=2x3 b=1",
    "ci=4 h=5 w=6 co=3 k=3 s=4x2 d=2x4 op=3 b=1", /* dilation shares a factor with stride */
    "ci=4 h=3 w=4 co=3 k=3 s=2x3 d=6 p=2x5",
    "n=2 ci=2 h=6 w=8 co=3 k=3x4 p=4x5x3x4 b=1", /* padding eats the kernel */
    "n=2 ci=2 h=6 w=8 co=3 k=3x4 s=2x3 p=5x5x4x8 op=1x2",
    "n=2 ci=3 h=3 w=4 co=4 k=3 s=3x4 p=1 op=2x3 b=1",   /* output_padding at its limit by stride */
    "n=2 ci=3 h=3 w=4 co=4 k=2 s=1x2 d=3x5 op=2x4 b=1", /* by dilation, past the stride */
    "n=2 ci=4 h=3 w=4 co=3 k=2x3 s=5x7 b=1",            /* stride past the kernel */
    "ci=4 h=5 w=5 co=3 k=1 s=3 op=2",
    "n=2 ci=3 h=1 w=1 co=4 k=1 s=4 p=1x1x0x0 op=3 b=1", /* no output has a tap */
    "n=2 ci=6 h=3 w=5 co=4 k=4x2 s=1x3 p=2x0x3x1 op=0x1 d=1x2 g=2 b=1",
    "ci=9 h=4 w=5 co=9 k=3 s=2 p=1 op=1 g=9 b=1",
    "ci=4 h=4 w=5 co=12 k=3 s=1x2 g=4",
    "ci=3 h=6 w=7 co=2 k=4 s=2 p=0x1x2x3 b=1",
    "ci=3 h=2 w=3 co=4 k=7x8 p=2x3",
    "n=3 ci=5 h=1 w=19 co=3 k=1x6 s=1x4 p=0x2 b=1",
    "ci=7 h=19 w=1 co=2 k=5x1 s=2x1 p=2x0",
    "n=2 ci=17 h=3 w=5 co=9 k=2 s=2 b=1",
    "n=2 ci=4 h=3 w=4 co=3 k=3 s=2 p=1 b=1 ss=90x17x4x1 ds=150x43x7x1", /* slices */
    "n=2 ci=4 h=3 w=4 co=3 k=2 d=2 b=1 ss=99x1x28x7 ds=270x1x54x9",     /* slices of NHWC */
};

/* Slices are written for one layout: other layouts, and the layers without slices, are dense. */
static bool has_layout(const tconv_desc *desc, tconv_layout layout)
{
    return desc->src_strides[0] == 0 || layout == (desc->src_strides[1] == 1 ? TCONV_NHWC : TCONV_NCHW);
}

/* The most terms of any sum of the three operations. */
static int64_t most_terms(const tconv_desc *desc)
{
    const harness_view dst = harness_dst_view(desc);
    const int64_t taps = desc->kernel_h * desc->kernel_w;
    const int64_t counts[] = {desc->in_channels / desc->groups * taps + 1, desc->out_channels / desc->groups * taps,
                              desc->batch * desc->in_h * desc->in_w, desc->batch * dst.shape[2] * dst.shape[3]};
    int64_t most = 0;
    for (size_t i = 0; i < COUNT(counts); i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

/* Returns the largest integer of tensors whose sums stay below what the dtype holds of integers; 0: there is none. */
static int64_t integer_range(const tconv_desc *desc)
{
    static const double held[] = {
        [TCONV_F32] = 0x1p24, [TCONV_F64] = 0x1p24, [TCONV_F16] = 0x1p11, [TCONV_BF16] = 0x1p8};
    return (int64_t)fmin(9, sqrt(held[desc->dtype] / (double)most_terms(desc)));
}

/* The number that element (a, b, c, d) of a tensor has in all three operations. */
static int64_t integer_of(harness_role role, int64_t index, int64_t range)
{
    harness_random random;
    harness_random_seed(&random, (uint64_t)(index * HARNESS_ROLES) + role);
    return harness_random_integer(&random, -range, range);
}

static int64_t view_place(const int64_t shape[4], const int64_t at[4])
{
    return ((at[0] * shape[1] + at[1]) * shape[2] + at[2]) * shape[3] + at[3];
}

static void step(const int64_t shape[4], int64_t at[4])
{
    for (int axis = 3; axis >= 0 && ++at[axis] == shape[axis] && axis > 0; axis--)
        at[axis] = 0;
}

/* Makes the case of an operation, its tensors filled with the integers. */
static harness_case integer_case(const harness_layer *layer, tconv_op op, int64_t range)
{
    harness_layer own = *layer;
    harness_case test;
    tconv_issue issue;
    own.desc.op = op;
    cr_assert_eq(harness_case_create_unanswered(&test, &own, HARNESS_INTEGERS, 2, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const harness_view *view = &test.views[role];
        if (!harness_case_reads(&test, (harness_role)role))
            continue;
        for (int64_t at[4] = {0}; at[0] < view->shape[0]; step(view->shape, at))
            harness_element_set(own.desc.dtype, test.tensors[role].data,
                                harness_view_index(view, at[0], at[1], at[2], at[3]),
                                (double)integer_of((harness_role)role, view_place(view->shape, at), range));
    }
    return test;
}

/* Returns the inner product of a result with the integers of its role. */
static int64_t product(const harness_case *test, const harness_output *output, harness_role role, int64_t range)
{
    const harness_view *view = &test->views[role];
    int64_t sum = 0;
    for (int64_t at[4] = {0}; at[0] < view->shape[0]; step(view->shape, at)) {
        const double value = harness_element_get(test->layer.desc.dtype, output->tensors[role].data,
                                                 harness_view_index(view, at[0], at[1], at[2], at[3]));
        cr_assert(value == rint(value) && fabs(value) < 0x1p24, "%.17g is none of the sums", value);
        sum += (int64_t)value * integer_of(role, view_place(view->shape, at), range);
    }
    return sum;
}

/* Runs an operation by a way. Adds the inner products of its results to *sum; false: the way does not take the layer. */
static bool add_products(const harness_case *test, const struct way *way, int threads, int64_t range, int64_t *sum)
{
    harness_output output;
    if (!run_way(test, way, threads, false, &output))
        return false;
    for (int role = 0; role < HARNESS_ROLES; role++)
        if (harness_case_writes(test, (harness_role)role))
            *sum += product(test, &output, (harness_role)role, range);
    harness_output_release(&output);
    return true;
}

/* Returns <b, diff_bias(y)>, straight from the sums of y; 0 without bias. */
static int64_t bias_product(const harness_case *test, int64_t range)
{
    const int64_t *shape = test->dst_view.shape;
    int64_t sum = 0;
    for (int64_t at[4] = {0}; test->layer.has_bias && at[0] < shape[0]; step(shape, at))
        sum += integer_of(HARNESS_DST, view_place(shape, at), range) * integer_of(HARNESS_BIAS, at[1], range);
    return sum;
}

/* Checks the identity of one layer in one form; returns how often a way had a gradient of it. */
static size_t check_identity(const harness_layer *layer, const struct way *ways, size_t way_count)
{
    const int64_t range = integer_range(&layer->desc);
    harness_case cases[TCONV_BACKWARD_WEIGHTS + 1];
    char text[HARNESS_LAYER_TEXT];
    int64_t forward = 0;
    size_t taken = 0;
    bool known = false;
    if (range == 0)
        return 0;
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++)
        cases[op] = integer_case(layer, (tconv_op)op, range);
    harness_layer_format(layer, text, sizeof text);
    for (size_t w = 0; w < way_count && !known; w++)
        known = add_products(&cases[TCONV_FORWARD], &ways[w], 2, range, &forward);
    cr_assert(known, "no forward: %s", text);
    for (size_t w = 0; w < way_count; w++)
        for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
            /* diff_bias is among the results of backward_weights where the layer has a bias */
            int64_t sum = op == TCONV_BACKWARD_DATA ? bias_product(&cases[op], range) : 0;
            if (!add_products(&cases[op], &ways[w], 1 + (int)w % 3, range, &sum))
                continue;
            cr_assert_eq(sum, forward, "%s %s: %" PRId64 ", forward %" PRId64 ": %s", ways[w].text,
                         harness_op_name((tconv_op)op), sum, forward, text);
            taken++;
        }
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++)
        harness_case_destroy(&cases[op]);
    return taken;
}

static void check_identities(tconv_backend backend)
{
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    size_t taken = 0;
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++) {
            harness_layer layer = gradient_layer(problems[p], TCONV_FORWARD);
            gradient_set_form(&layer, form);
            if (in_part(p * GRADIENT_FORMS + (size_t)form) && has_layout(&layer.desc, layer.desc.layout))
                taken += check_identity(&layer, ways, way_count);
        }
    gradient_expect_taken(backend, taken);
}

Test(gradients, are_adjoint_to_the_forward_on_integers)
{
    check_identities(TCONV_BACKEND_CPU);
}

Test(gradients_cuda, are_adjoint_to_the_forward_on_integers)
{
    skip_without_cuda();
    check_identities(TCONV_BACKEND_CUDA);
}

/* ------------------------------------------------------------------------------------------------ finite differences */

/* Fills with multiples of 2^-26, so that a step of 1 away from one is exact. */
static void fill_reals(const harness_view *view, double *data, harness_random *random)
{
    for (int64_t i = 0; i < view->extent; i++)
        data[i] = rint(harness_random_real(random) * 0x1p26) * 0x1p-26;
}

/* Returns the sum of dst times y, in long double, by the library's own choice of implementation. */
static long double loss(const harness_case *forward, const double *y)
{
    harness_output output;
    tconv_issue issue;
    tconv_options options;
    long double sum = 0;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    cr_assert_eq(harness_run(forward, &options, false, &output, &issue), TCONV_SUCCESS, "%s", issue.message);
    const double *dst = output.dst.data;
    for (int64_t i = 0; i < forward->dst_view.extent; i++)
        sum += (long double)dst[i] * (long double)y[i];
    harness_output_release(&output);
    return sum;
}

/* Returns the loss of absolute values, those of one tensor larger by the step: the sum of the absolute values of all
 * terms of each loss of check_differences. */
static long double magnitude(harness_case *forward, harness_role moved, const double *y)
{
    harness_buffer own[HARNESS_ROLES];
    double *absolute = malloc((size_t)forward->dst_view.extent * sizeof *absolute);
    cr_assert_not_null(absolute);
    for (int64_t i = 0; i < forward->dst_view.extent; i++)
        absolute[i] = fabs(y[i]);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        own[role] = forward->tensors[role];
        if (!harness_case_reads(forward, (harness_role)role))
            continue;
        forward->tensors[role] = harness_buffer_create(forward->views[role].extent, sizeof(double), 0);
        const double *from = own[role].data;
        double *to = forward->tensors[role].data;
        for (int64_t i = 0; i < forward->views[role].extent; i++)
            to[i] = fabs(from[i]) + (role == (int)moved ? 1 : 0);
    }
    const long double sum = loss(forward, absolute);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        if (harness_case_reads(forward, (harness_role)role))
            harness_buffer_release(&forward->tensors[role]);
        forward->tensors[role] = own[role];
    }
    free(absolute);
    return sum;
}

/* Compares a gradient with differences of the loss over each element of its tensor. The loss is linear in it, so that
 * they differ by rounding alone: the step is 1, each loss is off by 16 units of 2^-53 of its terms (harness_compare),
 * the difference of two by 16, and the gradient, whose terms are some of them, by 16. */
static void check_differences(harness_case *forward, harness_role role, const harness_output *output, const double *y,
                              const struct way *way)
{
    const long double allowed = 32 * 0x1p-53L * magnitude(forward, role, y);
    const double *gradient = output->tensors[role].data;
    double *x = forward->tensors[role].data;
    for (int64_t i = 0; i < forward->views[role].extent; i++) {
        const double here = x[i];
        x[i] = here + 1;
        const long double above = loss(forward, y);
        x[i] = here - 1;
        const long double slope = (above - loss(forward, y)) / 2;
        x[i] = here;
        cr_assert(fabsl(slope - (long double)gradient[i]) <= allowed,
                  "%s: element %" PRId64 " of %s: %.17g, by differences %.17g, allowed %.3g", way->text, i,
                  harness_role_name(role), gradient[i], (double)slope, (double)allowed);
    }
}

static harness_case f64_case(const harness_layer *layer, tconv_op op)
{
    harness_layer own = *layer;
    harness_case test;
    tconv_issue issue;
    own.desc.op = op;
    own.desc.dtype = TCONV_F64;
    cr_assert_eq(harness_case_create_unanswered(&test, &own, HARNESS_REALS, 1, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    return test;
}

/* Fills the tensors that the two cases read, those of both with the same numbers. */
static void fill_both(harness_case *forward, harness_case *gradient, uint64_t seed)
{
    harness_random random;
    harness_random_seed(&random, seed);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        const bool first = harness_case_reads(forward, (harness_role)role);
        const bool second = harness_case_reads(gradient, (harness_role)role);
        const harness_view *view = &forward->views[role];
        if (first || second)
            fill_reals(view, first ? forward->tensors[role].data : gradient->tensors[role].data, &random);
        if (first && second)
            memcpy(gradient->tensors[role].data, forward->tensors[role].data, (size_t)view->extent * sizeof(double));
    }
}

Test(gradients, are_the_differences_of_the_forward)
{
    static const char *const layers[] = {
        "n=2 ci=2 h=3 w=4 co=3 k=3x2 s=2x3 p=1x0x0x1 op=1x2 b=1",
        "ci=4 h=3 w=2 co=2 k=2x3 s=2x1 d=4x2 op=3x1 g=2 b=1",
        "ci=2 h=4 w=5 co=2 k=3 p=3x2x1x3",
    };
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(TCONV_BACKEND_CPU, ways);
    size_t taken = 0;
    for (size_t p = 0; p < COUNT(layers); p++)
        for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
            harness_layer layer = gradient_layer(layers[p], TCONV_FORWARD);
            harness_case forward = f64_case(&layer, TCONV_FORWARD), test = f64_case(&layer, (tconv_op)op);
            fill_both(&forward, &test, p);
            for (size_t w = 0; w < way_count; w++) {
                harness_output output;
                if (!run_way(&test, &ways[w], 2, false, &output))
                    continue;
                for (int role = 0; role < HARNESS_ROLES; role++)
                    if (harness_case_writes(&test, (harness_role)role))
                        check_differences(&forward, (harness_role)role, &output, test.dst.data, &ways[w]);
                harness_output_release(&output);
                taken++;
            }
            harness_case_destroy(&forward);
            harness_case_destroy(&test);
        }
    gradient_expect_taken(TCONV_BACKEND_CPU, taken);
}
