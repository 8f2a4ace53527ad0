/*
 * cuda_wgrad sums the gradient of the bias of what the products read where some of that has each output once
 * (src/cuda/wgrad/plan_bias.c). Layers for which it does, by every way of reading, and such that it must leave to the pass of
 * its own; exact on integers. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* On an H200, f32 in TF32: rows, images and channels past a K-tile and a tile, groups, K-tiles that blocks take turns at, blocks
 * with few of them, chunks of taps, of channels, sums that are added to what is held. */
static const struct {
    const char *problem;
    tconv_dtype dtype;
    tconv_layout layout;
    const char *reads, *bias;
} layers[] = {
    {"n=9 ci=62 h=20 w=24 co=132 k=2 s=2 b=1", TCONV_F32, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=5 ci=256 h=40 w=48 co=64 k=2 s=2 b=1", TCONV_F16, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=5 ci=250 h=20 w=48 co=70 k=2x1 s=2x1 b=1", TCONV_BF16, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=5 ci=256 h=20 w=24 co=64 k=2 s=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=9 ci=60 h=31 w=28 co=132 k=2x3 s=2x3 b=1", TCONV_F32, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=16 ci=256 h=16 w=16 co=96 k=2 s=2 g=2 b=1", TCONV_F32, TCONV_NCHW, "sharers=2 ", "bias=pass"},
    {"n=16 ci=128 h=16 w=16 co=140 k=2 s=2 g=2 b=1", TCONV_BF16, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=16 ci=256 h=16 w=16 co=96 k=2 s=2 g=2 b=1", TCONV_F16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=8 ci=192 h=40 w=80 co=200 k=1 b=1", TCONV_F32, TCONV_NHWC, "reads=channels ", "bias=products"},
    {"n=8 ci=192 h=40 w=80 co=200 k=1 b=1", TCONV_BF16, TCONV_NHWC, "chunk=128 ", "bias=products"},
    {"n=9 ci=62 h=20 w=24 co=132 k=2 s=2 b=1 acc=1", TCONV_F32, TCONV_NCHW, "chunk=44 ", "bias=products"},
    {"n=9 ci=384 h=9 w=40 co=40 k=4 s=4 b=1 acc=1", TCONV_F32, TCONV_NHWC, "chunk=8 ", "bias=pass"},
    {"n=9 ci=384 h=9 w=40 co=12 k=2 s=2 b=1 acc=1", TCONV_F16, TCONV_NHWC, "reads=src_channels ", "bias=pass"},
    {"n=40 ci=256 h=14 w=14 co=256 k=2 s=2 b=1", TCONV_F32, TCONV_NHWC, "k_tile=8x2x2 ", "bias=products"},
    {"n=40 ci=256 h=14 w=14 co=256 k=2 s=2 b=1", TCONV_BF16, TCONV_NCHW, "parts=1 ", "bias=products"},
    {"n=33 ci=512 h=8 w=4 co=256 k=2 s=2 b=1", TCONV_F32, TCONV_NHWC, "reads=channels ", "bias=products"},
    {"n=4 ci=64 h=1 w=2000 co=24 k=1x8 s=1x8 b=1", TCONV_BF16, TCONV_NHWC, "taps=1x2 ", "bias=products"},
    {"n=2 ci=128 h=1 w=1000 co=66 k=1x3 s=1x3 b=1", TCONV_F16, TCONV_NCHW, "reads=lines ", "bias=products"},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 p=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 p=0x0x1x1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 op=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=3 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass"},
    {"n=16 ci=256 h=20 w=24 co=64 k=3 s=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 d=3 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass"},
    /* Several taps reach an output. */
    {"n=8 ci=130 h=20 w=24 co=72 k=4 s=2 p=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=8 ci=130 h=20 w=24 co=128 k=5 s=2 p=2 op=1 b=1 acc=1", TCONV_F16, TCONV_NHWC, "taps=1x3 ", "bias=products"},
    {"n=8 ci=130 h=20 w=24 co=72 k=4 s=2 p=1 b=1", TCONV_F32, TCONV_NHWC, "reads=channels ", "bias=pass"},
    {"n=8 ci=130 h=20 w=24 co=72 k=4 s=2 p=1 b=1", TCONV_BF16, TCONV_NCHW, "parts=1 ", "bias=products"},
    {"n=4 ci=200 h=32 w=64 co=40 k=4 s=2 p=1 b=1", TCONV_F16, TCONV_NCHW, "reads=lines ", "bias=pass"},
    {"n=4 ci=320 h=16 w=16 co=192 k=5 s=2 p=2 op=1 b=1", TCONV_BF16, TCONV_NHWC, "writes=weights ", "bias=products"},
    /* The last outputs have no tap in the window, unless K-tiles go beyond the inputs: blocks read these where they lie, of few
     * channels, of several groups, also where they begin anywhere, and in copies of whole images; the pass sums them where they are
     * many, or rows are padded in copies. */
    {"n=4 ci=128 h=32 w=32 co=72 k=4 s=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=5 ci=128 h=13 w=13 co=72 k=5 s=2 b=1", TCONV_BF16, TCONV_NHWC, "k_tile=1x4x16 ", "bias=products"},
    {"n=16 ci=64 h=24 w=16 co=8 k=3x2 s=2x1 b=1 acc=1", TCONV_F16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=3 ci=128 h=16 w=40 co=400 k=5x4 s=2x3 g=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=4 ci=128 h=1 w=1024 co=64 k=1x10 s=1x5 p=0x1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products"},
    {"n=64 ci=256 h=4 w=4 co=64 k=5 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass"},
    {"n=4 ci=128 h=32 w=32 co=72 k=4 s=2 b=1", TCONV_BF16, TCONV_NCHW, "reads=boxes ", "bias=products"},
    {"n=7 ci=264 h=18 w=23 co=136 k=5 s=2 b=1", TCONV_BF16, TCONV_NCHW, "parts=1 ", "bias=products"},
    {"n=7 ci=264 h=18 w=23 co=136 k=4 s=2 p=1x0 b=1", TCONV_BF16, TCONV_NCHW, "parts=1 ", "bias=pass"},
    {"n=8 ci=96 h=20 w=28 co=72 k=3 s=2 d=3 p=3 op=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass"},
};

static harness_layer layer_at(size_t n)
{
    return gradient_weights_layer(layers[n].problem, layers[n].dtype, layers[n].layout);
}

Test(gradients, products_sum_the_bias)
{
    for (size_t n = 0; n < COUNT(layers); n++) {
        const harness_layer layer = layer_at(n);
        cr_expect(harness_has_integers(&layer), "%s: its sums of integers are not exact", layers[n].problem);
        cr_expect(is_planned(&layer.desc, layers[n].reads), "%zu, %s: not %s", n, layers[n].problem, layers[n].reads);
        cr_expect(is_planned(&layer.desc, layers[n].bias), "%zu, %s: not %s", n, layers[n].problem, layers[n].bias);
    }
}

/* What is read begins at multiples of 16 bytes, as the ways of reading want it, or does not. */
static bool is_aligned(const harness_case *test)
{
    return test->src.offset % 16 == 0 && test->dst.offset % 16 == 0;
}

/* A seed that places what is read so. */
static uint64_t seed_for(const harness_layer *layer, bool aligned)
{
    harness_layer small = gradient_layer("ci=1 h=1 w=1 co=1 k=1 b=1", TCONV_BACKWARD_WEIGHTS);
    small.desc.dtype = layer->desc.dtype;
    for (uint64_t seed = 0;; seed++) {
        harness_case test = make_sampled_case(&small, HARNESS_INTEGERS, seed);
        const bool found = is_aligned(&test) == aligned;
        harness_case_destroy(&test);
        if (found)
            return seed;
    }
}

static struct way way_of(const harness_layer *layer)
{
    return (struct way){"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, layer->desc.math, "cuda_wgrad"};
}

Test(gradients_cuda, bias_that_products_sum_is_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(layers); n++)
        for (int aligned = 0; aligned < 2; aligned++) {
            const harness_layer layer = layer_at(n);
            const struct way way = way_of(&layer);
            cr_assert(harness_has_integers(&layer), "%s", layers[n].problem);
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, seed_for(&layer, aligned != 0));
            cr_assert_eq(is_aligned(&test), aligned != 0);
            cr_expect(check_way(&test, &way, 1, false), "%s", layers[n].problem);
            harness_case_destroy(&test);
        }
}

/* Sums the gradient of the bias alone, without src, on the device; returns it. */
static harness_buffer run_alone(const harness_case *test, const struct way *way)
{
    const harness_case own = case_of_way(test, way);
    const tconv_options options = way_options(way);
    const tconv_dtype dtype = own.layer.desc.dtype;
    harness_buffer made = harness_buffer_create(own.bias_view.extent, harness_element_size(dtype), 0);
    tconv_plan *plan;
    tconv_issue issue;
    size_t workspace_bytes;
    cr_assert_not_null(made.memory);
    if (harness_case_adds_to(&own, HARNESS_BIAS))
        memcpy(made.data, own.bias.data, (size_t)own.bias_view.extent * harness_element_size(dtype));
    cr_assert_eq(tconv_plan_create(&own.layer.desc, &options, &plan, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_plan_workspace_size(plan, &workspace_bytes), TCONV_SUCCESS);
    unsigned char *dst = harness_device_allocate(own.dst.bytes), *bias = harness_device_allocate(made.bytes),
                  *workspace = harness_device_allocate(workspace_bytes);
    cr_assert(dst != NULL && bias != NULL && workspace != NULL, "no device memory");
    cr_assert(harness_device_copy(dst, own.dst.memory, own.dst.bytes, NULL) &&
              harness_device_copy(bias, made.memory, made.bytes, NULL));
    const tconv_tensor its_dst = {dst + own.dst.offset, dtype, TCONV_LOCATION_CUDA},
                       its_bias = {bias + made.offset, dtype, TCONV_LOCATION_CUDA};
    cr_assert_eq(tconv_plan_execute(plan, NULL, NULL, &its_bias, &its_dst, workspace, workspace_bytes, NULL),
                 TCONV_SUCCESS);
    cr_assert(harness_device_copy(made.memory, bias, made.bytes, NULL) && harness_stream_synchronize(NULL));
    harness_device_release(dst);
    harness_device_release(bias);
    harness_device_release(workspace);
    tconv_plan_destroy(plan);
    return made;
}

static void expect_same_bias(const harness_case *test, const harness_buffer *one, const harness_buffer *other,
                             const char *what)
{
    const size_t bytes = (size_t)test->bias_view.extent * harness_element_size(test->layer.desc.dtype);
    cr_expect_arr_eq(one->data, other->data, bytes, "%s", what);
}

Test(gradients_cuda, bias_has_the_same_bits_at_any_address_and_alone)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(layers); n++) {
        const harness_layer layer = layer_at(n);
        const struct way way = way_of(&layer);
        const size_t size = harness_element_size(layer.desc.dtype);
        harness_case test;
        harness_output first, moved;
        tconv_issue issue;
        cr_assert_eq(harness_case_create_unanswered(&test, &layer, HARNESS_REALS, seed_for(&layer, true), &issue),
                     TCONV_SUCCESS, "%s", issue.message);
        cr_assert(is_aligned(&test) && run_way(&test, &way, 1, false, &first), "%s", layers[n].problem);
        harness_buffer alone = run_alone(&test, &way);
        harness_buffer dst = harness_buffer_create(test.dst_view.extent, size, 1);
        cr_assert_not_null(dst.memory);
        memcpy(dst.data, test.dst.data, (size_t)test.dst_view.extent * size);
        harness_buffer_release(&test.dst);
        test.dst = dst;
        cr_assert(run_way(&test, &way, 1, false, &moved), "%s", layers[n].problem);
        harness_buffer moved_alone = run_alone(&test, &way);
        expect_same_bias(&test, &first.bias, &alone, layers[n].problem);
        expect_same_bias(&test, &first.bias, &moved.bias, layers[n].problem);
        expect_same_bias(&test, &first.bias, &moved_alone, layers[n].problem);
        harness_buffer_release(&alone);
        harness_buffer_release(&moved_alone);
        harness_output_release(&first);
        harness_output_release(&moved);
        harness_case_destroy(&test);
    }
}
