/*
 * Judges outputs. The bounds are the library's promises (the NUMBERS of tconv.h), in one table by dtype: an error of a
 * sum in f32 or f64 is at most 16 units of rounding times sum |src||weights| + |bias|; a 16-bit result is rounded once
 * more, by at most half of its ulp.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "element.h"

#define SUM_UNITS 16.0
/* Below so many sums, cancellation decides the relative error, not the arithmetic. */
#define RELATIVE_ERROR_SUMS 32
#define TF32_RELATIVE_ERROR 5e-4
/* Each factor is rounded to nearest, to 11 bits: relative error 2^-11, of a product 2 * 2^-11 + 2^-22. */
#define TF32_PRODUCT_ERROR (0x1p-10 + 0x1p-22)

typedef struct tolerance {
    double unit;           /* of rounding, while summing */
    double relative_error; /* L2, over all outputs; infinite where there is no promise */
    bool rounds_result;    /* from the format of the sum to that of the dtype */
} tolerance;

static const tolerance tolerances[] = {
    [TCONV_F32] = {0x1p-24, 1e-6, false},
    [TCONV_F64] = {0x1p-53, INFINITY, false},
    [TCONV_F16] = {0x1p-24, INFINITY, true},
    [TCONV_BF16] = {0x1p-24, INFINITY, true},
};

/* What a judgement has gathered. */
typedef struct judgement {
    const harness_case *test;
    const harness_output *output;
    double error_squares, expected_squares;
    int64_t sums; /* outputs that are more than bias */
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

/* The largest error of one real output. */
static double allowed_error(const tconv_desc *desc, double expected, double bound)
{
    const tolerance *promise = &tolerances[desc->dtype];
    double error = SUM_UNITS * promise->unit * bound;
    if (is_tf32(desc))
        return error + TF32_PRODUCT_ERROR * bound;
    return promise->rounds_result ? error + harness_element_half_ulp(desc->dtype, fabs(expected) + error) : error;
}

static double bias_of(const harness_case *test, int64_t channel)
{
    return test->layer.has_bias ? harness_element_get(test->layer.desc.dtype, test->bias.data, channel) : 0;
}

/* Judges the output pixel at {n, c, h, w} and gathers. */
static bool judge_pixel(judgement *judge, const int64_t at[4], double expected, double bound, harness_failure *failure)
{
    const harness_case *test = judge->test;
    const tconv_desc *desc = &test->layer.desc;
    int64_t index = harness_view_index(&test->dst_view, at[0], at[1], at[2], at[3]);
    double got = harness_element_get(desc->dtype, judge->output->dst.data, index), allowed = 0;
    if (test->fill == HARNESS_INTEGERS)
        expected = harness_element_round(desc->dtype, expected);
    else
        allowed = allowed_error(desc, expected, bound);

    double error = fabs(got - expected);
    judge->error_squares += error * error;
    judge->expected_squares += expected * expected;
    judge->sums += bound > fabs(bias_of(test, at[1]));
    if (error <= allowed && !isnan(got))
        return true;
    char what[240];
    snprintf(what, sizeof what,
             "n=%" PRId64 " c=%" PRId64 " h=%" PRId64 " w=%" PRId64
             ": got %.17g, expected %.17g (error %.3g, allowed %.3g; %s)",
             at[0], at[1], at[2], at[3], got, expected, error, allowed,
             test->fill == HARNESS_INTEGERS ? "integers" : "reals");
    describe(judge, failure, what);
    return false;
}

/* Judges all that was gathered. */
static bool judge_relative_error(const judgement *judge, harness_failure *failure)
{
    const tconv_desc *desc = &judge->test->layer.desc;
    if (judge->test->fill == HARNESS_INTEGERS || judge->sums < RELATIVE_ERROR_SUMS)
        return true;
    double allowed = is_tf32(desc) ? TF32_RELATIVE_ERROR : tolerances[desc->dtype].relative_error;
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
    const int64_t *shape = test->dst_view.shape;
    int64_t i = 0;
    for (int64_t n = 0; n < shape[0]; ++n)
        for (int64_t c = 0; c < shape[1]; ++c)
            for (int64_t h = 0; h < shape[2]; ++h)
                for (int64_t w = 0; w < shape[3]; ++w, ++i) {
                    const int64_t at[4] = {n, c, h, w};
                    if (!judge_pixel(judge, at, test->expected[i], test->bound != NULL ? test->bound[i] : 0, failure))
                        return false;
                }
    return judge_relative_error(judge, failure);
}

/* The elements of a view as runs of neighbours, rows of a channel or the channels of a pixel: length elements from each
 * (n, c, h, w) on with c and w below the counts given. */
struct runs {
    int64_t channels, columns, length;
};

static struct runs runs_of(const harness_view *view)
{
    const int64_t channels = view->shape[1], columns = view->shape[3];
    return view->stride[3] == 1 ? (struct runs){channels, 1, columns} : (struct runs){1, columns, channels};
}

/* Whether all bytes but those of dst's elements are as they were: writes the elements over an untouched buffer and
 * compares the whole. */
static bool judge_surroundings(const judgement *judge, harness_failure *failure)
{
    const harness_buffer *dst = &judge->output->dst;
    const harness_view *view = &judge->test->dst_view;
    const size_t size = harness_element_size(judge->test->layer.desc.dtype);
    unsigned char *image = malloc(dst->bytes);
    if (image == NULL) {
        describe(judge, failure, "no memory to look for stray writes");
        return false;
    }
    memset(image, 0xff, dst->bytes);
    const struct runs runs = runs_of(view);
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < runs.channels; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < runs.columns; ++w) {
                    size_t at = dst->offset + (size_t)harness_view_index(view, n, c, h, w) * size;
                    memcpy(image + at, dst->memory + at, (size_t)runs.length * size);
                }
    const bool untouched = memcmp(image, dst->memory, dst->bytes) == 0;
    size_t first = 0;
    while (!untouched && image[first] == dst->memory[first])
        ++first;
    free(image);
    if (untouched)
        return true;
    char what[160];
    snprintf(what, sizeof what, "wrote a byte that is not its own, %" PRId64 " bytes from the start of dst",
             (int64_t)first - (int64_t)dst->offset);
    describe(judge, failure, what);
    return false;
}

static bool judge_samples(judgement *judge, harness_failure *failure)
{
    const harness_case *test = judge->test;
    for (int64_t i = 0; i < test->sample_count; ++i) {
        const harness_sample *sample = &test->samples[i];
        if (!judge_pixel(judge, sample->at, sample->value, sample->bound, failure))
            return false;
    }
    return judge_relative_error(judge, failure);
}

bool harness_compare(const harness_case *test, const harness_output *output, harness_failure *failure)
{
    judgement judge = {.test = test, .output = output};
    return (test->samples != NULL ? judge_samples(&judge, failure) : judge_answer(&judge, failure)) &&
           judge_surroundings(&judge, failure);
}

bool harness_compare_sampled(const harness_case *test, const harness_output *output, int64_t count, uint64_t seed,
                             harness_failure *failure)
{
    judgement judge = {.test = test, .output = output};
    harness_random random;
    harness_random_seed(&random, seed);
    if (harness_view_elements(&test->dst_view) == 0)
        return true;
    for (int64_t i = 0; i < count; ++i) {
        int64_t at[4];
        double value, bound;
        harness_pick_sample(test, i, &random, at);
        harness_pixel(test, at, &value, &bound);
        if (!judge_pixel(&judge, at, value, bound, failure))
            return false;
    }
    return judge_relative_error(&judge, failure);
}

/* Whether all is the same, run by run. */
static bool same_runs(const harness_case *test, const harness_output *a, const harness_output *b)
{
    const harness_view *view = &test->dst_view;
    const size_t size = harness_element_size(test->layer.desc.dtype);
    const struct runs runs = runs_of(view);
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < runs.channels; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < runs.columns; ++w) {
                    size_t at = (size_t)harness_view_index(view, n, c, h, w) * size;
                    if (memcmp((const char *)a->dst.data + at, (const char *)b->dst.data + at,
                               (size_t)runs.length * size) != 0)
                        return false;
                }
    return true;
}

bool harness_same_bits(const harness_case *test, const harness_output *a, const harness_output *b,
                       harness_failure *failure)
{
    if (same_runs(test, a, b))
        return true;
    const judgement judge = {.test = test, .output = a};
    const harness_view *view = &test->dst_view;
    const tconv_dtype dtype = test->layer.desc.dtype;
    const size_t size = harness_element_size(dtype);
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t c = 0; c < view->shape[1]; ++c)
            for (int64_t h = 0; h < view->shape[2]; ++h)
                for (int64_t w = 0; w < view->shape[3]; ++w) {
                    int64_t index = harness_view_index(view, n, c, h, w);
                    size_t at = (size_t)index * size;
                    if (memcmp((const char *)a->dst.data + at, (const char *)b->dst.data + at, size) == 0)
                        continue;
                    char what[240];
                    snprintf(what, sizeof what,
                             "n=%" PRId64 " c=%" PRId64 " h=%" PRId64 " w=%" PRId64 ": %.17g, but %.17g by %s", n, c, h,
                             w, harness_element_get(dtype, a->dst.data, index),
                             harness_element_get(dtype, b->dst.data, index), b->implementation);
                    describe(&judge, failure, what);
                    return false;
                }
    return true;
}
