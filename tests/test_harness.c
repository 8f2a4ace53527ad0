/* The harness itself: it judges everything else, and so it must see a wrong element, a stray write and a missing
 * one. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "harness.h"
#include "support/expect.h"

/* ------------------------------------------------------------------------------------------------------------ elements */

Test(harness, sixteen_bit_numbers_survive_a_round_trip)
{
    for (unsigned bits = 0; bits < 65536; bits++)
        for (int i = 0; i < 2; i++) {
            const tconv_dtype dtype = i == 0 ? TCONV_F16 : TCONV_BF16;
            uint16_t element = (uint16_t)bits, again;
            double value = harness_element_get(dtype, &element, 0);
            harness_element_set(dtype, &again, 0, value);
            cr_assert(again == element || isnan(value), "%s %04x: %g, %04x", harness_dtype_name(dtype), bits, value,
                      again);
        }
}

Test(harness, rounding_is_to_nearest_even_once)
{
    static const struct {
        tconv_dtype dtype;
        double value, rounded;
    } rows[] = {
        {TCONV_F16, 2049, 2048},
        {TCONV_F16, 2051, 2052},
        {TCONV_F16, 65519.999, 65504},
        {TCONV_F16, 65520, INFINITY},
        {TCONV_F16, -65520, -INFINITY},
        {TCONV_F16, 0x1p-24, 0x1p-24},
        {TCONV_F16, 0x1p-25, 0},
        {TCONV_F16, 0x1.000001p-25, 0x1p-24},
        {TCONV_F16, 0x1.002p0, 1},
        {TCONV_F16, 0x1.0020000001p0, 0x1.004p0},
        {TCONV_BF16, 257, 256},
        {TCONV_BF16, 259, 260},
        {TCONV_BF16, 0x1.01p0, 1},
        {TCONV_BF16, 0x1.0100000001p0, 0x1.02p0},
        {TCONV_BF16, 0x1.ffp127, INFINITY},
        {TCONV_BF16, 0x1.fep127, 0x1.fep127},
        {TCONV_F32, 16777217, 16777216},
        {TCONV_F64, 0x1.0000000000001p0, 0x1.0000000000001p0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double rounded = harness_element_round(rows[i].dtype, rows[i].value);
        cr_assert(rounded == rows[i].rounded, "%s %a: %a", harness_dtype_name(rows[i].dtype), rows[i].value, rounded);
    }
    cr_assert(harness_element_half_ulp(TCONV_F16, 1) == 0x1p-11);
    cr_assert(harness_element_half_ulp(TCONV_F16, 0) == 0x1p-25);
    cr_assert(harness_element_half_ulp(TCONV_BF16, -3) == 0x1p-7);
}

/* -------------------------------------------------------------------------------------------------------------- layers */

static void expect_replayable(const harness_layer *layer, const char *name)
{
    char text[HARNESS_LAYER_TEXT], message[128];
    harness_layer again;
    tconv_issue issue;
    int64_t shape[5];
    int length = harness_layer_format(layer, text, sizeof text);
    cr_assert(length > 0 && length < HARNESS_LAYER_TEXT, "%s: %d", name, length);
    expect_success(tconv_output_shape3d(&layer->desc, shape, &issue), issue);
    const harness_view view = harness_dst_view(&layer->desc);
    const int64_t seen[5] = {view.shape[0], view.shape[1], view.planes, harness_view_rows(&view), view.shape[3]};
    cr_assert_eq(memcmp(shape, seen, sizeof shape), 0, "%s: %s", name, text);

    char *problem = strchr(text, '"') + 1;
    *strchr(problem, '"') = '\0';
    cr_assert(harness_problem_parse(problem, &again, message, sizeof message), "%s: %s", name, message);
    again.desc.dtype = layer->desc.dtype;
    again.desc.layout = layer->desc.layout;
    again.desc.weight_layout = layer->desc.weight_layout;
    again.desc.math = layer->desc.math;
    again.desc.op = layer->desc.op;
    cr_assert_eq(memcmp(&again.desc, &layer->desc, sizeof again.desc), 0, "%s: %s", name, problem);
    cr_assert_eq(again.has_bias, layer->has_bias);
}

Test(harness, corners_are_valid_and_replay)
{
    harness_layer layer;
    size_t sampled = 0;
    for (size_t i = 0; i < harness_corner_count(); i++) {
        const char *name = harness_corner(i, &layer);
        expect_replayable(&layer, name);
        cr_assert(harness_has_integers(&layer), "%s", name); /* else verify would leave them out */
        sampled += harness_corner_is_sampled(i, &layer);
        if (i % HARNESS_CORNER_FORMS == HARNESS_CORNER_FORMS - 1) { /* one form of each is judged whole */
            cr_assert(sampled == 0 || sampled == HARNESS_CORNER_FORMS - 1, "%s: %zu", name, sampled);
            sampled = 0;
        }
    }
}

Test(harness, integers_end_where_sums_are_too_long)
{
    harness_layer layer;
    harness_corner(0, &layer);
    layer.desc.dtype = TCONV_F16; /* whose sums end at 60000, less a bias of up to 16 */
    layer.desc.kernel_h = layer.desc.kernel_w = layer.desc.groups = 1;
    layer.desc.in_channels = 59984;
    cr_assert(harness_has_integers(&layer));
    layer.desc.in_channels++;
    cr_assert_not(harness_has_integers(&layer));
}

Test(harness, random_layers_are_valid_and_replay_and_cover)
{
    harness_random random;
    harness_layer layer;
    size_t slices = 0, empty = 0, grouped = 0, uneven = 0, limits = 0, deep = 0;
    harness_random_seed(&random, 7);
    for (int i = 0; i < 5000; i++) {
        harness_random_layer(&random, &layer);
        expect_replayable(&layer, "random");
        cr_assert(harness_has_integers(&layer));
        const tconv_desc *desc = &layer.desc;
        slices += desc->src_strides[0] != 0 && desc->dst_strides[0] != 0;
        empty += desc->batch == 0;
        deep += harness_has_depth(desc);
        grouped += desc->groups > 1;
        uneven += desc->pad_top != desc->pad_bottom && desc->stride_h != desc->stride_w;
        limits += desc->output_padding_h > 0 &&
                  (desc->output_padding_h == desc->stride_h - 1 || desc->output_padding_h == desc->dilation_h - 1);
    }
    cr_assert(slices > 100 && empty > 20 && grouped > 500 && uneven > 500 && limits > 200, "%zu %zu %zu %zu %zu",
              slices, empty, grouped, uneven, limits);
    cr_assert(deep > 500 && deep < 800, "%zu of 5000 layers have depth", deep);
}

/* ------------------------------------------------------------------------------------------------------------ judging */

static const char sliced[] = "n=2 ci=3 h=4 w=5 co=4 k=3 s=2 p=1 b=1 ds=900x150x9x1";

static harness_case make_case(tconv_dtype dtype, harness_fill fill)
{
    harness_case test;
    harness_layer layer;
    tconv_issue issue;
    char message[128];
    cr_assert(harness_problem_parse(sliced, &layer, message, sizeof message), "%s", message);
    layer.desc.dtype = dtype;
    expect_success(harness_case_create(&test, &layer, fill, 3, &issue), issue);
    return test;
}

static harness_output run_case(const harness_case *test)
{
    harness_output output;
    tconv_issue issue;
    tconv_options options;
    tconv_options_init(&options);
    options.implementation = "cpu_reference";
    expect_success(harness_run(test, &options, false, &output, &issue), issue);
    return output;
}

/* Samples are taken at every end of an axis, and at the first and the last row and column of every phase. */
Test(harness, samples_reach_the_ends_of_every_phase)
{
    enum { ROWS = 7 * 3 + 2, COLUMNS = 9 * 5 + 1, STRIDE_H = 3, STRIDE_W = 5 };
    static int seen[ROWS][COLUMNS];
    harness_layer layer;
    harness_case test;
    harness_random random;
    tconv_issue issue;
    char message[128];
    int ends = 0, channels = 0;
    cr_assert(harness_problem_parse("n=3 ci=2 h=8 w=10 co=5 k=3x2 s=3x5 p=0x0x1x1", &layer, message, sizeof message));
    expect_success(harness_case_create_sampled(&test, &layer, HARNESS_REALS, 3, &issue), issue);
    cr_assert(test.dst_view.shape[2] == ROWS && test.dst_view.shape[3] == COLUMNS);
    cr_assert(test.answers[HARNESS_DST].expected == NULL &&
              test.answers[HARNESS_DST].sample_count > harness_placed_samples(&test, HARNESS_DST));
    harness_random_seed(&random, 3);
    for (int64_t i = 0; i < test.answers[HARNESS_DST].sample_count; i++) {
        int64_t at[4];
        harness_pick_sample(&test, HARNESS_DST, i, &random, at);
        cr_assert_eq(memcmp(at, test.answers[HARNESS_DST].samples[i].at, sizeof at), 0, "sample %d replays", (int)i);
        seen[at[2]][at[3]]++;
        channels |= 1 << at[1];
        for (int end = 0; end < 16; end++)
            ends |= (at[0] == (end & 1) * 2 && at[1] == (end >> 1 & 1) * 4 && at[2] == (end >> 2 & 1) * (ROWS - 1) &&
                     at[3] == (end >> 3 & 1) * (COLUMNS - 1))
                    << end;
    }
    cr_assert(ends == 0xffff && channels == 0x1f, "%x %x", (unsigned)ends, (unsigned)channels);
    for (int h = 0; h < ROWS; h++)
        for (int w = 0; w < COLUMNS; w++)
            cr_assert(seen[h][w] > 0 || (h >= STRIDE_H && h < ROWS - STRIDE_H) ||
                          (w >= STRIDE_W && w < COLUMNS - STRIDE_W),
                      "no sample at row %d, column %d", h, w);
    harness_case_destroy(&test);
}

/* A case with samples has the tensors of one with the whole answer, and is judged at the samples and around dst. */
Test(harness, wrong_samples_are_seen)
{
    for (int fill = HARNESS_INTEGERS; fill <= HARNESS_REALS; fill++) {
        harness_case whole = make_case(TCONV_F32, (harness_fill)fill), test;
        harness_failure failure;
        tconv_issue issue;
        expect_success(harness_case_create_sampled(&test, &whole.layer, (harness_fill)fill, 3, &issue), issue);
        cr_assert_eq(memcmp(whole.src.memory, test.src.memory, test.src.bytes), 0);
        cr_assert_eq(memcmp(whole.weights.memory, test.weights.memory, test.weights.bytes), 0);
        harness_output output = run_case(&whole);
        cr_assert(harness_compare(&test, &output, &failure), "%s", failure.text);
        const int64_t *at = test.answers[HARNESS_DST].samples[test.answers[HARNESS_DST].sample_count - 1].at;
        float *element = (float *)output.dst.data + harness_view_index(&test.dst_view, at[0], at[1], at[2], at[3]);
        const float right = *element;
        *element += 1;
        cr_assert(!harness_compare(&test, &output, &failure), "an element that is wrong");
        *element = right;
        output.dst.memory[0] = 0;
        cr_assert(!harness_compare(&test, &output, &failure), "a stray write");
        harness_output_release(&output);
        harness_case_destroy(&test);
        harness_case_destroy(&whole);
    }
}

/* The smallest change of an element is seen in integers, and a change of the promised size in reals. */
Test(harness, a_wrong_element_is_seen)
{
    for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
        for (int fill = HARNESS_INTEGERS; fill <= HARNESS_REALS; fill++) {
            harness_case test = make_case((tconv_dtype)dtype, (harness_fill)fill);
            harness_output output = run_case(&test);
            harness_failure failure;
            cr_assert(harness_compare(&test, &output, &failure), "%s", failure.text);
            cr_assert(harness_compare_sampled(&test, &output, 500, 1, &failure), "%s", failure.text);

            const int64_t index = harness_view_index(&test.dst_view, 1, 2, 3, 4);
            double value = harness_element_get((tconv_dtype)dtype, output.dst.data, index);
            double step = fill == HARNESS_INTEGERS ? 4 * harness_element_half_ulp((tconv_dtype)dtype, value) : 0.5;
            harness_element_set((tconv_dtype)dtype, output.dst.data, index, value + step);
            cr_assert(!harness_compare(&test, &output, &failure), "%s", harness_dtype_name((tconv_dtype)dtype));
            cr_assert(strstr(failure.text, "n=1 c=2 h=3 w=4") != NULL, "%s", failure.text);
            cr_assert(strstr(failure.text, "--problem \"n=2 ci=3") != NULL, "%s", failure.text);
            harness_output_release(&output);
            harness_case_destroy(&test);
        }
}

/* Keeps the upper 11 bits of each significand, after adding half: half a step rounds to nearest, 0 truncates. */
static void cut_to_tf32(harness_buffer *buffer, int64_t count, uint32_t half)
{
    uint32_t *bits = buffer->data;
    for (int64_t i = 0; i < count; i++)
        bits[i] = (bits[i] + half) & 0xffffe000u;
}

/* Whether TF32 is judged right: takes the reference's answer for the cut factors as the output, and compares it with
 * the right answer. */
static bool tf32_is_right(uint32_t half, harness_failure *failure)
{
    harness_layer layer;
    harness_case test, cut;
    tconv_issue issue;
    char message[128];
    cr_assert(harness_problem_parse("n=2 ci=16 h=6 w=6 co=8 k=3", &layer, message, sizeof message), "%s", message);
    layer.desc.math = TCONV_MATH_TF32;
    expect_success(harness_case_create(&test, &layer, HARNESS_REALS, 9, &issue), issue);
    expect_success(harness_case_create(&cut, &layer, HARNESS_REALS, 9, &issue), issue);
    cut_to_tf32(&cut.src, cut.src_view.extent, half);
    cut_to_tf32(&cut.weights, cut.weights_view.extent, half);
    harness_output output = run_case(&cut);
    bool right = harness_compare(&test, &output, failure);
    harness_output_release(&output);
    harness_case_destroy(&cut);
    harness_case_destroy(&test);
    return right;
}

Test(harness, tf32_rounds_to_nearest_and_does_not_truncate)
{
    harness_failure failure;
    cr_assert(tf32_is_right(0x1000, &failure), "%s", failure.text);
    cr_assert(!tf32_is_right(0, &failure));
    cr_assert(strstr(failure.text, "error") != NULL, "%s", failure.text);
}

/* Each output has a bound of its own, far below the error that the relative error of all outputs would allow. */
Test(harness, tf32_is_held_to_a_bound_for_each_output)
{
    harness_case test = make_case(TCONV_F32, HARNESS_REALS);
    test.layer.desc.math = TCONV_MATH_TF32;
    const int64_t index = harness_view_index(&test.dst_view, 1, 2, 3, 4);
    const int64_t *shape = test.dst_view.shape;
    const double bound = test.answers[HARNESS_DST].bound[((shape[1] + 2) * shape[2] + 3) * shape[3] + 4];
    for (int within = 0; within < 2; within++) {
        harness_output output = run_case(&test);
        harness_failure failure;
        double value = harness_element_get(TCONV_F32, output.dst.data, index);
        harness_element_set(TCONV_F32, output.dst.data, index, value + (within ? 0.95 : 1.05) * 0x1p-10 * bound);
        cr_assert_eq(harness_compare(&test, &output, &failure), within != 0, "%s", failure.text);
        harness_output_release(&output);
    }
    harness_case_destroy(&test);
}

Test(harness, a_missing_and_a_stray_write_are_seen)
{
    harness_case test = make_case(TCONV_F32, HARNESS_REALS);
    const int64_t plane = test.dst_view.shape[2] * test.dst_view.shape[3];
    const struct {
        int64_t byte; /* bytes from the start of dst */
        const char *what;
    } strays[] = {
        {-1, "before dst"},
        {4 * test.dst_view.extent, "behind dst"},
        {4 * plane, "between two channels"},
        {4 * (test.dst_view.stride[0] - 1), "between two images"},
    };
    harness_failure failure;
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        harness_output output = run_case(&test);
        output.dst.memory[(int64_t)output.dst.offset + strays[i].byte] ^= 1;
        cr_assert(!harness_compare(&test, &output, &failure), "%s", strays[i].what);
        cr_assert(strstr(failure.text, "not its own") != NULL, "%s", failure.text);
        harness_output_release(&output);
    }
    harness_output output = run_case(&test);
    memset((float *)output.dst.data + 5, 0xff, sizeof(float));
    cr_assert(!harness_compare(&test, &output, &failure), "an element that was not written");
    harness_output_release(&output);
    harness_case_destroy(&test);
}

Test(harness, bits_are_compared)
{
    harness_case test = make_case(TCONV_F32, HARNESS_INTEGERS);
    harness_output a = run_case(&test), b = run_case(&test);
    harness_failure failure;
    cr_assert(harness_same_bits(&test, &a, &b, &failure), "%s", failure.text);
    ((uint32_t *)b.dst.data)[7] ^= 1;
    cr_assert(!harness_same_bits(&test, &a, &b, &failure));
    harness_output_release(&a);
    harness_output_release(&b);
    harness_case_destroy(&test);
}

/* The answer that cpu_reference computed agrees with the formula. */
Test(harness, the_answer_is_the_formula)
{
    harness_random random;
    harness_random_seed(&random, 11);
    for (int i = 0; i < 200; i++) {
        harness_layer layer;
        harness_case test;
        tconv_issue issue;
        harness_random_layer(&random, &layer);
        expect_success(harness_case_create(&test, &layer, HARNESS_REALS, (uint64_t)i, &issue), issue);
        const int64_t *shape = test.dst_view.shape;
        for (int64_t j = 0, count = harness_view_elements(&test.dst_view); j < count; j += 1 + count / 50) {
            const int64_t at[4] = {j / (shape[1] * shape[2] * shape[3]), j / (shape[2] * shape[3]) % shape[1],
                                   j / shape[3] % shape[2], j % shape[3]};
            double value, bound;
            harness_element_answer(&test, HARNESS_DST, at, &value, &bound);
            cr_assert(fabs(value - test.answers[HARNESS_DST].expected[j]) <= 0x1p-44 * bound, "%a, not %a",
                      test.answers[HARNESS_DST].expected[j], value);
            cr_assert(fabs(bound - test.answers[HARNESS_DST].bound[j]) <= 0x1p-44 * bound, "%a, not %a",
                      test.answers[HARNESS_DST].bound[j], bound);
        }
        harness_case_destroy(&test);
    }
}

/* ------------------------------------------------------------------------------------------------------------ by class */

#define CLASS_LAYERS 4000

/* Corners of several parts of a layer at once, each in more than one layer of a hundred. */
enum {
    PARTIAL_BLOCKS_BIAS_BARE,
    GROUPS_BARE_ACCUMULATE,
    DEPTHWISE_NHWC,
    SHARED_FACTOR,
    UNEVEN,
    SEQUENCE,
    DEEP,
    CORNERS
};

static void count_corners(const harness_layer *layer, int seen[CORNERS])
{
    const tconv_desc *desc = &layer->desc;
    const int64_t group_out = desc->out_channels / desc->groups;
    const bool bare = desc->kernel_h < desc->stride_h || desc->kernel_w < desc->stride_w;
    const bool shared = desc->stride_w > 1 && desc->dilation_w > 1 &&
                        (desc->stride_w % desc->dilation_w == 0 || desc->dilation_w % desc->stride_w == 0);
    const double pixels = (double)desc->batch * (double)desc->in_h * (double)desc->in_w;
    seen[PARTIAL_BLOCKS_BIAS_BARE] += group_out > 16 && group_out % 16 != 0 && layer->has_bias && bare;
    seen[GROUPS_BARE_ACCUMULATE] += desc->groups > 1 && group_out > 1 && bare && desc->accumulate;
    seen[DEPTHWISE_NHWC] += desc->groups > 1 && desc->groups == desc->in_channels && desc->layout == TCONV_NHWC;
    seen[SHARED_FACTOR] += shared;
    seen[UNEVEN] += desc->pad_left != desc->pad_right && desc->output_padding_w > 0;
    seen[SEQUENCE] += desc->in_h == 1 && desc->kernel_h == 1 && desc->in_w > 1;
    seen[DEEP] += pixels > 0 && (double)group_out * (double)desc->kernel_h * (double)desc->kernel_w > 4 * pixels;
}

Test(harness, layers_by_class_are_valid_and_replay_and_meet_corners)
{
    harness_random random, again;
    int seen[CORNERS] = {0};
    harness_random_seed(&random, 3);
    for (int i = 0; i < CLASS_LAYERS; i++) {
        harness_layer layer = {0}, replayed = {0};
        tconv_issue issue;
        again = random;
        harness_class_layer(&random, &layer);
        harness_class_layer(&again, &replayed);
        expect_success(tconv_validate(&layer.desc, &issue), issue);
        cr_assert(memcmp(&layer, &replayed, sizeof layer) == 0, "layer %d does not replay", i);
        count_corners(&layer, seen);
    }
    for (int corner = 0; corner < CORNERS; corner++)
        cr_assert_gt(seen[corner], CLASS_LAYERS / 100, "corner %d in %d layers", corner, seen[corner]);
}

/* One answer comes from the library's reference, the other from the harness's own formula. */
Test(harness, answers_by_formula_and_by_reference_agree)
{
    harness_random random;
    harness_random_seed(&random, 8);
    for (uint64_t i = 0; i < 150; i++) {
        harness_layer layer;
        harness_case formula, reference;
        tconv_issue issue;
        harness_class_layer(&random, &layer);
        const harness_fill fill = i % 2 == 0 && harness_has_integers(&layer) ? HARNESS_INTEGERS : HARNESS_REALS;
        expect_success(harness_case_create(&reference, &layer, fill, i, &issue), issue);
        expect_success(harness_case_create_by_formula(&formula, &layer, fill, i, &issue), issue);
        for (int role = 0; role < HARNESS_ROLES; role++) {
            const harness_answer *a = &reference.answers[role], *b = &formula.answers[role];
            cr_assert((a->expected == NULL) == (b->expected == NULL) && (a->bound == NULL) == (b->bound == NULL));
            for (int64_t e = 0; a->expected != NULL && e < harness_view_elements(&formula.views[role]); e++) {
                const double size = a->bound != NULL ? a->bound[e] : fabs(a->expected[e]);
                cr_assert_leq(fabs(a->expected[e] - b->expected[e]), 0x1p-44 * size, "layer %d, role %d", (int)i, role);
                cr_assert(a->bound == NULL || fabs(a->bound[e] - b->bound[e]) <= 0x1p-44 * size);
            }
        }
        harness_case_destroy(&reference);
        harness_case_destroy(&formula);
    }
}
