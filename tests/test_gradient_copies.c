/*
 * cuda_wgrad copies tensors in NCHW to NHWC where kernels that load channels are faster with that: all images, or parts of them
 * whose sums are added to those before. Layers that each takes one of these ways for, exact on integers; test_gradient_boxes.c has
 * those by boxes. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Planes of vectors, of half and of a quarter of one, and of single elements; parts of images, of which the last has fewer; groups. */
static const struct {
    const char *problem;
    tconv_dtype dtype;
    const char *words;
} copied[] = {
    {"n=1501 ci=128 h=5 w=5 co=64 k=5 s=2 b=1", TCONV_F32, " parts=2 "},
    {"n=64 ci=384 h=7 w=7 co=320 k=3 p=1 b=1", TCONV_F32, " parts=1 "},
    {"n=2 ci=200 h=40 w=40 co=144 k=7 s=4 p=1x0 b=1", TCONV_F32, " parts=1 "},
    {"ci=1024 h=1 w=86 co=512 k=1x16 s=1x8 p=0x4 b=1", TCONV_F32, " parts=1 "},
    {"n=4 ci=256 h=224 w=90 co=16 k=5 s=2 p=0x1 g=2", TCONV_BF16, " parts=2 "},
};

static harness_layer layer_at(size_t n)
{
    return gradient_weights_layer(copied[n].problem, copied[n].dtype, TCONV_NCHW);
}

Test(gradients, layers_in_nchw_are_copied)
{
    for (size_t n = 0; n < COUNT(copied); n++) {
        const harness_layer layer = layer_at(n);
        cr_expect(is_planned(&layer.desc, " by=wgmma reads=channels "), "%s: not copied", copied[n].problem);
        cr_expect(is_planned(&layer.desc, copied[n].words), "%s: not %s", copied[n].problem, copied[n].words);
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
