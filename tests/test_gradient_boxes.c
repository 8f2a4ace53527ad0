/*
 * cuda_wgrad sums the gradient of weights of 16 bits by boxes that TMA brings (src/cuda/wgrad/box_kernel.cuh): of tensors by
 * channels, or of copies of those by planes, part after part; where the channels of the gradient of dst are no vectors, by
 * wgmma, from channels of src alone. Layers that each takes one of them for, exact on integers. These are tests of the suites
 * gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In bf16 on an H200: channels past a box and past a tile, taps that share slots and such that do not, rows of a K-tile and
 * images that follow one another, groups; one row by long strides, of which a residue's columns are neighbours to TMA where the
 * row ends with one; copies of all images, of some, of some rows of one, with no slices before them;
 * output channels that are less than a vector, or no multiple of it. */
static const struct {
    const char *problem, *words;
    tconv_layout layout;
} named[] = {
    {"n=4 ci=128 h=24 w=24 co=64 k=3 p=1", "by=boxes", TCONV_NHWC},
    {"n=5 ci=264 h=19 w=23 co=248 k=2x3 s=2x1 p=1x0 op=1x0", "by=boxes", TCONV_NHWC},
    {"n=40 ci=192 h=4 w=4 co=128 k=2 s=2", "by=boxes", TCONV_NHWC},
    {"n=3 ci=256 h=17 w=19 co=256 k=3x4 s=2 p=1x2 op=1 d=1x3 g=2", "by=boxes", TCONV_NHWC},
    {"n=2 ci=256 h=1 w=700 co=128 k=1x16 s=1x8 p=0x4", "by=boxes", TCONV_NHWC},
    {"ci=128 h=1 w=215 co=64 k=1x20 s=1x10 p=0x5 b=1", "by=boxes", TCONV_NHWC},
    {"n=3 ci=136 h=1 w=130 co=200 k=1x45 s=1x16 p=0x18x0x11", "by=boxes", TCONV_NHWC},
    {"n=2 ci=256 h=1 w=75 co=128 k=1x12 s=1x9 p=0x3x0x4 d=1x3 g=2", "by=boxes", TCONV_NHWC},
    {"ci=128 z=3 h=1 w=100 co=64 k=2x1x20 s=1x1x10 p=0x0x5", "by=boxes", TCONV_NHWC},
    {"n=2 ci=264 h=1 w=333 co=136 k=1x24 s=1x12 p=0x6", "by=boxes", TCONV_NCHW},
    {"ci=128 h=1 w=215 co=64 k=1x21 s=1x10 p=0x5 b=1", "reads=channels", TCONV_NHWC},
    {"n=7 ci=264 h=18 w=23 co=136 k=3 s=2 p=1 op=1", "parts=1 ", TCONV_NCHW},
    {"n=16 ci=264 h=61 w=63 co=136 k=3 s=2 p=1 op=1", "parts=3 ", TCONV_NCHW},
    {"ci=256 h=301 w=200 co=256 k=3x2 s=2x1 p=2x0 d=2", "parts=3 ", TCONV_NCHW},
    {"n=12 ci=512 h=4 w=4 co=512 k=2 s=2", "parts=1 writes=weights", TCONV_NCHW},
    {"n=3 ci=72 h=21 w=26 co=3 k=4 s=2 p=1 b=1", "reads=src_channels", TCONV_NHWC},
    {"n=16 ci=72 h=60 w=41 co=13 k=3x2 s=2x3 p=2x1 d=3x2", "reads=src_channels", TCONV_NHWC},
    {"n=5 ci=56 h=60 w=63 co=1 k=9 s=4 p=4 op=3 b=1", "reads=src_channels", TCONV_NHWC},
};

Test(gradients, layers_reach_every_way_of_boxes)
{
    for (size_t n = 0; n < COUNT(named); n++) {
        harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
        layer.desc.layout = named[n].layout;
        layer.desc.dtype = TCONV_BF16;
        cr_expect(is_planned(&layer.desc, named[n].words), "%s: not %s", named[n].problem, named[n].words);
    }
}

/* Blocks that have all terms write weights, unless they flush sums to a slice: after 8,192 terms. */
Test(gradients, blocks_that_flush_write_no_weights)
{
    static const char *const words[] = {"writes=weights", "writes=slices"};
    for (int flushes = 0; flushes < 2; flushes++) {
        harness_layer layer = gradient_layer(
            flushes ? "ci=2048 h=64 w=128 co=2048 k=1" : "ci=2048 h=64 w=120 co=2048 k=1", TCONV_BACKWARD_WEIGHTS);
        layer.desc.layout = TCONV_NHWC;
        layer.desc.math = TCONV_MATH_TF32;
        cr_expect(is_planned(&layer.desc, words[flushes]), "%s", words[flushes]);
    }
}

Test(gradients_cuda, every_way_of_boxes_is_exact)
{
    const struct way way = {"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cuda_wgrad"};
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(named); n++)
        for (int form = 0; form < 2; form++) {
            harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
            layer.desc.layout = named[n].layout;
            layer.desc.dtype = form == 0 ? TCONV_BF16 : TCONV_F16;
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &way, 1, false), "%s", named[n].problem);
            harness_case_destroy(&test);
        }
}
