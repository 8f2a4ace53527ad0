/*
 * Mistakes that streams written by hand have had, by name; and the recipes of docs/c.md: what a network's own trimming is in
 * terms of a stream, and the other way to stream, by input history.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"
#include "support/streams.h"
#include "support/ways.h"

static tconv_issue issue;

/* One channel to one channel, kernel 6, stride 2: a tail of 4. */
static tconv_desc small_desc(void)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.stream_axis = 2, desc.in_channels = 1, desc.in_h = 1, desc.in_w = 3;
    desc.out_channels = 1, desc.kernel_h = 1, desc.kernel_w = 6, desc.stride_w = 2;
    return desc;
}

/* Begins streams of a desc on the CPU. */
static struct stream_runner begin(const struct streams *streams)
{
    tconv_options options;
    struct stream_runner runner;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    cr_assert(stream_runner_begin(&runner, streams, &options, streams->count, false));
    return runner;
}

/* Sets all elements. */
static void set(double *numbers, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++)
        numbers[i] = value;
}

/* All inputs are 0, and the bias is 100. */
static struct streams streams_of_bias(const tconv_desc *desc)
{
    struct streams made = streams_make(desc, 1, 9, true, 1, 1);
    set(made.src, made.whole.src_extent, 0);
    made.bias[0] = 100;
    return made;
}

/* The tail of a chunk has the bias already, or each chunk adds it to the columns that two chunks share. */
Test(stream_mistakes, bias_twice)
{
    const tconv_desc desc = small_desc();
    struct streams streams = streams_of_bias(&desc);
    struct stream_runner runner = begin(&streams);
    const int64_t lengths[] = {1, 2};
    stream_run_all(&runner, lengths, 2);
    for (int64_t i = 0; i < streams.whole.dst_extent; i++)
        cr_assert_eq(runner.results[i], 100, "column %lld is %g", (long long)i, runner.results[i]);
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* What is kept has the bias, which another project's state does not. */
Test(stream_mistakes, bias_in_the_carry)
{
    const tconv_desc desc = small_desc();
    struct streams streams = streams_of_bias(&desc);
    struct stream_runner runner = begin(&streams);
    const struct stream_call call = {.images = 1, .length = 3};
    stream_step(&runner, &call);
    double *carry = stream_carry(&runner);
    for (int64_t i = 0; i < runner.slot_elements; i++)
        cr_assert_eq(carry[i], 0);
    free(carry);
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* The first column of a stream is that of its first input alone, not one `padding` further on. */
Test(stream_mistakes, trimmed_on_the_left)
{
    const tconv_desc desc = small_desc();
    struct streams streams = streams_make(&desc, 1, 3, false, 3, 5);
    struct stream_runner runner = begin(&streams);
    const struct stream_call call = {.images = 1, .length = 1};
    stream_step(&runner, &call);
    cr_assert_eq(runner.results[0], streams.src[0] * streams.weights[0]);
    cr_assert_eq(runner.results[1], streams.src[0] * streams.weights[1]);
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* With dilation an input reaches dilation * (kernel - 1) + 1 columns, so that the tail is longer. */
Test(stream_mistakes, a_tail_of_kernel_less_stride_with_dilation)
{
    int64_t shape[4];
    tconv_desc desc = small_desc();
    desc.dilation_w = 3;
    expect_success(tconv_carry_shape(&desc, shape, &issue), issue);
    cr_assert(shape[0] == 1 && shape[1] == 1 && shape[2] == 1 && shape[3] == 3 * 5 + 1 - 2);
    desc.kernel_w = 1;
    expect_success(tconv_carry_shape(&desc, shape, &issue), issue);
    cr_assert_eq(shape[3], 0);
}

/* 256 and then 1 five times: a carry of bf16, of 8 bits, would lose each 1. */
Test(stream_mistakes, a_carry_rounded_to_bf16)
{
    tconv_desc desc = small_desc();
    desc.dtype = TCONV_BF16, desc.stride_w = 1, desc.in_w = 1;
    struct streams streams = streams_make(&desc, 1, 7, false, 1, 1);
    struct stream_runner runner;
    const int64_t one = 1;
    set(streams.src, 7, 1);
    set(streams.weights, 6, 1);
    streams.src[0] = 256;
    runner = begin(&streams);
    stream_run_all(&runner, &one, 1);
    cr_assert_eq(runner.results[5], 260, "256 and five times 1 is %g", runner.results[5]); /* 261, to even */
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* A first step gives as many columns as every other one. */
Test(stream_mistakes, a_first_chunk_that_is_shorter)
{
    int64_t shape[4];
    const tconv_desc desc = small_desc();
    expect_success(tconv_output_shape(&desc, shape, &issue), issue);
    cr_assert_eq(shape[3], 6);
    struct streams streams = streams_make(&desc, 1, 3, true, 3, 1);
    struct stream_runner runner = begin(&streams);
    const struct stream_call call = {.images = 1, .length = 3};
    stream_step(&runner, &call);
    for (int64_t i = 0; i < 6; i++)
        cr_assert_eq(runner.results[i], streams.expected[i]);
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* A stream that begins in a slot goes on from what another one left there. */
Test(stream_mistakes, the_state_of_another_stream)
{
    const tconv_desc desc = small_desc();
    struct streams streams = streams_make(&desc, 1, 3, true, 3, 8);
    struct stream_runner runner = begin(&streams);
    const uint8_t begins = 1;
    struct stream_call call = {.images = 1, .length = 3};
    stream_step(&runner, &call);
    runner.position[0] = 0;
    call.reset = &begins;
    stream_step(&runner, &call);
    for (int64_t i = 0; i < 6; i++)
        cr_assert_eq(runner.results[i], streams.expected[i]);
    stream_runner_end(&runner);
    streams_release(&streams);
}

/* --------------------------------------------------------------------------------------------------------- recipes */

/* Returns what one call of all inputs gives with so much padding: the caller's to free. */
static double *one_call(const struct streams *streams, int64_t left, int64_t right, int64_t *columns)
{
    tconv_options options;
    tconv_desc desc = streams->whole.desc;
    int64_t shape[4];
    desc.pad_left = left, desc.pad_right = right;
    desc.op = TCONV_FORWARD;
    expect_success(tconv_output_shape(&desc, shape, &issue), issue);
    *columns = shape[3];
    double *dst = malloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * sizeof *dst);
    cr_assert_not_null(dst);
    const tconv_tensor src = {streams->src, TCONV_F64, TCONV_LOCATION_HOST},
                       weights = {streams->weights, TCONV_F64, TCONV_LOCATION_HOST},
                       bias = {streams->bias, TCONV_F64, TCONV_LOCATION_HOST},
                       to = {dst, TCONV_F64, TCONV_LOCATION_HOST};
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    expect_success(
        tconv_conv_transpose2d(&desc, &options, &src, &weights, streams->bias != NULL ? &bias : NULL, &to, &issue),
        issue);
    return dst;
}

/* A layer that pads on both sides is a stream that drops its first `left` columns, and the last `right` of its flush. */
static void check_trim(int64_t kernel, int64_t stride, int64_t left, int64_t right)
{
    tconv_desc desc = small_desc();
    const int64_t two = 2;
    int64_t columns;
    desc.in_channels = 5, desc.out_channels = 3, desc.kernel_w = kernel, desc.stride_w = stride;
    struct streams streams = streams_make(&desc, 2, 9, true, 3, 3);
    streams.desc.batch = 2;
    struct stream_runner runner = begin(&streams);
    stream_run_all(&runner, &two, 1);
    double *expected = one_call(&streams, left, right, &columns);
    cr_assert_eq(columns, streams.whole.w.out - left - right);
    for (int64_t i = 0; i < 2 * 3 * columns; i++)
        cr_assert_eq(runner.results[i / columns * streams.whole.w.out + left + i % columns], expected[i]);
    free(expected);
    stream_runner_end(&runner);
    streams_release(&streams);
}

Test(stream_mistakes, recipes_of_trims)
{
    check_trim(16, 8, 0, 8); /* causal: Mimi, EnCodec: the flush is dropped */
    check_trim(16, 8, 4, 4); /* DAC, HiFi-GAN: left = total - right, right = total / 2 */
    check_trim(7, 4, 2, 1);  /* total 3: left is the larger half */
    check_trim(4, 2, 1, 1);
}

/* Input history: an ordinary layer over the last ceil(K / stride) - 1 inputs and the chunk, whose padding cuts off what was
 * given before and what is not final. */
Test(stream_mistakes, recipe_of_input_history)
{
    enum { KERNEL = 10, STRIDE = 4, HISTORY = 2, CHUNK = 3, TOTAL = 12 };
    tconv_desc desc = small_desc();
    const int64_t three = CHUNK;
    desc.kernel_w = KERNEL, desc.stride_w = STRIDE;
    struct streams streams = streams_make(&desc, 1, TOTAL, true, 3, 6);
    struct stream_runner runner = begin(&streams);
    stream_run_all(&runner, &three, 1);
    double inputs[HISTORY + CHUNK] = {0}, outputs[CHUNK * STRIDE];
    tconv_desc layer = streams.whole.desc;
    layer.in_w = HISTORY + CHUNK, layer.pad_left = STRIDE * HISTORY, layer.pad_right = KERNEL - STRIDE;
    for (int64_t first = 0; first < TOTAL; first += CHUNK) {
        const tconv_tensor src = {inputs, TCONV_F64, TCONV_LOCATION_HOST},
                           weights = {streams.weights, TCONV_F64, TCONV_LOCATION_HOST},
                           bias = {streams.bias, TCONV_F64, TCONV_LOCATION_HOST},
                           dst = {outputs, TCONV_F64, TCONV_LOCATION_HOST};
        memcpy(inputs + HISTORY, streams.src + first, CHUNK * sizeof *inputs);
        expect_success(tconv_conv_transpose2d(&layer, NULL, &src, &weights, &bias, &dst, &issue), issue);
        for (int64_t i = 0; i < CHUNK * STRIDE; i++)
            cr_assert_eq(outputs[i], runner.results[first * STRIDE + i]);
        memmove(inputs, inputs + CHUNK, HISTORY * sizeof *inputs);
    }
    stream_runner_end(&runner);
    streams_release(&streams);
}
