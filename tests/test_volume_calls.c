/*
 * How layers with depth are cut into calls of layers of two axes (src/dispatch/volume.c): the kernel planes that a call's layer
 * has for weights, compared with the formula; and on an H200, which layers of all volumes are one launch.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/volume.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/dispatch/volume_plan.h"
#include "harness.h"
#include "support/expect.h"

enum { DRAWN = 300, MOST_WEIGHTS = 1 << 16 };

static const tconv_allocator from_malloc;
static tconv_issue issue;

/* ------------------------------------------------------------------------------------------------------------- weights */

static void draw_layer(harness_random *random, int number, tconv_desc *desc)
{
    tconv_desc_init(desc);
    desc->op = number % 2 == 0 ? TCONV_FORWARD : TCONV_BACKWARD_DATA;
    desc->weight_layout = (tconv_weight_layout)(number / 2 % 3);
    desc->groups = number % 4 == 3 ? 2 : 1;
    desc->in_channels = desc->groups * harness_random_integer(random, 1, 6);
    desc->out_channels = desc->groups * harness_random_integer(random, 1, 6);
    desc->in_d = 4;
    desc->in_h = desc->in_w = 3;
    desc->kernel_d = harness_random_integer(random, 2, 5);
    desc->kernel_h = harness_random_integer(random, 1, 3);
    desc->kernel_w = harness_random_integer(random, 1, 2);
    desc->stride_d = harness_random_integer(random, 1, 2);
    desc->dilation_d = harness_random_integer(random, 1, 2);
}

/* The weights that a part's layer should have: of tap t and channel c those of kernel plane first + tap * t. */
static void expect_weights(const tconv_problem *problem, const tconv_volume_part *part, const float *weights,
                           const float *made, const char *text)
{
    const bool of_inputs = problem->desc.op == TCONV_FORWARD;
    const int64_t channels = of_inputs ? problem->group_in : problem->group_out;
    tconv_problem flat;
    tconv_desc desc = problem->desc;
    tconv_drop_depth(&desc);
    *(of_inputs ? &desc.in_channels : &desc.out_channels) = problem->groups * part->taps * channels;
    expect_success(tconv_problem_init(&flat, &desc, &issue), issue);
    for (int64_t in = 0; in < flat.in_channels; in++)
        for (int64_t out = 0; out < flat.group_out; out++)
            for (int64_t kernel = 0; kernel < flat.h.kernel * flat.w.kernel; kernel++) {
                const int64_t row = kernel / flat.w.kernel, column = kernel % flat.w.kernel;
                const int64_t of_group = of_inputs ? in % flat.group_in : out;
                const int64_t tap = of_group / channels, channel = of_group % channels;
                const int64_t from_in = of_inputs ? in / flat.group_in * channels + channel : in;
                const tconv_weight_strides *w = &problem->weight, *f = &flat.weight;
                const float expected =
                    weights[from_in * w->in + (of_inputs ? out : channel) * w->out +
                            (part->kernel.first + part->kernel.tap * tap) * w->d + row * w->h + column * w->w];
                const float found = made[in * f->in + out * f->out + row * f->h + column * f->w];
                cr_assert(found == expected, "input %" PRId64 " output %" PRId64 " kernel %" PRId64 ": %s", in, out,
                          kernel, text);
            }
}

Test(volume_calls, a_call_has_the_kernel_planes_of_its_part_as_weights)
{
    static float weights[MOST_WEIGHTS], made[MOST_WEIGHTS];
    harness_random random;
    tconv_target target = {.backend = TCONV_BACKEND_CPU};
    tconv_cpu_target_set(&target, (tconv_cpu_target){.threads = 1});
    harness_random_seed(&random, 55);
    for (int i = 0; i < MOST_WEIGHTS; i++)
        weights[i] = (float)(i + 1);
    for (int number = 0; number < DRAWN; number++) {
        tconv_desc desc;
        tconv_problem problem;
        tconv_volume_parts parts;
        char text[TCONV_PROBLEM_TEXT_SIZE];
        draw_layer(&random, number, &desc);
        expect_success(tconv_problem_init(&problem, &desc, &issue), issue);
        tconv_problem_format(&problem, false, text, sizeof text);
        expect_success(tconv_volume_parts_create(&problem, false, &from_malloc, &parts, &issue), issue);
        for (int64_t p = 0; p < parts.count; p++)
            if (parts.parts[p].taps > 0) {
                const tconv_volume_part *part = &parts.parts[p];
                tconv_plane_copy axes = tconv_volume_weight_axes(&problem, part);
                axes.element_size = sizeof(float);
                tconv_plane_copy_simplify(&axes);
                for (int i = 0; i < MOST_WEIGHTS; i++)
                    made[i] = -1;
                tconv_cpu_copy_planes(&target, &axes, weights + part->kernel.first * problem.weight.d, made);
                expect_weights(&problem, part, weights, made, text);
            }
        tconv_volume_parts_release(&parts, &from_malloc);
    }
}

/* --------------------------------------------------------------------------------------------------- calls on an H200 */

struct explained {
    const char *problem;
    tconv_op op;
    tconv_dtype dtype;
    tconv_layout layout;
    int64_t calls;
};

/* Returns the number of a plan's calls, and writes what is explained of it. */
static int64_t calls_of(const struct explained *layer, char *text, size_t capacity)
{
    harness_layer parsed;
    char error[256];
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    memset(&parsed, 0, sizeof parsed);
    cr_assert(harness_problem_parse(layer->problem, &parsed, error, sizeof error), "%s: %s", layer->problem, error);
    parsed.desc.op = layer->op;
    parsed.desc.dtype = layer->dtype;
    parsed.desc.layout = layer->layout;
    parsed.desc.weight_layout = layer->layout == TCONV_NHWC ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_IOHW;
    parsed.desc.math = TCONV_MATH_TF32;
    expect_success(tconv_explain(&parsed.desc, &options, "h200", TCONV_TEXT_PLAIN, text, capacity, NULL, &issue),
                   issue);
    const char *calls = strstr(text, "calls: ");
    return calls == NULL ? -1 : strtoll(calls + strlen("calls: "), NULL, 10);
}

#define KB58 "n=16 ci=32 z=16 h=32 w=64 co=16 k=3x5x7"
#define KB61 "n=8 ci=48 z=64 h=64 w=64 co=48 k=3"
#define KB70 "n=8 ci=48 z=96 h=96 w=96 co=24 k=3"
#define KB77 "n=16 ci=32 z=16 h=32 w=32 co=64 k=3 s=2 p=1 d=2"
#define UP   "n=3 ci=64 z=48 h=48 w=48 co=64 k=3 s=2 p=1 op=1"
#define ODD  "n=5 ci=64 z=9 h=16 w=16 co=64 k=3 s=2 p=1"

#define NN0 "n=2 ci=320 z=4 h=4 w=4 co=320 k=2 s=2"
#define NN1 "n=2 ci=320 z=8 h=8 w=8 co=256 k=2 s=2"

Test(volume_calls, all_volumes_are_one_launch)
{
    static const struct explained layers[] = {
        {KB58, TCONV_FORWARD, TCONV_F32, TCONV_NHWC, 1},
        {KB61, TCONV_FORWARD, TCONV_F32, TCONV_NHWC, 1},
        {KB61, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, 1}, /* 48 channels of a tap as 64 */
        {KB61, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, 1},
        {KB70, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, 1},  /* 24 as 32 */
        {KB70, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, 1}, /* 24 as 32 */
        {KB77, TCONV_FORWARD, TCONV_F32, TCONV_NHWC, 2},        /* and every other plane is the bias */
        {KB77, TCONV_FORWARD, TCONV_BF16, TCONV_NHWC, 2},
        {KB77, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, 1},
        {KB77, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, 1},
        {UP, TCONV_FORWARD, TCONV_F32, TCONV_NHWC, 2}, /* phases of depth */
        {UP, TCONV_BACKWARD_DATA, TCONV_F16, TCONV_NHWC, 1},
        {ODD, TCONV_FORWARD, TCONV_F32, TCONV_NHWC, 2}, /* 17 planes: a phase of 9, one of 8 */
        {ODD, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, 1},
        {KB77, TCONV_FORWARD, TCONV_F32, TCONV_NCHW, 2}, /* src is transposed in one launch too */
        {KB77, TCONV_FORWARD, TCONV_BF16, TCONV_NCHW, 2},
        {NN0, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, 1}, /* parts of few sums */
        {NN0, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, 1},
        {NN1, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, 1},
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        static char text[16384];
        char volumes[32];
        const int64_t calls = calls_of(&layers[i], text, sizeof text);
        snprintf(volumes, sizeof volumes, " volumes=%" PRId64 " ",
                 (int64_t)strtoll(layers[i].problem + strlen("n="), NULL, 10));
        cr_expect_eq(calls, layers[i].calls, "%" PRId64 " calls: %s", calls, text);
        cr_expect_not_null(strstr(text, volumes), "%s", text);
    }
}
