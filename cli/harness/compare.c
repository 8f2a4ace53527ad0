/*
 * Judges outputs. The bounds are the library's promises for terms of like size (the NUMBERS of tconv.h), in one table by
 * dtype: an error of a sum in f32 or f64 is at most 16 units of rounding times sum |src||weights| + |bias|; a 16-bit result
 * is rounded once more, by at most half of its ulp.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "element.h"

#define SUM_UNITS 16.0
/* With fewer sums than this, cancellation decides the relative error, not the arithmetic. */
#define RELATIVE_ERROR_SUMS 32
#define TF32_RELATIVE_ERROR 5e-4
/* With fewer factors than this in a tensor, all may be rounded by nearly the most that a factor is. */
#define RELATIVE_ERROR_FACTORS 32
/* TF32 rounds each factor to nearest, to 11 bits: the relative error is 2^-11, and that of a product
 * 2 * 2^-11 + 2^-22. */
#define TF32_PRODUCT_ERROR (0x1p-10 + 0x1p-22)

#define PLACE_TEXT 144 /* bytes for the place of an element as text */

typedef struct tolerance {
    double unit;           /* relative error of one rounding while summing */
    double relative_error; /* L2, over all outputs; infinite where none is promised */
    bool rounds_result;    /* whether the sum is rounded again, to the dtype */
} tolerance;

static const tolerance tolerances[] = {
    [TCONV_F32] = {0x1p-24, 1e-6, false},
    [TCONV_F64] = {0x1p-53, INFINITY, false},
    [TCONV_F16] = {0x1p-24, INFINITY, true},
    [TCONV_BF16] = {0x1p-24, INFINITY, true},
};

/* The figures that a judgement accumulates. */
typedef struct judgement {
    const harness_case *test;
    const harness_output *output;
    harness_role role; /* role of the tensor that is judged */
    double error_squares, expected_squares;
    int64_t sums; /* number of elements that are more than bias and what they held */
} judgement;

static void describe(const judgement *judge, harness_failure *failure, const char *what)
{
    char layer[HARNESS_LAYER_TEXT];
    harness_layer_format(&judge->test->layer, layer, sizeof layer);
    snprintf(failure->text, sizeof failure->text, "%s: %s: %s", judge->output->implementation, what, layer);
}

static bool is_tf32(const tconv_desc *desc)
{
    return desc->dtype == TCONV_F32 && desc->math == TCONV_MATH_TF32;
}

/* Takes the exact sum of a real output to the exact output, and returns the largest error that the output may have. */
static double allowed_error(const harness_case *test, const int64_t at[4], double *value, double bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const tolerance *promise = &tolerances[desc->dtype];
    double error = (SUM_UNITS * promise->unit + (is_tf32(desc) ? TF32_PRODUCT_ERROR : 0)) * bound;
    harness_apply_posts(test, at, value, &error);
    return promise->rounds_result ? error + harness_element_half_ulp(desc->dtype, fabs(*value) + error) : error;
}

/* Returns the magnitude of what an element has beside a sum: bias, where it is of dst, and what it held before. index is
 * its place in memory. */
static double added_to(const judgement *judge, const int64_t at[4], int64_t index)
{
    const harness_case *test = judge->test;
    const tconv_dtype dtype = test->layer.desc.dtype;
    double added = 0;
    if (judge->role == HARNESS_DST && harness_case_reads(test, HARNESS_BIAS))
        added += fabs(harness_element_get(dtype, test->bias.data, at[1]));
    if (harness_case_adds_to(test, judge->role))
        added += fabs(harness_element_get(dtype, test->tensors[judge->role].data, index));
    return added;
}

/* Writes the place of an element as messages show it. */
static void format_place(const judgement *judge, const int64_t at[4], char *text, size_t capacity)
{
    static const char *const weights_axes[5] = {"i", "o", "kd", "kh", "kw"}, *const axes[5] = {"n", "c", "d", "h", "w"};
    const char *const *names = judge->role == HARNESS_WEIGHTS ? weights_axes : axes;
    const harness_view *view = &judge->test->views[judge->role];
    char plane[32] = "";
    if (judge->role == HARNESS_BIAS) {
        snprintf(text, capacity, "c=%" PRId64, at[0]);
        return;
    }
    if (view->planes > 1)
        snprintf(plane, sizeof plane, " %s=%" PRId64, names[2], at[2] / harness_view_rows(view));
    snprintf(text, capacity, "%s=%" PRId64 " %s=%" PRId64 "%s %s=%" PRId64 " %s=%" PRId64, names[0], at[0], names[1],
             at[1], plane, names[3], at[2] % harness_view_rows(view), names[4], at[3]);
}

/* Judges one element and adds its error to the accumulated figures. */
static bool judge_element(judgement *judge, const int64_t at[4], double expected, double bound,
                          harness_failure *failure)
{
    const harness_case *test = judge->test;
    const tconv_desc *desc = &test->layer.desc;
    int64_t index = harness_view_index(&test->views[judge->role], at[0], at[1], at[2], at[3]);
    double got = harness_element_get(desc->dtype, judge->output->tensors[judge->role].data, index), allowed = 0;
    if (test->fill == HARNESS_INTEGERS) {
        harness_apply_posts(test, at, &expected, NULL);
        expected = harness_element_round(desc->dtype, expected);
    } else {
        allowed = allowed_error(test, at, &expected, bound);
    }

    double error = fabs(got - expected);
    judge->error_squares += error * error;
    judge->expected_squares += expected * expected;
    judge->sums += bound > added_to(judge, at, index);
    if (error <= allowed && !isnan(got))
        return true;
    char place[PLACE_TEXT], what[PLACE_TEXT + 120];
    format_place(judge, at, place, sizeof place);
    snprintf(what, sizeof what, "%s: got %.17g, expected %.17g (error %.3g, allowed %.3g; %s)", place, got, expected,
             error, allowed, test->fill == HARNESS_INTEGERS ? "integers" : "reals");
    describe(judge, failure, what);
    return false;
}

/* The relative error of products in TF32, over all outputs. */
static double tf32_relative_error(const harness_case *test)
{
    for (int role = HARNESS_SRC; role <= HARNESS_DST; role++)
        if (role != HARNESS_BIAS && harness_case_reads(test, (harness_role)role) &&
            harness_view_elements(&test->views[role]) < RELATIVE_ERROR_FACTORS)
            return TF32_PRODUCT_ERROR;
    return TF32_RELATIVE_ERROR;
}

/* Judges the accumulated relative error. */
static bool judge_relative_error(const judgement *judge, harness_failure *failure)
{
    const tconv_desc *desc = &judge->test->layer.desc;
    if (judge->test->fill == HARNESS_INTEGERS || desc->post_count > 0 || judge->sums < RELATIVE_ERROR_SUMS)
        return true;
    double allowed = is_tf32(desc) ? tf32_relative_error(judge->test) : tolerances[desc->dtype].relative_error;
    double error = sqrt(judge->error_squares / judge->expected_squares);
    if (error <= allowed)
        return true;
    char what[120];
    snprintf(what, sizeof what, "relative L2 error %.3g, allowed %.3g (reals)", error, allowed);
    describe(judge, failure, what);
    return false;
}

static bool judge_answer(judgement *judge, harness_failure *failure)
{
    const harness_case *test = judge->test;
    const harness_answer *answer = &test->answers[judge->role];
    const int64_t *shape = test->views[judge->role].shape;
    int64_t i = 0;
    for (int64_t n = 0; n < shape[0]; ++n)
        for (int64_t c = 0; c < shape[1]; ++c)
            for (int64_t h = 0; h < shape[2]; ++h)
                for (int64_t w = 0; w < shape[3]; ++w, ++i) {
                    const int64_t at[4] = {n, c, h, w};
                    if (!judge_element(judge, at, answer->expected[i], answer->bound != NULL ? answer->bound[i] : 0,
                                       failure))
                        return false;
                }
    return judge_relative_error(judge, failure);
}

/* The elements of a view as runs of neighbours, rows of a channel or the channels of a pixel (single elements in some
 * layouts of weights): length elements from each (n, c, h, w) on with c and w below the counts given. */
struct runs {
    int64_t channels, columns, length;
};

static struct runs runs_of(const harness_view *view)
{
    const int64_t channels = view->shape[1], columns = view->shape[3];
    if (view->stride[3] == 1)
        return (struct runs){channels, 1, columns};
    return view->stride[1] == 1 ? (struct runs){1, columns, channels} : (struct runs){channels, columns, 1};
}

/* Whether all bytes outside the tensor's elements are as they were: writes the elements over an untouched buffer and
 * compares the whole. */
static bool judge_surroundings(const judgement *judge, harness_failure *failure)
{
    const harness_buffer *written = &judge->output->tensors[judge->role];
    const harness_view *view = &judge->test->views[judge->role];
    const size_t size = harness_element_size(judge->test->layer.desc.dtype);
    unsigned char *image = malloc(written->bytes);
    if (image == NULL) {
        describe(judge, failure, "no memory to look for stray writes");
        return false;
    }
    memset(image, 0xff, written->bytes);
    const struct runs runs = runs_of(view);
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < runs.channels; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < runs.columns; ++w) {
                    size_t at = written->offset + (size_t)harness_view_index(view, n, c, h, w) * size;
                    memcpy(image + at, written->memory + at, (size_t)runs.length * size);
                }
    const bool untouched = memcmp(image, written->memory, written->bytes) == 0;
    size_t first = 0;
    while (!untouched && image[first] == written->memory[first])
        ++first;
    free(image);
    if (untouched)
        return true;
    char what[160];
    snprintf(what, sizeof what, "wrote a byte that is not its own, %" PRId64 " bytes from the start of %s",
             (int64_t)first - (int64_t)written->offset, harness_role_name(judge->role));
    describe(judge, failure, what);
    return false;
}

static bool judge_samples(judgement *judge, harness_failure *failure)
{
    const harness_answer *answer = &judge->test->answers[judge->role];
    for (int64_t i = 0; i < answer->sample_count; ++i) {
        const harness_sample *sample = &answer->samples[i];
        if (!judge_element(judge, sample->at, sample->value, sample->bound, failure))
            return false;
    }
    return judge_relative_error(judge, failure);
}

bool harness_compare(const harness_case *test, const harness_output *output, harness_failure *failure)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        judgement judge = {.test = test, .output = output, .role = (harness_role)role};
        const bool sampled = test->answers[role].samples != NULL;
        if (harness_case_writes(test, (harness_role)role) &&
            !((sampled ? judge_samples(&judge, failure) : judge_answer(&judge, failure)) &&
              judge_surroundings(&judge, failure)))
            return false;
    }
    return true;
}

static bool judge_some(judgement *judge, int64_t count, uint64_t seed, harness_failure *failure)
{
    const harness_case *test = judge->test;
    harness_random random;
    harness_random_seed(&random, seed);
    if (harness_view_elements(&test->views[judge->role]) == 0)
        return true;
    for (int64_t i = 0; i < count; ++i) {
        int64_t at[4];
        double value, bound;
        harness_pick_sample(test, judge->role, i, &random, at);
        harness_element_answer(test, judge->role, at, &value, &bound);
        if (!judge_element(judge, at, value, bound, failure))
            return false;
    }
    return judge_relative_error(judge, failure);
}

bool harness_compare_sampled(const harness_case *test, const harness_output *output, int64_t count, uint64_t seed,
                             harness_failure *failure)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        judgement judge = {.test = test, .output = output, .role = (harness_role)role};
        if (harness_case_writes(test, (harness_role)role) && !judge_some(&judge, count, seed, failure))
            return false;
    }
    return true;
}

/* Whether the two outputs are the same, run by run. */
static bool same_runs(const judgement *judge, const harness_output *other)
{
    const harness_view *view = &judge->test->views[judge->role];
    const char *a = judge->output->tensors[judge->role].data, *b = other->tensors[judge->role].data;
    const size_t size = harness_element_size(judge->test->layer.desc.dtype);
    const struct runs runs = runs_of(view);
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < runs.channels; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < runs.columns; ++w) {
                    size_t at = (size_t)harness_view_index(view, n, c, h, w) * size;
                    if (memcmp(a + at, b + at, (size_t)runs.length * size) != 0)
                        return false;
                }
    return true;
}

/* Names the first element whose bits differ, if there is one. */
static bool judge_same_bits(const judgement *judge, const harness_output *other, harness_failure *failure)
{
    const harness_view *view = &judge->test->views[judge->role];
    const void *a = judge->output->tensors[judge->role].data, *b = other->tensors[judge->role].data;
    const tconv_dtype dtype = judge->test->layer.desc.dtype;
    const size_t size = harness_element_size(dtype);
    if (same_runs(judge, other))
        return true;
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < view->shape[1]; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < view->shape[3]; ++w) {
                    const int64_t at[4] = {n, c, h, w}, index = harness_view_index(view, n, c, h, w);
                    if (memcmp((const char *)a + (size_t)index * size, (const char *)b + (size_t)index * size, size) ==
                        0)
                        continue;
                    char place[PLACE_TEXT], what[PLACE_TEXT + 120];
                    format_place(judge, at, place, sizeof place);
                    snprintf(what, sizeof what, "%s: %.17g, but %.17g by %s", place,
                             harness_element_get(dtype, a, index), harness_element_get(dtype, b, index),
                             other->implementation);
                    describe(judge, failure, what);
                    return false;
                }
    return true;
}

bool harness_same_bits(const harness_case *test, const harness_output *a, const harness_output *b,
                       harness_failure *failure)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const judgement judge = {.test = test, .output = a, .role = (harness_role)role};
        if (harness_case_writes(test, (harness_role)role) && !judge_same_bits(&judge, b, failure))
            return false;
    }
    return true;
}
