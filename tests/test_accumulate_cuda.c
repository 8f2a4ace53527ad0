/*
 * desc.accumulate on CUDA, beside what every implementation is held to in test_accumulate.c: who adds where outputs are
 * stored, and that what comes in chunks is added once.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "harness.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Implementations of CUDA that run post-ops on the values that they store add what dst holds there, as does the gradient of
 * src that is computed by them. Without a second pass there is no workspace for sums. */
Test(accumulate, outputs_are_added_to_where_they_are_stored_on_cuda)
{
    static const struct {
        const char *implementation, *problem;
        tconv_op op;
    } rows[] = {
        {"cuda_igemm", "n=4 ci=128 h=16 w=16 co=128 k=4 s=2 p=1 b=1 acc=1", TCONV_FORWARD},
        {"cuda_igemm", "n=4 ci=128 h=16 w=16 co=128 k=2 s=3 acc=1 post=tanh", TCONV_FORWARD},
        {"cuda_col2im", "n=4 ci=64 h=64 w=64 co=3 k=4 s=2 p=1 b=1 acc=1", TCONV_FORWARD},
        {"cuda_gemm_col2im", "n=2 ci=32 h=1 w=99 co=2 k=1x300 s=1x75 b=1 acc=1", TCONV_FORWARD},
        {"cuda_general", "n=3 ci=5 h=31 w=33 co=7 k=4 s=3 b=1 acc=1", TCONV_FORWARD},
        {"cuda_dgrad", "n=4 ci=128 h=16 w=16 co=128 k=4 s=2 p=1 acc=1", TCONV_BACKWARD_DATA},
    };
    for (size_t r = 0; r < COUNT(rows); r++)
        for (int form = 0; form < 4; form++) {
            harness_layer layer = gradient_layer(rows[r].problem, rows[r].op);
            char declines[64];
            layer.desc.dtype = form / 2 == 0 ? TCONV_F32 : TCONV_BF16;
            layer.desc.layout = (tconv_layout)(form % 2);
            snprintf(declines, sizeof declines, " %-16s declines", rows[r].implementation);
            cr_expect(!is_planned(&layer.desc, declines), "%s: %s", rows[r].implementation, rows[r].problem);
        }
}

/* cuda_finish cuts layers into chunks of images; the last one overlaps the one before it, and adds nothing twice. An
 * image has 8 MiB of sums in f32, and in 16-bit dtypes as much that is widened. */
#define CHUNKED "n=11 ci=8 h=512 w=512 co=8 k=1 b=1 acc=1"

Test(accumulate, a_layer_comes_in_chunks_on_cuda)
{
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_DATA; op++) {
        harness_layer layer = gradient_layer(CHUNKED, (tconv_op)op);
        cr_expect(is_planned(&layer.desc, " chunks=3 widens=0 by="));
        layer.desc.dtype = TCONV_BF16;
        cr_expect(is_planned(&layer.desc, " chunks=6 widens=1 by="));
    }
}

Test(accumulate_cuda, chunks_are_added_once)
{
    const struct way way = {"cuda_finish", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cuda_finish"};
    skip_without_cuda();
    for (int form = 0; form < 6; form++) { /* both operations, three dtypes, two layouts */
        static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_BF16, TCONV_F16};
        harness_layer layer = gradient_layer(CHUNKED, (tconv_op)(form % 2));
        layer.desc.dtype = dtypes[form / 2];
        layer.desc.layout = (tconv_layout)(form / 2 % 2);
        harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, (uint64_t)form);
        cr_expect(check_way(&test, &way, 1, form >= 3));
        harness_case_destroy(&test);
    }
}

/* cuda_dgrad makes planes in chunks, and adds where these share no output: else it declines. */
#define PLANES "n=12 ci=8 h=128 w=128 co=8 k=5 s=5 acc=1"

Test(accumulate, planes_come_in_chunks_that_share_no_output)
{
    harness_layer even = gradient_layer(PLANES, TCONV_BACKWARD_DATA);
    harness_layer uneven = gradient_layer("n=1 ci=8 h=511 w=512 co=16 k=20 s=20 acc=1", TCONV_BACKWARD_DATA);
    even.desc.dtype = uneven.desc.dtype = TCONV_BF16;
    cr_expect(is_planned(&even.desc, " chunks=3x1x1 parts=1 "));
    cr_expect(is_planned(&uneven.desc, " cuda_dgrad       declines: no implementation that adds to each output once"));
}

Test(accumulate_cuda, planes_in_chunks_are_added_once)
{
    const struct way way = {"cuda_dgrad", TCONV_BACKEND_CUDA, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT, "cuda_dgrad"};
    skip_without_cuda();
    for (int form = 0; form < 4; form++) { /* two dtypes, two layouts */
        harness_layer layer = gradient_layer(PLANES, TCONV_BACKWARD_DATA);
        layer.desc.dtype = form / 2 == 0 ? TCONV_F32 : TCONV_BF16;
        layer.desc.layout = (tconv_layout)(form % 2);
        harness_case test = make_sampled_case(&layer, HARNESS_INTEGERS, (uint64_t)form);
        cr_expect(check_way(&test, &way, 1, form % 2 != 0));
        harness_case_destroy(&test);
    }
}
