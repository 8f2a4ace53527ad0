/*
 * The gradients by every implementation, at every instruction set of this machine: on random layers and on the corners,
 * exact on integers and within the bounds of tconv.h on reals, in every dtype and layout; sums of millions of terms of
 * one sign; and the same bits for any number of threads. The reference is compared with the
 * formula. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS 300
#define SAMPLES       64 /* elements of a gradient that are computed again, straight from the formula */

/* On the CPU larger corners are left out: one of sixteen, which take longer than all others and are for the tiles of
 * GPUs. */
#define LARGEST_CORNER 1e7 /* FLOP */

static const tconv_op ops[] = {TCONV_BACKWARD_DATA, TCONV_BACKWARD_WEIGHTS};
static struct way ways[MAX_WAYS];
static size_t way_count;

/* Returns numbers of threads for a case and a way, so that all are used in turn. */
static int threads_of(uint64_t seed, size_t way)
{
    return thread_counts[(seed + way) % THREAD_COUNTS];
}

/* Checks the case by every way; returns how many took it. The reference is compared with the formula as well. */
static size_t check_case(const harness_case *test, uint64_t seed)
{
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        const int threads = threads_of(seed, w);
        const bool pack_once = (seed / 2 + w) % 2 != 0;
        harness_output output;
        harness_failure failure;
        if (!run_way(test, &ways[w], threads, pack_once, &output))
            continue;
        judge_way(test, &ways[w], threads, pack_once, &output);
        if (way_is_reference(&ways[w]) && test->answers[0].samples == NULL && test->answers[1].samples == NULL)
            cr_assert(harness_compare_sampled(test, &output, SAMPLES, seed, &failure), "%s", failure.text);
        harness_output_release(&output);
        taken++;
    }
    return taken;
}

/* Checks a layer with both gradients. A layer without exact integers is left out of those. */
static size_t check_layer(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    size_t taken = 0;
    for (size_t i = 0; i < COUNT(ops); i++) {
        harness_layer own = *layer;
        own.desc.op = ops[i];
        if (fill == HARNESS_INTEGERS && !harness_has_integers(&own))
            continue;
        harness_case test = make_case(&own, fill, seed);
        taken += check_case(&test, seed);
        harness_case_destroy(&test);
    }
    return taken;
}

static void check_random_layers(tconv_backend backend, harness_fill fill, uint64_t seed)
{
    harness_random random;
    harness_layer layer;
    size_t taken = 0;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, seed);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        if (in_part(i))
            taken += check_layer(&layer, fill, i);
    }
    gradient_expect_taken(backend, taken);
}

/* Checks each corner in one of its forms: dtype and layout go round, the other filling has another form. */
static void check_corners(tconv_backend backend, harness_fill fill)
{
    size_t taken = 0;
    way_count = list_ways(backend, ways);
    for (size_t i = 0; i < harness_corner_count(); i += HARNESS_CORNER_FORMS) {
        const size_t form = (i / HARNESS_CORNER_FORMS * 3 + (fill == HARNESS_REALS ? 1 : 0)) % HARNESS_CORNER_FORMS;
        harness_layer layer;
        harness_corner(i + form, &layer);
        if (in_part(i) && (backend != TCONV_BACKEND_CPU || harness_layer_flops(&layer.desc) <= LARGEST_CORNER))
            taken += check_layer(&layer, fill, i);
    }
    gradient_expect_taken(backend, taken);
}

Test(gradients, integers_are_exact_on_random_layers)
{
    check_random_layers(TCONV_BACKEND_CPU, HARNESS_INTEGERS, 12);
}

Test(gradients, reals_are_in_bounds_on_random_layers)
{
    check_random_layers(TCONV_BACKEND_CPU, HARNESS_REALS, 13);
}

Test(gradients, integers_are_exact_on_corners)
{
    check_corners(TCONV_BACKEND_CPU, HARNESS_INTEGERS);
}

Test(gradients, reals_are_in_bounds_on_corners)
{
    check_corners(TCONV_BACKEND_CPU, HARNESS_REALS);
}

Test(gradients_cuda, integers_are_exact_on_random_layers)
{
    skip_without_cuda();
    check_random_layers(TCONV_BACKEND_CUDA, HARNESS_INTEGERS, 12);
}

Test(gradients_cuda, reals_are_in_bounds_on_random_layers)
{
    skip_without_cuda();
    check_random_layers(TCONV_BACKEND_CUDA, HARNESS_REALS, 13);
}

Test(gradients_cuda, integers_are_exact_on_corners)
{
    skip_without_cuda();
    check_corners(TCONV_BACKEND_CUDA, HARNESS_INTEGERS);
}

Test(gradients_cuda, reals_are_in_bounds_on_corners)
{
    skip_without_cuda();
    check_corners(TCONV_BACKEND_CUDA, HARNESS_REALS);
}

/* -------------------------------------------------------------------------------------------------- millions of terms */

/* Fills a tensor with one number. */
static void fill_with(const harness_view *view, tconv_dtype dtype, void *data, double value)
{
    for (int64_t i = 0; i < view->extent; i++)
        harness_element_set(dtype, data, i, value);
}

/* Gives the case an answer at some elements of each gradient, from the formula. */
static void answer_some(harness_case *test)
{
    enum { ANSWERS = 4 };
    harness_random random;
    harness_random_seed(&random, 1);
    for (int role = 0; role < HARNESS_ROLES; role++) {
        harness_answer *answer = &test->answers[role];
        if (!harness_case_writes(test, (harness_role)role))
            continue;
        answer->samples = malloc(ANSWERS * sizeof *answer->samples);
        cr_assert_not_null(answer->samples);
        answer->sample_count = ANSWERS;
        for (int64_t i = 0; i < ANSWERS; i++) {
            harness_sample *sample = &answer->samples[i];
            harness_pick_sample(test, (harness_role)role, i, &random, sample->at);
            harness_element_answer(test, (harness_role)role, sample->at, &sample->value, &sample->bound);
        }
    }
}

/* Makes a case in which all elements of each factor are one number. */
static harness_case like_case(const harness_layer *layer, harness_fill fill, const double pair[2])
{
    harness_case test;
    tconv_issue issue;
    bool first = true;
    cr_assert_eq(harness_case_create_unanswered(&test, layer, fill, 0, &issue), TCONV_SUCCESS, "%s", issue.message);
    for (int role = 0; role < HARNESS_ROLES; role++)
        if (harness_case_reads(&test, (harness_role)role)) {
            fill_with(&test.views[role], layer->desc.dtype, test.tensors[role].data, first ? pair[0] : pair[1]);
            first = false;
        }
    answer_some(&test);
    return test;
}

/* Checks sums of like terms, where rounding errors of a naive sum add up, and a part that is left out or added twice
 * shows: of ones they are counts, and exact. In f64 the formula itself is a naive sum. */
static void check_like_terms(tconv_backend backend, tconv_op op, const char *const problems[2])
{
    static const double pairs[][2] = {{1, 1}, {0.1, 0.1}, {1.9489868879318237, 1.4316719770431519}};
    size_t taken = 0;
    way_count = list_ways(backend, ways);
    for (size_t p = 0; p < 2; p++)
        for (int form = 0; form < LARGER_FORMS; form++)
            for (size_t i = 0; i < COUNT(pairs); i++) {
                harness_layer layer = gradient_layer(problems[p], op);
                layer.desc.layout = (tconv_layout)(form % 2);
                layer.desc.dtype = (tconv_dtype)(form / 2);
                const harness_fill fill = i == 0 ? HARNESS_INTEGERS : HARNESS_REALS;
                if (!harness_has_integers(&layer) || (layer.desc.dtype == TCONV_F64 && fill == HARNESS_REALS))
                    continue;
                harness_case test = like_case(&layer, fill, pairs[i]);
                taken += check_case(&test, i);
                harness_case_destroy(&test);
            }
    gradient_expect_taken(backend, taken);
}

static const char *const long_weights[2] = {"n=2 ci=1 h=600 w=900 co=2 k=1x2 b=1",
                                            "n=41 ci=3 h=130 w=99 co=1 k=2 s=2 b=1"};
static const char *const long_data[2] = {"ci=1 h=2 w=3 co=40000 k=3", "ci=2 h=1 w=1 co=9 k=301x130 s=2"};

Test(gradients, millions_of_like_terms_of_weights)
{
    check_like_terms(TCONV_BACKEND_CPU, TCONV_BACKWARD_WEIGHTS, long_weights);
}

Test(gradients, many_like_terms_of_data)
{
    check_like_terms(TCONV_BACKEND_CPU, TCONV_BACKWARD_DATA, long_data);
}

Test(gradients_cuda, millions_of_like_terms_of_weights)
{
    skip_without_cuda();
    check_like_terms(TCONV_BACKEND_CUDA, TCONV_BACKWARD_WEIGHTS, long_weights);
}

Test(gradients_cuda, many_like_terms_of_data)
{
    skip_without_cuda();
    check_like_terms(TCONV_BACKEND_CUDA, TCONV_BACKWARD_DATA, long_data);
}

/* ------------------------------------------------------------------------------------------------- one rounding */

/* Factors of a 16-bit dtype whose product lies in the middle between two numbers of it, and what that becomes with
 * anything more. */
static const struct {
    tconv_dtype dtype;
    double factors[2], rounded;
} middles[] = {
    {TCONV_F16, {1 + 0x1p-5, 1 + 0x1p-6}, 1 + 0x1p-5 + 0x1p-6 + 0x1p-10},
    {TCONV_BF16, {1 + 0x1p-4, 1 + 0x1p-4}, 1 + 0x1p-3 + 0x1p-7},
};

/* Fills each channel of a row with zeros but for its first and last pixels. */
static void fill_ends(harness_case *test, harness_role role, double first, double last)
{
    const harness_view *view = &test->views[role];
    const tconv_dtype dtype = test->layer.desc.dtype;
    fill_with(view, dtype, test->tensors[role].data, 0);
    for (int64_t c = 0; c < view->shape[1]; c++) {
        harness_element_set(dtype, test->tensors[role].data, harness_view_index(view, 0, c, 0, 0), first);
        harness_element_set(dtype, test->tensors[role].data, harness_view_index(view, 0, c, 0, view->shape[3] - 1),
                            last);
    }
}

/* A sum in double that a float takes for the middle between two numbers of 16 bits is not rounded to even. */
Test(gradients, weights_of_16_bits_are_rounded_once)
{
    size_t taken = 0;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < COUNT(middles); i++)
        for (int form = 0; form < 4; form++) { /* layouts of weights, signs */
            harness_layer layer = gradient_layer("ci=21 h=1 w=20000 co=18 k=1", TCONV_BACKWARD_WEIGHTS);
            const double sign = form / 2 == 0 ? 1 : -1;
            layer.desc.dtype = middles[i].dtype;
            layer.desc.weight_layout = (tconv_weight_layout)(form % 2);
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, i);
            fill_ends(&test, HARNESS_SRC, middles[i].factors[0], 0x1p-14);
            fill_ends(&test, HARNESS_DST, sign * middles[i].factors[1], sign * 0x1p-14);
            for (size_t w = 0; w < way_count; w++) {
                harness_output output;
                if (!run_way(&test, &ways[w], 2, false, &output))
                    continue;
                taken++;
                for (int64_t at = 0; at < test.views[HARNESS_WEIGHTS].extent; at++)
                    cr_assert_eq(harness_element_get(layer.desc.dtype, output.tensors[HARNESS_WEIGHTS].data, at),
                                 sign * middles[i].rounded, "%s: weight %" PRId64 ", dtype %d", ways[w].text, at,
                                 (int)layer.desc.dtype);
                harness_output_release(&output);
            }
            harness_case_destroy(&test);
        }
    cr_expect_geq(taken, 2 * COUNT(middles) * 4);
}

/* ------------------------------------------------------------------------------------------- kernels of their own */

/* Layers whose gradient of src goes a way of its own on CUDA: weights in channels_last are read as they lie, in whole and
 * in cut K-blocks and M tiles, and in parts; images of one pixel; one channel of few long rows; images larger than a chunk. */
static const char *const data_problems[] = {
    "n=2 ci=80 h=9 w=7 co=40 k=3x2 s=2x3 p=1x0",     "n=1 ci=64 h=5 w=6 co=96 k=2 s=2",
    "n=2 ci=36 h=6 w=5 co=68 k=3 s=1 p=1 g=2",       "n=3 ci=72 h=1 w=1 co=64 k=4x3",
    "n=2 ci=5 h=1 w=900 co=1 k=1x40 s=1x16",         "n=1 ci=24 h=47 w=49 co=256 k=5 s=4 p=1",
    "n=1 ci=24 h=1 w=14000 co=160 k=1x7 s=1x4 p=0x2"};

Test(gradients_cuda, data_in_layouts_of_weights_and_large_images)
{
    enum { FORMS = 4 }; /* layouts by dtypes */
    size_t taken = 0;
    skip_without_cuda();
    way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    for (size_t i = 0; i < COUNT(data_problems); i++)
        for (int form = 0; form < FORMS; form++) {
            harness_layer layer = gradient_layer(data_problems[i], TCONV_BACKWARD_DATA);
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.weight_layout = form % 2 == 0 ? TCONV_WEIGHT_IOHW : TCONV_WEIGHT_IHWO;
            layer.desc.dtype = form / 2 == 0 ? TCONV_F32 : TCONV_BF16;
            harness_case test = make_sampled_case(&layer, HARNESS_REALS, i);
            taken += check_case(&test, 0) + check_case(&test, 2); /* packed once, or in each call */
            harness_case_destroy(&test);
        }
    gradient_expect_taken(TCONV_BACKEND_CUDA, taken);
}

/* ------------------------------------------------------------------------------------------------------------- bits */

/* Checks that any number of threads, and weights packed before or not, make no other bits, nor does a second run. */
static size_t check_same_bits(const harness_case *test, const struct way *way)
{
    static const int threads[] = {1, 2, 3, 5, 1, 2, 3, 5};
    const bool is_cpu = way->backend == TCONV_BACKEND_CPU;
    harness_output first, other;
    harness_failure failure;
    if (!run_way(test, way, threads[0], false, &first))
        return 0;
    for (size_t i = 0; i < COUNT(threads); i++) {
        const bool pack_once = is_cpu && i % 2 != 0; /* on CUDA another implementation may be the best then */
        cr_assert(run_way(test, way, is_cpu ? threads[i] : 0, pack_once, &other));
        cr_assert(harness_same_bits(test, &first, &other, &failure), "%s, %d threads%s: %s", way->text, threads[i],
                  pack_once ? ", packed" : "", failure.text);
        harness_output_release(&other);
    }
    harness_output_release(&first);
    return 1;
}

static void check_same_bits_on_random_layers(tconv_backend backend)
{
    harness_random random;
    harness_layer layer;
    size_t taken = 0;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, 14);
    for (int i = 0; i < RANDOM_LAYERS / 3; i++) {
        harness_random_layer(&random, &layer);
        if (!in_part((uint64_t)i))
            continue;
        layer.desc.op = ops[i % 2];
        harness_case test = make_case(&layer, HARNESS_REALS, (uint64_t)i);
        for (size_t w = 0; w < way_count; w++)
            taken += check_same_bits(&test, &ways[w]);
        harness_case_destroy(&test);
    }
    gradient_expect_taken(backend, taken);
}

/* Layers that are worth several threads. The reference, slow with them, has been compared on smaller ones. */
static void check_same_bits_on_larger_layers(tconv_backend backend)
{
    size_t taken = 0;
    way_count = list_ways(backend, ways);
    for (size_t i = 0; i < LARGER_LAYERS; i++)
        for (size_t o = 0; o < COUNT(ops); o++) {
            if (!in_part(i * COUNT(ops) + o))
                continue;
            harness_layer layer = larger_layer(i, (int)(2 * i + o) % LARGER_FORMS);
            layer.desc.op = ops[o];
            harness_case test = make_sampled_case(&layer, HARNESS_REALS, i);
            for (size_t w = 0; w < way_count; w++) {
                if (way_is_reference(&ways[w]) && i > 0)
                    continue;
                check_way(&test, &ways[w], 1, false);
                taken += check_same_bits(&test, &ways[w]);
            }
            harness_case_destroy(&test);
        }
    gradient_expect_taken(backend, taken);
}

Test(gradients, same_bits_for_any_threads_and_again)
{
    check_same_bits_on_random_layers(TCONV_BACKEND_CPU);
}

Test(gradients, same_bits_where_threads_share_the_work)
{
    check_same_bits_on_larger_layers(TCONV_BACKEND_CPU);
}

Test(gradients_cuda, same_bits_again)
{
    skip_without_cuda();
    check_same_bits_on_random_layers(TCONV_BACKEND_CUDA);
}

Test(gradients_cuda, same_bits_again_in_larger_layers)
{
    skip_without_cuda();
    check_same_bits_on_larger_layers(TCONV_BACKEND_CUDA);
}
