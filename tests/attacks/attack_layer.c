/* Computes the right answer by the formula of tconv.h in integers. */
#include "attack_layer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED -12345.5f

/* Bytes: more than any CPU implementation takes for these layers. */
#define WORKSPACE_SIZE ((size_t)8 << 20)

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        fprintf(stderr, "no memory for the layer\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

static float *numbers(int64_t count, int64_t step, int64_t modulus)
{
    float *data = allocate((size_t)count * sizeof *data);
    const int64_t middle = modulus / 2;
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(i * step % modulus - middle);
    return data;
}

static float expected_at(const attack_layer *layer, int64_t n, int64_t channel, int64_t oh, int64_t ow)
{
    const tconv_desc *d = &layer->desc;
    int64_t outs = d->out_channels / d->groups, ins = d->in_channels / d->groups, first = channel / outs * ins;
    float sum = layer->bias_data[channel];
    for (int64_t kh = 0; kh < d->kernel_h; kh++)
        for (int64_t kw = 0; kw < d->kernel_w; kw++) {
            int64_t h = oh + d->pad_top - kh, w = ow - kw;
            if (h < 0 || w < 0 || h % d->stride_h != 0 || w % d->stride_w != 0)
                continue;
            h /= d->stride_h, w /= d->stride_w;
            if (h >= d->in_h || w >= d->in_w)
                continue;
            for (int64_t in = first; in < first + ins; in++)
                sum += layer->src_data[((n * d->in_channels + in) * d->in_h + h) * d->in_w + w] *
                       layer->weights_data[((in * outs + channel % outs) * d->kernel_h + kh) * d->kernel_w + kw];
        }
    return sum;
}

void attack_layer_init(attack_layer *layer, attack_size size)
{
    memset(layer, 0, sizeof *layer);
    tconv_desc *d = &layer->desc;
    d->struct_size = sizeof *d;
    d->batch = 2, d->groups = 2;
    d->in_channels = size == ATTACK_SMALL ? 4 : 16, d->out_channels = size == ATTACK_SMALL ? 6 : 24;
    d->in_h = size == ATTACK_SMALL ? 3 : 24, d->in_w = size == ATTACK_SMALL ? 5 : 40;
    d->kernel_h = 3, d->kernel_w = 2, d->stride_h = d->stride_w = 2, d->pad_top = 1;
    d->dilation_h = d->dilation_w = 1;
    d->in_d = d->kernel_d = d->stride_d = d->dilation_d = 1;
    int64_t out_h = (d->in_h - 1) * 2 - 1 + 2 + 1, out_w = (d->in_w - 1) * 2 + 1 + 1;
    layer->src_data = numbers(d->batch * d->in_channels * d->in_h * d->in_w, 7, 11);
    layer->weights_data = numbers(d->in_channels * d->out_channels / d->groups * 3 * 2, 5, 9);
    layer->bias_data = numbers(d->out_channels, 100, 1001);
    layer->dst_count = (size_t)(d->batch * d->out_channels * out_h * out_w);
    layer->dst_data = allocate(layer->dst_count * sizeof *layer->dst_data);
    layer->expected = allocate(layer->dst_count * sizeof *layer->expected);
    layer->workspace_size = WORKSPACE_SIZE;
    layer->workspace = allocate(WORKSPACE_SIZE);
    layer->src = (tconv_tensor){layer->src_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->weights = (tconv_tensor){layer->weights_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->bias = (tconv_tensor){layer->bias_data, TCONV_F32, TCONV_LOCATION_HOST};
    layer->dst = (tconv_tensor){layer->dst_data, TCONV_F32, TCONV_LOCATION_HOST};
    float *next = layer->expected;
    for (int64_t n = 0; n < d->batch; n++)
        for (int64_t channel = 0; channel < d->out_channels; channel++)
            for (int64_t oh = 0; oh < out_h; oh++)
                for (int64_t ow = 0; ow < out_w; ow++)
                    *next++ = expected_at(layer, n, channel, oh, ow);
    attack_layer_clear(layer);
}

void attack_layer_release(attack_layer *layer)
{
    free(layer->src_data);
    free(layer->weights_data);
    free(layer->bias_data);
    free(layer->dst_data);
    free(layer->expected);
    free(layer->workspace);
    memset(layer, 0, sizeof *layer);
}

void attack_layer_clear(attack_layer *layer)
{
    for (size_t i = 0; i < layer->dst_count; i++)
        layer->dst_data[i] = UNTOUCHED;
}

bool attack_layer_is_right(const attack_layer *layer)
{
    return memcmp(layer->dst_data, layer->expected, layer->dst_count * sizeof *layer->expected) == 0;
}

bool attack_layer_is_untouched(const attack_layer *layer)
{
    for (size_t i = 0; i < layer->dst_count; i++)
        if (layer->dst_data[i] != UNTOUCHED)
            return false;
    return true;
}

static void expect_right(attack_layer *layer, tconv_status status, const char *call, const char *what)
{
    EXPECT(status == TCONV_SUCCESS, "%s: %s returns status %d", what, call, (int)status);
    EXPECT(status != TCONV_SUCCESS || attack_layer_is_right(layer), "%s: %s computes another result", what, call);
    attack_layer_clear(layer);
}

void attack_layer_expect_right(attack_layer *layer, const attack_library *library, const tconv_options *options,
                               const char *what)
{
    tconv_plan *plan = NULL, *packed = NULL;
    tconv_issue issue = {0};
    tconv_status status = library->plan_create(&layer->desc, options, &plan, &issue);
    attack_layer_clear(layer);
    EXPECT(status == TCONV_SUCCESS, "%s: no plan: %s", what, issue.message);
    if (status != TCONV_SUCCESS)
        return;
    expect_right(layer,
                 library->plan_execute(plan, &layer->src, &layer->weights, &layer->bias, &layer->dst, layer->workspace,
                                       layer->workspace_size, NULL),
                 "tconv_plan_execute", what);
    status = library->plan_pack_weights(plan, &layer->weights, NULL, &packed, &issue);
    EXPECT(status == TCONV_SUCCESS, "%s: weights are not packed: %s", what, issue.message);
    if (status == TCONV_SUCCESS)
        expect_right(layer,
                     library->plan_execute(packed, &layer->src, NULL, &layer->bias, &layer->dst, layer->workspace,
                                           layer->workspace_size, NULL),
                     "tconv_plan_execute with packed weights", what);
    library->plan_destroy(packed);
    library->plan_destroy(plan);
    expect_right(layer,
                 library->conv_transpose2d(&layer->desc, options, &layer->src, &layer->weights, &layer->bias,
                                           &layer->dst, &issue),
                 "tconv_conv_transpose2d", what);
}

/* Finds a function in handle. function is the address of a pointer to it, because ISO C does not let dlsym's result be
 * converted. */
static bool find(void *handle, const char *name, void *function)
{
    void *found = dlsym(handle, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

bool attack_library_find(attack_library *library, void *handle)
{
    return find(handle, "tconv_validate", &library->validate) &&
           find(handle, "tconv_options_init_sized", &library->options_init_sized) &&
           find(handle, "tconv_plan_create", &library->plan_create) &&
           find(handle, "tconv_plan_pack_weights", &library->plan_pack_weights) &&
           find(handle, "tconv_plan_execute", &library->plan_execute) &&
           find(handle, "tconv_plan_destroy", &library->plan_destroy) &&
           find(handle, "tconv_conv_transpose2d", &library->conv_transpose2d) &&
           find(handle, "tconv_plan_describe", &library->plan_describe) &&
           find(handle, "tconv_system_info", &library->system_info) &&
           find(handle, "tconv_last_issue", &library->last_issue);
}
