/*
 * Layers with depth that are computed as others (src/dispatch/volume_view.h): in NHWC from transposed tensors, or with all
 * groups as one. Which are, on a GPU that needs not be here; and on a GPU, that their integers, and those of layers whose volumes
 * and kernel planes one launch takes, are the formula's.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "support/counting_allocator.h"
#include "support/expect.h"
#include "support/ways.h"

enum { NONE, TURNED, JOINED };

/* Rows and planes that fill vectors and that do not; channels likewise; every width of an element; slices; kernels in each order. */
static const struct seen {
    int views; /* a bit for each of the above that the layer is seen as */
    tconv_op op;
    tconv_dtype dtype;
    tconv_layout layout;
    tconv_weight_layout weight_layout;
    const char *problem;
} layers[] = {
    {1 << TURNED, TCONV_FORWARD, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=64 co=64 z=4 h=4 w=4 k=2 s=2 b=1"},
    {1 << TURNED, TCONV_FORWARD, TCONV_F16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=3 ci=72 co=40 z=5 h=7 w=5 k=2 s=2 b=1"},
    {1 << TURNED, TCONV_FORWARD, TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_HWOI,
     "n=2 ci=64 co=64 z=4 h=4 w=4 k=2 s=2 b=1 post=mul_channel,leaky_relu:0.5"},
    {1 << TURNED, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=4 ci=64 co=72 z=8 h=33 w=33 k=3 s=2 p=1"},
    {1 << TURNED, TCONV_BACKWARD_DATA, TCONV_F16, TCONV_NCHW, TCONV_WEIGHT_IHWO,
     "n=4 ci=33 co=40 z=9 h=33 w=27 k=3 s=2 p=1 ds=2400000x59000x3445x53x1"},
    {1 << TURNED, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_HWOI,
     "n=4 ci=32 co=32 z=16 h=32 w=32 k=3 s=2 p=1"},
    {1 << TURNED, TCONV_BACKWARD_DATA, TCONV_F64, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=2 ci=16 co=16 z=5 h=8 w=8 k=3 s=2 p=1"},
    {1 << TURNED, TCONV_BACKWARD_WEIGHTS, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=4 ci=64 co=64 z=16 h=32 w=32 k=3 p=1 b=1"},
    {1 << JOINED, TCONV_FORWARD, TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IHWO,
     "n=2 ci=32 co=32 z=16 h=32 w=64 k=3 s=2 p=1 g=4 b=1"},
    {1 << JOINED, TCONV_BACKWARD_DATA, TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_HWOI,
     "n=2 ci=32 co=64 z=16 h=32 w=32 k=3 s=2 p=1 g=4"},
    {1 << JOINED, TCONV_BACKWARD_WEIGHTS, TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_HWOI,
     "n=2 ci=32 co=32 z=8 h=16 w=16 k=3 s=2 p=1 g=8 b=1"},
    {1 << JOINED, TCONV_BACKWARD_WEIGHTS, TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IOHW,
     "n=2 ci=32 co=32 z=8 h=16 w=16 k=3 s=2 p=1 g=4 b=1"},
    {1 << TURNED | 1 << JOINED, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=2 ci=32 co=32 z=32 h=32 w=64 k=3 s=2 p=1 g=4"},
    {1 << TURNED | 1 << JOINED, TCONV_BACKWARD_WEIGHTS, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IHWO,
     "n=4 ci=32 co=32 z=16 h=64 w=64 k=3 p=1 g=4 b=1"},
    /* These have no view: what is added to a tensor cannot be copied there, and addends are not transposed. */
    {NONE, TCONV_FORWARD, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=64 co=64 z=4 h=4 w=4 k=2 s=2 acc=1"},
    {NONE, TCONV_FORWARD, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=2 ci=64 co=64 z=4 h=4 w=4 k=2 s=2 post=add_tensor:1"},
    {NONE, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=2 ci=64 co=64 z=8 h=8 w=8 k=3 s=2 p=1 acc=1"},
    {NONE, TCONV_BACKWARD_WEIGHTS, TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IOHW,
     "n=2 ci=32 co=32 z=8 h=16 w=16 k=3 s=2 p=1 g=4 acc=1"},
    {NONE, TCONV_BACKWARD_DATA, TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IHWO,
     "n=2 ci=64 co=64 z=8 h=8 w=8 k=3 s=2 p=1 g=64 acc=1"},
};

/* Volumes, planes, kernel planes, in all operations (forward alone where there are post-ops): outputs without a tap, odd numbers,
 * channels that are rounded up, images that share a tile, src that is transposed, sums in parts, channels of two columns. */
static const struct volume {
    tconv_dtype dtype;
    tconv_layout layout;
    tconv_weight_layout weight_layout;
    const char *problem;
} volumes[] = {
    {TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=4 ci=32 co=64 z=5 h=16 w=16 k=3 s=2 p=1 d=2 b=1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=3 ci=64 co=64 z=9 h=16 w=16 k=3 s=2 p=1 op=1"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=5 ci=64 co=48 z=7 h=24 w=24 k=5x3x3 p=2x1x1 d=2x1x1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=3 ci=48 co=24 z=5 h=12 w=12 k=3"},
    {TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=3 ci=48 co=24 z=5 h=12 w=12 k=3 b=1"},
    {TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_HWOI, "n=3 ci=48 co=24 z=5 h=12 w=12 k=3"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IOHW, "n=3 ci=48 co=24 z=5 h=12 w=12 k=3"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=9 ci=32 co=32 z=3 h=2 w=3 k=3x1x2 p=2x0x1"},
    {TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=5 ci=32 co=48 z=6 h=12 w=40 k=3 s=2 p=1"},
    {TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=64 co=32 z=8 h=8 w=8 k=2 s=2 b=1"},
    {TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=64 co=32 z=8 h=8 w=8 k=2 s=2 b=1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=2 ci=36 co=20 z=4 h=9 w=7 k=4 s=3 p=2 acc=1"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=2 ci=24 co=24 z=6 h=9 w=9 k=3 s=1 p=1 g=3"},
    {TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_HWOI, "n=3 ci=40 co=24 z=5 h=12 w=12 k=3 s=2 p=1 b=1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IOHW, "n=3 ci=40 co=24 z=5 h=12 w=12 k=3 s=2 p=1 b=1"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=3 ci=64 co=64 z=6 h=8 w=8 k=3 s=2 p=1 b=1 ss=28000x1x4480x560x70"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=3 ci=64 co=64 z=3 h=4 w=4 k=3 s=2 p=1 ds=18000x1x3430x490x70"},
    {TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=4 ci=32 co=64 z=6 h=16 w=15 k=3 s=2 p=1 d=2 b=1"},
    {TCONV_F16, TCONV_NCHW, TCONV_WEIGHT_IHWO, "n=3 ci=40 co=64 z=7 h=9 w=16 k=3 s=2 p=1 d=2 b=1"},
    {TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=3 ci=24 co=8 z=4 h=7 w=5 k=2x3x2 s=4x5x3 b=1"},
    {TCONV_F64, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=3 co=5 z=3 h=5 w=3 k=2x2x3 s=3x4x4 b=1"},
    {TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=3 ci=8 co=6 z=3 h=5 w=9 k=1x2x3 s=2x4x3 b=1 post=mul_channel,leaky_relu:0.5"},
    {TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW,
     "n=3 ci=8 co=6 z=3 h=5 w=9 k=1x2x2 s=2x3x4 b=1 post=leaky_relu:0.5,add_tensor:1"},
    {TCONV_F16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=3 ci=8 co=6 z=3 h=5 w=9 k=1x2x2 s=2x3x4 acc=1"},
    {TCONV_F32, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=64 co=40 z=8 h=16 w=16 k=4 s=2 p=1 b=1"},
    {TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_HWOI, "n=4 ci=72 co=40 z=5 h=8 w=24 k=3 s=2 p=1 op=1 b=1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=2 ci=320 co=320 z=4 h=4 w=4 k=2 s=2"},
    {TCONV_BF16, TCONV_NHWC, TCONV_WEIGHT_IHWO, "n=2 ci=320 co=256 z=8 h=8 w=8 k=2 s=2"},
    {TCONV_BF16, TCONV_NCHW, TCONV_WEIGHT_IOHW, "n=2 ci=192 co=128 z=4 h=4 w=8 k=2 s=2"},
    {TCONV_F16, TCONV_NHWC, TCONV_WEIGHT_HWOI, "n=2 ci=128 co=128 z=4 h=6 w=6 k=4x2x4 s=2 p=1x0x1"},
    {TCONV_F32, TCONV_NHWC, TCONV_WEIGHT_IOHW, "n=1 ci=96 co=160 z=3 h=5 w=6 k=3x2x2 s=2x2x2"},
};

enum { SEEN = sizeof layers / sizeof layers[0], VOLUMES = sizeof volumes / sizeof volumes[0] };

static tconv_issue issue;

static harness_layer parse(const struct seen *of)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(of->problem, &layer, message, sizeof message), "%s: %s", of->problem, message);
    layer.desc.op = of->op;
    layer.desc.dtype = of->dtype;
    layer.desc.math = of->dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    layer.desc.layout = of->layout;
    layer.desc.weight_layout = of->weight_layout;
    return layer;
}

/* The text of the largest part: its last layout and its groups are those of the layer that is computed. */
static void find_largest_part(const tconv_desc *desc, char *line, size_t capacity)
{
    static char text[16384];
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    expect_success(tconv_explain(desc, &options, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue), issue);
    const char *const found = strstr(text, "largest_part: ");
    cr_assert_not_null(found);
    snprintf(line, capacity, "%.*s", (int)strcspn(found, "\n"), found);
}

Test(volume_views, are_of_layers_that_they_serve)
{
    for (size_t i = 0; i < SEEN; i++) {
        const harness_layer layer = parse(&layers[i]);
        char line[1024];
        find_largest_part(&layer.desc, line, sizeof line);
        const bool nhwc = strstr(line, "--layout nhwc") != NULL, one = strstr(line, " g=1") != NULL;
        const bool turned = nhwc && layer.desc.layout == TCONV_NCHW, joined = one && layer.desc.groups > 1;
        cr_expect_eq((turned ? 1 << TURNED : 0) | (joined ? 1 << JOINED : 0), layers[i].views, "%s: %s",
                     layers[i].problem, line);
    }
}

/* Explains a layer whose view has a view, where allocation number fail_at fails, none with 0; returns the number of allocations. */
static size_t expect_no_leak(const tconv_desc *desc, size_t fail_at)
{
    static char text[16384];
    struct counting_allocator counting;
    tconv_options options;
    counting_init(&counting, fail_at);
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.allocator = counting.functions;
    const tconv_status status =
        tconv_explain(desc, &options, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue);
    cr_expect_eq(status, fail_at == 0 ? TCONV_SUCCESS : TCONV_ERROR_OUT_OF_MEMORY, "allocation %zu: %s", fail_at,
                 issue.message);
    cr_expect_eq((size_t)counting.live, (size_t)0, "allocation %zu: blocks are left", fail_at);
    cr_expect_eq((size_t)counting.wrong, (size_t)0);
    return counting.calls;
}

Test(volume_views, nothing_leaks_where_memory_runs_out)
{
    for (size_t i = 0; i < SEEN; i++) {
        if (layers[i].views != (1 << TURNED | 1 << JOINED))
            continue;
        const harness_layer layer = parse(&layers[i]);
        const size_t calls = expect_no_leak(&layer.desc, 0);
        cr_assert_gt(calls, (size_t)20);
        for (size_t fail_at = 1; fail_at <= calls; fail_at++)
            expect_no_leak(&layer.desc, fail_at);
    }
}

static void expect_exact(const struct seen *of, uint64_t seed)
{
    const harness_layer layer = parse(of);
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    for (int packs = 0; packs <= (of->op == TCONV_BACKWARD_WEIGHTS ? 0 : 1); packs++) {
        harness_case test;
        harness_output output;
        harness_failure failure;
        expect_success(harness_case_create_sampled(&test, &layer, HARNESS_INTEGERS, seed, &issue), issue);
        expect_success(harness_run(&test, &options, packs != 0, &output, &issue), issue);
        cr_expect(harness_compare(&test, &output, &failure), "%s", failure.text);
        harness_output_release(&output);
        harness_case_destroy(&test);
    }
}

Test(volume_views_cuda, integers_are_exact)
{
    skip_without_cuda();
    for (size_t i = 0; i < SEEN; i++)
        expect_exact(&layers[i], i);
}

Test(volume_views_cuda, integers_of_volumes_are_exact)
{
    skip_without_cuda();
    for (size_t i = 0; i < VOLUMES; i++) {
        const struct volume *of = &volumes[i];
        const tconv_op last = strstr(of->problem, "post=") != NULL ? TCONV_FORWARD : TCONV_BACKWARD_WEIGHTS;
        for (tconv_op op = TCONV_FORWARD; op <= last; op++) {
            const struct seen layer = {NONE, op, of->dtype, of->layout, of->weight_layout, of->problem};
            expect_exact(&layer, SEEN + i);
        }
    }
}
