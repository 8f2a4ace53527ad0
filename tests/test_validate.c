/*
 * Tests the validator rule by rule: the status, the field at fault, and a message that holds the field, its value and
 * the rule. Then come the order of the rules and versions of the struct. Strides of slices are in test_validate_strides.c.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "support/desc_numbers.h"
#include "support/expect.h"
#include "support/guard.h"
#include "tconv/tconv.h"

static void expect_shape(const tconv_desc *desc, int64_t n, int64_t c, int64_t h, int64_t w)
{
    int64_t shape[4] = {-1, -1, -1, -1};
    tconv_issue issue;
    expect_success(tconv_output_shape(desc, shape, &issue), issue);
    cr_assert(shape[0] == n && shape[1] == c && shape[2] == h && shape[3] == w,
              "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 ", expected %" PRId64 " x %" PRId64 " x %" PRId64
              " x %" PRId64,
              shape[0], shape[1], shape[2], shape[3], n, c, h, w);
}

/* --------------------------------------------------------------------------------------------------------- defaults */

Test(validate, defaults_are_the_manuals)
{
    tconv_desc desc;
    memset(&desc, 0x5a, sizeof desc);
    cr_assert_eq(tconv_desc_init(&desc), TCONV_SUCCESS);
    cr_assert_eq(desc.struct_size, sizeof desc);
    for (size_t i = 0; i < DESC_NUMBERS; i++) {
        const char *name = desc_numbers[i].name;
        bool one = strcmp(name, "batch") == 0 || strncmp(name, "stride", 6) == 0 || strncmp(name, "dilation", 8) == 0 ||
                   strcmp(name, "groups") == 0 || strcmp(name, "in_d") == 0 || strcmp(name, "kernel_d") == 0;
        cr_assert_eq(*desc_number_of(&desc, &desc_numbers[i]), one ? 1 : 0, "default of %s", name);
    }
    cr_assert_eq(desc.dtype, TCONV_F32);
    cr_assert_eq(desc.layout, TCONV_NCHW);
    cr_assert_eq(desc.weight_layout, TCONV_WEIGHT_IOHW);
    cr_assert_eq(desc.math, TCONV_MATH_DEFAULT);
    cr_assert_eq(desc.op, TCONV_FORWARD);
    cr_assert_eq(desc.accumulate, 0);
    for (int i = 0; i < 4; i++)
        cr_assert(desc.src_strides[i] == 0 && desc.dst_strides[i] == 0 && desc.addend_strides[i] == 0);
    cr_assert(desc.src_stride_d == 0 && desc.dst_stride_d == 0 && desc.addend_stride_d == 0);
    cr_assert_eq(desc.post_count, 0);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        cr_assert((int)desc.post[i].kind == 0 && desc.post[i].reserved == 0 && desc.post[i].alpha == 0 &&
                  desc.post[i].beta == 0);
}

Test(validate, the_manuals_layer)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.batch = 1, desc.in_channels = 64, desc.in_h = desc.in_w = 32;
    desc.out_channels = 32, desc.kernel_h = desc.kernel_w = 4;
    desc.stride_h = desc.stride_w = 2;
    expect_shape(&desc, 1, 32, 66, 66);
}

Test(validate, uneven_layer_has_the_shape_of_the_formula)
{
    tconv_desc desc = uneven_layer();
    expect_shape(&desc, 2, 9, 13, 21);
    desc.layout = TCONV_NHWC;
    expect_shape(&desc, 2, 9, 13, 21);
    desc.batch = 0;
    expect_shape(&desc, 0, 9, 13, 21);
}

/* ------------------------------------------------------------------------------------------------------------ rules */

Test(validate, each_number_has_its_least_value)
{
    for (size_t i = 0; i < DESC_NUMBERS; i++) {
        const int64_t bad[] = {desc_numbers[i].least - 1, -7, INT64_MIN};
        for (size_t j = 0; j < COUNT(bad); j++) {
            tconv_desc desc = uneven_layer();
            tconv_issue issue;
            *desc_number_of(&desc, &desc_numbers[i]) = bad[j];
            expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, desc_numbers[i].name,
                           desc_numbers[i].rule);
            cr_assert_not_null(strstr(issue.message, stated(desc_numbers[i].name, bad[j])), "\"%s\"", issue.message);
        }
    }
}

Test(validate, each_number_takes_its_least_value)
{
    tconv_desc desc;
    tconv_issue issue;
    tconv_desc_init(&desc);
    for (size_t i = 0; i < DESC_NUMBERS; i++)
        *desc_number_of(&desc, &desc_numbers[i]) = desc_numbers[i].least;
    expect_success(tconv_validate(&desc, &issue), issue);
    expect_shape(&desc, 0, 1, 1, 1);
}

Test(validate, enumerators_outside_their_range)
{
    static const struct {
        const char *name;
        size_t offset;
        int count;
    } choices[] = {
        {"dtype", offsetof(tconv_desc, dtype), 4},
        {"layout", offsetof(tconv_desc, layout), 2},
        {"weight_layout", offsetof(tconv_desc, weight_layout), 3},
        {"math", offsetof(tconv_desc, math), 3},
        {"op", offsetof(tconv_desc, op), 3},
        {"accumulate", offsetof(tconv_desc, accumulate), 2},
    };
    for (size_t i = 0; i < COUNT(choices); i++) {
        const int values[] = {-1, choices[i].count, 77, INT32_MIN, INT32_MAX};
        tconv_desc desc;
        tconv_issue issue;
        for (size_t j = 0; j < COUNT(values); j++) {
            desc = uneven_layer();
            memcpy((char *)&desc + choices[i].offset, &values[j], sizeof values[j]);
            expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, choices[i].name,
                           "must be");
            cr_assert_not_null(strstr(issue.message, stated(choices[i].name, values[j])), "\"%s\"", issue.message);
        }
        for (int value = 0; value < choices[i].count; value++) {
            desc = uneven_layer();
            memcpy((char *)&desc + choices[i].offset, &value, sizeof value);
            expect_success(tconv_validate(&desc, &issue), issue);
        }
    }
}

Test(validate, channels_are_multiples_of_groups)
{
    tconv_desc desc = uneven_layer();
    tconv_issue issue;
    desc.in_channels = 7;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "in_channels", "groups");
    cr_assert_not_null(strstr(issue.message, "in_channels = 7"), "\"%s\"", issue.message);
    cr_assert_not_null(strstr(issue.message, "3"), "\"%s\" lacks the number of groups", issue.message);
    desc = uneven_layer();
    desc.out_channels = 10;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_channels", "groups");
    cr_assert_not_null(strstr(issue.message, "out_channels = 10"), "\"%s\"", issue.message);
    desc = uneven_layer();
    desc.groups = INT64_MAX;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "in_channels", "groups");
}

Test(validate, output_padding_stays_below_stride_or_dilation)
{
    static const struct {
        int64_t stride, dilation;
    } axes[] = {{1, 1}, {2, 1}, {1, 2}, {5, 3}, {3, 5}, {4, 4}};
    for (size_t i = 0; i < COUNT(axes); i++) {
        int64_t most = (axes[i].stride > axes[i].dilation ? axes[i].stride : axes[i].dilation) - 1;
        tconv_desc desc = uneven_layer();
        tconv_issue issue;
        desc.stride_h = axes[i].stride, desc.dilation_h = axes[i].dilation;
        desc.output_padding_h = most;
        expect_success(tconv_validate(&desc, &issue), issue);
        desc.output_padding_h = most + 1;
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_h",
                       "must be smaller than stride or dilation");
        cr_assert_not_null(strstr(issue.message, stated("output_padding_h", most + 1)), "\"%s\"", issue.message);

        desc = uneven_layer();
        desc.stride_w = axes[i].stride, desc.dilation_w = axes[i].dilation;
        desc.output_padding_w = most;
        expect_success(tconv_validate(&desc, &issue), issue);
        desc.output_padding_w = most + 1;
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_w",
                       "must be smaller than stride or dilation");
        desc.output_padding_w = INT64_MAX;
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_w",
                       "must be smaller than stride or dilation");
    }
}

/* Padding may cut the output down to one row or column, not to none. */
Test(validate, output_is_at_least_one)
{
    tconv_desc desc = uneven_layer();
    tconv_issue issue;
    desc.pad_bottom += 12;
    expect_shape(&desc, 2, 9, 1, 21);
    desc.pad_bottom++;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_h", "must be at least 1");
    cr_assert_not_null(strstr(issue.message, "out_h = 14 - 1 - 13 "), "\"%s\"", issue.message);
    desc.pad_bottom = INT64_MAX - 8;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_h", "must be at least 1");

    desc = uneven_layer();
    desc.pad_left += 20;
    expect_shape(&desc, 2, 9, 13, 1);
    desc.pad_right += 3;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_w", "must be at least 1");
    cr_assert_not_null(strstr(issue.message, "out_w = 24 - 22 - 4 "), "\"%s\"", issue.message);
}

Test(validate, null_arguments_are_named)
{
    tconv_desc desc = uneven_layer();
    tconv_issue issue;
    int64_t shape[4] = {-3, -3, -3, -3};
    expect_failure(tconv_validate(NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "desc", "NULL");
    cr_assert_eq(tconv_validate(NULL, NULL), TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_eq(tconv_validate(&desc, NULL), TCONV_SUCCESS);
    expect_failure(tconv_output_shape(NULL, shape, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "desc", "NULL");
    expect_failure(tconv_output_shape(&desc, NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "shape", "NULL");
    tconv_issue last;
    cr_assert_eq(tconv_desc_init(NULL), TCONV_ERROR_INVALID_ARGUMENT);
    tconv_last_issue(&last);
    cr_assert_str_eq(last.field, "desc");
    cr_assert_eq(tconv_options_init(NULL), TCONV_ERROR_INVALID_ARGUMENT);
    tconv_last_issue(&last);
    cr_assert_str_eq(last.field, "options");
    desc.groups = 0;
    cr_assert_eq(tconv_output_shape(&desc, shape, &issue), TCONV_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(shape[i], -3, "a failed call wrote shape[%d]", i);
}

/* What a stream may not have, and what of it overflows. */
Test(validate, streams_have_rules_of_their_own)
{
    static const struct {
        const char *field, *text;
        size_t offset;
        int64_t value; /* of a number, or of an int32_t */
        bool is_number;
    } wrongs[] = {
        {"stream_axis", "must be 0, 1 (rows) or 2 (columns)", offsetof(tconv_desc, stream_axis), 3, false},
        {"stream_axis", "must be 0 where op is not forward", offsetof(tconv_desc, op), 1, false},
        {"stream_axis", "with accumulate", offsetof(tconv_desc, accumulate), 1, false},
        {"carry_dtype", "must be f32 (0), or the dtype", offsetof(tconv_desc, carry_dtype), TCONV_F16, false},
        {"pad_left", "pad_left = 2: must be 0 along the streamed axis", offsetof(tconv_desc, pad_left), 2, true},
        {"pad_right", "must be 0 along the streamed axis", offsetof(tconv_desc, pad_right), 1, true},
        {"output_padding_w", "must be 0 along the streamed axis", offsetof(tconv_desc, output_padding_w), 1, true},
    };
    tconv_issue issue;
    int64_t shape[4];
    tconv_desc good = uneven_layer();
    good.stream_axis = 2, good.pad_left = good.pad_right = good.output_padding_w = 0;
    expect_success(tconv_output_shape(&good, shape, &issue), issue);
    cr_assert(shape[0] == 2 && shape[1] == 9 && shape[2] == 13 && shape[3] == 7 * 3); /* 3 columns an input */
    expect_success(tconv_carry_shape(&good, shape, &issue), issue);
    cr_assert(shape[0] == 2 && shape[1] == 9 && shape[2] == 13 && shape[3] == 4 - 3);
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        tconv_desc desc = good;
        const int32_t small = (int32_t)wrongs[i].value;
        if (wrongs[i].is_number)
            memcpy((char *)&desc + wrongs[i].offset, &wrongs[i].value, sizeof wrongs[i].value);
        else
            memcpy((char *)&desc + wrongs[i].offset, &small, sizeof small);
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, wrongs[i].field,
                       wrongs[i].text);
    }
    good.in_w = 1, good.stride_w = INT64_MAX; /* as many columns of an input */
    expect_failure(tconv_validate(&good, &issue), issue, TCONV_ERROR_OVERFLOW, "out_w", "2^61");
    good.stride_w = 1, good.kernel_w = 2, good.dilation_w = (int64_t)1 << 59;
    expect_failure(tconv_validate(&good, &issue), issue, TCONV_ERROR_OVERFLOW, "carry", "2^63");
    good.stream_axis = 0, good.dilation_w = 1;
    expect_failure(tconv_carry_shape(&good, shape, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                   "there is no carry");
    expect_failure(tconv_carry_shape(&good, NULL, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "shape", "4 numbers");
}

/* Where several rules are broken, the first field of the struct is named; rules of several fields come after those of
 * one. */
Test(validate, rules_come_in_the_order_of_the_fields)
{
    static const struct {
        const char *name;
        size_t offset;
    } after[] = {
        {"dtype", offsetof(tconv_desc, dtype)},
        {"layout", offsetof(tconv_desc, layout)},
        {"weight_layout", offsetof(tconv_desc, weight_layout)},
        {"math", offsetof(tconv_desc, math)},
        {"op", offsetof(tconv_desc, op)},
        {"accumulate", offsetof(tconv_desc, accumulate)},
    };
    tconv_desc desc;
    tconv_issue issue;
    memset(&desc, 0xff, sizeof desc); /* -1 everywhere */
    desc.struct_size = sizeof desc;
    for (size_t i = 0; i < DESC_NUMBERS; i++) {
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, desc_numbers[i].name,
                       "must be");
        *desc_number_of(&desc, &desc_numbers[i]) = desc_numbers[i].least;
    }
    for (size_t i = 0; i < COUNT(after); i++) {
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, after[i].name, "must be");
        memset((char *)&desc + after[i].offset, 0, 4);
    }
    desc.output_padding_h = 1, desc.in_channels = 3, desc.groups = 2, desc.pad_right = 5;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "in_channels", "groups");
    desc.groups = 1;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "output_padding_h", "must be");
    desc.output_padding_h = 0;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "post_count", "must be 0 to 8");
    desc.post_count = 1;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "post[0].kind", "must be");
    memset(desc.post, 0, sizeof desc.post);
    desc.post[0].kind = TCONV_POST_ADD_TENSOR;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis", "must be 0, 1");
    desc.stream_axis = 0;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "carry_dtype", "must be f32");
    desc.carry_dtype = TCONV_F32;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "out_w", "must be at least 1");
    desc.pad_right = 0;
    desc.batch = desc.in_h = desc.in_w = desc.out_channels = 2;
    static const char *const strides[] = {"src_strides[3]",    "src_strides[2]",    "src_strides[1]",
                                          "src_strides[0]",    "dst_strides[3]",    "dst_strides[2]",
                                          "dst_strides[1]",    "dst_strides[0]",    "addend_strides[3]",
                                          "addend_strides[2]", "addend_strides[1]", "addend_strides[0]"};
    int64_t *const fields[] = {desc.src_strides, desc.dst_strides, desc.addend_strides};
    for (int i = 0; i < 12; i++) { /* from the innermost, on which the rules of the outer ones build */
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, strides[i], "must be");
        fields[i / 4][3 - i % 4] = 0;
    }
    expect_success(tconv_validate(&desc, &issue), issue);
}

/* --------------------------------------------------------------------------------------------------------- versions */

/* The first published version of tconv_desc ended where src_strides begins: its layers are dense. */
#define FIRST_DESC_SIZE offsetof(tconv_desc, src_strides)

Test(validate, older_desc_is_accepted_and_what_it_lacks_is_default)
{
    tconv_desc desc = uneven_layer();
    tconv_issue issue;
    desc.struct_size = FIRST_DESC_SIZE;
    memset((char *)&desc + FIRST_DESC_SIZE, 0xa5, sizeof desc - FIRST_DESC_SIZE); /* lies outside the caller's struct */
    expect_success(tconv_validate(&desc, &issue), issue);
    expect_shape(&desc, 2, 9, 13, 21);
    desc.stride_w = 0;
    expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "stride_w",
                   "must be at least 1");
}

Test(validate, too_small_desc_is_refused)
{
    const size_t sizes[] = {0, 1, sizeof(size_t), FIRST_DESC_SIZE - 1};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        tconv_desc desc = uneven_layer();
        tconv_issue issue;
        desc.struct_size = sizes[i];
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size",
                       "tconv_desc_init");
        cr_assert_not_null(strstr(issue.message, stated("struct_size", (int64_t)sizes[i])), "\"%s\"", issue.message);
    }
}

Test(validate, newer_desc_is_accepted_while_its_new_fields_are_zero)
{
    struct {
        tconv_desc known;
        unsigned char news[24];
    } newer;
    tconv_issue issue;
    memset(&newer, 0, sizeof newer);
    newer.known = uneven_layer();
    newer.known.struct_size = sizeof newer;
    expect_success(tconv_validate(&newer.known, &issue), issue);
    for (size_t i = 0; i < sizeof newer.news; i++) {
        newer.news[i] = 1;
        expect_failure(tconv_validate(&newer.known, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size",
                       "must be 0");
        newer.news[i] = 0;
    }
}

/* A desc or options that were never filled hold any struct_size. They lie at the end of a page that nothing readable
 * follows, so that reading as many bytes as the size says would end the process. */
Test(validate, struct_size_of_an_unfilled_struct_is_not_believed)
{
    const size_t sizes[] = {4097, 5000, 1 << 20, (size_t)-8, SIZE_MAX};
    struct guarded desc_memory = guard_allocate(sizeof(tconv_desc), GUARD_AFTER);
    struct guarded options_memory = guard_allocate(sizeof(tconv_options), GUARD_AFTER);
    tconv_desc *desc = desc_memory.data, good = uneven_layer();
    tconv_options *options = options_memory.data;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        tconv_issue issue;
        tconv_plan *plan;
        memset(desc, 0, sizeof *desc);
        memset(options, 0, sizeof *options);
        *desc = good;
        desc->struct_size = sizes[i];
        expect_failure(tconv_validate(desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size",
                       "tconv_desc_init");
        options->struct_size = sizes[i];
        expect_failure(tconv_plan_create(&good, options, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT,
                       "struct_size", "tconv_options_init");
        cr_assert_eq(tconv_desc_init_sized(desc, sizes[i]), TCONV_ERROR_INVALID_ARGUMENT);
        tconv_last_issue(&issue);
        cr_assert_str_eq(issue.field, "struct_size");
        cr_assert_eq(tconv_options_init_sized(options, sizes[i]), TCONV_ERROR_INVALID_ARGUMENT);
        cr_assert_eq(desc->in_channels, good.in_channels, "a refused init wrote to desc");
    }
    guard_release(&desc_memory);
    guard_release(&options_memory);
}

/* The largest struct that is accepted is read to its end. */
Test(validate, struct_size_of_4096_is_read_to_the_end)
{
    struct guarded memory = guard_allocate(4096, GUARD_AFTER);
    tconv_desc *desc = memory.data, good = uneven_layer();
    tconv_issue issue;
    cr_assert_eq(tconv_desc_init_sized(desc, 4096), TCONV_SUCCESS);
    memcpy((char *)desc + sizeof desc->struct_size, (char *)&good + sizeof good.struct_size,
           sizeof good - sizeof good.struct_size);
    expect_success(tconv_validate(desc, &issue), issue);
    ((char *)memory.data)[4095] = 1;
    expect_failure(tconv_validate(desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size", "must be 0");
    guard_release(&memory);
}

Test(validate, init_writes_no_more_than_the_caller_has)
{
    const size_t sizes[] = {FIRST_DESC_SIZE, FIRST_DESC_SIZE + 32, sizeof(tconv_desc)};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char bytes[sizeof(tconv_desc) + 64];
        tconv_desc desc;
        memset(bytes, 0x5a, sizeof bytes);
        cr_assert_eq(tconv_desc_init_sized((tconv_desc *)(void *)bytes, sizes[i]), TCONV_SUCCESS);
        for (size_t j = sizes[i]; j < sizeof bytes; j++)
            cr_assert_eq(bytes[j], 0x5a, "byte %zu written for a struct of %zu", j, sizes[i]);
        memcpy(&desc, bytes, sizeof desc);
        cr_assert_eq(desc.struct_size, sizes[i]);
        cr_assert_eq(desc.dilation_w, 1);
    }
}

Test(validate, init_of_a_newer_caller_clears_what_is_unknown)
{
    struct {
        tconv_desc known;
        unsigned char news[24];
    } newer;
    tconv_issue issue;
    memset(&newer, 0x5a, sizeof newer);
    cr_assert_eq(tconv_desc_init_sized(&newer.known, sizeof newer), TCONV_SUCCESS);
    for (size_t i = 0; i < sizeof newer.news; i++)
        cr_assert_eq(newer.news[i], 0, "byte %zu", i);
    newer.known.in_channels = newer.known.in_h = newer.known.in_w = 1;
    newer.known.out_channels = newer.known.kernel_h = newer.known.kernel_w = 1;
    expect_success(tconv_validate(&newer.known, &issue), issue);
}
