#include "fuzz_rules.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static bool fits(wide value)
{
    return value >= 0 && value <= INT64_MAX;
}

/* Returns a product, or -1 where a factor does not fit in 63 bits. A product that does not fit stays so, because no
 * later factor is smaller than 1. */
static wide product(wide a, wide b)
{
    return fits(a) && fits(b) ? a * b : -1;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool check_axis(struct axis *axis)
{
    wide span =
        (wide)(axis->in - 1) * axis->stride + (wide)axis->dilation * (axis->kernel - 1) + axis->output_padding + 1;
    axis->out = span - axis->before - axis->after;
    if (axis->output_padding >= axis->stride && axis->output_padding >= axis->dilation)
        return false;
    if (axis->in > 1 && axis->kernel > 65536 && axis->stride / common_divisor(axis->stride, axis->dilation) > 65536)
        return false;
    return span <= INT64_MAX / 4 && axis->out >= 1;
}

/* Checks the strides of src or dst, in elements, and the extent from the first element to one past the last. EITHER:
 * sizes of dense parts that are not addressed exceed 63 bits. */
static enum verdict check_tensor(const tconv_desc *desc, int64_t channels, wide d, wide h, wide w,
                                 const int64_t given[4], int64_t given_d, wide strides[4], wide *extent)
{
    const bool nhwc = desc->layout == TCONV_NHWC;
    const size_t sizes[] = {4, 8, 2, 2};
    const wide plane = product(h, w), pixels = product(d, plane);
    wide image, least;
    if (!fits(plane) || !fits(pixels))
        return REFUSED;
    if (nhwc) {
        const bool column = w == 1 && h > 1, planes = w == 1 && h == 1;
        int64_t pixel = planes ? given_d : given[column ? 2 : 3];
        strides[1] = 1;
        if (channels > 1 && given[1] != 0 && given[1] != 1)
            return REFUSED;
        strides[3] = (planes ? d : column ? h : w) > 1 && pixel != 0 ? pixel : channels;
        if (strides[3] < channels)
            return REFUSED;
        strides[2] = product(w, strides[3]);
        if (!fits(strides[2]) || (h > 1 && !column && given[2] != 0 && given[2] != strides[2]))
            return REFUSED;
        if (!fits(product(h, strides[2])) || (d > 1 && !planes && given_d != 0 && given_d != h * strides[2]))
            return REFUSED;
        least = (pixels - 1) * strides[3] + channels;
        image = product(pixels, strides[3]);
    } else {
        if ((w > 1 && given[3] != 0 && given[3] != 1) || (h > 1 && given[2] != 0 && given[2] != w) ||
            (d > 1 && given_d != 0 && given_d != plane))
            return REFUSED;
        strides[3] = 1;
        strides[2] = w;
        strides[1] = channels > 1 && given[1] != 0 ? given[1] : pixels;
        if (strides[1] < pixels)
            return REFUSED;
        least = (channels - 1) * strides[1] + pixels;
        image = product(channels, strides[1]);
    }
    if (!fits(least))
        return REFUSED;
    strides[0] = desc->batch > 1 && given[0] != 0 ? given[0] : image;
    if (desc->batch > 1 && given[0] != 0 && given[0] < least)
        return REFUSED;
    *extent = desc->batch == 0 ? 0 : (desc->batch - 1) * strides[0] + least;
    if (!fits(*extent) || !fits(*extent * (wide)sizes[desc->dtype]))
        return fits(image) ? REFUSED : EITHER;
    return fits(image) ? TAKEN : EITHER;
}

/* Checks one post-op. */
static bool check_post(const tconv_post_op *post)
{
    const int kind = (int)post->kind;
    const bool has_alpha = (kind >= TCONV_POST_ADD_TENSOR && kind <= TCONV_POST_LEAKY_RELU) || kind == TCONV_POST_ELU;
    const bool has_beta = kind == TCONV_POST_LINEAR || kind == TCONV_POST_CLAMP;
    if (kind < 1 || kind > 16 || post->reserved != 0)
        return false;
    if (kind == TCONV_POST_CLAMP)
        return post->alpha <= post->beta; /* not NaN */
    return (has_alpha ? isfinite(post->alpha) : post->alpha == 0) &&
           (has_beta ? isfinite(post->beta) : post->beta == 0);
}

/* Checks the list, and writes how many addends it has. */
static bool check_posts(const tconv_desc *desc, int *addends)
{
    *addends = 0;
    if (desc->post_count < 0 || desc->post_count > TCONV_MAX_POST_OPS)
        return false;
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++) {
        const tconv_post_op *post = &desc->post[i];
        const bool is_empty = (int)post->kind == 0 && post->reserved == 0 && post->alpha == 0 && post->beta == 0;
        if (i < desc->post_count ? !check_post(post) : !is_empty)
            return false;
        *addends += post->kind == TCONV_POST_ADD_TENSOR;
    }
    for (int i = 0; i < 4; i++)
        if (*addends == 0 && (desc->addend_strides[i] != 0 || desc->addend_stride_d != 0))
            return false;
    return *addends < 2;
}

enum verdict rules_check(const tconv_desc *desc, struct shape *shape)
{
    const int64_t least_one[] = {desc->in_channels, desc->in_h,       desc->in_w,      desc->out_channels,
                                 desc->kernel_h,    desc->kernel_w,   desc->stride_h,  desc->stride_w,
                                 desc->dilation_h,  desc->dilation_w, desc->groups,    desc->in_d,
                                 desc->kernel_d,    desc->stride_d,   desc->dilation_d};
    const int64_t least_zero[] = {desc->batch,     desc->pad_top,          desc->pad_left,         desc->pad_bottom,
                                  desc->pad_right, desc->output_padding_h, desc->output_padding_w, desc->pad_front,
                                  desc->pad_back,  desc->output_padding_d};
    for (size_t i = 0; i < sizeof least_one / sizeof least_one[0]; i++)
        if (least_one[i] < 1)
            return REFUSED;
    for (size_t i = 0; i < sizeof least_zero / sizeof least_zero[0]; i++)
        if (least_zero[i] < 0)
            return REFUSED;
    if ((int)desc->dtype < 0 || (int)desc->dtype > TCONV_BF16 || desc->in_channels % desc->groups != 0 ||
        desc->out_channels % desc->groups != 0)
        return REFUSED;
    int addends;
    if (!check_posts(desc, &addends))
        return REFUSED;
    shape->h = (struct axis){desc->in_h,    desc->kernel_h,   desc->stride_h,         desc->dilation_h,
                             desc->pad_top, desc->pad_bottom, desc->output_padding_h, 0};
    shape->w = (struct axis){desc->in_w,     desc->kernel_w,  desc->stride_w,         desc->dilation_w,
                             desc->pad_left, desc->pad_right, desc->output_padding_w, 0};
    shape->d = (struct axis){desc->in_d,      desc->kernel_d, desc->stride_d,         desc->dilation_d,
                             desc->pad_front, desc->pad_back, desc->output_padding_d, 0};
    if (!check_axis(&shape->h) || !check_axis(&shape->w) || !check_axis(&shape->d))
        return REFUSED;
    const size_t sizes[] = {4, 8, 2, 2};
    const wide taps = product(product(desc->kernel_h, desc->kernel_w), desc->kernel_d);
    shape->weights = product(product(taps, desc->out_channels / desc->groups), desc->in_channels);
    if (!fits(product(shape->weights, (wide)sizes[desc->dtype])))
        return REFUSED;
    const wide out_d = shape->d.out, out_h = shape->h.out, out_w = shape->w.out;
    enum verdict src = check_tensor(desc, desc->in_channels, desc->in_d, desc->in_h, desc->in_w, desc->src_strides,
                                    desc->src_stride_d, shape->src, &shape->src_extent);
    enum verdict dst = check_tensor(desc, desc->out_channels, out_d, out_h, out_w, desc->dst_strides,
                                    desc->dst_stride_d, shape->dst, &shape->dst_extent);
    enum verdict addend = TAKEN;
    shape->addend_extent = 0;
    if (addends > 0)
        addend = check_tensor(desc, desc->out_channels, out_d, out_h, out_w, desc->addend_strides,
                              desc->addend_stride_d, shape->addend, &shape->addend_extent);
    if (src == REFUSED || dst == REFUSED || addend == REFUSED)
        return REFUSED;
    return src == TAKEN && dst == TAKEN && addend == TAKEN ? TAKEN : EITHER;
}
