/*
 * cuda_depthwise sums the gradient of weights by spans (src/cuda/depthwise/weights_spans.c): threads of a warp have spans of a
 * row, loaded by vectors or by elements, or channels. Layers for each, exact on integers; what does not exist is skipped. These
 * are tests of the suites gradients and gradients_cuda.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* In f32 on an H200: rows of vectors, with 0 to 3 taps before the first; odd rows; a kernel row longer than a thread's taps;
 * kernel rows with a dilation, so that walks skip rows; images narrower than a span, of one row, of one pixel; more kernel rows
 * than a block's warps; a channel multiplier; so few pixels that they are summed pixel by pixel in NHWC; more rounds than one. */
static const struct {
    const char *problem, *nchw, *nhwc; /* what is planned, by layout */
} layers[] = {
    {"n=4 ci=40 h=35 w=72 co=40 k=9x7 p=4x3 g=40", "inputs=8 rows=3 taps=7 vector=16",
     "inputs=8 rows=3 taps=7 vector=4"},
    {"n=3 ci=40 h=21 w=36 co=40 k=4 s=2 p=1 g=40", "inputs=8 rows=2 taps=4 vector=16",
     "inputs=8 rows=2 taps=4 vector=4"},
    {"n=20 ci=9 h=13 w=20 co=9 k=5x4 s=2x1 d=3x1 p=4x2x4x1 g=9", "rows=3 taps=4 vector=16", "rows=3 taps=4 vector=4"},
    {"n=3 ci=7 h=11 w=37 co=14 k=8x9 s=4 p=2x3 g=7", "inputs=4 rows=2 taps=9 vector=4",
     "inputs=4 rows=2 taps=9 vector=4"},
    {"n=2 ci=5 h=9 w=36 co=5 k=3x37 p=1x18 g=5", "rows=2 taps=16 vector=16", "taps=16 vector=4"},
    {"n=3 ci=70 h=1 w=300 co=70 k=1x12 s=1x2 g=70", "rows=1 taps=12 vector=4", "rows=1 taps=12 vector=4"},
    {"n=70 ci=9 h=6 w=3 co=9 k=5 s=2 p=2 op=1 g=9", "rows=3 taps=5 vector=4", "rows=3 taps=5 vector=4"},
    {"n=24 ci=33 h=1 w=1 co=33 k=3 s=4 p=1 g=33", "rows=1 taps=3", "rows=1 taps=3"},
    {"n=2 ci=10 h=24 w=16 co=30 k=21x5 p=10x2 g=10", "rows=4 taps=5 vector=16", "rows=4 taps=5 vector=4"},
    {"n=2 ci=70 h=4 w=4 co=70 k=4 s=2 p=1 g=70", "rows=2 taps=4 vector=16", "pairs=16"},
    {"n=9 ci=1 h=250 w=64 co=1 k=3 p=1 g=1", "rows=3 taps=3 vector=16", "rows=3 taps=3 vector=4"},
};

static const struct way spans = {"cuda_depthwise", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT,
                                 "cuda_depthwise"};

Test(gradients, depthwise_weights_reach_spans)
{
    for (size_t n = 0; n < COUNT(layers); n++) {
        harness_layer layer = gradient_layer(layers[n].problem, TCONV_BACKWARD_WEIGHTS);
        layer.desc.math = TCONV_MATH_STRICT;
        cr_expect(is_planned(&layer.desc, layers[n].nchw), "%s: not %s", layers[n].problem, layers[n].nchw);
        layer.desc.layout = TCONV_NHWC;
        cr_expect(is_planned(&layer.desc, layers[n].nhwc), "%s: not %s", layers[n].problem, layers[n].nhwc);
    }
}

Test(gradients_cuda, spans_of_weights_are_exact)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(layers); n++)
        for (int form = 0; form < GRADIENT_FORMS; form++) {
            harness_layer layer = gradient_layer(layers[n].problem, TCONV_BACKWARD_WEIGHTS);
            gradient_set_form(&layer, form);
            layer.desc.accumulate = form % 5 == 4;
            if (!harness_has_integers(&layer))
                continue;
            harness_case test = make_case(&layer, HARNESS_INTEGERS, n);
            cr_expect(check_way(&test, &spans, 1, form % 2 != 0), "%s", layers[n].problem);
            harness_case_destroy(&test);
        }
}

/* Fills a tensor with Inf and the other one with 1: a weight with a term is Inf, and would be NaN if Inf met a zero that stands
 * for what does not exist. */
static void expect_missing_skipped(const harness_layer *layer, harness_role infinite, const char *problem)
{
    harness_case test = make_case(layer, HARNESS_INTEGERS, 1);
    harness_output output;
    for (int role = HARNESS_SRC; role <= HARNESS_DST; role++)
        for (int64_t i = 0; (role == HARNESS_SRC || role == HARNESS_DST) && i < test.views[role].extent; i++)
            harness_element_set(layer->desc.dtype, test.tensors[role].data, i, role == (int)infinite ? INFINITY : 1);
    cr_assert(run_way(&test, &spans, 1, false, &output), "%s is not taken", problem);
    const harness_view *view = &test.views[HARNESS_WEIGHTS];
    for (int64_t in = 0; in < view->shape[0]; in++)
        for (int64_t out = 0; out < view->shape[1]; out++)
            for (int64_t y = 0; y < view->shape[2]; y++)
                for (int64_t x = 0; x < view->shape[3]; x++) {
                    const int64_t at[4] = {in, out, y, x};
                    double answer, bound;
                    harness_element_answer(&test, HARNESS_WEIGHTS, at, &answer, &bound);
                    const double got = harness_element_get(layer->desc.dtype, output.tensors[HARNESS_WEIGHTS].data,
                                                           harness_view_index(view, in, out, y, x));
                    cr_assert(got == answer, "%s: %g, by the formula %g", problem, got, answer);
                }
    harness_output_release(&output);
    harness_case_destroy(&test);
}

Test(gradients_cuda, spans_of_weights_skip_what_is_missing)
{
    skip_without_cuda();
    for (size_t n = 0; n < COUNT(layers); n++)
        for (int form = 0; form < 16; form++) {
            harness_layer layer = gradient_layer(layers[n].problem, TCONV_BACKWARD_WEIGHTS);
            layer.desc.dtype = form % 4 == 0 ? TCONV_F16 : form % 4 == 1 ? TCONV_BF16 : TCONV_F32;
            layer.desc.layout = form / 4 % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            if (harness_has_integers(&layer))
                expect_missing_skipped(&layer, form / 8 == 0 ? HARNESS_SRC : HARNESS_DST, layers[n].problem);
        }
}
