/*
 * cuda_wgrad sums the gradient of weights by planes from lines that TMA brings (src/cuda/wgrad/plan_lines.c): those of the
 * gradient of dst to two blocks at once, and several rows of src as one. Layers for which it does, exact on integers. These are
 * tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In TF32 on an H200: rows, images and channels past a K-tile and a tile, groups, taps that share lines and such that do not,
 * blocks that write slices, weights, and that flush sums between. */
static const struct {
    const char *problem, *words;
} named[] = {
    {"n=9 ci=256 h=16 w=16 co=64 k=2 s=2", "k_tile=1x2x16 "},
    {"n=8 ci=250 h=20 w=24 co=70 k=2 s=2", "writes=slices"},
    {"n=9 ci=512 h=28 w=28 co=136 k=2 s=2 g=2", "writes=slices"},
    {"n=8 ci=512 h=8 w=8 co=256 k=4 s=2 p=1", "writes=weights"},
    {"n=33 ci=512 h=4 w=4 co=256 k=4 s=2 p=1", "k_tile=2x4x4 "},
    {"n=33 ci=500 h=5 w=4 co=120 k=4 s=2 p=1", "k_tile=1x8x4 "},
    {"n=10 ci=512 h=32 w=32 co=60 k=3 s=2 p=1 op=1 b=1", "chunk=12 "},
    {"n=2 ci=250 h=1 w=512 co=64 k=1x16 s=1x8 p=0x4", "writes=slices"},
    {"n=6 ci=130 h=33 w=16 co=24 k=3x4 s=2 p=1 d=2x1", "taps=3x4 "},
    {"n=10 ci=1024 h=32 w=32 co=256 k=4 s=2 p=1", "splits=1 "},
};

/* In 16 bits: whole rows of src as one, src by pixels at once, groups, strides by which a register's two pixels lie in one word,
 * in neighbours and further apart, dilation. */
static const char *const halves[] = {
    "n=3 ci=250 h=40 w=80 co=130 k=2 s=2",
    "n=9 ci=512 h=16 w=16 co=16 k=4 s=2 p=1",
    "n=40 ci=130 h=1 w=512 co=12 k=1x16 s=1x8 p=0x4 b=1",
    "n=4 ci=96 h=48 w=32 co=48 k=3 s=2 p=1 op=1 g=2",
    "n=8 ci=64 h=32 w=64 co=32 k=3 p=2 d=2",
    "n=33 ci=70 h=16 w=16 co=5 k=3 s=2 p=1 op=1",
    "n=33 ci=70 h=31 w=60 co=20 k=2 s=2",
};

Test(gradients, blocks_share_lines)
{
    for (size_t n = 0; n < COUNT(named); n++) {
        harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
        layer.desc.math = TCONV_MATH_TF32;
        cr_expect(is_planned(&layer.desc, " sharers=2 "), "%s: does not share", named[n].problem);
        cr_expect(is_planned(&layer.desc, named[n].words), "%s: not %s", named[n].problem, named[n].words);
    }
}

Test(gradients_cuda, lines_that_blocks_share_are_exact)
{
    const struct way way = {"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_TF32, "cuda_wgrad"};
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(named); n++)
        for (int form = 0; form < 2; form++) {
            harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
            layer.desc.weight_layout = (tconv_weight_layout)form;
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", named[n].problem);
            harness_case_destroy(&test);
        }
}

Test(gradients, lines_serve_16_bits)
{
    for (size_t n = 0; n < COUNT(halves); n++) {
        harness_layer layer = gradient_layer(halves[n], TCONV_BACKWARD_WEIGHTS);
        layer.desc.dtype = n % 2 == 0 ? TCONV_BF16 : TCONV_F16;
        cr_expect(is_planned(&layer.desc, "reads=lines "), "%s: not by lines", halves[n]);
    }
}

Test(gradients_cuda, lines_of_16_bits_are_exact)
{
    const struct way way = {"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cuda_wgrad"};
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(halves); n++)
        for (int form = 0; form < 4; form++) {
            harness_layer layer = gradient_layer(halves[n], TCONV_BACKWARD_WEIGHTS);
            layer.desc.dtype = form / 2 == 0 ? TCONV_BF16 : TCONV_F16;
            layer.desc.weight_layout = (tconv_weight_layout)(form % 2);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", halves[n]);
            harness_case_destroy(&test);
        }
}
