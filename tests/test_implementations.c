/*
 * Compares every implementation, at every instruction set of this machine, with the reference, and the reference with
 * the formula: on random layers and on the corners, exact on integers and within the bounds of tconv.h on reals, in
 * every dtype and layout. On the CPU a large corner is judged at every output in one of its eight forms, and at samples
 * in the others, where all ways must have the same integers. The bits must be the same for any number of threads. NaN
 * and Inf are in test_specials.c, and that nothing else is touched in test_bounds.c.
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
#include "support/part.h"
#include "support/ways.h"

#define RANDOM_LAYERS 400 /* layers; they take a few seconds in a debug build with sanitizers */

/* The formula takes ten times as long as the reference. For layers of more FLOP than this it is computed at samples: at
 * those with a fixed place and at random ones. */
#define WHOLE_FORMULA_FLOPS 4e6
#define DRAWN_SAMPLES       400

#define SUM_UNITS 16 /* units of 2^-24 sum |x||w|: the bound of f32 */

static struct way ways[MAX_WAYS];
static size_t way_count;

/* Checks the case by every way, in turn with other numbers of threads and with and without packing first. Where it is
 * judged at samples, all ways must have the same integers, and the reference, which takes longest, is left out. */
static void check_case(const harness_case *test, uint64_t seed)
{
    harness_output first = {0}, output;
    harness_failure failure;
    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        const int threads = thread_counts[(seed + w) % THREAD_COUNTS];
        const bool pack_once = (seed / 2 + w) % 2 != 0;
        if (test->answers[HARNESS_DST].samples != NULL && way_is_reference(&ways[w]))
            continue;
        if (!run_way(test, &ways[w], threads, pack_once, &output))
            continue;
        judge_way(test, &ways[w], threads, pack_once, &output);
        if (test->answers[HARNESS_DST].samples != NULL && test->fill == HARNESS_INTEGERS && taken > 0)
            cr_assert(harness_same_bits(test, &first, &output, &failure), "%s: %s", ways[w].text, failure.text);
        if (taken++ == 0)
            first = output;
        else
            harness_output_release(&output);
    }
    cr_assert_gt(taken, 0, "nothing takes the layer");
    harness_output_release(&first);
}

static void check_random_layers(tconv_backend backend, harness_fill fill, uint64_t seed)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, seed);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_random_layer(&random, &layer);
        if (!in_part(i))
            continue;
        harness_case test = make_case(&layer, fill, i);
        check_case(&test, i);
        harness_case_destroy(&test);
    }
}

static void check_corners(tconv_backend backend, harness_fill fill)
{
    way_count = list_ways(backend, ways);
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        if (!in_part(i))
            continue;
        harness_corner(i, &layer);
        const bool sampled = backend == TCONV_BACKEND_CPU && harness_corner_is_sampled(i, &layer);
        harness_case test = sampled ? make_sampled_case(&layer, fill, i) : make_case(&layer, fill, i);
        check_case(&test, i);
        harness_case_destroy(&test);
    }
}

/* ------------------------------------------------------------------------------------------------------ the reference */

static void check_reference_pixel(const harness_case *test, const int64_t at[4])
{
    const int64_t *shape = test->dst_view.shape;
    const double expected =
        test->answers[HARNESS_DST].expected[((at[0] * shape[1] + at[1]) * shape[2] + at[2]) * shape[3] + at[3]];
    double value, bound;
    harness_element_answer(test, HARNESS_DST, at, &value, &bound);
    if (fabs(expected - value) <= (test->fill == HARNESS_INTEGERS ? 0 : 16 * 0x1p-53 * bound))
        return;
    char layer[HARNESS_LAYER_TEXT];
    harness_layer_format(&test->layer, layer, sizeof layer);
    cr_assert_fail("(%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ") is %.17g, by the formula %.17g: %s", at[0],
                   at[1], at[2], at[3], expected, value, layer);
}

/* Compares the reference at all pixels of a layer with the formula, computed by code that shares nothing with the
 * library; a case with more than a few million multiply-adds is compared at samples. */
static void check_reference(const harness_layer *layer, harness_fill fill, uint64_t seed)
{
    static const struct way reference = {"cpu_reference", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_DEFAULT,
                                         "cpu_reference"};
    harness_case test = make_case(layer, fill, seed);
    const int64_t *shape = test.dst_view.shape;
    int64_t at[4];
    if (harness_layer_flops(&layer->desc) > WHOLE_FORMULA_FLOPS) {
        harness_random random;
        harness_random_seed(&random, seed);
        for (int64_t i = 0; i < harness_placed_samples(&test, HARNESS_DST) + DRAWN_SAMPLES; i++) {
            harness_pick_sample(&test, HARNESS_DST, i, &random, at);
            check_reference_pixel(&test, at);
        }
    } else {
        for (at[0] = 0; at[0] < shape[0]; at[0]++)
            for (at[1] = 0; at[1] < shape[1]; at[1]++)
                for (at[2] = 0; at[2] < shape[2]; at[2]++)
                    for (at[3] = 0; at[3] < shape[3]; at[3]++)
                        check_reference_pixel(&test, at);
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
        if (in_part(i))
            check_reference(&layer, i % 2 == 0 ? HARNESS_INTEGERS : HARNESS_REALS, i);
    }
}

Test(implementations, reference_is_the_formula_on_corners)
{
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        harness_corner(i, &layer);
        if (in_part(i) && !harness_corner_is_sampled(i, &layer))
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

/* Checks that runs of one way have the bits of the first: on the CPU with other threads, packed or not; on CUDA packed
 * and not, each by itself. */
static void check_same_bits(const harness_case *test, const struct way *way)
{
    const bool is_cpu = way->backend == TCONV_BACKEND_CPU;
    harness_output first[2], other;
    harness_failure failure;
    for (int packed = 0; packed < (is_cpu ? 1 : 2); packed++)
        if (!run_way(test, way, thread_counts[0], packed != 0, &first[packed]))
            return;
    for (size_t i = 0; i < 2 * THREAD_COUNTS; i++) {
        const int threads = is_cpu ? thread_counts[i / 2] : 0, packed = i % 2 != 0;
        cr_assert(run_way(test, way, threads, packed != 0, &other));
        cr_assert(harness_same_bits(test, &first[is_cpu ? 0 : packed], &other, &failure), "%s, %d threads%s: %s",
                  way->text, threads, packed != 0 ? ", packed" : "", failure.text);
        harness_output_release(&other);
    }
    for (int packed = 0; packed < (is_cpu ? 1 : 2); packed++)
        harness_output_release(&first[packed]);
}

static void check_same_bits_on_random_layers(tconv_backend backend, int layers)
{
    harness_random random;
    harness_layer layer;
    way_count = list_ways(backend, ways);
    harness_random_seed(&random, 4);
    for (int i = 0; i < layers; i++) {
        harness_random_layer(&random, &layer);
        if (!in_part((uint64_t)i))
            continue;
        harness_case test = make_case(&layer, HARNESS_REALS, (uint64_t)i);
        for (size_t w = 0; w < way_count; w++)
            check_same_bits(&test, &ways[w]);
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
            if (!in_part(i * LARGER_FORMS + (size_t)form))
                continue;
            harness_layer layer = larger_layer(i, form);
            const bool whole = (size_t)form == i % LARGER_FORMS;
            harness_case test =
                whole ? make_case(&layer, HARNESS_REALS, i) : make_sampled_case(&layer, HARNESS_REALS, i);
            for (size_t w = 0; w < way_count; w++) {
                if (way_is_reference(&ways[w]))
                    continue; /* the reference is slow */
                check_way(&test, &ways[w], 1, false);
                check_same_bits(&test, &ways[w]);
            }
            harness_case_destroy(&test);
        }
}

/* Layers of many weights over few pixels, whose operands cuda_gemm_col2im exchanges in f32: several images, groups,
 * dilation, rows of weights that are no vectors, padding that leaves less than the kernel; chunks of images, and of
 * output channels. */
static const char *const exchanged_problems[] = {
    "n=2 ci=2048 h=9 w=9 co=2048 k=3 s=1 d=2x3 g=4 b=1",     "n=1 ci=2048 h=8 w=9 co=604 k=5x3 s=2x3 p=1 op=1x2 b=1",
    "n=4 ci=1025 h=5 w=7 co=301 k=5x3 s=2x3 p=1 op=1x2 b=1", "n=5 ci=1024 h=5 w=6 co=260 k=7 s=1 p=5x4 b=1",
    "n=1 ci=768 h=1 w=1500 co=512 k=1x16 s=1x8 p=0x4 b=1",   "n=2 ci=2048 h=70 w=8 co=1024 k=3 p=1 g=4 b=1",
};

#define EXCHANGED       (sizeof exchanged_problems / sizeof exchanged_problems[0])
#define EXCHANGED_FORMS 8 /* layouts, maths, src dense or a slice */

static harness_layer exchanged_layer(size_t problem, int form)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(exchanged_problems[problem], &layer, message, sizeof message), "%s", message);
    tconv_desc *desc = &layer.desc;
    desc->layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
    desc->math = form / 2 % 2 == 0 ? TCONV_MATH_STRICT : TCONV_MATH_TF32;
    if (form / 4 == 0)
        return layer;
    const bool nhwc = desc->layout == TCONV_NHWC;
    const int64_t pitch = nhwc ? desc->in_channels + 5 : desc->in_h * desc->in_w + 3; /* of pixels, of channels */
    const int64_t planes[4] = {(desc->in_channels + 2) * pitch, pitch, desc->in_w, 1};
    const int64_t pixels[4] = {(desc->in_h * desc->in_w + 2) * pitch, 1, desc->in_w * pitch, pitch};
    memcpy(desc->src_strides, nhwc ? pixels : planes, sizeof planes);
    return layer;
}

static bool is_exchanged(const tconv_desc *desc)
{
    return is_planned(desc, " exchanged=1 ");
}

Test(implementations, few_pixels_are_multiplied_with_weights_as_they_lie)
{
    static const char *const problems[] = {"n=16 ci=2048 h=1 w=1 co=512 k=7 b=1",
                                           "n=4 ci=1024 h=4 w=4 co=512 k=4 s=2 p=1 b=1"};
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (int form = 0; form < 4; form++) {
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.weight_layout = form / 2 == 0 ? TCONV_WEIGHT_IOHW : TCONV_WEIGHT_IHWO;
            layer.desc.math = TCONV_MATH_STRICT;
            cr_expect(is_planned(&layer.desc, "multiplier=direct kernel=mma "), "f32: %s", problems[p]);
            layer.desc.math = TCONV_MATH_DEFAULT;
            layer.desc.dtype = TCONV_BF16;
            cr_expect(is_planned(&layer.desc, "multiplier=direct kernel=wgmma "), "bf16: %s", problems[p]);
            layer.desc.weight_layout = TCONV_WEIGHT_HWOI;
            cr_expect(!is_planned(&layer.desc, "multiplier=direct"), "weights that do not lie so: %s", problems[p]);
        }
}

Test(implementations, operands_are_exchanged_where_many_weights_meet_few_pixels)
{
    for (size_t p = 0; p < EXCHANGED; p++) {
        int exchanged = 0;
        for (int form = 0; form < EXCHANGED_FORMS; form++) {
            harness_layer layer = exchanged_layer(p, form);
            exchanged += is_exchanged(&layer.desc);
            layer.desc.weight_layout = TCONV_WEIGHT_HWOI;
            cr_expect(!is_exchanged(&layer.desc), "weights that do not lie so: %s", exchanged_problems[p]);
            layer.desc.weight_layout = TCONV_WEIGHT_IOHW;
            layer.desc.dtype = TCONV_F16;
            layer.desc.math = TCONV_MATH_DEFAULT;
            cr_expect(!is_exchanged(&layer.desc), "16-bit weights: %s", exchanged_problems[p]);
        }
        cr_expect(exchanged > 0, "%s", exchanged_problems[p]);
    }
}

Test(implementations_cuda, exchanged_operands_make_the_same_whole)
{
    skip_without_cuda();
    for (size_t p = 0; p < EXCHANGED; p++)
        for (int form = 0; form < EXCHANGED_FORMS; form++) {
            const harness_layer layer = exchanged_layer(p, form);
            const struct way way = {"cuda_gemm_col2im", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, layer.desc.math,
                                    "cuda_gemm_col2im, operands exchanged"};
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, p);
            for (int packed = 0; packed < 2; packed++)
                cr_expect(check_way(&test, &way, 1, packed != 0), "form %d: %s", form, exchanged_problems[p]);
            harness_case_destroy(&test);
            test = make_sampled_case(&layer, HARNESS_REALS, p);
            check_same_bits(&test, &way);
            harness_case_destroy(&test);
        }
}

Test(implementations_cuda, same_bits_in_every_run_of_a_plan)
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

/* Returns the worst error of some pixels in units of 2^-24 sum |x||w|. */
static double worst_units(const harness_case *test, const harness_output *output, harness_random *random)
{
    double worst = 0;
    for (int i = 0; i < CONSTANT_PIXELS; i++) {
        int64_t at[4];
        double value, bound;
        for (int axis = 0; axis < 4; axis++)
            at[axis] = harness_random_integer(random, 0, test->dst_view.shape[axis] - 1);
        harness_element_answer(test, HARNESS_DST, at, &value, &bound);
        double got = harness_element_get(TCONV_F32, output->dst.data,
                                         harness_view_index(&test->dst_view, at[0], at[1], at[2], at[3]));
        double units = bound > 0 ? fabs(got - value) / (bound * 0x1p-24) : got == 0 ? 0 : INFINITY;
        worst = units <= worst ? worst : units; /* NaN is worse than anything */
    }
    return worst;
}

/* Runs one layer with all x equal and all w equal; worst keeps the worst error of each way. */
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
