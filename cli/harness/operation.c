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
};

static const char *const names[HARNESS_ROLES] = {"src", "weights", "bias", "dst"};

const harness_operation *harness_operation_of(tconv_op op)
{
    return (size_t)op < sizeof operations / sizeof operations[0] ? &operations[op] : NULL;
}

const char *harness_role_name(harness_role role)
{
    return names[role];
}
