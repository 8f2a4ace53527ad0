/*
 * Layers that CUDA implementations compute in a way of their own, by name: that they are planned so, on any machine that
 * has the CUDA code, and that they are right, where there is a GPU.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "harness.h"
#include "support/cases.h"
#include "support/ways.h"

static harness_layer parse(const char *problem)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
    return layer;
}

/* Planned so in TF32 in this layout on an H200. */
static const struct {
    const char *by, *problem;
    tconv_layout layout;
    const char *words;
} named[] = {
    /* The kernels that hold more than four output channels or long rows of weights; groups whose output channels are cut
     * into blocks, the last with fewer; src by words and by elements. */
    {"cuda_col2im", "n=32 ci=32 h=30 w=30 co=3 k=6 s=2 b=1", TCONV_NCHW, " n_tiles=15 out_blocks=1 "},
    {"cuda_col2im", "n=8 ci=80 h=24 w=96 co=20 k=4 s=2 p=1x0 g=4", TCONV_NCHW, " n_tiles=12 out_blocks=1 "},
    {"cuda_col2im", "n=8 ci=40 h=19 w=75 co=8 k=3 s=2 op=1 b=1", TCONV_NCHW, " n_tiles=12 out_blocks=1 "},
    {"cuda_col2im", "n=1 ci=64 h=16 w=64 co=16 k=2 s=2 b=1", TCONV_NCHW, " n_tiles=8 out_blocks=1 "},
    {"cuda_col2im", "n=8 ci=36 h=20 w=90 co=16 k=5 s=2 p=0x1 g=2 b=1", TCONV_NCHW, " n_tiles=15 out_blocks=2 "},
    {"cuda_col2im", "n=8 ci=24 h=20 w=40 co=11 k=6 s=2 p=2", TCONV_NCHW, " n_tiles=15 out_blocks=4 "},
    {"cuda_col2im", "n=1 ci=20 h=17 w=100 co=12 k=9x5 s=4x2 p=2x1", TCONV_NCHW, " n_tiles=18 out_blocks=4 "},
    {"cuda_col2im", "n=32 ci=48 h=1 w=1000 co=24 k=1x4 s=1x2 p=0x1 b=1", TCONV_NCHW, " n_tiles=8 out_blocks=2 "},
    {"cuda_col2im", "n=1 ci=21 h=40 w=91 co=16 k=5 s=2 p=0x1 b=1", TCONV_NCHW, " n_tiles=15 out_blocks=4 "},
    /* Runs of columns of a channel: exact ones; filled ones, cut at either end of a row, at both, of single columns and
     * vectors, with rows of zeros, of more columns than a warp has rows; groups; a row of dst that is one run. */
    {"cuda_igemm", "n=1 ci=64 h=5 w=70 co=40 k=4x16 s=2x8 b=1", TCONV_NCHW, " runs=8of8"},
    {"cuda_igemm", "n=2 ci=64 h=9 w=21 co=24 k=5 s=4 b=1", TCONV_NCHW, " runs=4of4"},
    {"cuda_igemm", "n=2 ci=48 h=7 w=20 co=20 k=7x8 s=3x4 p=2 b=1", TCONV_NCHW, " runs=4of4"},
    {"cuda_igemm", "n=2 ci=32 h=11 w=17 co=40 k=9 s=3 p=1x2 op=1 b=1", TCONV_NCHW, " runs=3of4"},
    {"cuda_igemm", "n=2 ci=64 h=6 w=13 co=12 k=10 s=5 p=3", TCONV_NCHW, " runs=5of8"},
    {"cuda_igemm", "n=1 ci=32 h=1 w=40 co=8 k=1x128 s=1x64 p=0x7 b=1", TCONV_NCHW, " runs=64of64"},
    {"cuda_igemm", "n=2 ci=64 h=9 w=14 co=16 k=6 s=4 p=1 g=2 b=1", TCONV_NCHW, " runs=4of4"},
    {"cuda_igemm", "n=8 ci=64 h=40 w=2 co=24 k=5x12 s=2x8 p=1x8 b=1", TCONV_NCHW, " runs=8of8"},
    /* Pairs of columns, of which the last of a row has but one. */
    {"cuda_igemm", "n=4 ci=64 h=33 w=65 co=64 k=3 s=2 b=1", TCONV_NCHW, " paired=1"},
    {"cuda_igemm", "n=8 ci=96 h=33 w=41 co=128 k=5 s=3x2 p=1x2 b=1", TCONV_NCHW, " paired=1"},
    {"cuda_igemm", "n=8 ci=128 h=1 w=2001 co=64 k=1x3 s=1x2 p=0x1", TCONV_NCHW, " paired=1"},
    /* Columns of a pixel as channels. */
    {"cuda_igemm", "n=2 ci=24 h=9 w=13 co=5 k=4 s=4 b=1", TCONV_NHWC, " columns=4"},
    {"cuda_igemm", "n=2 ci=40 h=7 w=9 co=20 k=6 s=2 p=2 b=1", TCONV_NHWC, " columns=2"},
    {"cuda_igemm", "n=2 ci=64 h=1 w=300 co=1 k=1x64 s=1x16 b=1", TCONV_NCHW, " columns=16"},
    /* Tiles whose K-blocks the blocks of a cluster share out: of phases with more taps and fewer; channels that do not fill the
     * last vector, row of M or K-block; merged phases, outputs without a tap; groups. */
    {"cuda_igemm", "n=4 ci=512 h=16 w=8 co=256 k=5 s=2 p=2 op=1 b=1", TCONV_NHWC, " cluster=2"},
    {"cuda_igemm", "n=4 ci=512 h=16 w=8 co=256 k=5 s=2 p=2 op=1 b=1", TCONV_NCHW, " cluster=2"},
    {"cuda_igemm", "ci=520 h=9 w=11 co=70 k=3 b=1", TCONV_NHWC, " cluster=8"},
    {"cuda_igemm", "ci=520 h=9 w=11 co=70 k=3 b=1", TCONV_NCHW, " cluster=8"},
    {"cuda_igemm", "n=2 ci=512 h=8 w=8 co=97 k=1 b=1", TCONV_NHWC, " cluster=8"},
    {"cuda_igemm", "n=2 ci=1024 h=7 w=9 co=128 k=2 s=3 b=1", TCONV_NHWC, " cluster=8"},
    {"cuda_igemm", "n=2 ci=1024 h=7 w=9 co=130 k=2 s=3 b=1", TCONV_NCHW, " cluster=8"},
    {"cuda_igemm", "n=2 ci=1024 h=9 w=7 co=128 k=3 p=1 g=2 b=1", TCONV_NHWC, " cluster=8"},
    {"cuda_igemm", "n=2 ci=1024 h=9 w=7 co=128 k=3 p=1 g=2 b=1", TCONV_NCHW, " cluster=8"},
    /* Windows of columns, of rows that are whole vectors, halves of such and neither; rows of fewer taps than columns. */
    {"cuda_depthwise", "n=2 ci=6 h=9 w=24 co=6 k=3 p=1 g=6 b=1", TCONV_NCHW, "columns=window_1 "},
    {"cuda_depthwise", "n=2 ci=6 h=40 w=12 co=6 k=3 p=1 g=6 b=1", TCONV_NCHW, "columns=window_1 "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=13 co=6 k=3 p=0x1 g=6", TCONV_NCHW, "columns=window_1 "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=10 co=6 k=3 s=2 p=1 op=1 g=6 b=1", TCONV_NCHW, "columns=window_3_odd "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=17 co=12 k=3 s=2 g=6 b=1", TCONV_NCHW, "columns=window_3_even "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=11 co=6 k=4 s=2 p=1 g=6", TCONV_NCHW, "columns=window_4_odd "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=20 co=6 k=4 s=2 p=0x2x0x1 g=6 b=1", TCONV_NCHW, "columns=window_4_even "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=28 co=6 k=5 s=2 p=2 op=1 g=6 b=1", TCONV_NCHW, "columns=window_5_even "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=13 co=6 k=2x5 s=2 p=0x1 g=6 b=1", TCONV_NCHW, "columns=window_5_odd "},
    {"cuda_depthwise", "n=2 ci=6 h=9 w=13 co=6 k=3x2 p=1x0 d=1x3 g=6 b=1", TCONV_NCHW, "columns=table "},
    /* Tiles of a warp, of two, and of all threads of a block, of which the last may have fewer tiles. */
    {"cuda_depthwise", "n=63 ci=131 h=9 w=11 co=131 k=3 p=1 g=131 b=1", TCONV_NCHW, "threads=32 "},
    {"cuda_depthwise", "n=1 ci=37 h=1 w=50 co=37 k=1x3 s=1x2 p=0x1 g=37", TCONV_NCHW, "threads=32 "},
    {"cuda_depthwise", "n=1 ci=37 h=1 w=100 co=37 k=1x3 s=1x2 p=0x1 g=37 b=1", TCONV_NCHW, "threads=64 "},
    {"cuda_depthwise", "n=1 ci=37 h=1 w=200 co=37 k=1x3 s=1x2 p=0x1 g=37", TCONV_NCHW, "threads=128 "},
    /* NHWC, whose weights are read as they lie: channels that fill no tile; more taps than are staged. */
    {"cuda_depthwise", "n=512 ci=40 h=16 w=9 co=40 k=3 p=1 g=40 b=1", TCONV_NHWC, "pixels=tile "},
    {"cuda_depthwise", "n=512 ci=72 h=8 w=7 co=72 k=4 s=2 p=1 g=72", TCONV_NHWC, "pixels=tile "},
    {"cuda_depthwise", "n=3 ci=72 h=8 w=7 co=72 k=4x3 s=2 p=1 g=72 b=1", TCONV_NHWC, "pixels=vectors "},
    {"cuda_depthwise", "n=2 ci=40 h=6 w=7 co=40 k=8x9 s=8x4 p=1 g=40", TCONV_NHWC, "pixels=vectors "},
};

#define NAMED (sizeof named / sizeof named[0])
#define FORMS 6 /* layouts by strict f32, TF32 and bf16 */
#define LISTS 5 /* of post-ops, or accumulate */

Test(implementations, named_layers_are_planned_so)
{
    for (size_t n = 0; n < NAMED; n++) {
        harness_layer layer = parse(named[n].problem);
        layer.desc.math = TCONV_MATH_TF32;
        layer.desc.layout = named[n].layout;
        cr_expect(is_planned(&layer.desc, named[n].words), "%s: not%s", named[n].problem, named[n].words);
    }
}

Test(implementations_cuda, named_layers_make_a_whole)
{
    skip_without_cuda();
    for (size_t n = 0; n < NAMED; n++)
        for (int form = 0; form < FORMS; form++) {
            struct way way = {named[n].by, TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT,
                              form / 2 == 1 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT, "a named way"};
            harness_layer layer = parse(named[n].problem);
            layer.desc.math = way.math;
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.dtype = form / 2 == 2 ? TCONV_BF16 : TCONV_F32;
            layer.desc.weight_layout = (tconv_weight_layout)((n + (size_t)form) % 3);
            harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, n);
            const bool taken = check_way(&test, &way, 1, form % 2 != 0);
            cr_expect(taken || layer.desc.layout != named[n].layout, "form %d: %s", form, named[n].problem);
            harness_case_destroy(&test);
        }
}

/* cuda_igemm takes any list of post-ops, with an addend that lies as dst does, also where outputs have no tap; and what
 * dst holds, in place of an addend. */
Test(implementations, igemm_takes_post_ops)
{
#define IGEMM " cuda_igemm       "
#define LAYER "n=4 ci=128 h=16 w=16 co=128 k=4 s=2 p=1 b=1 post="
    static const struct {
        const char *problem, *declines; /* NULL: it does not */
    } rows[] = {
        {LAYER "mul_channel,add_channel,leaky_relu:0", NULL},
        {LAYER "add_tensor:1,tanh", NULL},
        {LAYER "add_tensor:1 as=262144x1024x32x1", IGEMM "declines: needs an addend with the strides of dst"},
        {"n=4 ci=128 h=16 w=16 co=128 k=2 s=3 post=tanh", NULL},
        {"n=4 ci=128 h=16 w=16 co=128 k=2 s=3 acc=1", NULL},
        {"n=4 ci=128 h=16 w=16 co=128 k=4 s=2 p=1 acc=1 post=tanh", NULL},
        {"n=4 ci=128 h=16 w=16 co=128 k=4 s=2 p=1 acc=1 post=add_tensor:1",
         IGEMM "declines: does not accumulate with an addend"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int dtype = 0; dtype < 2; dtype++) {
            harness_layer layer = parse(rows[r].problem);
            layer.desc.dtype = dtype == 0 ? TCONV_F32 : TCONV_BF16;
            layer.desc.math = TCONV_MATH_TF32;
            if (rows[r].declines != NULL)
                cr_expect(is_planned(&layer.desc, rows[r].declines), "%s", rows[r].problem);
            else
                cr_expect(is_planned(&layer.desc, IGEMM) && !is_planned(&layer.desc, IGEMM "declines"), "%s",
                          rows[r].problem);
        }
}

/* The same layers with post-ops: affine ones, which are run on accumulators, and others, which are run on what is staged,
 * with an addend and without; and where they accumulate. */
Test(implementations_cuda, named_layers_apply_post_ops)
{
    static const char *const lists[] = {"post=mul_channel,add_channel,clamp:-1:4", "post=add_tensor:1,leaky_relu:0.5",
                                        "post=add_channel,gelu,mul_channel", "acc=1", "acc=1 post=clamp:-9:9,tanh"};
    size_t taken = 0;
    skip_without_cuda();
    for (size_t n = 0; n < NAMED; n++)
        for (int form = 0; form < LISTS * FORMS; form++) {
            const int kind = form / 2 % 3;
            struct way way = {named[n].by, TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT,
                              kind == 1 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT, "a named way with post-ops"};
            char problem[256];
            snprintf(problem, sizeof problem, "%s %s", named[n].problem, lists[form / FORMS]);
            harness_layer layer = parse(problem);
            layer.desc.math = way.math;
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.dtype = kind == 2 ? TCONV_BF16 : TCONV_F32;
            harness_case test =
                make_sampled_case(&layer, harness_has_integers(&layer) ? HARNESS_INTEGERS : HARNESS_REALS, n);
            taken += check_way(&test, &way, 1, form % 2 != 0);
            harness_case_destroy(&test);
        }
    cr_expect_gt(taken, LISTS * NAMED);
}

/* cuda_gemm_col2im computes products of more than 32 MiB in chunks: of images, of output channels, of positions of rows or of
 * columns. The last chunk of each kind overlaps the one before it, and adds nothing to outputs that are there. */
Test(implementations_cuda, chunks_of_products_make_a_whole)
{
    static const char *const problems[] = {
        "n=5 ci=16 h=1 w=6000 co=1 k=1x512 s=1x128 b=1",
        "n=2 ci=16 h=1 w=2000 co=17 k=1x1024 s=1x256 b=1",
        "n=1 ci=20 h=1 w=20001 co=1 k=1x512 s=1x128 p=0x100",
        "n=1 ci=16 h=1200 w=301 co=1 k=6x7 s=3x2 p=2x3 d=2x3 b=1",
    };
    skip_without_cuda();
    for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++)
        for (int form = 0; form < 8; form++) {
            const struct way way = {"cuda_gemm_col2im", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT,
                                    "cuda_gemm_col2im in chunks"};
            harness_layer layer = parse(problems[p]);
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            layer.desc.dtype = form / 2 % 2 == 0 ? TCONV_F32 : TCONV_BF16;
            layer.desc.accumulate = form / 4;
            layer.desc.weight_layout = (tconv_weight_layout)((p + (size_t)form) % 3);
            harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
            cr_expect(check_way(&test, &way, 1, form % 2 != 0), "%s", problems[p]);
            harness_case_destroy(&test);
        }
}
