/* The rules of depth: shapes, padding, strides of planes, and callers that know nothing of it. These are tests of the suite
 * validate. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "support/desc_numbers.h"
#include "support/expect.h"
#include "tconv/tconv.h"

static void expect_shape(const tconv_desc *desc, int64_t n, int64_t c, int64_t d, int64_t h, int64_t w)
{
    const int64_t expected[5] = {n, c, d, h, w};
    int64_t shape[5] = {-1, -1, -1, -1, -1};
    tconv_issue issue;
    expect_success(tconv_output_shape3d(desc, shape, &issue), issue);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(shape[i], expected[i], "shape[%d] = %" PRId64 ", expected %" PRId64, i, shape[i], expected[i]);
}

/* -------------------------------------------------------------------------------------------------------------- shapes */

Test(validate, a_volume_has_the_shape_of_the_formula)
{
    tconv_desc desc = uneven_volume();
    expect_shape(&desc, 2, 9, 11, 13, 21);
    desc.layout = TCONV_NHWC;
    expect_shape(&desc, 2, 9, 11, 13, 21);
    desc.batch = 0;
    expect_shape(&desc, 0, 9, 11, 13, 21);
    desc = uneven_layer();
    expect_shape(&desc, 2, 9, 1, 13, 21);
}

Test(validate, a_shape_of_four_has_no_place_for_planes)
{
    tconv_desc desc = uneven_volume();
    int64_t shape[5] = {-3, -3, -3, -3, -3};
    tconv_issue issue;
    expect_failure(tconv_output_shape(&desc, shape, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "shape",
                   "shape: has no place for out_d = 11; use tconv_output_shape3d");
    cr_assert_eq(shape[0], -3, "a failed call wrote to shape");
    desc.pad_back += 10; /* one plane is left */
    expect_success(tconv_output_shape(&desc, shape, &issue), issue);
    cr_assert(shape[2] == 13 && shape[3] == 21 && shape[4] == -3);
    expect_failure(tconv_output_shape3d(&desc, NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "shape",
                   "shape = NULL: must point to 5 numbers");
    expect_failure(tconv_output_shape3d(NULL, shape, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "desc", "NULL");
    desc.stride_d = 0;
    expect_failure(tconv_output_shape3d(&desc, shape, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "stride_d",
                   "stride_d = 0: must be at least 1");
}

/* --------------------------------------------------------------------------------------------------------------- rules */

Test(validate, output_padding_of_planes_stays_below_stride_or_dilation)
{
    static const int64_t axes[][2] = {{1, 1}, {2, 1}, {1, 2}, {5, 3}, {3, 5}, {4, 4}};
    for (size_t i = 0; i < COUNT(axes); i++) {
        const int64_t most = (axes[i][0] > axes[i][1] ? axes[i][0] : axes[i][1]) - 1;
        const int64_t wrong[] = {most + 1, INT64_MAX};
        tconv_desc desc = uneven_volume();
        tconv_issue issue;
        desc.stride_d = axes[i][0], desc.dilation_d = axes[i][1], desc.pad_front = desc.pad_back = 0;
        desc.output_padding_d = most;
        expect_success(tconv_validate(&desc, &issue), issue);
        for (size_t j = 0; j < COUNT(wrong); j++) {
            desc.output_padding_d = wrong[j];
            expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_d",
                           "must be smaller than stride or dilation");
            cr_assert_not_null(strstr(issue.message, stated("output_padding_d", wrong[j])), "\"%s\"", issue.message);
        }
    }
}

Test(validate, at_least_one_output_plane_is_left)
{
    tconv_desc desc = uneven_volume();
    tconv_issue issue;
    desc.pad_front += 10;
    expect_shape(&desc, 2, 9, 1, 13, 21);
    desc.pad_front++;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_d",
                   "out_d = 17 - 15 - 2 (padding): must be at least 1");
    desc.pad_front = INT64_MAX - 2;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_d", "must be at least 1");
}

Test(validate, axes_of_planes_overflow_by_name)
{
    static const struct {
        size_t offset;
        const char *field;
    } rows[] = {
        {offsetof(tconv_desc, in_d), "out_d"},
        {offsetof(tconv_desc, kernel_d), "out_d"},
        {offsetof(tconv_desc, stride_d), "out_d"},
        {offsetof(tconv_desc, dilation_d), "out_d"},
    };
    tconv_issue issue;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tconv_desc desc = uneven_volume();
        memcpy((char *)&desc + rows[i].offset, &(int64_t){INT64_MAX}, sizeof(int64_t));
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, rows[i].field,
                       "out_d: (in_d - 1) * stride_d + dilation_d * (kernel_d - 1) + output_padding_d + 1");
    }
    tconv_desc desc = uneven_volume(); /* the axis is short enough, the tensors are not */
    desc.in_d = (int64_t)1 << 58, desc.stride_d = desc.dilation_d = 1, desc.output_padding_d = 0;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "src", "its size in bytes");
    desc = uneven_volume();
    desc.stride_d = (int64_t)1 << 55;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "dst", "its size in bytes");
    desc = uneven_volume();
    desc.kernel_d = (int64_t)1 << 57, desc.pad_front = ((int64_t)1 << 59) - 8;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "weights", "its size in bytes");
}

Test(validate, a_stream_has_one_plane)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *field, *text;
    } rows[] = {
        {offsetof(tconv_desc, in_d), 2, "in_d", "in_d = 2: must be 1 in a stream"},
        {offsetof(tconv_desc, kernel_d), 3, "kernel_d", "kernel_d = 3: must be 1 in a stream"},
        {offsetof(tconv_desc, output_padding_d), 1, "output_padding_d", "output_padding_d = 1: must be 0 in a stream"},
        {offsetof(tconv_desc, pad_back), 1, "out_d", "must be at least 1"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tconv_desc desc = uneven_layer();
        tconv_issue issue;
        desc.stream_axis = 2, desc.pad_left = desc.pad_right = desc.output_padding_w = 0, desc.stride_d = 2;
        expect_success(tconv_validate(&desc, &issue), issue);
        memcpy((char *)&desc + rows[i].offset, &rows[i].value, sizeof rows[i].value);
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, rows[i].field, rows[i].text);
    }
}

/* What is said of depth comes last in each group of rules. */
Test(validate, rules_of_depth_come_after_those_of_rows_and_columns)
{
    tconv_desc desc = uneven_layer();
    tconv_issue issue;
    desc.groups = 0, desc.in_d = 0, desc.dtype = (tconv_dtype)9;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "groups", "must be");
    desc.groups = 3;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "in_d", "must be");
    desc.in_d = 2;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "dtype", "must be");
    desc.dtype = TCONV_F32;
    desc.output_padding_d = 1, desc.output_padding_w = 3, desc.pad_back = desc.pad_right = 100;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_w", "must be");
    desc.output_padding_w = 2;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_d", "must be");
    desc.output_padding_d = 0;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_w", "must be");
    desc.pad_right = 1;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_d", "must be");
    desc.pad_back = 0;
    expect_success(tconv_validate(&desc, &issue), issue);
}

/* ------------------------------------------------------------------------------------------------------------- strides */

struct strides_of_planes {
    tconv_layout layout;
    int64_t strides[4], stride_d;
    const char *field; /* without the tensor's name; NULL: accepted */
};

/* src 2 x 6 x 4 x 5 x 7: dense NCHW is 840, 140, 35, 7, 1, dense NHWC 840, 1, 210, 42, 6. */
static const struct strides_of_planes strides_of_planes[] = {
    {TCONV_NCHW, {0, 0, 0, 0}, 35, NULL},
    {TCONV_NCHW, {840, 140, 7, 1}, 35, NULL},
    {TCONV_NCHW, {841, 140, 7, 1}, 0, NULL},
    {TCONV_NCHW, {0, 141, 0, 0}, 35, NULL},
    {TCONV_NCHW, {845, 141, 0, 0}, 0, NULL}, /* (6 - 1) * 141 + 140 */
    {TCONV_NCHW, {844, 141, 0, 0}, 0, "_strides[0]"},
    {TCONV_NCHW, {0, 139, 0, 0}, 0, "_strides[1]"},
    {TCONV_NCHW, {0, 35, 0, 0}, 0, "_strides[1]"}, /* that of planes */
    {TCONV_NCHW, {0, 0, 0, 0}, 36, "_stride_d"},
    {TCONV_NCHW, {0, 0, 0, 0}, 34, "_stride_d"},
    {TCONV_NCHW, {0, 0, 0, 0}, -35, "_stride_d"},
    {TCONV_NCHW, {0, 0, 0, 0}, INT64_MAX, "_stride_d"},
    {TCONV_NHWC, {840, 1, 42, 6}, 210, NULL},
    {TCONV_NHWC, {0, 0, 0, 8}, 0, NULL},
    {TCONV_NHWC, {1118, 1, 56, 8}, 280, NULL}, /* (140 - 1) * 8 + 6 */
    {TCONV_NHWC, {1117, 1, 56, 8}, 280, "_strides[0]"},
    {TCONV_NHWC, {0, 0, 0, 8}, 210, "_stride_d"},
    {TCONV_NHWC, {0, 0, 0, 0}, 211, "_stride_d"},
    {TCONV_NHWC, {0, 0, 0, 0}, 6, "_stride_d"},
    {TCONV_NHWC, {0, 0, 0, 0}, -210, "_stride_d"},
    {TCONV_NHWC, {0, 0, 43, 0}, 210, "_strides[2]"},
};

static void expect_strides(tconv_desc desc, const struct strides_of_planes *row, size_t index, const char *tensor)
{
    const bool of_src = strcmp(tensor, "src") == 0, of_dst = strcmp(tensor, "dst") == 0;
    tconv_issue issue;
    desc.layout = row->layout;
    memcpy(of_src   ? desc.src_strides
           : of_dst ? desc.dst_strides
                    : desc.addend_strides,
           row->strides, sizeof row->strides);
    *(of_src ? &desc.src_stride_d : of_dst ? &desc.dst_stride_d : &desc.addend_stride_d) = row->stride_d;
    const tconv_status status = tconv_validate(&desc, &issue);
    if (row->field == NULL) {
        cr_assert_eq(status, TCONV_SUCCESS, "%s, row %zu: %s", tensor, index, issue.message);
        return;
    }
    char field[32];
    snprintf(field, sizeof field, "%s%s", tensor, row->field);
    expect_failure(status, issue, TCONV_ERROR_INVALID_ARGUMENT, field, "must be");
    if (strcmp(row->field, "_stride_d") == 0) {
        cr_assert_not_null(strstr(issue.message, stated(field, row->stride_d)), "\"%s\"", issue.message);
        cr_assert_not_null(strstr(issue.message, ", planes are dense"), "\"%s\"", issue.message);
    }
}

Test(validate, strides_of_planes_rule_by_rule)
{
    tconv_desc desc = uneven_volume(), same; /* dst and an addend that have the shape of src */
    tconv_desc_init(&same);
    same.batch = 2, same.in_channels = same.out_channels = 6, same.in_d = 4, same.in_h = 5, same.in_w = 7;
    same.kernel_h = same.kernel_w = 1;
    same.post_count = 1, same.post[0].kind = TCONV_POST_ADD_TENSOR;
    for (size_t i = 0; i < COUNT(strides_of_planes); i++) {
        expect_strides(desc, &strides_of_planes[i], i, "src");
        expect_strides(same, &strides_of_planes[i], i, "dst");
        expect_strides(same, &strides_of_planes[i], i, "addend");
    }
}

Test(validate, a_stride_of_one_plane_is_ignored)
{
    static const int64_t values[] = {-1, 1, 3, 12345, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < COUNT(values); i++)
        for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
            tconv_desc desc = uneven_layer();
            tconv_issue issue;
            desc.layout = (tconv_layout)layout;
            desc.src_stride_d = desc.dst_stride_d = values[i];
            expect_success(tconv_validate(&desc, &issue), issue);
        }
}

/* In NHWC, the distance of planes of one pixel is that of pixels. */
Test(validate, planes_of_one_pixel_may_be_apart)
{
    tconv_desc desc;
    tconv_issue issue;
    tconv_desc_init(&desc);
    desc.layout = TCONV_NHWC;
    desc.in_channels = 3, desc.out_channels = 5, desc.in_d = 7;
    desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = 1;
    desc.src_stride_d = 4, desc.dst_stride_d = 9;
    expect_success(tconv_validate(&desc, &issue), issue);
    desc.src_strides[3] = 1, desc.src_strides[2] = 77; /* of no account */
    expect_success(tconv_validate(&desc, &issue), issue);
    desc.src_stride_d = 2;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "src_stride_d",
                   "src_stride_d = 2: must be at least 3, or 0 for dense");
    desc.src_stride_d = INT64_MAX;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "src", "its size in bytes");
}

Test(validate, a_stride_of_an_addend_needs_an_addend)
{
    tconv_desc desc = uneven_volume();
    tconv_issue issue;
    desc.addend_stride_d = 13 * 21;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "addend_stride_d",
                   "addend_stride_d = 273: must be 0, no post-op has an addend");
    desc.post_count = 1, desc.post[0].kind = TCONV_POST_ADD_TENSOR;
    expect_success(tconv_validate(&desc, &issue), issue);
}

/* ------------------------------------------------------------------------------------------------------------ versions */

/* A caller whose tconv_desc ends anywhere before or among the fields of depth has defaults for those that it lacks, whatever
 * lies behind its struct. */
Test(validate, a_desc_without_depth_has_one_plane)
{
    static const size_t depth[] = {offsetof(tconv_desc, in_d),
                                   offsetof(tconv_desc, kernel_d),
                                   offsetof(tconv_desc, stride_d),
                                   offsetof(tconv_desc, dilation_d),
                                   offsetof(tconv_desc, pad_front),
                                   offsetof(tconv_desc, pad_back),
                                   offsetof(tconv_desc, output_padding_d),
                                   offsetof(tconv_desc, src_stride_d),
                                   offsetof(tconv_desc, dst_stride_d),
                                   offsetof(tconv_desc, addend_stride_d)};
    for (size_t i = 0; i < COUNT(depth); i++) {
        tconv_desc desc = uneven_volume(), known = uneven_layer();
        int64_t shape[5], expected[5];
        tconv_issue issue;
        desc.pad_front = desc.pad_back = 0; /* else what the caller lacks may leave no plane */
        memcpy(&known.in_d, &desc.in_d, depth[i] - depth[0]);
        desc.struct_size = depth[i];
        memset((char *)&desc + depth[i], 0xa5, sizeof desc - depth[i]);
        expect_success(tconv_output_shape3d(&desc, shape, &issue), issue);
        expect_success(tconv_output_shape3d(&known, expected, &issue), issue);
        cr_assert_arr_eq(shape, expected, sizeof shape, "up to field %zu: %d planes, not %d", i, (int)shape[2],
                         (int)expected[2]);
    }
}

Test(validate, init_gives_depth_to_those_who_know_it)
{
    tconv_desc desc;
    memset(&desc, 0x5a, sizeof desc);
    cr_assert_eq(tconv_desc_init_sized(&desc, offsetof(tconv_desc, kernel_d)), TCONV_SUCCESS);
    cr_assert(desc.in_d == 1 && desc.kernel_d == INT64_C(0x5a5a5a5a5a5a5a5a));
}
