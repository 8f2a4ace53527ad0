/* The formulas of tconv.h, and the table of the tensors that each reads and writes. Nothing here calls the library. */
#include "operation.h"

#include <math.h>
#include <stddef.h>

#include "case.h"
#include "element.h"

/* Computes dst at {n, c, h, w}: sums the taps that reach it over the input channels of its group. */
static void forward(const harness_case *test, harness_role role, const int64_t at[4], double *value, double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t group_in = desc->in_channels / desc->groups, group_out = desc->out_channels / desc->groups;
    const int64_t group = at[1] / group_out, out = at[1] % group_out;
    double sum = test->layer.has_bias ? harness_element_get(desc->dtype, test->bias.data, at[1]) : 0;
    double magnitude = fabs(sum);
    (void)role; /* dst is the only tensor that is written */
    for (int64_t kh = 0; kh < desc->kernel_h; ++kh) {
        int64_t row = at[2] + desc->pad_top - kh * desc->dilation_h;
        if (row < 0 || row % desc->stride_h != 0 || row / desc->stride_h >= desc->in_h)
            continue;
        for (int64_t kw = 0; kw < desc->kernel_w; ++kw) {
            int64_t column = at[3] + desc->pad_left - kw * desc->dilation_w;
            if (column < 0 || column % desc->stride_w != 0 || column / desc->stride_w >= desc->in_w)
                continue;
            for (int64_t in = group * group_in; in < (group + 1) * group_in; ++in) {
                int64_t src_at =
                    harness_view_index(&test->src_view, at[0], in, row / desc->stride_h, column / desc->stride_w);
                int64_t weight_at = harness_view_index(&test->weights_view, in, out, kh, kw);
                double product = harness_element_get(desc->dtype, test->src.data, src_at) *
                                 harness_element_get(desc->dtype, test->weights.data, weight_at);
                sum += product;
                magnitude += fabs(product);
            }
        }
    }
    *value = sum;
    *bound = magnitude;
}

/* The output that tap k of an input reaches on an axis; -1: it reaches none. */
static int64_t reached(int64_t input, int64_t k, int64_t stride, int64_t dilation, int64_t pad, int64_t outputs)
{
    const int64_t output = stride * input + dilation * k - pad;
    return output < outputs ? output : -1;
}

static int64_t reached_row(const harness_case *test, int64_t row, int64_t kh)
{
    const tconv_desc *desc = &test->layer.desc;
    return reached(row, kh, desc->stride_h, desc->dilation_h, desc->pad_top, test->dst_view.shape[2]);
}

static int64_t reached_column(const harness_case *test, int64_t column, int64_t kw)
{
    const tconv_desc *desc = &test->layer.desc;
    return reached(column, kw, desc->stride_w, desc->dilation_w, desc->pad_left, test->dst_view.shape[3]);
}

static double dst_at(const harness_case *test, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return harness_element_get(test->layer.desc.dtype, test->dst.data, harness_view_index(&test->dst_view, n, c, h, w));
}

/* Computes the gradient of src at {n, c, h, w}: sums the outputs that the input reaches over the output channels of its
 * group. */
static void backward_data(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                          double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t group_out = desc->out_channels / desc->groups;
    const int64_t first = at[1] / (desc->in_channels / desc->groups) * group_out;
    (void)role; /* src is the only tensor that is written */
    *value = *bound = 0;
    for (int64_t kh = 0; kh < desc->kernel_h; ++kh)
        for (int64_t kw = 0; kw < desc->kernel_w; ++kw) {
            const int64_t row = reached_row(test, at[2], kh), column = reached_column(test, at[3], kw);
            for (int64_t out = 0; row >= 0 && column >= 0 && out < group_out; ++out) {
                const int64_t weight_at = harness_view_index(&test->weights_view, at[1], out, kh, kw);
                const double product = dst_at(test, at[0], first + out, row, column) *
                                       harness_element_get(desc->dtype, test->weights.data, weight_at);
                *value += product;
                *bound += fabs(product);
            }
        }
}

/* Computes the gradient of bias[channel]: every output counts, with a tap or without. */
static void backward_bias(const harness_case *test, int64_t channel, double *value, double *bound)
{
    const int64_t *shape = test->dst_view.shape;
    for (int64_t n = 0; n < shape[0]; ++n)
        for (int64_t h = 0; h < shape[2]; ++h)
            for (int64_t w = 0; w < shape[3]; ++w) {
                const double term = dst_at(test, n, channel, h, w);
                *value += term;
                *bound += fabs(term);
            }
}

/* Computes the gradient of the weights at {in, out, kh, kw}: sums over all images and inputs whose tap reaches an output. */
static void backward_weights(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                             double *bound)
{
    const tconv_desc *desc = &test->layer.desc;
    const int64_t out = at[0] / (desc->in_channels / desc->groups) * (desc->out_channels / desc->groups) + at[1];
    *value = *bound = 0;
    if (role == HARNESS_BIAS) {
        backward_bias(test, at[0], value, bound);
        return;
    }
    for (int64_t n = 0; n < desc->batch; ++n)
        for (int64_t h = 0; h < desc->in_h; ++h)
            for (int64_t w = 0; w < desc->in_w; ++w) {
                const int64_t row = reached_row(test, h, at[2]), column = reached_column(test, w, at[3]);
                if (row < 0 || column < 0)
                    continue;
                const int64_t src_at = harness_view_index(&test->src_view, n, at[0], h, w);
                const double product =
                    harness_element_get(desc->dtype, test->src.data, src_at) * dst_at(test, n, out, row, column);
                *value += product;
                *bound += fabs(product);
            }
}

static double backward_data_terms(const tconv_desc *desc)
{
    const int64_t group_out = desc->out_channels / desc->groups;
    return (double)group_out * (double)desc->kernel_h * (double)desc->kernel_w;
}

/* A sum of the bias has as many terms as an image has outputs, without a second factor. */
static double backward_weights_terms(const tconv_desc *desc)
{
    const harness_view dst = harness_dst_view(desc);
    const double inputs = (double)desc->in_h * (double)desc->in_w;
    return fmax(1, (double)desc->batch * fmax(inputs, (double)dst.shape[2] * (double)dst.shape[3]));
}

static double forward_terms(const tconv_desc *desc)
{
    const int64_t group_in = desc->in_channels / desc->groups;
    return (double)group_in * (double)desc->kernel_h * (double)desc->kernel_w;
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
