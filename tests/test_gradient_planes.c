/*
 * cuda_dgrad makes the gradient of src in several ways (src/cuda/dgrad/plan.c): of the gradient of dst as it
 * lies, of planes in place, of planes with the taps of a phase or one, in parts, in chunks of images, rows, columns. Layers
 * that each takes one of them for, exact on integers. These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In strict f32 on an H200. The last chunk of each kind overlaps the one before it. */
static const struct {
    const char *problem, *words;
    tconv_layout layout;
} named[] = {
    {"n=2 ci=40 h=20 w=24 co=24 k=3 p=1", "src=as_it_lies", TCONV_NCHW},
    {"n=12 ci=40 h=20 w=24 co=24 k=3x2 p=2x0 d=1x3", "src=as_it_lies", TCONV_NHWC},
    /* Weights that no call derives: of one tap, and those that cuda_depthwise reads backwards. */
    {"n=2 ci=40 h=20 w=24 co=24 k=1", "src=as_it_lies", TCONV_NCHW},
    {"n=4 ci=130 h=32 w=32 co=66 k=1 g=2", "src=as_it_lies", TCONV_NHWC},
    {"n=3 ci=40 h=40 w=12 co=40 k=3 p=1 g=40", "src=as_it_lies parts=1 by=cuda_depthwise", TCONV_NCHW},
    {"n=3 ci=18 h=21 w=33 co=9 k=3x5 p=0x2 d=2x1 g=9", "src=as_it_lies parts=1 by=cuda_depthwise", TCONV_NCHW},
    {"n=512 ci=40 h=16 w=9 co=40 k=2x3 p=1 g=40", "src=as_it_lies parts=1 by=cuda_depthwise pixels=tile", TCONV_NHWC},
    {"n=9 ci=40 h=8 w=9 co=40 k=2x3 p=1 g=40", "src=as_it_lies parts=1 by=cuda_depthwise pixels=vectors", TCONV_NHWC},
    {"n=17 ci=64 h=24 w=24 co=64 k=4 s=2 p=1", "src=in_place planes=2x2 taps=2x2", TCONV_NHWC},
    {"n=9 ci=64 h=40 w=24 co=64 k=3 s=2 p=1 g=2", "src=in_place", TCONV_NHWC},
    {"n=9 ci=64 h=40 w=24 co=64 k=3 s=2 p=1 g=8", "src=in_place", TCONV_NHWC},
    {"ci=40 h=1 w=7 co=256 k=1x5 s=1x2", "src=in_place planes=1x2 taps=1x3 chunks=1 parts=8 by=cuda_igemm", TCONV_NHWC},
    {"n=2 ci=64 h=30 w=41 co=256 k=3x2 s=2x3 p=2x1 d=3x2 op=1",
     "src=in_place planes=2x2 taps=2x1 chunks=1 parts=4 by=cuda_cells", TCONV_NCHW},
    {"n=9 ci=24 h=38 w=31 co=256 k=4x5 s=3x8", "src=in_place planes=3x5 taps=2x1 chunks=9 parts=1", TCONV_NCHW},
    {"n=4 ci=64 h=41 w=51 co=64 k=2x5 s=2x5 p=0x1 g=2", " im2col=1", TCONV_NCHW},
    {"ci=8 h=301 w=200 co=48 k=2 s=2", "src=in_place planes=2x2 taps=1x1 chunks=1 parts=1 by=cuda_cells", TCONV_NCHW},
    {"n=12 ci=120 h=33 w=40 co=32 k=3x4 s=1x2 p=1", "src=in_place planes=1x2 taps=3x2 chunks=1 parts=1 by=cuda_cells",
     TCONV_NCHW},
    /* Rows that TMA does not take, and channel groups that end within a K-block. */
    {"n=4 ci=32 h=20 w=64 co=64 k=3 s=5 p=1 d=2", "src=in_place planes=3x3 taps=1x1 chunks=1 parts=2 by=cuda_cells",
     TCONV_NCHW},
    {"n=6 ci=32 h=40 w=63 co=200 k=2x3 s=2x3 g=2", "src=in_place planes=2x3 taps=1x1 chunks=1 parts=1 by=cuda_cells",
     TCONV_NCHW},
    {"n=17 ci=64 h=24 w=24 co=30 k=4 s=2 p=1", "src=planes planes=2x2 taps=2x2", TCONV_NHWC},
    {"n=2 ci=64 h=20 w=24 co=32 k=2 s=2", "taps=1x1", TCONV_NCHW},
    {"n=2 ci=8 h=30 w=41 co=3 k=9 s=2 p=4", "planes=9x2 taps=1x5", TCONV_NCHW},
    {"n=9 ci=40 h=1 w=1 co=256 k=4", " parts=16", TCONV_NCHW},
    {"n=9 ci=40 h=1 w=1 co=256 k=4", " parts=16", TCONV_NHWC},
    {"n=3 ci=33 h=5 w=7 co=512 k=4 s=2 p=1", " parts=16", TCONV_NCHW},
    {"n=3 ci=33 h=5 w=7 co=512 k=4 s=2 p=1", " parts=16", TCONV_NHWC},
    {"n=5 ci=8 h=5 w=41 co=256 k=17x2 s=17x2", "chunks=2x1x1 parts=16", TCONV_NCHW},
    {"n=9 ci=6 h=64 w=65 co=62 k=4 s=2 p=1", "chunks=2x1x1", TCONV_NHWC},
    {"ci=8 h=301 w=201 co=44 k=2x3 s=9x3", "chunks=1x3x1", TCONV_NCHW},
    {"ci=8 h=301 w=200 co=46 k=3 s=2", "chunks=1x2x1", TCONV_NHWC},
    {"ci=4 h=1 w=50001 co=64 k=1x8 s=1x4 p=0x2", "chunks=1x1x2", TCONV_NCHW},
    {"ci=4 h=1 w=50001 co=62 k=1x8 s=1x4 p=0x2", "chunks=1x1x2", TCONV_NHWC},
    /* Many planes of few channels, whose words lanes share. */
    {"n=3 ci=24 h=21 w=30 co=3 k=9x7 s=9x7 p=4x1", "src=planes planes=9x7", TCONV_NHWC},
    {"n=2 ci=24 h=7 w=9 co=6 k=8x9 s=8x9 p=3x1 g=2", "src=planes planes=8x9", TCONV_NHWC},
    {"n=40 ci=33 h=1 w=60 co=1 k=1x450 s=1x150 p=0x40", "src=planes planes=1x150 taps=1x3", TCONV_NHWC},
    /* Parts of planes: of planes alone, of rows of taps, of columns of taps, and with channel groups. */
    {"n=3 ci=24 h=1 w=20 co=64 k=1x3 s=1x4", "planes=1x3 taps=1x1 chunks=1 of_planes=1 parts=3", TCONV_NHWC},
    {"n=2 ci=48 h=1 w=300 co=64 k=1x15 s=1x2 p=0x3", "planes=1x2 taps=1x8 chunks=1 of_planes=1 parts=8", TCONV_NHWC},
    {"ci=40 h=5 w=7 co=32 k=5x2 s=1x4 g=2", "planes=1x2 taps=5x1 chunks=1 of_planes=1 parts=4", TCONV_NHWC},
    {"n=2 ci=72 h=1 w=7 co=32 k=1x8 s=1x2 g=2", "planes=1x2 taps=1x4 chunks=1 of_planes=1 parts=8", TCONV_NCHW},
    /* Groups of more than 512 bytes of channels that are fused, because their outputs are few. */
    {"n=3 ci=24 h=1 w=7 co=128 k=1x3 s=1x4 g=2", "of_planes=1 parts=3 by=cuda_igemm", TCONV_NHWC},
    /* K-blocks of a tile that the blocks of a cluster share out: of phases with more taps and fewer, of parts of a phase, with
     * channel groups, in chunks. */
    {"n=2 ci=40 h=30 w=41 co=128 k=3x2 s=2x3 p=2x1 d=3x2", " cluster=4", TCONV_NHWC},
    {"n=9 ci=24 h=38 w=31 co=256 k=4x5 s=3x8", " cluster=8", TCONV_NCHW},
    {"ci=96 h=37 w=37 co=96 k=4 s=4", " cluster=4", TCONV_NHWC},
    {"n=2 ci=72 h=15 w=16 co=192 k=5 s=2 g=2", " cluster=8", TCONV_NHWC},
    {"n=2 ci=72 h=15 w=16 co=192 k=5 s=2 g=2", " cluster=8", TCONV_NCHW},
    {"n=2 ci=33 h=1 w=30 co=1 k=1x450 s=1x150 p=0x40", " cluster=8", TCONV_NHWC},
};

/* Weights as they lie in channels_last: columns a stride apart as pixels; beside that, rows of src that are more than TMA steps
 * over apart, and columns. */
static const struct {
    const char *problem, *words;
    tconv_layout layout;
} deep[] = {
    {"ci=40 h=1 w=30 co=8 k=1x64 s=1x16", "planes=1x1 taps=1x4 chunks=1 to_depth=1 parts=1", TCONV_NHWC},
    {"n=2 ci=24 h=9 w=17 co=20 k=4x6 s=2x3 p=1x3", "planes=2x1 taps=2x2 chunks=1 to_depth=1", TCONV_NHWC},
    {"n=2 ci=100 h=1 w=20 co=1 k=1x300 s=1x60", "planes=1x1 taps=1x5 chunks=1 to_depth=1", TCONV_NCHW},
    {"n=3 ci=21 h=9 w=10 co=21 k=24 s=12", "src=in_place planes=12x1 taps=2x2 chunks=1 to_depth=1", TCONV_NHWC},
    {"n=2 ci=520 h=1 w=43 co=256 k=1x20 s=1x10 p=0x5", "src=in_place planes=1x10 taps=1x2", TCONV_NHWC},
    {"n=2 ci=520 h=1 w=43 co=256 k=1x20 s=1x10 p=0x5", "src=in_place planes=1x10 taps=1x2", TCONV_NCHW},
};

Test(gradients, layers_reach_every_way_of_planes)
{
    for (size_t n = 0; n < COUNT(named); n++) {
        harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_DATA);
        layer.desc.layout = named[n].layout;
        layer.desc.math = TCONV_MATH_STRICT;
        cr_expect(is_planned(&layer.desc, named[n].words), "%s: not %s", named[n].problem, named[n].words);
    }
    for (size_t n = 0; n < COUNT(deep); n++) {
        harness_layer layer = gradient_layer(deep[n].problem, TCONV_BACKWARD_DATA);
        layer.desc.layout = deep[n].layout;
        layer.desc.weight_layout = TCONV_WEIGHT_IHWO;
        layer.desc.math = TCONV_MATH_TF32;
        cr_expect(is_planned(&layer.desc, deep[n].words), "%s: not %s", deep[n].problem, deep[n].words);
    }
}

Test(gradients_cuda, every_way_of_planes_is_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(named); n++)
        for (int form = 0; form < 6; form++) {
            static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F32, TCONV_BF16, TCONV_F64, TCONV_F16, TCONV_F32};
            const struct way way = {"cuda_dgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT,
                                    form == 5 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT, "cuda_dgrad"};
            harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_DATA);
            layer.desc.layout = named[n].layout;
            layer.desc.dtype = dtypes[form];
            layer.desc.weight_layout = (tconv_weight_layout)(form % 3);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", named[n].problem);
            harness_case_destroy(&test);
        }
}

Test(gradients_cuda, columns_as_channels_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(deep); n++)
        for (int form = 0; form < 4; form++) {
            static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_BF16, TCONV_F16, TCONV_F32};
            const struct way way = {"cuda_dgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT,
                                    form == 3 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT, "cuda_dgrad"};
            harness_layer layer = gradient_layer(deep[n].problem, TCONV_BACKWARD_DATA);
            layer.desc.layout = deep[n].layout;
            layer.desc.dtype = dtypes[form];
            layer.desc.weight_layout = TCONV_WEIGHT_IHWO;
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", deep[n].problem);
            harness_case_destroy(&test);
        }
}

/* In 16 bits cuda_cells reads words of two columns, which may straddle those of memory, and of which the kernel may have one
 * column alone. On an H200. */
static const struct {
    const char *problem, *words;
} halves[] = {
    {"n=6 ci=64 h=45 w=56 co=64 k=4x2 s=3x2 p=1x0", " straddle=0 "},
    {"n=6 ci=130 h=41 w=57 co=128 k=3x4 s=2x2 p=2x2", " straddle=0 "},
    {"n=16 ci=128 h=56 w=56 co=64 k=3 s=2 p=1 op=1", " straddle=0 "},
    {"n=4 ci=130 h=29 w=124 co=33 k=1x6 s=2x4 p=0x1", " straddle=1 "},
    {"n=6 ci=64 h=49 w=101 co=32 k=3x2 s=2x2 p=0x1", " straddle=1 "},
    {"n=512 ci=64 h=14 w=14 co=64 k=2 s=2", " straddle=0 "}, /* rows that TMA does not take */
    /* Those whose pairs of columns cuda_igemm gathers. */
    {"n=8 ci=64 h=60 w=124 co=64 k=3", "src=gathered_in_pairs"},
    {"n=8 ci=128 h=60 w=125 co=64 k=3x2 p=1x0", "src=gathered_in_pairs"},
};

static const struct way correlation = {"cuda_dgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT,
                                       "cuda_dgrad"};

Test(gradients, layers_of_16_bits_reach_words_of_columns)
{
    for (size_t n = 0; n < COUNT(halves); n++)
        for (int half = 0; half < 2; half++) {
            harness_layer layer = gradient_layer(halves[n].problem, TCONV_BACKWARD_DATA);
            layer.desc.dtype = half == 0 ? TCONV_F16 : TCONV_BF16;
            cr_expect(is_planned(&layer.desc, halves[n].words), "%s: not %s", halves[n].problem, halves[n].words);
        }
}

Test(gradients_cuda, words_of_columns_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(halves); n++)
        for (int form = 0; form < 6; form++) {
            harness_layer layer = gradient_layer(halves[n].problem, TCONV_BACKWARD_DATA);
            layer.desc.dtype = form % 2 == 0 ? TCONV_F16 : TCONV_BF16;
            layer.desc.weight_layout = (tconv_weight_layout)(form / 2);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &correlation, 1, form > 2), "%s", halves[n].problem);
            harness_case_destroy(&test);
        }
}

/* cuda_depthwise reads the gradient of dst straight: groups of one input channel, columns and rows past a thread's. */
Test(gradients_cuda, depthwise_layers_are_exact)
{
    static const char *const problems[] = {
        "n=3 ci=40 h=21 w=33 co=40 k=4 s=2 p=1 g=40",    "n=2 ci=9 h=6 w=70 co=18 k=3x5 s=1x3 p=2x1 d=2x1 op=1x2 g=9",
        "ci=70 h=1 w=300 co=70 k=1x16 s=1x8 p=0x4 g=70", "n=2 ci=5 h=3 w=3 co=5 k=5x3 s=4 p=6x4x0x1 g=5",
        "n=2 ci=5 h=5 w=40 co=5 k=16 s=8 p=4 g=5",       "n=3 ci=7 h=6 w=35 co=14 k=3x4 s=2 p=1x0 g=7"};
    skip_without_cuda();
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++) {
            const struct way way = {"cuda_depthwise", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT,
                                    "cuda_depthwise"};
            harness_layer layer = gradient_layer(problems[p], TCONV_BACKWARD_DATA);
            gradient_set_form(&layer, form);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", problems[p]);
            harness_case_destroy(&test);
        }
}

/* Where threads are enough, they have four columns each in NCHW, and load the outputs of their taps by vectors, which begin 0
 * to 3 outputs before the first. */
static const char *const of_spans[] = {
    "n=4 ci=96 h=35 w=70 co=96 k=2 s=2 g=96", "n=4 ci=96 h=35 w=70 co=192 k=5x7 s=3x2 p=0x3 op=0x1 g=96",
    "n=4 ci=96 h=35 w=69 co=96 k=3x4 s=2 p=0x2 op=1x0 g=96", "n=8 ci=64 h=33 w=126 co=64 k=4 s=2 p=1 g=64"};

Test(gradients, depthwise_layers_reach_spans)
{
    for (size_t p = 0; p < COUNT(of_spans); p++) {
        harness_layer layer = gradient_layer(of_spans[p], TCONV_BACKWARD_DATA);
        layer.desc.math = TCONV_MATH_STRICT;
        cr_expect(is_planned(&layer.desc, " columns=4 "), "%s", of_spans[p]);
    }
}

Test(gradients_cuda, spans_of_depthwise_layers_are_exact)
{
    static const struct way way = {"cuda_depthwise", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT,
                                   "cuda_depthwise"};
    skip_without_cuda();
    for (size_t p = 0; p < COUNT(of_spans); p++)
        for (int form = 0; form < GRADIENT_FORMS; form++) {
            harness_layer layer = gradient_layer(of_spans[p], TCONV_BACKWARD_DATA);
            gradient_set_form(&layer, form);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, p);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", of_spans[p]);
            harness_case_destroy(&test);
        }
}

/* In 16 bits, sums of more terms than tensor cores are trusted with, which come in parts of planes. On an H200. */
static const char *const long_sums[] = {
    "ci=80 h=1 w=62 co=80 k=1x1024 s=1x256",
    "ci=72 h=1 w=215 co=1024 k=1x20 s=1x10 p=0x5",
    "n=2 ci=21 h=34 w=34 co=24 k=32x32 s=16x16",
    "n=3 ci=40 h=5 w=7 co=2048 k=5 s=2 p=2 op=1",
};

enum { LONG_SUM_FORMS = 4 }; /* layouts by dtypes */

static harness_layer long_sum(size_t n, int form)
{
    harness_layer layer = gradient_layer(long_sums[n], TCONV_BACKWARD_DATA);
    layer.desc.layout = (tconv_layout)(form % 2);
    layer.desc.dtype = form / 2 == 0 ? TCONV_F16 : TCONV_BF16;
    return layer;
}

Test(gradients, long_sums_of_16_bits_come_in_parts)
{
    for (size_t n = 0; n < COUNT(long_sums); n++)
        for (int form = 0; form < LONG_SUM_FORMS; form++) {
            const harness_layer layer = long_sum(n, form);
            cr_expect(is_planned(&layer.desc, "by=cuda_igemm") && !is_planned(&layer.desc, " parts=1 "),
                      "%s: not in parts", long_sums[n]);
        }
}

Test(gradients_cuda, long_sums_of_16_bits_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(long_sums); n++)
        for (int form = 0; form < LONG_SUM_FORMS; form++) {
            const harness_layer layer = long_sum(n, form);
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &correlation, 1, form % 2 != 0), "%s", long_sums[n]);
            harness_case_destroy(&test);
        }
}
