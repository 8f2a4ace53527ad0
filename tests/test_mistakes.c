/*
 * Each test is named after a mistake that is often made in transposed convolution. It computes the result of the
 * mistake on its layer and asserts that this differs from the truth, so that the layer can tell; then it asserts that
 * every implementation gives the truth. All numbers are integers, and comparisons are exact.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/capture.h"
#include "support/sparse.h"
#include "support/ways.h"

enum mistake {
    NO_MISTAKE,
    NO_DIVISIBILITY_TEST,
    PADDING_DOUBLED,
    OUTPUT_PADDING_SUBTRACTED,
    WEIGHT_OUT_IN,
    KERNEL_FLIPPED,
    GROUPS_IGNORED,
};

/* Returns the input that tap k of output o reads by a mistaken formula; -1 for none. */
static int64_t mistaken_input(enum mistake mistake, int64_t o, int64_t k, int64_t in, int64_t stride, int64_t pad,
                              int64_t dilation, int64_t output_padding)
{
    int64_t at = o + pad - k * dilation;
    if (mistake == PADDING_DOUBLED)
        at += pad;
    if (mistake == OUTPUT_PADDING_SUBTRACTED)
        at -= output_padding;
    if (at < 0 || (mistake != NO_DIVISIBILITY_TEST && at % stride != 0))
        return -1;
    return at / stride < in ? at / stride : -1;
}

/* Returns the weight of logical index (input channel, output of the group, kh, kw), as the mistake reads it. */
static double mistaken_weight(enum mistake mistake, const harness_case *test, int64_t in, int64_t o, int64_t kh,
                              int64_t kw)
{
    const harness_view *view = &test->weights_view;
    const int64_t *shape = view->shape;
    int64_t index;
    if (mistake == KERNEL_FLIPPED) {
        kh = shape[2] - 1 - kh;
        kw = shape[3] - 1 - kw;
    }
    index = harness_view_index(view, in, o, kh, kw);
    if (mistake == WEIGHT_OUT_IN) /* reads the same memory as (out, in, kh, kw) */
        index = ((o * shape[0] + in) * shape[2] + kh) * shape[3] + kw;
    return harness_element_get(test->layer.desc.dtype, test->weights.data, index);
}

/* Returns one output pixel as a kernel with the mistake computes it, in dense NCHW and IOHW. */
static double mistaken_pixel(enum mistake mistake, const harness_case *test, const int64_t at[4])
{
    const tconv_desc *desc = &test->layer.desc;
    int64_t group_in = desc->in_channels / desc->groups, group_out = desc->out_channels / desc->groups;
    int64_t first_in = mistake == GROUPS_IGNORED ? 0 : at[1] / group_out * group_in, o = at[1] % group_out;
    double sum = test->layer.has_bias ? harness_element_get(desc->dtype, test->bias.data, at[1]) : 0;
    for (int64_t kh = 0; kh < desc->kernel_h; kh++)
        for (int64_t kw = 0; kw < desc->kernel_w; kw++) {
            int64_t ih = mistaken_input(mistake, at[2], kh, desc->in_h, desc->stride_h, desc->pad_top, desc->dilation_h,
                                        desc->output_padding_h);
            int64_t iw = mistaken_input(mistake, at[3], kw, desc->in_w, desc->stride_w, desc->pad_left,
                                        desc->dilation_w, desc->output_padding_w);
            if (ih < 0 || iw < 0)
                continue;
            for (int64_t in = first_in; in < first_in + group_in; in++)
                sum += harness_element_get(desc->dtype, test->src.data,
                                           harness_view_index(&test->src_view, at[0], in, ih, iw)) *
                       mistaken_weight(mistake, test, in, o, kh, kw);
        }
    return sum;
}

/* Returns the percentage of pixels where the mistake shows. */
static double share_of_wrong_pixels(enum mistake mistake, const harness_case *test)
{
    const int64_t *shape = test->dst_view.shape;
    int64_t wrong = 0;
    for (int64_t n = 0; n < shape[0]; n++)
        for (int64_t c = 0; c < shape[1]; c++)
            for (int64_t h = 0; h < shape[2]; h++)
                for (int64_t w = 0; w < shape[3]; w++) {
                    const int64_t at[4] = {n, c, h, w};
                    double truth, bound;
                    harness_element_answer(test, HARNESS_DST, at, &truth, &bound);
                    wrong += mistaken_pixel(mistake, test, at) != truth;
                }
    return 100.0 * (double)wrong / (double)harness_view_elements(&test->dst_view);
}

/* Checks that the layer shows the mistake on at least half of its pixels, and that no implementation makes it. */
static void check_mistake(enum mistake mistake, tconv_backend backend, const char *problem)
{
    const double least = 50;
    struct way ways[MAX_WAYS];
    size_t way_count = list_ways(backend, ways);
    harness_layer layer;
    harness_case test;
    tconv_issue issue;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
    cr_assert_eq(harness_case_create(&test, &layer, HARNESS_INTEGERS, 7, &issue), TCONV_SUCCESS, "%s", issue.message);

    cr_assert_eq(share_of_wrong_pixels(NO_MISTAKE, &test), 0, "the formula of this test is itself mistaken");
    double wrong = share_of_wrong_pixels(mistake, &test);
    cr_assert_geq(wrong, least, "the mistake shows on %.1f %% of the pixels only", wrong);

    size_t taken = 0;
    for (size_t w = 0; w < way_count; w++) {
        harness_output output;
        harness_failure failure;
        if (!run_way(&test, &ways[w], 2, false, &output))
            continue;
        cr_assert(harness_compare_sampled(&test, &output, 4096, 1, &failure), "%s: %s", ways[w].text, failure.text);
        cr_assert(harness_compare(&test, &output, &failure), "%s: %s", ways[w].text, failure.text);
        harness_output_release(&output);
        taken++;
    }
    cr_assert_gt(taken, 0);
    harness_case_destroy(&test);
}

/* Tests the mistake, by its name, on two layers and on each backend. */
#define MISTAKE_TEST(name, mistake, first, second)                                                                     \
    Test(mistakes, name)                                                                                               \
    {                                                                                                                  \
        check_mistake(mistake, TCONV_BACKEND_CPU, first);                                                              \
        check_mistake(mistake, TCONV_BACKEND_CPU, second);                                                             \
    }                                                                                                                  \
    Test(mistakes_cuda, name)                                                                                          \
    {                                                                                                                  \
        skip_without_cuda();                                                                                           \
        check_mistake(mistake, TCONV_BACKEND_CUDA, first);                                                             \
        check_mistake(mistake, TCONV_BACKEND_CUDA, second);                                                            \
    }

MISTAKE_TEST(dropping_the_divisibility_test, NO_DIVISIBILITY_TEST, "n=2 ci=4 h=6 w=7 co=3 k=3x4 s=2x3 p=1 b=1",
             "ci=4 h=6 w=7 co=3 k=3 s=5 d=2 p=1")

MISTAKE_TEST(doubling_the_padding, PADDING_DOUBLED, "n=2 ci=4 h=9 w=8 co=3 k=3x5 p=1x2",
             "ci=4 h=9 w=8 co=3 k=4 s=2 p=1x0x2x3")

MISTAKE_TEST(subtracting_output_padding_in_the_index, OUTPUT_PADDING_SUBTRACTED,
             "n=2 ci=4 h=5 w=6 co=3 k=3 s=2 p=1 op=1", "ci=4 h=5 w=6 co=3 k=5 s=3x4 p=1 op=2x3 b=1")

/* In the second layer the channels are square, so that no size can tell. */
MISTAKE_TEST(weight_read_as_out_in, WEIGHT_OUT_IN, "ci=5 h=6 w=7 co=4 k=3", "ci=4 h=6 w=7 co=4 k=1")

MISTAKE_TEST(kernel_flipped, KERNEL_FLIPPED, "ci=3 h=6 w=7 co=4 k=3 s=1 p=1", "ci=3 h=6 w=7 co=4 k=1x4 s=1x2")

MISTAKE_TEST(groups_ignored, GROUPS_IGNORED, "n=2 ci=6 h=5 w=6 co=9 k=3 s=2 p=1 g=3",
             "ci=8 h=5 w=6 co=8 k=3 p=1 g=8 b=1")

Test(mistakes, dilation_missing_from_the_output_size)
{
    harness_layer layer;
    char message[128];
    int64_t shape[4];
    cr_assert(harness_problem_parse("ci=1 h=4 w=5 co=1 k=3x4 s=2 p=1 d=3x2", &layer, message, sizeof message));
    const tconv_desc *desc = &layer.desc;
    int64_t mistaken_h = (desc->in_h - 1) * desc->stride_h - 2 + desc->kernel_h - 1 + 1;
    int64_t mistaken_w = (desc->in_w - 1) * desc->stride_w - 2 + desc->kernel_w - 1 + 1;
    cr_assert_eq(tconv_output_shape(desc, shape, NULL), TCONV_SUCCESS);
    cr_assert(mistaken_h != 11 && mistaken_w != 13);
    cr_assert(shape[2] == 11 && shape[3] == 13, "%" PRId64 " x %" PRId64, shape[2], shape[3]);
}

/* ------------------------------------------------------------------------------------------------ 32-bit offsets */

/* A layer of a few elements whose strides set them far apart: beyond 2^31 and 2^32 elements, in memory that is only
 * address space but for the pages in use. */
static const struct far_case {
    const char *what;
    tconv_layout layout;
    bool src, dst; /* which tensors are far apart */
    int axis;      /* the axis whose stride is set: 0 n, 1 c, 3 pixels */
    int64_t stride;
} far_cases[] = {
    {"images of src", TCONV_NCHW, true, false, 0, (INT64_C(1) << 31) + 96},
    {"images of dst", TCONV_NCHW, false, true, 0, (INT64_C(1) << 31) + 96},
    {"images of both, past 2^32", TCONV_NCHW, true, true, 0, (INT64_C(1) << 32) + 4096},
    {"channels of src", TCONV_NCHW, true, false, 1, (INT64_C(1) << 31) + 32},
    {"channels of dst", TCONV_NCHW, false, true, 1, (INT64_C(1) << 32) + 64},
    {"channels of both, bytes past 2^31", TCONV_NCHW, true, true, 1, (INT64_C(1) << 29) + 32},
    {"images of both, NHWC", TCONV_NHWC, true, true, 0, (INT64_C(1) << 31) + 4096},
    {"pixels of src", TCONV_NHWC, true, false, 3, (INT64_C(1) << 30) + 96},
    {"pixels of dst", TCONV_NHWC, false, true, 3, (INT64_C(1) << 29) + 96},
};

static void fill_integers(const harness_view *view, tconv_dtype dtype, void *data, uint64_t seed)
{
    harness_random random;
    harness_random_seed(&random, seed);
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d),
                                        (double)harness_random_integer(&random, -4, 4));
}

/* Makes a case whose src lies in sparse memory; its other tensors are small. */
static harness_case make_far_case(const struct far_case *far, tconv_dtype dtype)
{
    harness_case test;
    tconv_desc *desc = &test.layer.desc;
    memset(&test, 0, sizeof test);
    tconv_desc_init(desc);
    desc->batch = 2, desc->in_channels = 3, desc->in_h = 2, desc->in_w = 3;
    desc->out_channels = 2, desc->kernel_h = 2, desc->kernel_w = 3, desc->stride_w = 2;
    desc->pad_top = desc->pad_right = 1;
    desc->dtype = dtype;
    desc->layout = far->layout;
    if (far->src)
        desc->src_strides[far->axis] = far->stride;
    if (far->dst)
        desc->dst_strides[far->axis] = far->stride;
    test.fill = HARNESS_INTEGERS;
    test.src_view = harness_src_view(desc);
    test.weights_view = harness_weights_view(desc);
    test.dst_view = harness_dst_view(desc);
    test.src.bytes = (size_t)test.src_view.extent * harness_element_size(dtype);
    test.src.data = sparse_allocate(test.src.bytes);
    test.weights = harness_buffer_create(test.weights_view.extent, harness_element_size(dtype), 1);
    return test;
}

/* Checks that the offset of at least one element, in elements or in bytes, does not fit in 32 bits. */
static void check_that_32_bits_would_tell(const harness_case *test)
{
    int64_t bytes = (int64_t)harness_element_size(test->layer.desc.dtype);
    int64_t last_src = (test->src_view.extent - 1) * bytes, last_dst = (test->dst_view.extent - 1) * bytes;
    cr_assert(last_src > INT32_MAX || last_dst > INT32_MAX, "%" PRId64 " and %" PRId64 " bytes fit", last_src,
              last_dst);
}

static bool check_far_way(const harness_case *test, const struct way *way, const char *what)
{
    const tconv_dtype dtype = test->layer.desc.dtype;
    tconv_options options = way_options(way);
    harness_output output = {.implementation = way->implementation};
    harness_failure failure;
    tconv_plan *plan;
    tconv_issue issue;
    size_t size;
    use_threads(&options, 2);
    if (tconv_plan_create(&test->layer.desc, &options, &plan, &issue) != TCONV_SUCCESS) {
        cr_assert_eq(issue.status, TCONV_ERROR_UNSUPPORTED, "%s: %s", way->text, issue.message);
        return false;
    }
    output.dst.bytes = (size_t)test->dst_view.extent * harness_element_size(dtype);
    output.dst.data = sparse_allocate(output.dst.bytes);
    cr_assert_not_null(output.dst.data, "no address space");
    tconv_plan_workspace_size(plan, &size);
    void *workspace = malloc(size + 1);
    const tconv_tensor src = {test->src.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor weights = {test->weights.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor dst = {output.dst.data, dtype, TCONV_LOCATION_HOST};
    cr_assert_eq(tconv_plan_execute(plan, &src, &weights, NULL, &dst, workspace, size, NULL), TCONV_SUCCESS);
    cr_assert(harness_compare_sampled(test, &output, 600, 3, &failure), "%s, %s: %s", way->text, what, failure.text);
    free(workspace);
    sparse_release(output.dst.data, output.dst.bytes);
    tconv_plan_destroy(plan);
    return true;
}

Test(mistakes, offsets_of_32_bits)
{
    struct way ways[MAX_WAYS];
    size_t way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < sizeof far_cases / sizeof far_cases[0]; i++)
        for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++) {
            harness_case test = make_far_case(&far_cases[i], (tconv_dtype)dtype);
            size_t taken = 0;
            cr_assert_not_null(test.src.data, "no address space for %zu bytes", test.src.bytes);
            check_that_32_bits_would_tell(&test);
            fill_integers(&test.src_view, test.layer.desc.dtype, test.src.data, i);
            fill_integers(&test.weights_view, test.layer.desc.dtype, test.weights.data, i + 1);
            for (size_t w = 0; w < way_count; w++)
                taken += check_far_way(&test, &ways[w], far_cases[i].what);
            cr_assert_gt(taken, 0);
            sparse_release(test.src.data, test.src.bytes);
            harness_buffer_release(&test.weights);
        }
}

/* Checks a dense output of more than 2^31 elements at samples: 2,049 channels of 2^20 pixels, 4.3 GB in f16. */
static void check_dense_output(const tconv_options *options)
{
    const size_t needed = (size_t)6 << 30;
    harness_layer layer;
    harness_case test;
    harness_output output;
    harness_failure failure;
    tconv_issue issue;
    char message[128];
    if (memory_available() < needed) {
        fprintf(stderr, "skipped: this needs 6 GiB of memory\n");
        cr_skip_test("skipped: this needs 6 GiB of memory");
    }
    cr_assert(harness_problem_parse("ci=2 h=512 w=512 co=2049 k=2 s=2 b=1", &layer, message, sizeof message));
    layer.desc.dtype = TCONV_F16;
    cr_assert_eq(harness_case_create_unanswered(&test, &layer, HARNESS_INTEGERS, 5, &issue), TCONV_SUCCESS, "%s",
                 issue.message);
    cr_assert_gt(test.dst_view.extent, INT64_C(1) << 31);
    cr_assert_eq(harness_run(&test, options, false, &output, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert(harness_compare_sampled(&test, &output, 20000, 11, &failure), "%s", failure.text);
    harness_output_release(&output);
    harness_case_destroy(&test);
}

Test(mistakes_large, offsets_of_32_bits_in_a_dense_output)
{
    check_dense_output(NULL);
}

Test(mistakes_cuda, offsets_of_32_bits)
{
    tconv_options options;
    skip_without_cuda();
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    check_dense_output(&options);
}

/* ------------------------------------------------------------------------------------------------------- grid limits */

/* A CUDA grid has at most 65,535 blocks along y and z. Each extent in turn is longer than that. */
static void check_long_extents(tconv_backend backend)
{
    static const char *const problems[] = {
        "n=70001 ci=2 h=2 w=2 co=2 k=2 b=1", "ci=1 h=2 w=3 co=70001 k=2 b=1", "ci=70001 h=1 w=2 co=70001 k=1x2 g=70001",
        "ci=2 h=70001 w=1 co=2 k=2 s=2",     "ci=2 h=1 w=70001 co=2 k=2 s=2",
    };
    struct way ways[MAX_WAYS];
    size_t way_count = list_ways(backend, ways);
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
            harness_layer layer;
            harness_case test;
            tconv_issue issue;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.layout = (tconv_layout)layout;
            cr_assert_eq(harness_case_create(&test, &layer, HARNESS_INTEGERS, p, &issue), TCONV_SUCCESS, "%s",
                         issue.message);
            size_t taken = 0;
            for (size_t w = 0; w < way_count; w++)
                taken += check_way(&test, &ways[w], 2, false);
            cr_assert_gt(taken, 0);
            harness_case_destroy(&test);
        }
}

Test(mistakes, more_than_65535_of_anything)
{
    check_long_extents(TCONV_BACKEND_CPU);
}

Test(mistakes_cuda, grid_dimension_z_past_65535)
{
    skip_without_cuda();
    check_long_extents(TCONV_BACKEND_CUDA);
}

/* The mistakes of computing on the default stream and of synchronising the device need the CUDA runtime: see
 * test_stream.c. */

/* ---------------------------------------------------------------------------------------------- printing, throwing */

/* Makes calls that fail and calls that succeed, one after another; none may print or end the process. */
static void call_everything(void)
{
    tconv_desc desc;
    tconv_plan *plan, *packed, *failed;
    float src[4] = {1, 2, 3, 4}, weights[4] = {1, 0, 0, 1}, dst[9];
    static unsigned char workspace[1 << 18];
    size_t size;
    int64_t shape[4];
    char text[64];
    const tconv_tensor s = {src, TCONV_F32, TCONV_LOCATION_HOST}, w = {weights, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor d = {dst, TCONV_F32, TCONV_LOCATION_HOST}, none = {NULL, TCONV_F32, TCONV_LOCATION_HOST};
    tconv_desc_init(&desc);
    tconv_validate(&desc, NULL);
    tconv_output_shape(&desc, shape, NULL);
    tconv_plan_create(&desc, NULL, &plan, NULL);
    tconv_plan_create(NULL, NULL, &plan, NULL);
    desc.in_channels = desc.out_channels = 1;
    desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = 2;
    cr_assert_eq(tconv_plan_create(&desc, NULL, &plan, NULL), TCONV_SUCCESS);
    cr_assert_eq(tconv_plan_workspace_size(plan, &size), TCONV_SUCCESS);
    cr_assert_leq(size, sizeof workspace);
    tconv_plan_execute(plan, &s, &w, NULL, &d, NULL, 0, NULL);
    tconv_plan_execute(plan, &none, &w, NULL, &d, workspace, sizeof workspace, NULL);
    tconv_plan_execute(NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL);
    cr_assert_eq(tconv_plan_execute(plan, &s, &w, NULL, &d, workspace, sizeof workspace, NULL), TCONV_SUCCESS);
    cr_assert_eq(tconv_plan_pack_weights(plan, &w, NULL, &packed, NULL), TCONV_SUCCESS);
    tconv_plan_pack_weights(plan, &none, NULL, &failed, NULL);
    tconv_plan_destroy(packed);
    tconv_plan_describe(plan, text, sizeof text, &size);
    tconv_plan_destroy(plan);
    tconv_plan_destroy(NULL);
    tconv_backend_available(TCONV_BACKEND_CUDA, NULL);
    tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, &size);
    cr_assert_eq(tconv_conv_transpose2d(&desc, NULL, &s, &w, NULL, &d, NULL), TCONV_SUCCESS);
    tconv_conv_transpose2d(&desc, NULL, &s, &none, NULL, &d, NULL);
    desc.in_w = INT64_MAX;
    tconv_conv_transpose2d(&desc, NULL, &s, &w, NULL, &d, NULL);
}

Test(mistakes, printing_or_throwing)
{
    struct capture capture;
    capture_start(&capture);
    call_everything();
    capture_end(&capture);
    cr_assert_str_empty(capture.text[CAPTURED_STDOUT]);
    cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
    capture_release(&capture);
}
