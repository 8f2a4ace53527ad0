/*
 * Post-ops on the CPU: every implementation, at every instruction set of this machine, against cpu_reference's own plan,
 * on random layers with random lists. Where all steps are exact (integers, halves and powers of two) outputs have the
 * reference's bits; a kind that is not exact stands at the end of a list, so that it is judged by the accuracy that
 * tconv.h says. For any number of threads the bits are the same. Mistakes that are easy to make have tests of their
 * names.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/post.h"
#include "harness.h"
#include "support/guard.h"
#include "support/part.h"
#include "support/ways.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define RANDOM_LAYERS 150

static const int thread_counts[] = {1, 2, 3, 5};
static struct way ways[MAX_WAYS];
static size_t way_count;
static size_t taken[MAX_WAYS]; /* layers that each way took */

/* --------------------------------------------------------------------------------------------------------- tensors */

/* A layer with tensors that are all small integers, halves or powers of two. */
struct work {
    harness_layer layer;
    harness_view dst_view;
    int64_t dst_extent;
    void *src, *weights, *bias, *held;        /* held: what dst holds before a call */
    struct guarded posts[TCONV_MAX_POST_OPS]; /* between pages that may not be touched, and read-only */
};

/* Allocates elements that are NaN until they are set. */
static void *poisoned(int64_t extent, tconv_dtype dtype)
{
    const size_t bytes = (size_t)extent * harness_element_size(dtype);
    void *memory = malloc(bytes + 1);
    cr_assert_not_null(memory);
    memset(memory, 0xff, bytes);
    return memory;
}

static void fill(void *data, tconv_dtype dtype, const harness_view *view, harness_random *random, int64_t most)
{
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d),
                                        (double)harness_random_integer(random, -most, most));
}

/* The view of the addend. */
static harness_view addend_view(const tconv_desc *desc)
{
    tconv_desc own = *desc;
    memcpy(own.dst_strides, desc->addend_strides, sizeof own.dst_strides);
    own.dst_stride_d = desc->addend_stride_d;
    return harness_dst_view(&own);
}

static tconv_dtype real_of(const tconv_desc *desc)
{
    return desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
}

/* Makes the operand of a post-op; one of no bytes where the kind has none. Factors are powers of two. */
static struct guarded make_operand(const tconv_desc *desc, tconv_post_kind kind, harness_random *random)
{
    static const double factors[] = {1, -1, 2, .5, -2};
    const int64_t numbers = desc->out_channels * tconv_post_channel_vectors(kind);
    const enum guard_side side = harness_random_chance(random, 70) ? GUARD_AFTER : GUARD_BEFORE;
    const bool is_addend = kind == TCONV_POST_ADD_TENSOR;
    const tconv_dtype dtype = is_addend ? desc->dtype : real_of(desc);
    const harness_view view = addend_view(desc);
    const size_t bytes = (size_t)(is_addend ? view.extent : numbers) * harness_element_size(dtype);
    const struct guarded operand = guard_allocate(bytes, side);
    if (is_addend)
        fill(operand.data, dtype, &view, random, 8);
    for (int64_t i = 0; i < numbers; i++) {
        double number = (double)harness_random_integer(random, -8, 8);
        if (kind == TCONV_POST_MUL_CHANNEL)
            number = factors[harness_random_integer(random, 0, COUNT(factors) - 1)];
        else if (kind == TCONV_POST_SNAKE)
            number = (2 * number + 1) / 16; /* not 0, which makes NaN of Inf */
        harness_element_set(dtype, operand.data, i, number);
    }
    guard_protect(&operand);
    return operand;
}

static void make_work(struct work *work, const harness_layer *layer, harness_random *random)
{
    const tconv_desc *desc = &layer->desc;
    const harness_view src = harness_src_view(desc), weights = harness_weights_view(desc);
    const harness_view bias = harness_view_of(desc, HARNESS_BIAS);
    tconv_issue issue;
    cr_assert_eq(tconv_validate(desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    *work = (struct work){.layer = *layer, .dst_view = harness_dst_view(desc)};
    work->dst_extent = work->dst_view.extent;
    fill(work->src = poisoned(src.extent, desc->dtype), desc->dtype, &src, random, 2);
    fill(work->weights = poisoned(weights.extent, desc->dtype), desc->dtype, &weights, random, 2);
    if (layer->has_bias)
        fill(work->bias = poisoned(bias.extent, desc->dtype), desc->dtype, &bias, random, 8);
    work->held = poisoned(work->dst_extent, desc->dtype);
    if (desc->accumulate)
        fill(work->held, desc->dtype, &work->dst_view, random, 8);
    for (int i = 0; i < desc->post_count; i++)
        work->posts[i] = make_operand(desc, desc->post[i].kind, random);
}

static void release_work(struct work *work)
{
    free(work->src), free(work->weights), free(work->bias), free(work->held);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        if (i < work->layer.desc.post_count)
            guard_release(&work->posts[i]);
}

/* ------------------------------------------------------------------------------------------------------------ runs */

/* The text of a layer and its list, for messages. */
static const char *text_of(const struct work *work)
{
    static char text[HARNESS_LAYER_TEXT + 1024];
    const tconv_desc *desc = &work->layer.desc;
    int length = harness_layer_format(&work->layer, text, HARNESS_LAYER_TEXT);
    for (int i = 0; i < desc->post_count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %s:%g:%g",
                           tconv_post_name(desc->post[i].kind), desc->post[i].alpha, desc->post[i].beta);
    return text;
}

/* Runs the layer; returns dst with its gaps, which the caller frees, and NULL where the way does not take the layer. */
static void *run(const struct work *work, const struct way *way, int threads, bool pack_once)
{
    const tconv_desc *desc = &work->layer.desc;
    const tconv_dtype dtype = desc->dtype;
    const size_t bytes = (size_t)work->dst_extent * harness_element_size(dtype);
    tconv_options options = way_options(way);
    tconv_plan *plan, *packed;
    tconv_issue issue;
    size_t size;
    use_threads(&options, threads);
    tconv_status status = tconv_plan_create(desc, &options, &plan, &issue);
    if (status == TCONV_ERROR_UNSUPPORTED) {
        cr_assert_null(strstr(issue.message, "post-op"), "%s: %s", way->text, issue.message);
        return NULL;
    }
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s %s", way->text, issue.message, text_of(work));
    const tconv_tensor src = {.data = work->src, .dtype = dtype}, bias = {.data = work->bias, .dtype = dtype};
    const tconv_tensor weights = {.data = work->weights, .dtype = dtype};
    if (pack_once) {
        cr_assert_eq(tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue), TCONV_SUCCESS, "%s",
                     issue.message);
        tconv_plan_destroy(plan);
        plan = packed;
    }
    tconv_plan_workspace_size(plan, &size);
    void *workspace = malloc(size + 1), *out = malloc(bytes + 1);
    cr_assert(workspace != NULL && out != NULL);
    memcpy(out, work->held, bytes);
    const tconv_tensor dst = {.data = out, .dtype = dtype};
    tconv_tensor posts[TCONV_MAX_POST_OPS];
    tconv_operands operands = {.struct_size = sizeof operands,
                               .src = &src,
                               .weights = pack_once ? NULL : &weights,
                               .bias = work->bias != NULL ? &bias : NULL,
                               .dst = &dst};
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        if (tconv_post_has_operand(desc->post[i].kind)) {
            const bool is_addend = desc->post[i].kind == TCONV_POST_ADD_TENSOR;
            posts[i] = (tconv_tensor){.data = work->posts[i].data, .dtype = is_addend ? dtype : real_of(desc)};
            operands.post[i] = &posts[i];
        }
    status = tconv_plan_execute_with(plan, &operands, workspace, size, NULL);
    tconv_last_issue(&issue);
    cr_assert_eq(status, TCONV_SUCCESS, "%s: %s %s", way->text, issue.message, text_of(work));
    tconv_plan_destroy(plan);
    free(workspace);
    return out;
}

static void *run_reference(const struct work *work)
{
    const struct way reference = {.implementation = "cpu_reference", .backend = TCONV_BACKEND_CPU};
    return run(work, &reference, 1, false);
}

/* ---------------------------------------------------------------------------------------------------------- judging */

static double ulp(double value, int digits)
{
    return value == 0 || !isfinite(value) ? 0 : ldexp(1, ilogb(value) - digits + 1);
}

/* How far an output may be from the reference's by the accuracy that tconv.h says of a list's last kind, which alone is
 * not exact; 0: not at all. The reference's own rounding is half a unit, that of 16 bits one unit of them: they may be
 * rounded up here and down there. snake_size bounds |y| + |v| of SNAKE. */
static double allowance(const struct work *work, double expected, double snake_size)
{
    const tconv_desc *desc = &work->layer.desc;
    const tconv_post_kind last = desc->post_count > 0 ? desc->post[desc->post_count - 1].kind : (tconv_post_kind)0;
    if (last < TCONV_POST_SIGMOID || desc->dtype == TCONV_F64) /* f64 is computed by the same functions */
        return 0;
    const double units = last == TCONV_POST_HARDSWISH ? 2 : 4;
    double allowed = (units + .5) * ulp(expected, 24) + 0x1p-126;
    if (last == TCONV_POST_SNAKE)
        allowed = (units + .5) * ulp(snake_size, 24);
    if (desc->dtype == TCONV_F16 || desc->dtype == TCONV_BF16)
        allowed += 2.002 * harness_element_half_ulp(desc->dtype, expected);
    return allowed;
}

/* Fails the test unless an output is the reference's. */
static void judge_output(const struct work *work, const char *way, const void *out, const void *reference,
                         const int64_t at[4])
{
    const tconv_dtype dtype = work->layer.desc.dtype;
    const size_t size = harness_element_size(dtype);
    const int64_t index = harness_view_index(&work->dst_view, at[0], at[1], at[2], at[3]);
    if (memcmp((const char *)out + (size_t)index * size, (const char *)reference + (size_t)index * size, size) == 0)
        return;
    const double got = harness_element_get(dtype, out, index), wanted = harness_element_get(dtype, reference, index);
    if (isnan(got) && isnan(wanted))
        return;
    /* |y| is at most |output| + |v|, and |v| at most 17 / 16. */
    cr_assert(fabs(got - wanted) <= allowance(work, wanted, fabs(wanted) + 4) && allowance(work, wanted, 1) > 0,
              "%s: %.9g at %d,%d,%d,%d, not %.9g: %s", way, got, (int)at[0], (int)at[1], (int)at[2], (int)at[3], wanted,
              text_of(work));
}

static void judge(const struct work *work, const char *way, const void *out, const void *reference)
{
    const int64_t *shape = work->dst_view.shape;
    int64_t at[4];
    for (at[0] = 0; at[0] < shape[0]; at[0]++)
        for (at[1] = 0; at[1] < shape[1]; at[1]++)
            for (at[2] = 0; at[2] < shape[2]; at[2]++)
                for (at[3] = 0; at[3] < shape[3]; at[3]++)
                    judge_output(work, way, out, reference, at);
}

/* Fails the test unless two outputs have the same bits, gaps included. Which NaN a NaN is, that of a weight or that of
 * Inf * 0, may depend on the tile that it is summed in. */
static void expect_same_bits(const struct work *work, const char *way, const void *first, const void *other)
{
    const tconv_dtype dtype = work->layer.desc.dtype;
    const size_t size = harness_element_size(dtype);
    if (memcmp(first, other, (size_t)work->dst_extent * size) == 0)
        return;
    for (int64_t i = 0; i < work->dst_extent; i++) {
        const double one = harness_element_get(dtype, first, i), two = harness_element_get(dtype, other, i);
        const bool same =
            memcmp((const char *)first + (size_t)i * size, (const char *)other + (size_t)i * size, size) == 0;
        cr_assert(same || (isnan(one) && isnan(two)), "%s: %.9g with one thread, %.9g with more, at %d: %s", way, one,
                  two, (int)i, text_of(work));
    }
}

/* Runs the layer by every way and judges it; the outputs have the same bits, and the gaps what they held, for any number of
 * threads. */
static void check_work(const struct work *work, uint64_t seed)
{
    void *reference = run_reference(work);
    for (size_t w = 0; w < way_count; w++) {
        void *first = run(work, &ways[w], thread_counts[0], seed % 2 != 0);
        if (first == NULL)
            continue;
        taken[w]++;
        judge(work, ways[w].text, first, reference);
        for (size_t t = 1; t < COUNT(thread_counts); t++) {
            void *other = run(work, &ways[w], thread_counts[t], (seed + t) % 2 != 0);
            expect_same_bits(work, ways[w].text, first, other);
            free(other);
        }
        free(first);
    }
    free(reference);
}

/* ----------------------------------------------------------------------------------------------------- random lists */

/* Draws a kind that is exact on the numbers of make_work. */
static tconv_post_op draw_exact(harness_random *random)
{
    static const double factors[] = {1, -1, 2, .5, -2};
    tconv_post_op post = {
        .kind = (tconv_post_kind)harness_random_integer(random, TCONV_POST_ADD_CHANNEL, TCONV_POST_LEAKY_RELU)};
    const double number = (double)harness_random_integer(random, -8, 8);
    const double factor = factors[harness_random_integer(random, 0, COUNT(factors) - 1)];
    switch (post.kind) {
    case TCONV_POST_ADD_TENSOR: post.alpha = factor; break;
    case TCONV_POST_LINEAR: post.alpha = factor, post.beta = number; break;
    case TCONV_POST_CLAMP:
        post.alpha = harness_random_chance(random, 30) ? -INFINITY : number - 8;
        post.beta = harness_random_chance(random, 30) ? INFINITY : number + 8;
        break;
    case TCONV_POST_LEAKY_RELU: post.alpha = harness_random_chance(random, 50) ? 0 : .5; break;
    default: break;
    }
    return post;
}

/* Draws a list of 1 to 8 post-ops, with one addend at most, and an inexact kind at the end of every second one. */
static void draw_list(harness_random *random, tconv_desc *desc)
{
    desc->post_count = (int32_t)harness_random_integer(random, 1, TCONV_MAX_POST_OPS);
    for (int i = 0; i < desc->post_count; i++)
        do
            desc->post[i] = draw_exact(random);
        while (desc->post[i].kind == TCONV_POST_ADD_TENSOR && tconv_post_addend(desc) < i);
    tconv_post_op *last = &desc->post[desc->post_count - 1];
    if (harness_random_chance(random, 50)) {
        *last = (tconv_post_op){
            .kind = (tconv_post_kind)harness_random_integer(random, TCONV_POST_SIGMOID, TCONV_POST_SNAKE)};
        last->alpha = last->kind == TCONV_POST_ELU ? 1.5 : 0;
    }
    if (tconv_post_addend(desc) < 0 || harness_random_chance(random, 40))
        return;
    tconv_desc sliced = *desc; /* an addend that is a slice, of other strides than dst */
    do
        harness_draw_slices(random, &sliced);
    while (memcmp(sliced.dst_strides, desc->dst_strides, sizeof sliced.dst_strides) == 0);
    memcpy(desc->addend_strides, sliced.dst_strides, sizeof sliced.dst_strides);
}

static bool is_of_gradients(const struct way *way)
{
    return strcmp(way->implementation, "cpu_dgrad") == 0 || strcmp(way->implementation, "cpu_wgrad") == 0;
}

static void check_random_layers(uint64_t seed, bool special)
{
    harness_random random;
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    harness_random_seed(&random, seed);
    for (uint64_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_layer layer;
        struct work work;
        do
            harness_class_layer(&random, &layer);
        while (harness_layer_flops(&layer.desc) > 2e6 || layer.desc.batch == 0);
        layer.desc.op = TCONV_FORWARD;
        draw_list(&random, &layer.desc);
        make_work(&work, &layer, &random);
        if (special) { /* weights beside which borders are computed apart */
            const int64_t count = harness_weights_view(&layer.desc).extent;
            for (int n = 0; n < 2; n++)
                harness_element_set(layer.desc.dtype, work.weights, harness_random_integer(&random, 0, count - 1),
                                    harness_random_chance(&random, 50) ? NAN
                                    : n == 0                           ? INFINITY
                                                                       : -INFINITY);
        }
        if (in_part(i))
            check_work(&work, i);
        release_work(&work);
    }
    for (size_t w = 0; w < way_count && is_whole(); w++)
        cr_assert(taken[w] > 0 || is_of_gradients(&ways[w]) || way_is_of_streams_alone(&ways[w]), "%s takes no layer",
                  ways[w].text);
}

Test(posts_cpu, random_layers)
{
    check_random_layers(1, false);
}

Test(posts_cpu, nan_and_inf_in_the_weights)
{
    check_random_layers(2, true);
}

/* -------------------------------------------------------------------------------------------------------- mistakes */

/* A layer of groups, whose stride is larger than its kernel, so that most outputs have no tap. */
static harness_layer layer_without_taps(tconv_dtype dtype, tconv_layout layout)
{
    harness_layer layer = {.has_bias = true};
    tconv_desc *desc = &layer.desc;
    tconv_desc_init(desc);
    desc->batch = 2, desc->groups = 3, desc->in_channels = 6, desc->out_channels = 15;
    desc->in_h = 4, desc->in_w = 19;
    desc->kernel_h = desc->kernel_w = 1;
    desc->stride_h = 3, desc->stride_w = 2;
    desc->output_padding_h = 2, desc->output_padding_w = 1;
    desc->dtype = dtype, desc->layout = layout;
    return layer;
}

/* Checks the layer in every dtype and layout with a list. */
static void check_list(int count, const tconv_post_op *list, bool accumulate, bool addend_slice)
{
    harness_random random;
    harness_random_seed(&random, 3);
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (int form = 0; form < 8; form++) {
        struct work work;
        harness_layer layer = layer_without_taps((tconv_dtype)(form / 2), (tconv_layout)(form % 2));
        layer.desc.post_count = count;
        layer.desc.accumulate = accumulate;
        memcpy(layer.desc.post, list, (size_t)count * sizeof *list);
        if (addend_slice && form % 2 == TCONV_NCHW)
            layer.desc.addend_strides[1] = 12 * 38 + 7, layer.desc.addend_strides[0] = 15 * (12 * 38 + 7) + 3;
        else if (addend_slice)
            layer.desc.addend_strides[3] = 19, layer.desc.addend_strides[0] = 12 * 38 * 19 + 5;
        make_work(&work, &layer, &random);
        check_work(&work, (uint64_t)form);
        release_work(&work);
    }
}

Test(posts_cpu_mistakes, outputs_without_a_tap_left_at_the_bias)
{
    const tconv_post_op list[] = {{.kind = TCONV_POST_LINEAR, .alpha = 2, .beta = 1}};
    check_list(1, list, false, false);
    check_list(1, list, true, false);
}

Test(posts_cpu_mistakes, channel_of_the_wrong_group)
{
    const tconv_post_op list[] = {{.kind = TCONV_POST_MUL_CHANNEL}, {.kind = TCONV_POST_ADD_CHANNEL}};
    check_list(2, list, false, false);
    check_list(1, list + 1, true, false);
}

Test(posts_cpu_mistakes, addend_read_with_the_strides_of_dst)
{
    const tconv_post_op list[] = {{.kind = TCONV_POST_ADD_TENSOR, .alpha = 2}};
    check_list(1, list, false, true);
    check_list(1, list, true, true);
}

/* Makes src the only output channel, by a kernel of one element, and a bias where it is not 0; returns the outputs. */
static void *run_line(const tconv_post_op *post, tconv_dtype dtype, int64_t width, const double *numbers, double bias,
                      const struct way *way)
{
    harness_random random;
    harness_layer layer = {.has_bias = bias != 0};
    struct work work;
    tconv_desc *desc = &layer.desc;
    tconv_desc_init(desc);
    harness_random_seed(&random, 1);
    desc->in_channels = desc->out_channels = desc->in_h = desc->kernel_h = desc->kernel_w = 1;
    desc->in_w = width;
    desc->dtype = dtype;
    desc->post_count = 1;
    desc->post[0] = *post;
    make_work(&work, &layer, &random);
    harness_element_set(dtype, work.weights, 0, 1);
    if (layer.has_bias)
        harness_element_set(dtype, work.bias, 0, bias);
    for (int64_t i = 0; i < width; i++)
        harness_element_set(dtype, work.src, i, numbers[i]);
    void *out = run(&work, way, 1, false);
    release_work(&work);
    return out;
}

Test(posts_cpu_mistakes, relu_that_eats_nan)
{
    static const double numbers[] = {NAN, -1, 2, -INFINITY, INFINITY};
    static const tconv_post_op posts[] = {{.kind = TCONV_POST_LEAKY_RELU},
                                          {.kind = TCONV_POST_CLAMP, .alpha = 0, .beta = INFINITY}};
    static const double right[] = {NAN, 0, 2, 0, INFINITY};
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < way_count; w++)
        for (int form = 0; form < 4 * (int)COUNT(posts); form++) {
            const tconv_dtype dtype = (tconv_dtype)(form % 4);
            void *out = run_line(&posts[form / 4], dtype, COUNT(numbers), numbers, 0, &ways[w]);
            for (size_t i = 0; out != NULL && i < COUNT(numbers); i++) {
                const double got = harness_element_get(dtype, out, (int64_t)i);
                cr_assert(isnan(right[i]) ? isnan(got) : got == right[i], "%s: %g of %g", ways[w].text, got,
                          numbers[i]);
            }
            free(out);
        }
}

/* 257 is no bf16, and 2049 no f16: rounded before the subtraction, they give 0. */
Test(posts_cpu_mistakes, sixteen_bits_rounded_before_the_activation)
{
    way_count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < way_count; w++)
        for (int form = 0; form < 2; form++) {
            const tconv_dtype dtype = form == 0 ? TCONV_F16 : TCONV_BF16;
            const double large = form == 0 ? 2048 : 256;
            const tconv_post_op post = {.kind = TCONV_POST_LINEAR, .alpha = 1, .beta = -large};
            double numbers[40];
            for (size_t i = 0; i < COUNT(numbers); i++)
                numbers[i] = large;
            void *out = run_line(&post, dtype, COUNT(numbers), numbers, 1, &ways[w]);
            for (size_t i = 0; out != NULL && i < COUNT(numbers); i++)
                cr_assert_eq(harness_element_get(dtype, out, (int64_t)i), 1, "%s", ways[w].text);
            free(out);
        }
}
