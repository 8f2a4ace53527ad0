/* The formulas of tconv.h, and the table of the tensors that each reads and writes. Nothing here calls the library. */
#include "operation.h"

#include <math.h>
#include <stddef.h>

#include "case.h"
#include "element.h"

/* One axis of a layer, as the formulas see it. */
struct axis {
    int64_t in, out, kernel, stride, dilation, pad;
};

struct axes {
    struct axis d, h, w;
};

static struct axes axes_of(const harness_case *test)
{
    const tconv_desc *desc = &test->layer.desc;
    const harness_view *dst = &test->dst_view;
    return (struct axes){
        {desc->in_d, dst->planes, desc->kernel_d, desc->stride_d, desc->dilation_d, desc->pad_front},
        {desc->in_h, harness_view_rows(dst), desc->kernel_h, desc->stride_h, desc->dilation_h, desc->pad_top},
        {desc->in_w, dst->shape[3], desc->kernel_w, desc->stride_w, desc->dilation_w, desc->pad_left}};
}

/* The input that tap k of an output reads on an axis; -1: it reads none. */
static int64_t source(const struct axis *axis, int64_t output, int64_t k)
{
    const int64_t steps = output + axis->pad - k * axis->dilation;
    return steps >= 0 && steps % axis->stride == 0 && steps / axis->stride < axis->in ? steps / axis->stride : -1;
}

/* The output that tap k of an input reaches on an axis; -1: it reaches none. */
static int64_t reached(const struct axis *axis, int64_t input, int64_t k)
{
    const int64_t output = axis->stride * input + axis->dilation * k - axis->pad;
    return output >= 0 && output < axis->out ? output : -1;
}

/* Returns an element of a tensor at a plane and a row of it. */
static double element(const harness_case *test, harness_role role, int64_t a, int64_t b, int64_t plane, int64_t row,
                      int64_t d)
{
    const harness_view *view = &test->views[role];
    return harness_element_get(test->layer.desc.dtype, test->tensors[role].data,
                               harness_view_index(view, a, b, harness_view_row(view, plane, row), d));
}

/* Computes an element of dst: sums the taps that reach it over the input channels of its group. */
static void forward(const harness_case *test, harness_role role, const int64_t at[4], double *value, double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const struct axes axes = axes_of(test);
    const int64_t group_in = desc->in_channels / desc->groups, group_out = desc->out_channels / desc->groups;
    const int64_t group = at[1] / group_out, out = at[1] % group_out;
    double sum = test->layer.has_bias ? harness_element_get(desc->dtype, test->bias.data, at[1]) : 0;
    double magnitude = fabs(sum);
    (void)role; /* dst is the only tensor that is written */
    for (int64_t k = 0; k < test->weights_view.shape[2]; ++k) {
        const int64_t kd = k / desc->kernel_h, kh = k % desc->kernel_h;
        const int64_t plane = source(&axes.d, at[2] / axes.h.out, kd), row = source(&axes.h, at[2] % axes.h.out, kh);
        for (int64_t kw = 0; plane >= 0 && row >= 0 && kw < desc->kernel_w; ++kw) {
            const int64_t column = source(&axes.w, at[3], kw);
            for (int64_t in = group * group_in; column >= 0 && in < (group + 1) * group_in; ++in) {
                const double product = element(test, HARNESS_SRC, at[0], in, plane, row, column) *
                                       element(test, HARNESS_WEIGHTS, in, out, kd, kh, kw);
                sum += product;
                magnitude += fabs(product);
            }
        }
    }
    *value = sum;
    *bound = magnitude;
}

/* Computes the gradient of an element of src: sums the outputs that the input reaches over the output channels of its
 * group. */
static void backward_data(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                          double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const struct axes axes = axes_of(test);
    const int64_t group_out = desc->out_channels / desc->groups;
    const int64_t first = at[1] / (desc->in_channels / desc->groups) * group_out;
    (void)role; /* src is the only tensor that is written */
    *value = *bound = 0;
    for (int64_t k = 0; k < test->weights_view.shape[2]; ++k) {
        const int64_t kd = k / desc->kernel_h, kh = k % desc->kernel_h;
        const int64_t plane = reached(&axes.d, at[2] / axes.h.in, kd), row = reached(&axes.h, at[2] % axes.h.in, kh);
        for (int64_t kw = 0; plane >= 0 && row >= 0 && kw < desc->kernel_w; ++kw) {
            const int64_t column = reached(&axes.w, at[3], kw);
            for (int64_t out = 0; column >= 0 && out < group_out; ++out) {
                const double product = element(test, HARNESS_DST, at[0], first + out, plane, row, column) *
                                       element(test, HARNESS_WEIGHTS, at[1], out, kd, kh, kw);
                *value += product;
                *bound += fabs(product);
            }
        }
    }
}

/* Computes the gradient of bias[channel]: every output counts, with a tap or without. */
static void backward_bias(const harness_case *test, int64_t channel, double *value, double *bound)
{
    const harness_view *view = &test->dst_view;
    for (int64_t n = 0; n < view->shape[0]; ++n)
        for (int64_t h = 0; h < view->shape[2]; ++h)
            for (int64_t w = 0; w < view->shape[3]; ++w) {
                const double term = harness_element_get(test->layer.desc.dtype, test->dst.data,
                                                        harness_view_index(view, n, channel, h, w));
                *value += term;
                *bound += fabs(term);
            }
}

/* Computes the gradient of an element of the weights: sums over all images and inputs whose tap reaches an output. */
static void backward_weights(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                             double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const struct axes axes = axes_of(test);
    const int64_t out = at[0] / (desc->in_channels / desc->groups) * (desc->out_channels / desc->groups) + at[1];
    const int64_t kd = at[2] / desc->kernel_h, kh = at[2] % desc->kernel_h;
    *value = *bound = 0;
    if (role == HARNESS_BIAS) {
        backward_bias(test, at[0], value, bound);
        return;
    }
    for (int64_t n = 0; n < desc->batch; ++n)
        for (int64_t i = 0; i < test->src_view.shape[2]; ++i) {
            const int64_t d = i / desc->in_h, h = i % desc->in_h;
            const int64_t plane = reached(&axes.d, d, kd), row = reached(&axes.h, h, kh);
            for (int64_t w = 0; plane >= 0 && row >= 0 && w < desc->in_w; ++w) {
                const int64_t column = reached(&axes.w, w, at[3]);
                if (column < 0)
                    continue;
                const double product = element(test, HARNESS_SRC, n, at[0], d, h, w) *
                                       element(test, HARNESS_DST, n, out, plane, row, column);
                *value += product;
                *bound += fabs(product);
            }
        }
}

static double taps(const tconv_desc *desc)
{
    return (double)desc->kernel_d * (double)desc->kernel_h * (double)desc->kernel_w;
}

static double backward_data_terms(const tconv_desc *desc)
{
    const int64_t group_out = desc->out_channels / desc->groups;
    return (double)group_out * taps(desc);
}

/* A sum of the bias has as many terms as an image has outputs, without a second factor. */
static double backward_weights_terms(const tconv_desc *desc)
{
    const harness_view dst = harness_dst_view(desc);
    const double inputs = (double)desc->in_d * (double)desc->in_h * (double)desc->in_w;
    return fmax(1, (double)desc->batch * fmax(inputs, (double)dst.shape[2] * (double)dst.shape[3]));
}

static double forward_terms(const tconv_desc *desc)
{
    const int64_t group_in = desc->in_channels / desc->groups;
    return (double)group_in * taps(desc);
}

static const harness_operation operations[] = {
    [TCONV_FORWARD] = {.reads = {[HARNESS_SRC] = true, [HARNESS_WEIGHTS] = true, [HARNESS_BIAS] = true},
                       .writes = {[HARNESS_DST] = true},
                       .terms = forward_terms,
                       .formula = forward},
    [TCONV_BACKWARD_DATA] = {.reads = {[HARNESS_WEIGHTS] = true, [HARNESS_DST] = true},
                             .writes = {[HARNESS_SRC] = true},
                             .terms = backward_data_terms,
                             .formula = backward_data},
    [TCONV_BACKWARD_WEIGHTS] = {.reads = {[HARNESS_SRC] = true, [HARNESS_DST] = true},
                                .writes = {[HARNESS_WEIGHTS] = true, [HARNESS_BIAS] = true},
                                .terms = backward_weights_terms,
                                .formula = backward_weights},
};

static const char *const names[HARNESS_ROLES] = {"src",     "weights", "bias",    "dst",     "post[0]", "post[1]",
                                                 "post[2]", "post[3]", "post[4]", "post[5]", "post[6]", "post[7]"};

const harness_operation *harness_operation_of(tconv_op op)
{
    return (size_t)op < sizeof operations / sizeof operations[0] ? &operations[op] : NULL;
}

const char *harness_role_name(harness_role role)
{
    return names[role];
}
