/* Small streams, drawn at random, and the implementations that take them. */
#include <stdio.h>
#include <string.h>

#include "expect.h"
#include "streams.h"

static tconv_issue issue;

static int64_t pick(harness_random *random, int64_t least, int64_t most)
{
    return harness_random_integer(random, least, most);
}

/* Draws strides of a slice of a tensor that has more channels or longer rows: n, c of NCHW, n, w of NHWC. */
static void draw_strides(harness_random *random, const tconv_desc *desc, int64_t channels, int64_t height,
                         int64_t width, int64_t strides[4])
{
    if (!harness_random_chance(random, 30))
        return;
    if (desc->layout == TCONV_NCHW) {
        strides[1] = height * width + pick(random, 0, 5);
        strides[0] = channels * strides[1] + pick(random, 0, 9);
    } else {
        strides[3] = channels + pick(random, 0, 5);
        strides[2] = width * strides[3];
        strides[0] = height * strides[2] + pick(random, 0, 9);
    }
}

tconv_desc stream_random_desc(harness_random *random)
{
    tconv_desc desc;
    int64_t shape[4];
    tconv_desc_init(&desc);
    desc.stream_axis = (int32_t)pick(random, 1, 2);
    desc.dtype = (tconv_dtype)pick(random, TCONV_F32, TCONV_BF16);
    desc.layout = (tconv_layout)pick(random, TCONV_NCHW, TCONV_NHWC);
    desc.weight_layout = (tconv_weight_layout)pick(random, TCONV_WEIGHT_IOHW, TCONV_WEIGHT_HWOI);
    const bool one_axis = harness_random_chance(random, 50), rows = desc.stream_axis == 1;
    desc.groups = harness_random_chance(random, 30) ? pick(random, 2, 4) : 1;
    desc.in_channels = desc.groups * pick(random, 1, harness_random_chance(random, 30) ? 40 : 5);
    desc.out_channels = desc.groups * pick(random, 1, harness_random_chance(random, 30) ? 20 : 4);
    desc.batch = pick(random, 1, 5);
    int64_t *const along[4] = {rows ? &desc.in_h : &desc.in_w, rows ? &desc.kernel_h : &desc.kernel_w,
                               rows ? &desc.stride_h : &desc.stride_w, rows ? &desc.dilation_h : &desc.dilation_w};
    int64_t *const across[4] = {rows ? &desc.in_w : &desc.in_h, rows ? &desc.kernel_w : &desc.kernel_h,
                                rows ? &desc.stride_w : &desc.stride_h, rows ? &desc.dilation_w : &desc.dilation_h};
    *along[0] = pick(random, 1, 9), *along[1] = pick(random, 1, 9), *along[2] = pick(random, 1, 5);
    *along[3] = harness_random_chance(random, 30) ? pick(random, 2, 3) : 1;
    *across[0] = one_axis ? 1 : pick(random, 2, 40), *across[1] = one_axis ? 1 : pick(random, 1, 4);
    *across[2] = one_axis ? 1 : pick(random, 1, 3), *across[3] = one_axis ? 1 : pick(random, 1, 2);
    if (!one_axis && *across[0] * *across[2] > 4) {
        *(rows ? &desc.pad_left : &desc.pad_top) = pick(random, 0, 2);
        *(rows ? &desc.pad_right : &desc.pad_bottom) = pick(random, 0, 1);
    }
    if (!one_axis && *across[2] > 1)
        *(rows ? &desc.output_padding_w : &desc.output_padding_h) = pick(random, 0, 1);
    expect_success(tconv_output_shape(&desc, shape, &issue), issue);
    draw_strides(random, &desc, desc.in_channels, desc.in_h, desc.in_w, desc.src_strides);
    expect_success(tconv_carry_shape(&desc, shape, &issue), issue);
    const int64_t tail = shape[rows ? 2 : 3]; /* what a flush gives must fit too */
    expect_success(tconv_output_shape(&desc, shape, &issue), issue);
    const int64_t height = rows && tail > shape[2] ? tail : shape[2],
                  width = !rows && tail > shape[3] ? tail : shape[3];
    if (desc.layout == TCONV_NCHW)
        draw_strides(random, &desc, desc.out_channels, height, width, desc.dst_strides);
    else if (height == shape[2] && width == shape[3])
        draw_strides(random, &desc, desc.out_channels, height, width, desc.dst_strides);
    return desc;
}

void stream_random_lengths(harness_random *random, int64_t most, int64_t *lengths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        lengths[i] = pick(random, 1, most);
}

/* Returns the implementation that options choose; "" where they name one that does not take the layer. */
static const char *chosen_by(const tconv_desc *desc, const tconv_options *options, char name[64])
{
    tconv_plan *plan = NULL;
    const tconv_status status = tconv_plan_create(desc, options, &plan, &issue);
    name[0] = '\0';
    if (status != TCONV_ERROR_UNSUPPORTED || options->implementation == NULL)
        expect_success(status, issue);
    if (plan != NULL)
        snprintf(name, 64, "%s", tconv_plan_implementation(plan));
    tconv_plan_destroy(plan);
    return name;
}

void stream_by_each(const tconv_desc *desc, tconv_backend backend,
                    void (*run)(const tconv_options *options, void *data), void *data)
{
    const char *prefix = backend == TCONV_BACKEND_CUDA ? "cuda_" : "cpu_", *name;
    char chosen[64], named[64];
    tconv_options options;
    tconv_options_init(&options);
    options.backend = backend;
    chosen_by(desc, &options, chosen);
    run(&options, data);
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++) {
        options.implementation = name;
        if (strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name, chosen) != 0 &&
            *chosen_by(desc, &options, named) != '\0')
            run(&options, data);
    }
}
