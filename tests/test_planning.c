/*
 * Planning is bounded: for every layer that tconv_validate accepts, making a plan, asking it for its workspace,
 * describing and destroying it take a fraction of a second and a few megabytes, however long its kernel, strides and
 * extents. And no implementation takes a dtype that it does not list.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/dispatch/impl_list.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/desc_numbers.h"
#include "support/expect.h"
#include "support/ways.h"

/* Seconds for one layer. A plan takes microseconds, sorting the longest possible tables ten milliseconds; the rest is
 * for slow machines and sanitizers. */
#define MOST_SECONDS 1.0

/* Bytes: two phase tables of 2.5 MiB and the plan. */
#define MOST_BYTES ((size_t)6 << 20)

/* Of a layer with depth: 65,536 parts of some 280 bytes, or the tables of its layers of two axes as well. */
#define MOST_BYTES_OF_VOLUME ((size_t)24 << 20)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static size_t allocated;

static void *allocate(void *context, size_t size)
{
    (void)context;
    allocated += size;
    return malloc(size);
}

static void release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

/* Plans the layer in a way and destroys the plan. Returns whether there was one; where there was none, a size must be
 * the reason, or that the implementation does not take the layer. */
static bool plan_once(const tconv_desc *desc, const struct way *way, const char *text)
{
    tconv_options options = way_options(way);
    tconv_desc own = *desc;
    tconv_plan *plan;
    tconv_issue issue;
    char line[2048];
    size_t size, length;
    options.allocator = (tconv_allocator){allocate, release, NULL};
    if (way->math != TCONV_MATH_DEFAULT)
        own.math = way->math;
    allocated = 0;
    double start = now();
    tconv_status status = tconv_plan_create(&own, &options, &plan, &issue);
    if (status == TCONV_SUCCESS) {
        expect_success(tconv_plan_workspace_size(plan, &size), issue);
        expect_success(tconv_plan_describe(plan, line, sizeof line, &length), issue);
        tconv_plan_destroy(plan);
    } else {
        cr_assert(status == TCONV_ERROR_OVERFLOW || status == TCONV_ERROR_UNSUPPORTED, "%s, %s: %s \"%s\"", text,
                  way->text, tconv_status_string(status), issue.message);
        cr_assert_str_not_empty(issue.field);
    }
    double seconds = now() - start;
    cr_assert_lt(seconds, MOST_SECONDS, "%s, %s: planned in %.3f s", text, way->text, seconds);
    cr_assert_leq(allocated,
                  own.kernel_d == 1 && own.stride_d == 1 && own.in_d == 1 ? MOST_BYTES : MOST_BYTES_OF_VOLUME,
                  "%s, %s: %zu bytes allocated", text, way->text, allocated);
    return status == TCONV_SUCCESS;
}

/* ----------------------------------------------------------------------------------------------------- chosen layers */

/* Each layer is long in another way: taps of a phase, phases, tiles, channels, bias-only residues, halos. The numbers
 * are the largest powers that fit. */
static const char *const long_layers[] = {
    "n=1 ci=5 h=1 w=3 co=2 k=5x70368744177664 s=3x5 p=1",
    "n=1 ci=1 h=1 w=3 co=1 k=1x1152921504606846976",
    "n=1 ci=1 h=1 w=1 co=1 k=1x1152921504606846976",
    "n=1 ci=1 h=1 w=1 co=1 k=1073741824x1073741824",
    "n=1 ci=1 h=1 w=1 co=1 k=65536x65536",
    "n=1 ci=1 h=2 w=2 co=1 k=65536x65536 s=65536x65536",
    "n=1 ci=1 h=2 w=2 co=1 k=65536x1048576 s=1048576x65536",
    "n=1 ci=1 h=2 w=2 co=1 k=65536x65536 s=65536x65536 d=1x65537",
    "n=1 ci=1 h=3 w=1073741824 co=3 k=7x1073741824 s=1x7",
    "n=1 ci=2 h=3 w=2 co=2 k=3x281474976710656 s=2x2",
    "n=1 ci=2 h=3 w=2 co=2 k=3x281474976710656 s=2x3 p=0x35184372088832x0x35184372088832",
    "n=1 ci=3 h=1 w=1152921504606846975 co=1 k=1",
    "n=1 ci=17 h=1 w=268435455 co=20 k=9x9 s=2",
    "n=1 ci=4 h=2 w=268435455 co=20 k=9x9 s=2",
    "n=1 ci=1 h=2 w=2 co=1 k=2 s=576460752303423487x1",
    "n=1 ci=1 h=2 w=2 co=1 k=2 d=576460752303423487x1",
    "n=1 ci=1073741824 h=1 w=1 co=536870912 k=1",
    "n=1 ci=2 h=1 w=1 co=2305843009213693952 k=1 g=2",
    "n=1152921504606846976 ci=1 h=1 w=1 co=1 k=1",
    "n=0 ci=1 h=1073741824 w=3 co=1 k=1073741824x3 s=2",
    "n=1 ci=1 h=4294967296 w=2 co=1 k=4294967296x2 s=3x2 d=5x1",
};

/* Makes a process's first plan, which takes as long as the device's driver needs to begin. */
static void plan_first(const struct way *way)
{
    const tconv_options options = way_options(way);
    tconv_desc desc;
    tconv_plan *plan;
    tconv_desc_init(&desc);
    tconv_plan_create(&desc, &options, &plan, NULL);
    tconv_plan_destroy(plan);
}

static void expect_bounded(tconv_backend backend)
{
    struct way ways[MAX_WAYS];
    size_t count = list_ways(backend, ways);
    plan_first(&ways[0]);
    for (size_t i = 0; i < COUNT(long_layers); i++)
        for (int form = 0; form < 2; form++) {
            harness_layer layer;
            tconv_issue issue;
            char message[128];
            cr_assert(harness_problem_parse(long_layers[i], &layer, message, sizeof message), "%s", message);
            layer.desc.layout = form == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.dtype = form == 0 ? TCONV_F32 : TCONV_F16;
            tconv_status status = tconv_validate(&layer.desc, &issue);
            cr_assert(status == TCONV_SUCCESS || (form == 0 && status == TCONV_ERROR_OVERFLOW), "%s: %s",
                      long_layers[i], issue.message);
            for (size_t w = 0; status == TCONV_SUCCESS && w < count; w++)
                plan_once(&layer.desc, &ways[w], long_layers[i]);
        }
}

Test(planning, long_layers_are_planned_at_once)
{
    expect_bounded(TCONV_BACKEND_CPU);
}

Test(planning_cuda, long_layers_are_planned_at_once)
{
    skip_without_cuda();
    expect_bounded(TCONV_BACKEND_CUDA);
}

Test(planning, an_axis_of_more_phases_than_a_table_may_have_is_refused)
{
    static const struct {
        const char *problem, *field; /* NULL: the layer is taken */
    } layers[] = {
        {"n=1 ci=1 h=1 w=2 co=1 k=1x65536 s=1x65537", NULL},
        {"n=1 ci=1 h=1 w=2 co=1 k=1x65537 s=1x65536", NULL},
        {"n=1 ci=1 h=1 w=2 co=1 k=1x131072 s=1x131072 d=1x2", NULL},
        {"n=1 ci=1 h=1 w=1 co=1 k=1x65537 s=1x65537", NULL},
        {"n=1 ci=1 h=1 w=2 co=1 k=1x65537 s=1x65537", "stride_w"},
        {"n=1 ci=1 h=2 w=2 co=1 k=65537x65537 s=65537x65537", "stride_h"},
        {"n=1 ci=1 h=1 w=2 co=1 k=1x576460752303423488 s=1x576460752303423488", "stride_w"},
    };
    for (size_t i = 0; i < COUNT(layers); i++) {
        harness_layer layer;
        tconv_issue issue;
        char message[128];
        cr_assert(harness_problem_parse(layers[i].problem, &layer, message, sizeof message), "%s", message);
        if (layers[i].field == NULL)
            expect_success(tconv_validate(&layer.desc, &issue), issue);
        else
            expect_failure(tconv_validate(&layer.desc, &issue), issue, TCONV_ERROR_OVERFLOW, layers[i].field,
                           "must be at most 65536");
    }
}

/* ----------------------------------------------------------------------------------------------------- random layers */

static uint64_t random_state = 20261122;

static uint64_t random_bits(void) /* splitmix64 */
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns an extent that is mostly small, sometimes near a power of two. */
static int64_t random_extent(void)
{
    if (random_bits() % 8 < 6)
        return (int64_t)(1 + random_bits() % 9);
    int64_t power = INT64_C(1) << (random_bits() % 60), near = (int64_t)(random_bits() % 5) - 2;
    return power + near > 0 ? power + near : 1;
}

static tconv_status plan_on_cpu(const tconv_desc *desc, const char *named, tconv_issue *issue)
{
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = named;
    const tconv_status status = tconv_plan_create(desc, &options, &plan, issue);
    tconv_plan_destroy(plan);
    return status;
}

/* A layer whose sizes are too large for one implementation is another's: at last the reference's, which needs least. */
static void expect_planned(const tconv_desc *desc, const char *text)
{
    tconv_issue issue;
    const tconv_status status = plan_on_cpu(desc, NULL, &issue);
    const tconv_status expected = status == TCONV_SUCCESS ? status : plan_on_cpu(desc, "cpu_reference", NULL);
    cr_assert(status == expected && (status == TCONV_SUCCESS || status == TCONV_ERROR_OVERFLOW),
              "%s: %s: %s; cpu_reference: %s", text, tconv_status_string(status), issue.message,
              tconv_status_string(expected));
}

Test(planning, sizes_that_overflow_for_one_implementation_are_anothers)
{
    static const char *const problems[] = {
        "n=1 ci=4 co=2 h=1 w=32365673554779 k=1x186845344005056472 s=3x2 acc=1",
        "n=1 ci=4 co=2 h=1 w=1 k=1x186845344005056472",
        "n=1 ci=1 co=1 h=1 w=1 k=1x1152921504606846975",
    };
    tconv_issue issue;
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < 18; form++) { /* weight layouts, operations, layouts */
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            layer.desc.dtype = TCONV_F16;
            layer.desc.weight_layout = (tconv_weight_layout)(form % 3);
            layer.desc.op = (tconv_op)(form / 3 % 3);
            layer.desc.layout = (tconv_layout)(form / 9 % 2);
            expect_success(plan_on_cpu(&layer.desc, NULL, &issue), issue);
        }
}

Test(planning, random_long_layers_are_planned_at_once)
{
    struct way ways[MAX_WAYS];
    size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    int planned = 0;
    for (int i = 0; planned < 2000; i++) { /* one in thirty: the more implementations a machine has, the fewer */
        cr_assert_lt(i, 200000, "only %d layers were planned", planned);
        tconv_desc desc;
        tconv_desc_init(&desc);
        for (size_t j = 0; j < DESC_NUMBERS; j++)
            *desc_number_of(&desc, &desc_numbers[j]) = random_extent() - (desc_numbers[j].least == 0);
        if (random_bits() % 4 != 0) {
            desc.in_d = desc.kernel_d = desc.stride_d = desc.dilation_d = 1;
            desc.pad_front = desc.pad_back = desc.output_padding_d = 0;
        } else if (random_bits() % 2 != 0) {
            desc.pad_front = desc.pad_back = desc.output_padding_d = 0;
        }
        desc.dtype = (tconv_dtype)(random_bits() % 4);
        desc.layout = (tconv_layout)(random_bits() % 2);
        if (random_bits() % 8 != 0)
            desc.groups = 1;
        if (random_bits() % 4 != 0)
            desc.output_padding_h = desc.output_padding_w = 0;
        if (random_bits() % 2 != 0)
            desc.pad_top = desc.pad_bottom = desc.pad_left = desc.pad_right = 0;
        desc.weight_layout = (tconv_weight_layout)(random_bits() % 3);
        desc.op = (tconv_op)(i % 3);
        desc.accumulate = i / 3 % 2;
        if (tconv_validate(&desc, NULL) != TCONV_SUCCESS)
            continue;
        char text[64];
        snprintf(text, sizeof text, "random layer %d", i);
        expect_planned(&desc, text);
        planned += plan_once(&desc, &ways[random_bits() % count], text);
    }
}

/* ---------------------------------------------------------------------------------- one input, kernels of many phases */

/* A src of one pixel gives each weight times the pixel where it lands. Kernels longer than the most phases of a table
 * have phases of several taps. The test takes rows or columns, and all of the output or the part behind more padding
 * than there are phases. */
Test(planning, one_input_and_a_kernel_of_more_than_65536_is_right)
{
    enum { KERNEL = 70001, CHANNELS = 2 };
    struct way ways[MAX_WAYS];
    size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    float *weights = malloc(sizeof(float) * KERNEL * CHANNELS), *dst = malloc(sizeof(float) * KERNEL * CHANNELS);
    cr_assert(weights != NULL && dst != NULL);
    for (int64_t i = 0; i < (int64_t)KERNEL * CHANNELS; i++)
        weights[i] = (float)(i % 1021 + 1);
    for (int form = 0; form < 8; form++)
        for (size_t w = 0; w < count; w++) {
            if (strcmp(ways[w].implementation, "cpu_reference") == 0) /* slow: tries every kernel element */
                continue;
            const int64_t pad = form & 4 ? 65536 + 17 : 3, out = KERNEL - pad;
            const bool nhwc = (form & 1) != 0;
            float src = 3;
            tconv_desc desc;
            tconv_issue issue;
            tconv_options options = way_options(&ways[w]);
            tconv_desc_init(&desc);
            desc.in_channels = desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = 1;
            desc.out_channels = CHANNELS;
            desc.layout = nhwc ? TCONV_NHWC : TCONV_NCHW;
            *(form & 2 ? &desc.kernel_h : &desc.kernel_w) = KERNEL;
            *(form & 2 ? &desc.pad_top : &desc.pad_left) = pad;
            const tconv_tensor from = {&src, TCONV_F32, TCONV_LOCATION_HOST},
                               by = {weights, TCONV_F32, TCONV_LOCATION_HOST},
                               to = {dst, TCONV_F32, TCONV_LOCATION_HOST};
            tconv_status status = tconv_conv_transpose2d(&desc, &options, &from, &by, NULL, &to, &issue);
            if (status == TCONV_ERROR_UNSUPPORTED)
                continue;
            expect_success(status, issue);
            for (int64_t c = 0; c < CHANNELS; c++)
                for (int64_t o = 0; o < out; o++)
                    cr_assert(dst[nhwc ? o * CHANNELS + c : c * out + o] == src * weights[c * KERNEL + pad + o],
                              "%s, form %d: channel %d output %d", ways[w].text, form, (int)c, (int)o);
        }
    free(weights);
    free(dst);
}

/* ------------------------------------------------------------------------------------------------------------ dtypes */

Test(planning, no_implementation_takes_a_dtype_that_it_does_not_list)
{
    const struct bare_target target = {.isa = TCONV_CPU_ISA_DEFAULT, .threads = 1};
    const tconv_implementation *implementation;
    tconv_layer layer;
    bare_layer_make(&layer, "n=2 ci=32 h=16 w=16 co=32 k=4 s=2 p=1", TCONV_F32, TCONV_NCHW, &target);
    for (size_t i = 0; (implementation = tconv_implementation_at(TCONV_FORWARD, i)) != NULL; i++)
        for (int dtype = TCONV_BF16 + 1; dtype < 70; dtype++) {
            tconv_planned planned = {.work = NULL};
            tconv_issue issue;
            char text[16];
            layer.problem.dtype = (tconv_dtype)(dtype == 69 ? -1 : dtype);
            snprintf(text, sizeof text, "dtype %d", (int)layer.problem.dtype);
            cr_assert_eq(tconv_implementation_plan(implementation, &layer, NULL, &planned, &issue),
                         TCONV_ERROR_UNSUPPORTED, "%s takes %s", implementation->name, text);
            cr_assert(strstr(issue.message, text) != NULL, "%s: \"%s\"", implementation->name, issue.message);
        }
    layer.problem.dtype = TCONV_F32;
    bare_layer_release(&layer);
}
