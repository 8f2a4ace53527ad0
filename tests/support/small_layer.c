#include "small_layer.h"

#include <criterion/criterion.h>
#include <string.h>

#include "expect.h"

#define UNTOUCHED -12345.5f

static void compute_expected(struct small_layer *layer)
{
    const tconv_desc *d = &layer->desc;
    for (int64_t i = 0; i < SMALL_DST; i++) {
        int64_t ow = i % 10, oh = i / 10 % 6, channel = i / 60 % 6, n = i / 360, group = channel / 3;
        float sum = layer->bias_data[channel];
        for (int64_t in = 2 * group; in < 2 * group + 2; in++)
            for (int64_t kh = 0; kh < d->kernel_h; kh++)
                for (int64_t kw = 0; kw < d->kernel_w; kw++) {
                    int64_t h = oh + d->pad_top - kh, w = ow - kw;
                    if (h >= 0 && w >= 0 && h % 2 == 0 && w % 2 == 0 && h / 2 < d->in_h && w / 2 < d->in_w)
                        sum += layer->src_data[((n * 4 + in) * 3 + h / 2) * 5 + w / 2] *
                               layer->weights_data[((in * 3 + channel % 3) * 3 + kh) * 2 + kw];
                }
        layer->expected[i] = sum;
    }
}

void small_layer_init(struct small_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    memset(layer, 0, sizeof *layer);
    tconv_desc_init(desc);
    desc->batch = 2, desc->in_channels = 4, desc->in_h = 3, desc->in_w = 5, desc->out_channels = 6;
    desc->kernel_h = 3, desc->kernel_w = 2, desc->stride_h = desc->stride_w = 2, desc->pad_top = 1;
    desc->groups = 2;
    for (int i = 0; i < SMALL_SRC; i++)
        layer->src_data[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < SMALL_WEIGHTS; i++)
        layer->weights_data[i] = (float)(i * 5 % 9 - 4);
    for (int i = 0; i < SMALL_BIAS; i++)
        layer->bias_data[i] = (float)(100 * (i + 1));
    layer->src = (tconv_tensor){layer->src_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->weights = (tconv_tensor){layer->weights_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->bias = (tconv_tensor){layer->bias_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->dst = (tconv_tensor){layer->dst_data, TCONV_F32, TCONV_LOCATION_HOST};
    compute_expected(layer);
    small_layer_clear(layer);
}

void small_layer_clear(struct small_layer *layer)
{
    for (int i = 0; i < SMALL_DST; i++)
        layer->dst_data[i] = UNTOUCHED;
}

bool small_layer_is_right(const struct small_layer *layer)
{
    return memcmp(layer->dst_data, layer->expected, sizeof layer->expected) == 0;
}

bool small_layer_is_untouched(const struct small_layer *layer)
{
    for (int i = 0; i < SMALL_DST; i++)
        if (layer->dst_data[i] != UNTOUCHED)
            return false;
    return true;
}

tconv_plan *small_layer_plan(const struct small_layer *layer, const tconv_options *options)
{
    tconv_plan *plan;
    tconv_issue issue;
    expect_success(tconv_plan_create(&layer->desc, options, &plan, &issue), issue);
    return plan;
}

tconv_status small_layer_execute(struct small_layer *layer, const tconv_plan *plan, tconv_issue *issue)
{
    small_layer_clear(layer);
    tconv_status status = tconv_plan_execute(plan, &layer->src, &layer->weights, &layer->bias, &layer->dst,
                                             layer->workspace, sizeof layer->workspace, NULL);
    tconv_last_issue(issue);
    return status;
}

void small_layer_expect_right(struct small_layer *layer, const tconv_plan *plan)
{
    tconv_issue issue;
    expect_success(small_layer_execute(layer, plan, &issue), issue);
    cr_assert(small_layer_is_right(layer), "%s gives another answer", tconv_plan_implementation(plan));
}
