/*
 * The mistake of offsets of 32 bits, in the gradients: a layer of a few elements whose strides set those of src and dst
 * far apart, beyond 2^31 and 2^32, in memory that is only address space but for the pages in use. These are tests of the
 * suite gradient_mistakes.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/gradients.h"
#include "support/sparse.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct far_case {
    const char *what;
    tconv_layout layout;
    int axis; /* the axis whose stride is set: 0 n, 1 c, 3 pixels */
    int64_t src_stride, dst_stride;
} far_cases[] = {
    {"images of src", TCONV_NCHW, 0, (INT64_C(1) << 31) + 96, 0},
    {"images of dst", TCONV_NCHW, 0, 0, (INT64_C(1) << 31) + 96},
    {"images, past 2^32", TCONV_NCHW, 0, (INT64_C(1) << 32) + 4096, (INT64_C(1) << 32) + 64},
    {"channels", TCONV_NCHW, 1, (INT64_C(1) << 31) + 32, (INT64_C(1) << 32) + 64},
    {"bytes of channels, past 2^31", TCONV_NCHW, 1, (INT64_C(1) << 29) + 32, (INT64_C(1) << 29) + 64},
    {"images, NHWC", TCONV_NHWC, 0, (INT64_C(1) << 31) + 4096, (INT64_C(1) << 31) + 96},
    {"pixels", TCONV_NHWC, 3, (INT64_C(1) << 30) + 96, (INT64_C(1) << 29) + 96},
};

static harness_layer far_layer(const struct far_case *far, tconv_dtype dtype, tconv_op op)
{
    harness_layer layer = {.has_bias = true};
    tconv_desc *desc = &layer.desc;
    tconv_desc_init(desc);
    desc->batch = 2, desc->in_channels = 3, desc->in_h = 2, desc->in_w = 3;
    desc->out_channels = 2, desc->kernel_h = 2, desc->kernel_w = 3, desc->stride_w = 2;
    desc->pad_top = desc->pad_right = 1;
    desc->dtype = dtype;
    desc->layout = far->layout;
    desc->op = op;
    desc->src_strides[far->axis] = far->src_stride;
    desc->dst_strides[far->axis] = far->dst_stride;
    return layer;
}

/* Places all tensors in sparse memory, and fills with small integers what the operation reads. */
static harness_case far_case(const harness_layer *layer)
{
    const tconv_dtype dtype = layer->desc.dtype;
    harness_case test;
    harness_random random;
    memset(&test, 0, sizeof test);
    test.layer = *layer;
    test.fill = HARNESS_INTEGERS;
    harness_random_seed(&random, 1);
    for (int role = 0; role < HARNESS_POST; role++) {
        harness_buffer *tensor = &test.tensors[role];
        test.views[role] = harness_view_of(&layer->desc, (harness_role)role);
        const harness_view *view = &test.views[role];
        tensor->bytes = (size_t)view->extent * harness_element_size(dtype);
        tensor->data = sparse_allocate(tensor->bytes);
        cr_assert_not_null(tensor->data, "no address space for %zu bytes", tensor->bytes);
        for (int64_t i = 0; harness_case_reads(&test, (harness_role)role) && i < harness_view_elements(view); i++) {
            const int64_t w = i % view->shape[3], h = i / view->shape[3] % view->shape[2];
            const int64_t row = i / view->shape[3] / view->shape[2];
            harness_element_set(dtype, tensor->data,
                                harness_view_index(view, row / view->shape[1], row % view->shape[1], h, w),
                                (double)harness_random_integer(&random, -4, 4));
        }
    }
    return test;
}

/* Executes the case by a way, into the memory of the case itself, and compares. */
static bool check_way_far(const harness_case *test, const struct way *way, const char *what)
{
    tconv_options options = way_options(way);
    harness_output output = {.implementation = way->implementation};
    harness_failure failure;
    tconv_tensor tensors[HARNESS_ROLES];
    tconv_plan *plan;
    tconv_issue issue;
    size_t size;
    use_threads(&options, 2);
    if (tconv_plan_create(&test->layer.desc, &options, &plan, &issue) != TCONV_SUCCESS) {
        cr_assert_eq(issue.status, TCONV_ERROR_UNSUPPORTED, "%s: %s", way->text, issue.message);
        return false;
    }
    cr_assert_eq(tconv_plan_workspace_size(plan, &size), TCONV_SUCCESS);
    void *workspace = malloc(size + 1);
    for (int role = 0; role < HARNESS_ROLES; role++)
        tensors[role] = (tconv_tensor){test->tensors[role].data, test->layer.desc.dtype, TCONV_LOCATION_HOST};
    const tconv_status status =
        tconv_plan_execute(plan, &tensors[HARNESS_SRC], &tensors[HARNESS_WEIGHTS], &tensors[HARNESS_BIAS],
                           &tensors[HARNESS_DST], workspace, size, NULL);
    cr_assert_eq(status, TCONV_SUCCESS, "%s, %s: %s", way->text, what, tconv_status_string(status));
    memcpy(output.tensors, test->tensors, sizeof output.tensors);
    cr_assert(harness_compare_sampled(test, &output, 200, 3, &failure), "%s, %s: %s", way->text, what, failure.text);
    free(workspace);
    tconv_plan_destroy(plan);
    return true;
}

Test(gradient_mistakes, offsets_of_32_bits)
{
    struct way ways[MAX_WAYS];
    const size_t way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < COUNT(far_cases); i++)
        for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
            for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
                const harness_layer layer = far_layer(&far_cases[i], (tconv_dtype)dtype, (tconv_op)op);
                size_t taken = 0;
                for (size_t w = 0; w < way_count; w++) { /* each into memory that is 0 */
                    harness_case test = far_case(&layer);
                    const int64_t bytes = (int64_t)harness_element_size(layer.desc.dtype);
                    cr_assert(bytes * (test.src_view.extent - 1) > INT32_MAX ||
                                  bytes * (test.dst_view.extent - 1) > INT32_MAX,
                              "%s fit in 32 bits", far_cases[i].what);
                    taken += check_way_far(&test, &ways[w], far_cases[i].what);
                    for (int role = 0; role < HARNESS_ROLES; role++)
                        sparse_release(test.tensors[role].data, test.tensors[role].bytes);
                }
                cr_assert_gt(taken, 0, "nothing takes %s", far_cases[i].what);
            }
}

/* cuda_wgrad's tables have 32 bits for the bytes from a K-tile's first place to another: of images of a slice a K-tile has
 * as many as that reaches. Seen by the plans, for memory that is so far apart takes gigabytes of a GPU. */
Test(gradient_mistakes, bytes_of_images_of_a_k_tile_past_32_bits)
{
    static const struct {
        const char *problem, *k_tile;
    } cases[] = {
        {"n=256 ci=128 h=4 w=4 co=128 k=1 ss=134217728x16x4x1", " k_tile=4x4x4 "},
        {"n=256 ci=128 h=4 w=4 co=128 k=1 ss=268435456x16x4x1", " k_tile=2x4x4 "},
        {"n=256 ci=128 h=4 w=4 co=128 k=1 ds=134217728x16x4x1", " k_tile=4x4x4 "},
        {"n=256 ci=128 h=4 w=4 co=128 k=1 ds=268435456x16x4x1", " k_tile=2x4x4 "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        harness_layer layer = gradient_layer(cases[i].problem, TCONV_BACKWARD_WEIGHTS);
        layer.desc.math = TCONV_MATH_TF32;
        cr_expect(is_planned(&layer.desc, cases[i].k_tile), "%s: not%s", cases[i].problem, cases[i].k_tile);
    }
}
