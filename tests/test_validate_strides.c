/* The strides of slices, rule by rule. These are tests of the suite validate. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "support/desc_numbers.h"
#include "support/expect.h"
#include "tconv/tconv.h"

enum tensor { SRC, DST };

struct stride_case {
    tconv_layout layout;
    enum tensor tensor;
    int64_t strides[4];
    const char *field; /* NULL: accepted */
};

static void check_stride_cases(const struct stride_case *cases, size_t count, const tconv_desc *layer)
{
    for (size_t i = 0; i < count; i++) {
        tconv_desc desc = *layer;
        tconv_issue issue;
        int64_t *strides = cases[i].tensor == SRC ? desc.src_strides : desc.dst_strides;
        desc.layout = cases[i].layout;
        memcpy(strides, cases[i].strides, sizeof cases[i].strides);
        if (cases[i].field == NULL) {
            tconv_status status = tconv_validate(&desc, &issue);
            cr_assert_eq(status, TCONV_SUCCESS, "case %zu: %s", i, issue.message);
            continue;
        }
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, cases[i].field, "must be");
        int axis = cases[i].field[strlen("src_strides[")] - '0';
        cr_assert_not_null(strstr(issue.message, stated(cases[i].field, cases[i].strides[axis])), "case %zu: \"%s\"", i,
                           issue.message);
    }
}

/* src 2 x 6 x 5 x 7, dst 2 x 9 x 13 x 21: dense NCHW src is 210, 35, 7, 1; dense NHWC dst is 2457, 1, 189, 9. */
Test(validate, strides_rule_by_rule)
{
    static const struct stride_case cases[] = {
        {TCONV_NCHW, SRC, {0, 0, 0, 0}, NULL},
        {TCONV_NCHW, SRC, {210, 35, 7, 1}, NULL},
        {TCONV_NCHW, SRC, {211, 0, 0, 0}, NULL},
        {TCONV_NCHW, SRC, {0, 36, 0, 0}, NULL}, /* the dense n follows c */
        {TCONV_NCHW, SRC, {215, 36, 7, 1}, NULL},
        {TCONV_NCHW, SRC, {214, 36, 7, 1}, "src_strides[0]"},
        {TCONV_NCHW, SRC, {209, 0, 0, 0}, "src_strides[0]"},
        {TCONV_NCHW, SRC, {0, 34, 0, 0}, "src_strides[1]"},
        {TCONV_NCHW, SRC, {0, 0, 8, 0}, "src_strides[2]"},
        {TCONV_NCHW, SRC, {0, 0, 6, 0}, "src_strides[2]"},
        {TCONV_NCHW, SRC, {0, 0, 0, 2}, "src_strides[3]"},
        {TCONV_NCHW, SRC, {-210, 0, 0, 0}, "src_strides[0]"},
        {TCONV_NCHW, SRC, {0, -35, 0, 0}, "src_strides[1]"},
        {TCONV_NCHW, SRC, {0, 0, -7, 0}, "src_strides[2]"},
        {TCONV_NCHW, SRC, {0, 0, 0, -1}, "src_strides[3]"},
        {TCONV_NCHW, DST, {2457, 273, 21, 1}, NULL},
        {TCONV_NCHW, DST, {10000, 400, 21, 1}, NULL},
        {TCONV_NCHW, DST, {2456, 0, 0, 0}, "dst_strides[0]"},
        {TCONV_NCHW, DST, {0, 272, 0, 0}, "dst_strides[1]"},
        {TCONV_NCHW, DST, {0, 0, 22, 0}, "dst_strides[2]"},
        {TCONV_NCHW, DST, {0, 0, 0, 9}, "dst_strides[3]"},
        {TCONV_NHWC, SRC, {210, 1, 42, 6}, NULL},
        {TCONV_NHWC, SRC, {0, 0, 0, 8}, NULL},    /* h and n follow w */
        {TCONV_NHWC, SRC, {278, 1, 56, 8}, NULL}, /* (35 - 1) * 8 + 6 */
        {TCONV_NHWC, SRC, {277, 1, 56, 8}, "src_strides[0]"},
        {TCONV_NHWC, SRC, {0, 2, 0, 0}, "src_strides[1]"},
        {TCONV_NHWC, SRC, {0, 0, 43, 0}, "src_strides[2]"},
        {TCONV_NHWC, SRC, {0, 1, 42, 8}, "src_strides[2]"},
        {TCONV_NHWC, SRC, {0, 0, 0, 5}, "src_strides[3]"},
        {TCONV_NHWC, SRC, {-1, 0, 0, 0}, "src_strides[0]"},
        {TCONV_NHWC, SRC, {0, 0, 0, -6}, "src_strides[3]"},
        {TCONV_NHWC, DST, {2457, 1, 189, 9}, NULL},
        {TCONV_NHWC, DST, {0, 0, 0, 64}, NULL},
        {TCONV_NHWC, DST, {2456, 0, 0, 0}, "dst_strides[0]"},
        {TCONV_NHWC, DST, {0, 9, 0, 0}, "dst_strides[1]"},
        {TCONV_NHWC, DST, {0, 0, 188, 0}, "dst_strides[2]"},
        {TCONV_NHWC, DST, {0, 0, 0, 8}, "dst_strides[3]"},
    };
    tconv_desc layer = uneven_layer();
    check_stride_cases(cases, COUNT(cases), &layer);
}

/* Layers of one image, one channel or one row accept any stride of that extent, however wrong. */
Test(validate, stride_of_an_extent_of_one_is_ignored)
{
    static const tconv_layout layouts[] = {TCONV_NCHW, TCONV_NHWC};
    static const int64_t values[] = {-1, 1, 3, 12345, INT64_MIN, INT64_MAX};
    for (size_t l = 0; l < COUNT(layouts); l++)
        for (size_t v = 0; v < COUNT(values); v++)
            for (int axis = 0; axis < 4; axis++) {
                tconv_desc desc;
                tconv_issue issue;
                tconv_desc_init(&desc);
                desc.layout = layouts[l];
                desc.batch = 2, desc.in_channels = 2, desc.out_channels = 2;
                desc.in_h = desc.in_w = 2, desc.kernel_h = desc.kernel_w = 1;
                if (axis == 0)
                    desc.batch = 1;
                else if (axis == 1)
                    desc.in_channels = desc.out_channels = 1;
                else if (axis == 2)
                    desc.in_h = 1;
                else
                    desc.in_w = 1;
                desc.src_strides[axis] = values[v];
                desc.dst_strides[axis] = values[v];
                cr_assert_eq(tconv_validate(&desc, &issue), TCONV_SUCCESS, "layout %zu axis %d stride %" PRId64 ": %s",
                             l, axis, values[v], issue.message);
            }
}
