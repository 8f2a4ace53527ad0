/*
 * cuda_nhwc: which layers in NCHW it takes and is chosen for on an H200, how much memory it needs, and that chunks of images give
 * each image its own outputs, exact on integers. Small layers, which are one chunk, are in every suite of implementations.
 */
#include <criterion/criterion.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static harness_layer layer_in(tconv_dtype dtype, const char *problem, tconv_op op)
{
    harness_layer layer = gradient_layer(problem, op);
    layer.desc.dtype = dtype;
    return layer;
}

/* A head of FCN, and an upsampler of WaveGlow: NCHW has no way to read pixels that are 16 and 256 columns apart as rows. */
Test(nhwc, layers_of_long_strides_take_it)
{
    static const struct {
        const char *problem, *words;
        tconv_op op;
    } rows[] = {
        {"n=4 ci=21 h=34 w=34 co=21 k=32 s=16", " images=2 chunks=2 weights=ihwo by=cuda_dgrad ", TCONV_BACKWARD_DATA},
        {"ci=80 h=1 w=620 co=80 k=1x1024 s=1x256 b=1", " images=1 chunks=1 weights=ihwo by=cuda_wgrad ",
         TCONV_BACKWARD_WEIGHTS},
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        harness_layer layer = layer_in(TCONV_BF16, rows[r].problem, rows[r].op);
        cr_expect(is_planned(&layer.desc, "   1 cuda_nhwc "), "%s", rows[r].problem);
        cr_expect(is_planned(&layer.desc, rows[r].words), "%s", rows[r].problem);
        layer.desc.layout = TCONV_NHWC;
        cr_expect(is_planned(&layer.desc, " cuda_nhwc        declines: for layers in NCHW"), "%s", rows[r].problem);
    }
}

/* The workspace is packed weights and at most 48 MiB. */
Test(nhwc, images_that_are_too_large_are_declined)
{
    static const char declines[] = " cuda_nhwc        declines: needs images of at most 40 MiB";
    const harness_layer fits = layer_in(TCONV_F32, "ci=64 h=256 w=256 co=24 k=2 s=2", TCONV_FORWARD);
    const harness_layer large = layer_in(TCONV_F32, "ci=64 h=256 w=256 co=25 k=2 s=2", TCONV_FORWARD);
    harness_layer many = layer_in(TCONV_F32, "n=2 ci=64 h=256 w=256 co=24 k=2 s=2", TCONV_FORWARD);
    cr_expect(!is_planned(&fits.desc, declines));
    cr_expect(is_planned(&large.desc, declines));
    cr_expect(!is_planned(&many.desc, declines));
    many.desc.op = TCONV_BACKWARD_WEIGHTS;
    cr_expect(is_planned(&many.desc, declines));
}

/* The last chunk begins so that it ends with the layer. */
Test(nhwc_cuda, chunks_of_images_are_exact)
{
    static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_BF16, TCONV_F16};
    skip_without_cuda();
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_DATA; op++)
        for (size_t d = 0; d < COUNT(dtypes); d++) {
            const struct way way = {"cuda_nhwc", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT,
                                    dtypes[d] == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT, "cuda_nhwc"};
            harness_layer layer = layer_in(dtypes[d], "n=5 ci=32 h=201 w=131 co=40 k=3 s=2 op=1", (tconv_op)op);
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, d);
            cr_expect(check_way(&test, &way, 1, d == 1), "%s", harness_dtype_name(dtypes[d]));
            harness_case_destroy(&test);
        }
}
