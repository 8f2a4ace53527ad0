/*
 * Sizes cannot wrap. Numbers are at the end of their type, and statuses and shapes are compared with an oracle in
 * 128-bit arithmetic, which cannot overflow. The shape of the output is compared with the pixels that taps write.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "support/desc_numbers.h"
#include "support/expect.h"
#include "tconv/tconv.h"

__extension__ typedef __int128 wide;

Test(sizes, each_number_at_the_end_of_its_type_is_an_overflow_or_a_broken_rule)
{
    for (size_t i = 0; i < DESC_NUMBERS; i++) {
        tconv_desc desc = uneven_volume();
        tconv_issue issue;
        const char *name = desc_numbers[i].name;
        desc.groups = 1;
        *desc_number_of(&desc, &desc_numbers[i]) = INT64_MAX;
        tconv_status status = tconv_validate(&desc, &issue);
        bool rule =
            strncmp(name, "pad", 3) == 0 || strncmp(name, "output_padding", 14) == 0 || strcmp(name, "groups") == 0;
        cr_assert_eq(status, rule ? TCONV_ERROR_INVALID_ARGUMENT : TCONV_ERROR_OVERFLOW, "%s = INT64_MAX: %s \"%s\"",
                     name, tconv_status_string(status), issue.message);
        cr_assert_str_not_empty(issue.field);
        cr_assert_str_not_empty(issue.message);
    }
}

Test(sizes, strides_at_the_end_of_their_type_are_an_overflow)
{
    static const struct {
        tconv_layout layout;
        int axis;
    } cases[] = {{TCONV_NCHW, 0}, {TCONV_NCHW, 1}, {TCONV_NHWC, 0}, {TCONV_NHWC, 3}};
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int dst = 0; dst < 4; dst++) { /* of two axes and of three */
            tconv_desc desc = dst / 2 ? uneven_volume() : uneven_layer();
            tconv_issue issue;
            desc.layout = cases[i].layout;
            (dst % 2 ? desc.dst_strides : desc.src_strides)[cases[i].axis] = INT64_MAX;
            tconv_status status = tconv_validate(&desc, &issue);
            cr_assert_eq(status, TCONV_ERROR_OVERFLOW, "case %zu %s: %s \"%s\"", i, dst % 2 ? "dst" : "src",
                         tconv_status_string(status), issue.message);
        }
}

/* The bytes count as well as the elements, each dtype by its own size. There are four rows, because an axis has its own
 * limit. */
Test(sizes, bytes_of_a_tensor_fit_in_63_bits)
{
    static const struct {
        tconv_dtype dtype;
        int size;
    } dtypes[] = {{TCONV_F32, 4}, {TCONV_F64, 8}, {TCONV_F16, 2}, {TCONV_BF16, 2}};
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        tconv_desc desc;
        tconv_issue issue;
        tconv_desc_init(&desc);
        desc.dtype = dtypes[i].dtype;
        desc.in_channels = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
        desc.in_h = 4;
        desc.in_w = INT64_MAX / 4 / dtypes[i].size;
        expect_success(tconv_validate(&desc, &issue), issue);
        desc.in_w++;
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "src", "bytes");
        desc.in_h = 1, desc.in_d = 4;
        expect_failure(tconv_validate(&desc, &issue), issue, TCONV_ERROR_OVERFLOW, "src", "bytes");
        desc.in_w--;
        expect_success(tconv_validate(&desc, &issue), issue);
    }
}

/* ----------------------------------------------------------------------------------------------------------- oracle */

static uint64_t random_state = 20240607;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns the extent of one axis of dst before padding crops it. */
static wide span_of(int64_t in, int64_t stride, int64_t dilation, int64_t kernel, int64_t output_padding)
{
    return (wide)(in - 1) * stride + (wide)dilation * (kernel - 1) + output_padding + 1;
}

/* Whether the product of extents and size fits in an int64_t, without ever leaving 128 bits. */
static bool fits(const wide *factors, size_t count)
{
    wide product = 1;
    for (size_t i = 0; i < count; i++) {
        if (factors[i] != 0 && product > (wide)INT64_MAX / factors[i])
            return false;
        product *= factors[i];
    }
    return true;
}

/* Returns the status of one axis: even before the crop it must stay below a quarter of the type, and with two inputs or
 * more it may have 65536 phases. */
static tconv_status axis_oracle(wide span, wide pads, int64_t in, int64_t kernel, int64_t stride, int64_t dilation,
                                wide *out)
{
    int64_t common = stride, rest = dilation;
    while (rest != 0) {
        int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    *out = span - pads;
    if (span > INT64_MAX / 4)
        return TCONV_ERROR_OVERFLOW;
    if (*out < 1)
        return TCONV_ERROR_INVALID_ARGUMENT;
    return in > 1 && kernel > 65536 && stride / common > 65536 ? TCONV_ERROR_OVERFLOW : TCONV_SUCCESS;
}

/* Returns the status of a dense layer whose fields each keep their own rule. */
static tconv_status oracle(const tconv_desc *desc, wide out[3])
{
    int64_t limit_d = desc->stride_d > desc->dilation_d ? desc->stride_d : desc->dilation_d;
    int64_t limit_h = desc->stride_h > desc->dilation_h ? desc->stride_h : desc->dilation_h;
    int64_t limit_w = desc->stride_w > desc->dilation_w ? desc->stride_w : desc->dilation_w;
    tconv_status status;
    if (desc->in_channels % desc->groups != 0 || desc->out_channels % desc->groups != 0)
        return TCONV_ERROR_INVALID_ARGUMENT;
    if (desc->output_padding_h >= limit_h || desc->output_padding_w >= limit_w || desc->output_padding_d >= limit_d)
        return TCONV_ERROR_INVALID_ARGUMENT;
    if ((status =
             axis_oracle(span_of(desc->in_h, desc->stride_h, desc->dilation_h, desc->kernel_h, desc->output_padding_h),
                         (wide)desc->pad_top + desc->pad_bottom, desc->in_h, desc->kernel_h, desc->stride_h,
                         desc->dilation_h, &out[1])) ||
        (status =
             axis_oracle(span_of(desc->in_w, desc->stride_w, desc->dilation_w, desc->kernel_w, desc->output_padding_w),
                         (wide)desc->pad_left + desc->pad_right, desc->in_w, desc->kernel_w, desc->stride_w,
                         desc->dilation_w, &out[2])) ||
        (status =
             axis_oracle(span_of(desc->in_d, desc->stride_d, desc->dilation_d, desc->kernel_d, desc->output_padding_d),
                         (wide)desc->pad_front + desc->pad_back, desc->in_d, desc->kernel_d, desc->stride_d,
                         desc->dilation_d, &out[0])))
        return status;
    wide images = desc->batch > 0 ? desc->batch : 1, size = 4, tensor_size = desc->batch > 0 ? size : 1;
    const wide src[] = {images, desc->in_channels, desc->in_d, desc->in_h, desc->in_w, tensor_size};
    const wide weights[] = {
        desc->in_channels, desc->out_channels / desc->groups, desc->kernel_d, desc->kernel_h, desc->kernel_w, size};
    const wide dst[] = {images, desc->out_channels, out[0], out[1], out[2], tensor_size};
    return fits(src, COUNT(src)) && fits(weights, COUNT(weights)) && fits(dst, COUNT(dst)) ? TCONV_SUCCESS
                                                                                           : TCONV_ERROR_OVERFLOW;
}

/* Returns an extent that is mostly small, sometimes near a power of two up to the end of the type. */
static int64_t random_extent(void)
{
    if (random_bits() % 4 != 0)
        return (int64_t)(1 + random_bits() % 9);
    int64_t power = (int64_t)(UINT64_C(1) << (random_bits() % 63));
    int64_t near = (int64_t)(random_bits() % 5) - 2;
    return near > 0 ? (power - 1) + near : power + near > 0 ? power + near : 1;
}

#define NUMBERS_WITHOUT_DEPTH (DESC_NUMBERS - 7)

Test(sizes, status_and_shape_agree_with_wide_arithmetic)
{
    int seen[8] = {0};
    for (int i = 0; i < 400000; i++) {
        tconv_desc desc;
        tconv_issue issue;
        int64_t shape[5];
        wide out[3] = {0}; /* the oracle writes them where the layer is valid */
        tconv_desc_init(&desc);
        const size_t drawn = random_bits() % 2 != 0 ? DESC_NUMBERS : NUMBERS_WITHOUT_DEPTH;
        for (size_t j = 0; j < drawn; j++)
            *desc_number_of(&desc, &desc_numbers[j]) = random_extent() - (desc_numbers[j].least == 0);
        if (random_bits() % 8 != 0)
            desc.groups = 1;
        if (random_bits() % 2 != 0)
            desc.output_padding_h = desc.output_padding_w = desc.output_padding_d = 0;
        tconv_status expected = oracle(&desc, out), got = tconv_output_shape3d(&desc, shape, &issue);
        cr_assert_eq(got, expected, "layer %d: %s \"%s\", expected %s", i, tconv_status_string(got),
                     got != TCONV_SUCCESS ? issue.message : "", tconv_status_string(expected));
        if (got == TCONV_SUCCESS)
            cr_assert(shape[0] == desc.batch && shape[1] == desc.out_channels && shape[2] == out[0] &&
                          shape[3] == out[1] && shape[4] == out[2],
                      "layer %d: %" PRId64 " x %" PRId64 " x %" PRId64, i, shape[2], shape[3], shape[4]);
        seen[got]++;
    }
    cr_assert(seen[TCONV_SUCCESS] > 10000 && seen[TCONV_ERROR_OVERFLOW] > 10000 &&
                  seen[TCONV_ERROR_INVALID_ARGUMENT] > 10000,
              "%d valid, %d too large, %d invalid", seen[TCONV_SUCCESS], seen[TCONV_ERROR_OVERFLOW],
              seen[TCONV_ERROR_INVALID_ARGUMENT]);
}

/* The extent of the output is one past the last pixel that a tap writes, before the crop and without output padding. */
Test(sizes, shape_agrees_with_where_taps_write)
{
    for (int64_t in = 1; in <= 5; in++)
        for (int64_t kernel = 1; kernel <= 5; kernel++)
            for (int64_t stride = 1; stride <= 4; stride++)
                for (int64_t dilation = 1; dilation <= 4; dilation++)
                    for (int64_t pad = 0; pad <= 3; pad++) {
                        int64_t last = 0, shape[5];
                        tconv_desc desc;
                        tconv_issue issue;
                        for (int64_t i = 0; i < in; i++)
                            for (int64_t k = 0; k < kernel; k++)
                                last = i * stride + k * dilation > last ? i * stride + k * dilation : last;
                        tconv_desc_init(&desc);
                        desc.in_channels = desc.out_channels = 1;
                        desc.in_h = in, desc.kernel_h = kernel, desc.stride_h = stride, desc.dilation_h = dilation;
                        desc.in_w = kernel, desc.kernel_w = in, desc.stride_w = dilation, desc.dilation_w = stride;
                        desc.pad_top = pad, desc.pad_left = pad / 2, desc.pad_right = pad - pad / 2;
                        desc.in_d = in, desc.kernel_d = kernel, desc.stride_d = stride, desc.dilation_d = dilation;
                        desc.pad_back = pad;
                        tconv_status status = tconv_output_shape3d(&desc, shape, &issue);
                        if (last + 1 - pad < 1) {
                            cr_assert_eq(status, TCONV_ERROR_INVALID_ARGUMENT);
                            continue;
                        }
                        cr_assert_eq(status, TCONV_SUCCESS);
                        for (int axis = 2; axis < 5; axis++)
                            cr_assert_eq(shape[axis], last + 1 - pad, "in %" PRId64 " kernel %" PRId64, in, kernel);
                    }
}
