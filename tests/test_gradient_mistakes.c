/*
 * Each test is named after a mistake that is often made in the gradients of transposed convolution. It computes the
 * result of the mistake on its layers and asserts that this differs from the truth, so that the layers can tell; then it
 * asserts that every implementation gives the truth, and writes nothing beside it. All numbers are integers, and
 * comparisons are exact. Mistakes of what a call accepts are in test_gradient_calls.c.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SAMPLES      200 /* elements that are computed again, straight from the formula */

enum mistake {
    NO_MISTAKE,
    PADDING_OF_THE_OTHER_SIDE,
    OUTPUT_PADDING_MISSED,
    STRIDE_AND_DILATION_SWAPPED,
    KERNEL_FLIPPED,
    GROUPS_MIXED,
    OUTPUTS_WITHOUT_TAP_LEFT_OUT,
    EMPTY_SUM_UNWRITTEN,
    EXTENTS_OF_A_CONVOLUTION,
    ADDED_AFTER_ROUNDING,
};

/* One axis as a mistake has it. */
struct axis {
    int64_t in, kernel, stride, dilation, pad, out;
};

static struct axis mistaken_axis(enum mistake mistake, const harness_case *test, bool columns)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t *shape = test->dst_view.shape;
    struct axis axis = {desc->in_h, desc->kernel_h, desc->stride_h, desc->dilation_h, desc->pad_top, shape[2]};
    if (columns)
        axis = (struct axis){desc->in_w, desc->kernel_w, desc->stride_w, desc->dilation_w, desc->pad_left, shape[3]};
    if (mistake == PADDING_OF_THE_OTHER_SIDE)
        axis.pad = columns ? desc->pad_right : desc->pad_bottom;
    if (mistake == OUTPUT_PADDING_MISSED)
        axis.out -= columns ? desc->output_padding_w : desc->output_padding_h;
    if (mistake == STRIDE_AND_DILATION_SWAPPED) {
        const int64_t stride = axis.stride;
        axis.stride = axis.dilation;
        axis.dilation = stride;
    }
    return axis;
}

/* The output that tap k of an input reaches; -1: none. */
static int64_t reached(const struct axis *axis, int64_t input, int64_t k)
{
    const int64_t output = axis->stride * input + axis->dilation * k - axis->pad;
    return output < axis->out ? output : -1;
}

static double dst_at(const harness_case *test, int64_t n, int64_t channel, int64_t row, int64_t column)
{
    return harness_element_get(test->layer.desc.dtype, test->dst.data,
                               harness_view_index(&test->dst_view, n, channel, row, column));
}

/* The first output channel of an input channel's group. */
static int64_t first_output(enum mistake mistake, const tconv_desc *desc, int64_t in)
{
    const int64_t group = in / (desc->in_channels / desc->groups) + (mistake == GROUPS_MIXED);
    return group % desc->groups * (desc->out_channels / desc->groups);
}

/* The element that lies where a dense tensor with the extents H + floor(output_padding / stride) has `at`: what a
 * convolution's formula makes of dst's extents. */
static void at_of_a_convolution(const tconv_desc *desc, const int64_t at[4], int64_t moved[4])
{
    const int64_t rows = desc->in_h + desc->output_padding_h / desc->stride_h;
    const int64_t columns = desc->in_w + desc->output_padding_w / desc->stride_w;
    int64_t index = ((at[0] * desc->in_channels + at[1]) * desc->in_h + at[2]) * desc->in_w + at[3];
    moved[3] = index % columns, index /= columns;
    moved[2] = index % rows, index /= rows;
    moved[1] = index % desc->in_channels;
    moved[0] = index / desc->in_channels;
}

static double mistaken_src(enum mistake mistake, const harness_case *test, const int64_t place[4])
{
    const tconv_desc *desc = &test->layer.desc;
    const struct axis h = mistaken_axis(mistake, test, false), w = mistaken_axis(mistake, test, true);
    const int64_t group_out = desc->out_channels / desc->groups;
    int64_t at[4] = {place[0], place[1], place[2], place[3]}, terms = 0;
    double sum = 0;
    if (mistake == EXTENTS_OF_A_CONVOLUTION)
        at_of_a_convolution(desc, place, at);
    const int64_t first = first_output(mistake, desc, at[1]);
    for (int64_t kh = 0; kh < h.kernel; kh++)
        for (int64_t kw = 0; kw < w.kernel; kw++) {
            const int64_t row = reached(&h, at[2], kh), column = reached(&w, at[3], kw);
            const bool flipped = mistake == KERNEL_FLIPPED;
            for (int64_t out = 0; row >= 0 && column >= 0 && out < group_out; out++, terms++)
                sum += dst_at(test, at[0], first + out, row, column) *
                       harness_element_get(desc->dtype, test->weights.data,
                                           harness_view_index(&test->weights_view, at[1], out,
                                                              flipped ? h.kernel - 1 - kh : kh,
                                                              flipped ? w.kernel - 1 - kw : kw));
        }
    return terms == 0 && mistake == EMPTY_SUM_UNWRITTEN ? NAN : sum;
}

static double mistaken_weight(enum mistake mistake, const harness_case *test, const int64_t at[4])
{
    const tconv_desc *desc = &test->layer.desc;
    const struct axis h = mistaken_axis(mistake, test, false), w = mistaken_axis(mistake, test, true);
    const bool flipped = mistake == KERNEL_FLIPPED;
    const int64_t kh = flipped ? h.kernel - 1 - at[2] : at[2], kw = flipped ? w.kernel - 1 - at[3] : at[3];
    const int64_t out = first_output(mistake, desc, at[0]) + at[1];
    int64_t terms = 0;
    double sum = 0;
    for (int64_t n = 0; n < desc->batch; n++)
        for (int64_t ih = 0; ih < h.in; ih++)
            for (int64_t iw = 0; iw < w.in; iw++) {
                const int64_t row = reached(&h, ih, kh), column = reached(&w, iw, kw);
                if (row < 0 || column < 0)
                    continue;
                sum += harness_element_get(desc->dtype, test->src.data,
                                           harness_view_index(&test->src_view, n, at[0], ih, iw)) *
                       dst_at(test, n, out, row, column);
                terms++;
            }
    return terms == 0 && mistake == EMPTY_SUM_UNWRITTEN ? NAN : sum;
}

/* Whether a tap reaches an output of an axis. */
static bool has_tap(const struct axis *axis, int64_t output)
{
    for (int64_t k = 0; k < axis->kernel; k++)
        for (int64_t input = 0; input < axis->in; input++)
            if (reached(axis, input, k) == output)
                return true;
    return false;
}

static double mistaken_bias(enum mistake mistake, const harness_case *test, int64_t channel)
{
    const struct axis h = mistaken_axis(mistake, test, false), w = mistaken_axis(mistake, test, true);
    double sum = 0;
    for (int64_t n = 0; n < test->layer.desc.batch; n++)
        for (int64_t row = 0; row < h.out; row++)
            for (int64_t column = 0; column < w.out; column++)
                if (mistake != OUTPUTS_WITHOUT_TAP_LEFT_OUT || (has_tap(&h, row) && has_tap(&w, column)))
                    sum += dst_at(test, n, channel, row, column);
    return sum;
}

static double mistaken_sum(enum mistake mistake, const harness_case *test, harness_role role, const int64_t at[4])
{
    if (role == HARNESS_SRC)
        return mistaken_src(mistake, test, at);
    return role == HARNESS_WEIGHTS ? mistaken_weight(mistake, test, at) : mistaken_bias(mistake, test, at[0]);
}

/* Returns an element, rounded to the dtype. */
static double mistaken_element(enum mistake mistake, const harness_case *test, harness_role role, const int64_t at[4])
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    double value = mistaken_sum(mistake, test, role, at);
    if (mistake == ADDED_AFTER_ROUNDING)
        value = harness_element_round(dtype, value);
    if (harness_case_adds_to(test, role))
        value += harness_element_get(dtype, test->tensors[role].data,
                                     harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]));
    return harness_element_round(dtype, value);
}

/* Returns the percentage of a gradient's elements where the mistake shows. */
static double share_of_wrong(enum mistake mistake, const harness_case *test, harness_role role)
{
    const harness_view *view = &test->views[role];
    const int64_t *shape = view->shape;
    int64_t wrong = 0, at[4];
    for (at[0] = 0; at[0] < shape[0]; at[0]++)
        for (at[1] = 0; at[1] < shape[1]; at[1]++)
            for (at[2] = 0; at[2] < shape[2]; at[2]++)
                for (at[3] = 0; at[3] < shape[3]; at[3]++) {
                    double truth, bound;
                    harness_element_answer(test, role, at, &truth, &bound);
                    truth = harness_element_round(test->layer.desc.dtype, truth);
                    wrong += !(mistaken_element(mistake, test, role, at) == truth); /* NaN is wrong */
                }
    return 100.0 * (double)wrong / (double)harness_view_elements(view);
}

static size_t check_ways(const harness_case *test, const struct way *ways, size_t way_count)
{
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        harness_output output;
        harness_failure failure;
        if (!run_way(test, &ways[w], 2, false, &output))
            continue;
        cr_assert(harness_compare_sampled(test, &output, SAMPLES, 1, &failure), "%s: %s", ways[w].text, failure.text);
        cr_assert(harness_compare(test, &output, &failure), "%s: %s", ways[w].text, failure.text);
        harness_output_release(&output);
        taken++;
    }
    return taken;
}

struct trial {
    enum mistake mistake;
    harness_role role; /* the gradient in which the mistake shows */
    double least;      /* on that many of a hundred elements at least */
    const char *problems[2];
};

/* Returns a form of a layer in which the mistake shows: f32, or bf16, which rounds the integers. */
static int form_of(enum mistake mistake)
{
    return mistake == ADDED_AFTER_ROUNDING ? TCONV_BF16 * GRADIENT_FORMS / 4 : 0;
}

/* Checks that the layers show the mistake, and that no implementation makes it, in any form of the layers. */
static void check_trial(const struct trial *trial, tconv_backend backend)
{
    const tconv_op op = trial->role == HARNESS_SRC ? TCONV_BACKWARD_DATA : TCONV_BACKWARD_WEIGHTS;
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(backend, ways);
    size_t taken = 0;
    for (size_t p = 0; p < COUNT(trial->problems); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++) {
            harness_layer layer = gradient_layer(trial->problems[p], op);
            gradient_set_form(&layer, form);
            harness_case test = make_case(&layer, HARNESS_INTEGERS, 7);
            if (form == form_of(trial->mistake)) {
                const double wrong = share_of_wrong(trial->mistake, &test, trial->role);
                cr_assert_eq(share_of_wrong(NO_MISTAKE, &test, trial->role), 0, "the formula of this test is mistaken");
                cr_assert_geq(wrong, trial->least, "%s shows the mistake on %.1f %% only", trial->problems[p], wrong);
            }
            taken += check_ways(&test, ways, way_count);
            harness_case_destroy(&test);
        }
    gradient_expect_taken(backend, taken);
}

/* Tests the mistake, by its name, on two layers and on each backend. */
#define MISTAKE_TEST(name, ...)                                                                                        \
    Test(gradient_mistakes, name)                                                                                      \
    {                                                                                                                  \
        check_trial(&(struct trial){__VA_ARGS__}, TCONV_BACKEND_CPU);                                                  \
    }                                                                                                                  \
    Test(gradient_mistakes_cuda, name)                                                                                 \
    {                                                                                                                  \
        skip_without_cuda();                                                                                           \
        check_trial(&(struct trial){__VA_ARGS__}, TCONV_BACKEND_CUDA);                                                 \
    }

/* --------------------------------------------------------------------------------------------------- gradient of src */

MISTAKE_TEST(src_over_the_padding_of_the_other_side, PADDING_OF_THE_OTHER_SIDE, HARNESS_SRC, 50,
             {"n=2 ci=4 h=6 w=7 co=3 k=3x4 s=2x3 p=0x3x2x1", "ci=4 h=6 w=7 co=5 k=3 p=2x0x0x1"})

MISTAKE_TEST(src_without_output_paddings_rows, OUTPUT_PADDING_MISSED, HARNESS_SRC, 5,
             {"n=2 ci=4 h=4 w=5 co=3 k=3 s=2 p=1 op=1", "ci=4 h=4 w=5 co=3 k=3 s=1x2 p=2x4 d=3x2 op=2x1"})

MISTAKE_TEST(src_with_dilation_and_stride_swapped, STRIDE_AND_DILATION_SWAPPED, HARNESS_SRC, 50,
             {"n=2 ci=4 h=5 w=6 co=3 k=3x4 s=2x3", "ci=4 h=5 w=6 co=3 k=3 s=4x1 d=2x3 p=1"})

MISTAKE_TEST(src_by_a_flipped_kernel, KERNEL_FLIPPED, HARNESS_SRC, 50,
             {"n=2 ci=4 h=5 w=6 co=3 k=3 p=1", "ci=4 h=5 w=6 co=3 k=1x4 s=1x2"})

MISTAKE_TEST(src_of_groups_mixed, GROUPS_MIXED, HARNESS_SRC, 50,
             {"n=2 ci=6 h=5 w=6 co=9 k=3 s=2 p=1 g=3", "ci=8 h=5 w=6 co=8 k=3 p=1 g=8"})

/* Inputs whose taps all fall into the padding, and inputs that a tap of stride 5 would serve. */
MISTAKE_TEST(inputs_that_no_tap_serves_left_unwritten, EMPTY_SUM_UNWRITTEN, HARNESS_SRC, 10,
             {"n=2 ci=4 h=9 w=8 co=3 k=3 p=4x3x4x5", "ci=4 h=5 w=6 co=3 k=2x1 s=5x4 p=6x0x3x7"})

MISTAKE_TEST(src_of_the_extents_of_a_convolution, EXTENTS_OF_A_CONVOLUTION, HARNESS_SRC, 50,
             {"n=2 ci=4 h=3 w=5 co=3 k=2x3 s=1x2 d=3x5 op=2x4", "n=3 ci=3 h=1 w=1 co=4 k=2 d=4 op=3"})

/* ---------------------------------------------------------------------------------------------- gradients of weights */

MISTAKE_TEST(weights_over_the_padding_of_the_other_side, PADDING_OF_THE_OTHER_SIDE, HARNESS_WEIGHTS, 50,
             {"n=2 ci=4 h=6 w=7 co=3 k=3x4 s=2x3 p=0x3x2x1", "ci=4 h=6 w=7 co=5 k=3 p=2x0x0x1"})

MISTAKE_TEST(weights_without_output_paddings_rows, OUTPUT_PADDING_MISSED, HARNESS_WEIGHTS, 20,
             {"n=2 ci=4 h=4 w=5 co=3 k=3 s=2 p=1 op=1", "ci=4 h=4 w=5 co=3 k=3 s=1x2 p=2x4 d=3x2 op=2x1"})

MISTAKE_TEST(weights_with_dilation_and_stride_swapped, STRIDE_AND_DILATION_SWAPPED, HARNESS_WEIGHTS, 50,
             {"n=2 ci=4 h=5 w=6 co=3 k=3x4 s=2x3", "ci=4 h=5 w=6 co=3 k=3 s=4x1 d=2x3 p=1"})

MISTAKE_TEST(weights_of_a_flipped_kernel, KERNEL_FLIPPED, HARNESS_WEIGHTS, 50,
             {"n=2 ci=4 h=5 w=6 co=3 k=3 p=1", "ci=4 h=5 w=6 co=3 k=1x4 s=1x2"})

MISTAKE_TEST(weights_of_groups_mixed, GROUPS_MIXED, HARNESS_WEIGHTS, 50,
             {"n=2 ci=6 h=5 w=6 co=9 k=3 s=2 p=1 g=3", "ci=8 h=5 w=6 co=8 k=3 p=1 g=8"})

/* A kernel longer than what padding leaves of the output, and a row of which only the middle taps reach an output. */
MISTAKE_TEST(taps_that_reach_no_output_left_unwritten, EMPTY_SUM_UNWRITTEN, HARNESS_WEIGHTS, 10,
             {"n=2 ci=4 h=2 w=3 co=3 k=7x9 p=3x4", "ci=4 h=1 w=9 co=3 k=1x5 s=1x2 d=1x20 p=0x40"})

/* ---------------------------------------------------------------------------------------------------- what is added to */

MISTAKE_TEST(src_added_after_rounding, ADDED_AFTER_ROUNDING, HARNESS_SRC, 10,
             {"n=2 ci=4 h=6 w=7 co=9 k=3x4 s=2x3 acc=1", "ci=9 h=6 w=7 co=16 k=3 p=1 acc=1"})

MISTAKE_TEST(weights_added_after_rounding, ADDED_AFTER_ROUNDING, HARNESS_WEIGHTS, 10,
             {"n=3 ci=4 h=6 w=7 co=9 k=3x4 s=2x3 acc=1", "n=2 ci=9 h=9 w=8 co=8 k=3 p=1 acc=1"})

MISTAKE_TEST(bias_added_after_rounding, ADDED_AFTER_ROUNDING, HARNESS_BIAS, 10,
             {"n=3 ci=4 h=6 w=7 co=19 k=3x4 s=2x3 b=1 acc=1", "n=2 ci=9 h=9 w=8 co=18 k=3 p=1 b=1 acc=1"})

/* -------------------------------------------------------------------------------------------------- gradient of bias */

MISTAKE_TEST(bias_without_output_paddings_rows, OUTPUT_PADDING_MISSED, HARNESS_BIAS, 50,
             {"n=2 ci=4 h=4 w=5 co=9 k=3 s=2 p=1 op=1 b=1", "ci=4 h=4 w=5 co=8 k=3 s=1x2 p=2x4 d=3x2 op=2x1 b=1"})

MISTAKE_TEST(bias_without_outputs_that_have_no_tap, OUTPUTS_WITHOUT_TAP_LEFT_OUT, HARNESS_BIAS, 50,
             {"n=2 ci=4 h=4 w=5 co=9 k=2 s=3x5 b=1", "ci=2 h=1 w=1 co=6 k=1 s=4 p=1x1x0x0 op=3 b=1"})
