/*
 * cuda_outer sums the gradient of the bias of what the products read where each output is of one tap
 * (src/cuda/outer/slot_bias.cuh). Layers for which it does, by every way of reading, and such that it must leave to the pass of
 * its own; exact on integers. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

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
    {"n=5 ci=256 h=20 w=24 co=64 k=2 s=2 b=1", TCONV_F32, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=5 ci=256 h=20 w=24 co=64 k=2 s=2 b=1", TCONV_F16, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=5 ci=250 h=20 w=24 co=70 k=2 s=2 b=1", TCONV_BF16, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=5 ci=256 h=20 w=24 co=64 k=2 s=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=products "},
    {"n=9 ci=130 h=31 w=28 co=72 k=2x3 s=2x3 b=1", TCONV_F32, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=16 ci=256 h=16 w=16 co=96 k=2 s=2 g=2 b=1", TCONV_F32, TCONV_NCHW, "sharers=2 ", "bias=products "},
    {"n=16 ci=256 h=16 w=16 co=96 k=2 s=2 g=2 b=1", TCONV_BF16, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=16 ci=256 h=16 w=16 co=96 k=2 s=2 g=2 b=1", TCONV_F16, TCONV_NHWC, "reads=boxes ", "bias=products "},
    {"n=8 ci=192 h=40 w=80 co=200 k=1 b=1", TCONV_F32, TCONV_NHWC, "reads=channels ", "bias=products "},
    {"n=8 ci=192 h=40 w=80 co=200 k=1 b=1", TCONV_BF16, TCONV_NHWC, "chunk=128 ", "bias=products "},
    {"n=9 ci=384 h=9 w=40 co=40 k=4 s=4 b=1 acc=1", TCONV_F32, TCONV_NCHW, "chunk=14 ", "bias=products "},
    {"n=9 ci=384 h=9 w=40 co=40 k=4 s=4 b=1 acc=1", TCONV_F32, TCONV_NHWC, "chunk=8 ", "bias=products "},
    {"n=9 ci=384 h=9 w=40 co=40 k=4 s=4 b=1 acc=1", TCONV_F16, TCONV_NHWC, "reads=channels ", "bias=products "},
    {"n=40 ci=256 h=14 w=14 co=256 k=2 s=2 b=1", TCONV_F32, TCONV_NHWC, "k_tile=8x2x2 ", "bias=products "},
    {"n=40 ci=256 h=14 w=14 co=256 k=2 s=2 b=1", TCONV_BF16, TCONV_NCHW, "parts=1 ", "bias=products "},
    {"n=33 ci=512 h=8 w=4 co=24 k=3 s=3 b=1", TCONV_F32, TCONV_NHWC, "reads=channels ", "bias=products "},
    {"n=4 ci=64 h=1 w=2000 co=24 k=1x8 s=1x8 b=1", TCONV_BF16, TCONV_NHWC, "taps=1x2 ", "bias=products "},
    {"n=4 ci=64 h=1 w=1000 co=24 k=1x8 s=1x8 b=1", TCONV_F16, TCONV_NCHW, "reads=lines ", "bias=products "},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 p=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 p=0x0x1x1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 op=1 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=3 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
    {"n=16 ci=256 h=20 w=24 co=64 k=3 s=2 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
    {"n=16 ci=256 h=20 w=24 co=64 k=2 s=2 d=3 b=1", TCONV_BF16, TCONV_NHWC, "reads=boxes ", "bias=pass "},
};

static harness_layer layer_at(size_t n)
{
    harness_layer layer = gradient_layer(layers[n].problem, TCONV_BACKWARD_WEIGHTS);
    layer.desc.dtype = layers[n].dtype;
    layer.desc.layout = layers[n].layout;
    layer.desc.math = layers[n].dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    return layer;
}

Test(gradients, products_sum_the_bias)
{
    for (size_t n = 0; n < COUNT(layers); n++) {
        const harness_layer layer = layer_at(n);
        cr_expect(is_planned(&layer.desc, layers[n].reads), "%zu, %s: not %s", n, layers[n].problem, layers[n].reads);
        cr_expect(is_planned(&layer.desc, layers[n].bias), "%zu, %s: not %s", n, layers[n].problem, layers[n].bias);
    }
}

Test(gradients_cuda, bias_that_products_sum_is_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(layers); n++) {
        const harness_layer layer = layer_at(n);
        const struct way way = {"cuda_outer", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, layer.desc.math, "cuda_outer"};
        cr_assert(harness_has_integers(&layer), "%s", layers[n].problem);
        harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
        cr_expect(check_way(&test, &way, 1, n % 2 != 0), "%s", layers[n].problem);
        harness_case_destroy(&test);
    }
}
