/*
 * cuda_wgrad copies tensors in NCHW to NHWC where kernels that load channels are faster with that: all images, or parts of them
 * whose sums are added to those before. In NHWC it copies tensors whose pixels are no whole vectors, the gradient of dst alone
 * where src has whole vectors. Layers that each takes one of these ways for, exact on integers; test_gradient_boxes.c has more
 * by boxes. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Planes of vectors, of half and of a quarter of one, and of single elements; parts of images, of which the last has fewer; groups.
 * In NHWC all images, parts of them, and parts of the rows of an image. */
static const struct {
    const char *problem;
    tconv_dtype dtype;
    const char *words;
    tconv_layout layout;
} copied[] = {
    {"n=1501 ci=128 h=5 w=5 co=64 k=5 s=2 b=1", TCONV_F32, " parts=2 ", TCONV_NCHW},
    {"n=64 ci=384 h=7 w=7 co=320 k=3 p=1 b=1", TCONV_F32, " parts=1 ", TCONV_NCHW},
    {"n=2 ci=200 h=40 w=40 co=144 k=7 s=4 p=1x0 b=1", TCONV_F32, " parts=1 ", TCONV_NCHW},
    {"ci=1024 h=1 w=86 co=512 k=1x16 s=1x8 p=0x4 b=1", TCONV_F32, " parts=1 ", TCONV_NCHW},
    {"n=4 ci=256 h=224 w=90 co=16 k=5 s=2 p=0x1 g=2", TCONV_BF16, " parts=2 ", TCONV_NCHW},
    {"n=8 ci=320 h=50 w=50 co=12 k=9x5 s=4x2 p=2x1 b=1", TCONV_BF16, " parts=1 writes=slices bias=pass copies=dst",
     TCONV_NHWC},
    {"n=16 ci=128 h=32 w=24 co=133 k=4 s=2 p=1 b=1", TCONV_F16, " parts=1 writes=slices bias=products copies=dst",
     TCONV_NHWC},
    {"n=16 ci=128 h=32 w=24 co=133 k=4 s=2 p=1 b=1", TCONV_F32, " parts=1 writes=slices bias=pass copies=dst",
     TCONV_NHWC},
    {"n=65 ci=256 h=64 w=48 co=133 k=4 s=2 p=1 b=1", TCONV_BF16, " parts=5 writes=slices bias=pass copies=dst",
     TCONV_NHWC},
    {"ci=256 h=240 w=400 co=100 k=2 s=2", TCONV_BF16, " parts=2 writes=slices bias=products copies=dst", TCONV_NHWC},
};

static harness_layer layer_at(size_t n)
{
    return gradient_weights_layer(copied[n].problem, copied[n].dtype, copied[n].layout);
}

Test(gradients, layers_are_copied)
{
    for (size_t n = 0; n < COUNT(copied); n++) {
        const harness_layer layer = layer_at(n);
        cr_expect(is_planned(&layer.desc, copied[n].words), "%s: not %s", copied[n].problem, copied[n].words);
        cr_expect(copied[n].layout == TCONV_NHWC || is_planned(&layer.desc, " by=wgmma reads=channels "),
                  "%s: not copied", copied[n].problem);
    }
}

Test(gradients_cuda, copies_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(copied); n++) {
        const harness_layer layer = layer_at(n);
        const struct way way = {"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, layer.desc.math, "cuda_wgrad"};
        cr_assert(harness_has_integers(&layer), "%s: its sums of integers are not exact", copied[n].problem);
        harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
        cr_expect(check_way(&test, &way, 1, false), "%s", copied[n].problem);
        harness_case_destroy(&test);
    }
}
