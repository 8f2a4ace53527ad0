/*
 * cuda_wgrad and cpu_wgrad take some layers as ones with fewer taps and more channels (src/core/space_to_depth.h), and
 * cuda_wgrad copies channels that are no vectors (src/cuda/wgrad/copies.h). Layers for which they do, exact on integers.
 * These are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *problem, *nchw, *nhwc; /* what the plan says in either layout, with weights that lie alike */
} named[] = {
    {"n=3 ci=40 h=1 w=33 co=1 k=1x96 s=1x48", "layers=1 channels=48 ", "layers=1 channels=48 "},
    {"n=3 ci=37 h=1 w=50 co=1 k=1x100 s=1x40", "layers=2 channels=40 ", "layers=2 channels=40 "},
    {"n=2 ci=24 h=1 w=31 co=1 k=1x96 s=1x32 p=0x32", "layers=1 channels=32 ", "layers=1 channels=32 "},
    {"n=2 ci=24 h=1 w=31 co=1 k=1x80 s=1x32 p=0x64x0x0 op=0x9", "layers=2 channels=32 ", "layers=2 channels=32 "},
    {"n=2 ci=16 h=1 w=40 co=6 k=1x128 s=1x64 b=1", "layers=2 channels=6 ", "layers=1 channels=384 "},
    {"n=2 ci=16 h=1 w=40 co=6 k=1x111 s=1x37", "layers=37 channels=6 ", "layers=1 channels=222 "},
    {"n=2 ci=16 h=40 w=1 co=6 k=128x1 s=64x1", "layers=2 channels=6 ", "layers=1 channels=384 "},
    {"n=17 ci=264 h=1 w=1 co=48 k=7 b=1", "layers=1 channels=2352 ", "layers=1 channels=2352 "},
    {"n=1 ci=64 h=20 w=24 co=20 k=8 s=8", "by=", "layers=1 channels=160 "},
    {"n=4 ci=64 h=1 w=1 co=60 k=5x3 g=2", "layers=1 channels=900 ", "by="},
    {"n=3 ci=21 h=1 w=33 co=1 k=1x480 s=1x48 p=0x48 b=1", "layers=1 channels=48 ", "layers=1 channels=48 "},
    {"n=2 ci=17 h=25 w=1 co=6 k=300x1 s=30x1", "block_tile=", "layers=1 channels=180 "},
    {"n=1 ci=18 h=1 w=70 co=1 k=1x700 s=1x700", "layers=1 channels=700 ", "layers=1 channels=700 "},
};

/* More taps along an axis than tables hold, which several layers share, on CUDA. */
static const char *const cut[] = {
    "n=2 ci=21 h=5 w=4 co=21 k=64 s=32 b=1",
    "n=2 ci=21 h=4 w=5 co=21 k=64 s=32 p=16 b=1",
    "n=2 ci=12 h=6 w=8 co=9 k=40x35 s=16x3 p=7x2 d=1x2 b=1",
    "n=3 ci=16 h=1 w=90 co=24 k=1x100 s=1x3 p=0x40 d=1x2 b=1",
};

/* Channels that are no vectors: of src, of the gradient of dst, of both; of one byte's multiples alone, rows that are cut. */
static const char *const copied[] = {
    "n=8 ci=1026 h=12 w=16 co=256 k=4 s=2 p=1",
    "n=8 ci=512 h=12 w=15 co=131 k=4 s=2 p=1 b=1",
    "n=9 ci=258 h=17 w=16 co=130 k=3 s=2 p=1 op=1",
    "n=4 ci=321 h=100 w=31 co=101 k=2 s=2",
};

/* The layout of the tensors and of the weights. */
static void lie(harness_layer *layer, bool channels_last)
{
    layer->desc.layout = channels_last ? TCONV_NHWC : TCONV_NCHW;
    layer->desc.weight_layout = channels_last ? TCONV_WEIGHT_IHWO : TCONV_WEIGHT_IOHW;
}

static void expect_exact(const harness_layer *layer, tconv_math math, uint64_t seed)
{
    const struct way way = {"cuda_wgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, math, "cuda_wgrad"};
    if (!harness_has_integers(layer))
        return;
    harness_case test = make_sampled_case(layer, HARNESS_INTEGERS, seed);
    cr_expect(check_way(&test, &way, 1, false), "layer %llu, dtype %d, math %d, layout %d", (unsigned long long)seed,
              (int)layer->desc.dtype, (int)math, (int)layer->desc.layout);
    harness_case_destroy(&test);
}

/* On integers in every dtype and mode of cuda_wgrad. */
static void expect_all_exact(harness_layer *layer, uint64_t seed)
{
    static const struct {
        tconv_dtype dtype;
        tconv_math math;
    } modes[] = {{TCONV_F32, TCONV_MATH_TF32},
                 {TCONV_F32, TCONV_MATH_STRICT},
                 {TCONV_F16, TCONV_MATH_STRICT},
                 {TCONV_BF16, TCONV_MATH_STRICT}};
    for (size_t i = 0; i < COUNT(modes); i++) {
        layer->desc.dtype = modes[i].dtype;
        layer->desc.accumulate = i % 2;
        expect_exact(layer, modes[i].math, seed);
    }
}

Test(gradients, taps_become_channels)
{
    for (size_t n = 0; n < COUNT(named); n++)
        for (int channels_last = 0; channels_last < 2; channels_last++) {
            harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
            lie(&layer, channels_last != 0);
            layer.desc.dtype = TCONV_BF16;
            const char *words = channels_last ? named[n].nhwc : named[n].nchw;
            cr_expect(is_planned(&layer.desc, words), "%s: not %s", named[n].problem, words);
        }
}

/* On the CPU both gradients, in every dtype, with weights in each layout. */
Test(gradients, taps_that_become_channels_are_exact)
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F64, TCONV_F16, TCONV_BF16};
    static const struct {
        tconv_op op;
        struct way way;
    } ways[] = {
        {TCONV_BACKWARD_WEIGHTS,
         {"cpu_wgrad", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cpu_wgrad"}},
        {TCONV_BACKWARD_DATA, {"cpu_dgrad", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cpu_dgrad"}},
    };
    enum { FORMS = 2 * 3 * 4 };
    for (size_t n = 0; n < COUNT(named); n++)
        for (int form = 0; form < FORMS * 2; form++) {
            harness_layer layer = gradient_layer(named[n].problem, ways[form / FORMS].op);
            layer.desc.layout = (tconv_layout)(form % 2);
            layer.desc.weight_layout = (tconv_weight_layout)(form / 2 % 3);
            layer.desc.dtype = dtypes[form % FORMS / 6];
            layer.desc.accumulate = n % 3 == 2;
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &ways[form / FORMS].way, 2, false), "%s, form %d", named[n].problem, form);
            harness_case_destroy(&test);
        }
}

Test(gradients_cuda, taps_that_become_channels_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(named); n++)
        for (int form = 0; form < 4; form++) {
            harness_layer layer = gradient_layer(named[n].problem, TCONV_BACKWARD_WEIGHTS);
            lie(&layer, form % 2 != 0);
            if (form / 2 != 0) /* another layout of weights than of tensors */
                layer.desc.weight_layout = form % 2 != 0 ? TCONV_WEIGHT_HWOI : TCONV_WEIGHT_IHWO;
            expect_all_exact(&layer, n);
        }
}

Test(gradients, channels_that_are_no_vectors_are_copied)
{
    for (size_t n = 0; n < COUNT(copied); n++) {
        harness_layer layer = gradient_layer(copied[n], TCONV_BACKWARD_WEIGHTS);
        lie(&layer, true);
        layer.desc.dtype = n % 2 == 0 ? TCONV_BF16 : TCONV_F16;
        cr_expect(is_planned(&layer.desc, "by=boxes ") && !is_planned(&layer.desc, "parts=0 "), "%s: no copies",
                  copied[n]);
    }
}

Test(gradients, taps_are_cut)
{
    for (size_t n = 0; n < COUNT(cut); n++)
        for (int channels_last = 0; channels_last < 2; channels_last++) {
            harness_layer layer = gradient_layer(cut[n], TCONV_BACKWARD_WEIGHTS);
            lie(&layer, channels_last != 0);
            layer.desc.dtype = TCONV_BF16;
            cr_expect(is_planned(&layer.desc, "layers="), "%s: one layer", cut[n]);
        }
}

Test(gradients_cuda, taps_that_are_cut_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(cut); n++)
        for (int channels_last = 0; channels_last < 2; channels_last++) {
            harness_layer layer = gradient_layer(cut[n], TCONV_BACKWARD_WEIGHTS);
            lie(&layer, channels_last != 0);
            expect_all_exact(&layer, n);
        }
}

Test(gradients_cuda, copies_of_channels_that_are_no_vectors_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(copied); n++)
        for (int form = 0; form < 2; form++) {
            harness_layer layer = gradient_layer(copied[n], TCONV_BACKWARD_WEIGHTS);
            lie(&layer, form == 0);
            expect_all_exact(&layer, n);
        }
}
