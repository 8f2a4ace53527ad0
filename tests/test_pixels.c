/*
 * What cpu_pixels does only in layers larger than other tests run: K-blocks of input channels, passes of phases,
 * partial sums in memory, stages, streaming stores. A second-level cache of a few KiB, told to the plan, brings all of
 * it to small layers, whose results are compared with the reference's, bit for bit, at every instruction set. And
 * images of one pixel in NCHW, which it takes as pixels.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/alloc.h"
#include "../src/core/status.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/cpu/kernels/half.h"
#include "../src/cpu/pixels/plan.h"
#include "harness.h"
#include "support/bare_layer.h"

/* Bytes that are told to be the second-level cache: strips of some pixels, K-blocks of 64 channels, streams of any dst. */
enum { SMALL_CACHE = 24 << 10, TINY_CACHE = 3 << 10 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Elements by which src and dst are moved from an aligned address. */
static const int skews[] = {0, 1, 4};

static const char *const problems[] = {
    "n=3 ci=150 h=5 w=6 co=45 k=3 s=1 p=1 b=1",        /* K-blocks, partial sums, a last vector in part */
    "n=2 ci=200 h=4 w=5 co=32 k=4 s=2 p=1",            /* K-blocks, passes of phases */
    "n=1 ci=3000 h=1 w=3 co=16 k=3x2 s=1 b=1",         /* several levels of sums that wait */
    "n=2 ci=16 h=7 w=20 co=32 k=2 s=2 b=1",            /* staged or streamed */
    "n=2 ci=16 h=7 w=20 co=24 k=3 s=2 p=1 op=1",       /* staged, with a last vector in part */
    "n=2 ci=16 h=5 w=19 co=64 k=2 s=3 p=1 d=1 b=1",    /* bias-only rows and columns */
    "n=1 ci=8 h=4 w=19 co=32 k=1x3 s=3x2 p=0x1 d=1x2", /* the last column is a gap */
    "n=2 ci=32 h=6 w=21 co=64 k=3x5 s=2x3 p=1x2 d=2x1 g=4",
    "n=2 ci=64 h=9 w=20 co=64 k=4 s=2 p=1 g=64 b=1",    /* depthwise */
    "n=2 ci=21 h=9 w=20 co=21 k=6 s=3 p=1 g=21",        /* depthwise, a last vector in part */
    "n=1 ci=40 h=3 w=9 co=40 k=9x12 s=1 p=4x3 d=1 g=40" /* depthwise, more taps than a segment */
};

struct tensors {
    tconv_layer layer;
    char *src, *weights, *bias, *dst, *expected; /* what malloc gave */
    int64_t bytes;                               /* of dst, with what is around it */
    int skew;
};

/* Around dst, to see what is written beside it. */
enum { GUARD = 256 };

static bool make_layer(const char *text, tconv_dtype dtype, tconv_cpu_isa isa, size_t cache, int threads,
                       tconv_layer *layer)
{
    const struct bare_target target = {.isa = isa, .cache = cache, .threads = threads};
    return bare_layer_make(layer, text, dtype, TCONV_NHWC, &target);
}

static void put(tconv_dtype dtype, char *tensor, int64_t index, float value)
{
    switch (dtype) {
    case TCONV_F32: ((float *)(void *)tensor)[index] = value; break;
    case TCONV_F64: ((double *)(void *)tensor)[index] = (double)value; break;
    case TCONV_F16: ((uint16_t *)(void *)tensor)[index] = tconv_f16_from_float(value); break;
    case TCONV_BF16: ((uint16_t *)(void *)tensor)[index] = tconv_bf16_from_float(value); break;
    }
}

/* Small integers; every sum of them is exact. */
static char *make_tensor(const tconv_problem *problem, int64_t count, int skew, uint64_t seed)
{
    harness_random random;
    int64_t size = (int64_t)problem->element_size;
    char *tensor = aligned_alloc(TCONV_ALIGNMENT, tconv_align_up((size_t)((count + skew) * size) + 1, TCONV_ALIGNMENT));
    cr_assert(tensor != NULL);
    harness_random_seed(&random, seed);
    for (int64_t i = 0; i < count; i++)
        put(problem->dtype, tensor, skew + i, (float)harness_random_integer(&random, -3, 3));
    return tensor;
}

static void make_tensors(struct tensors *tensors, int skew, bool has_bias)
{
    const tconv_problem *problem = &tensors->layer.problem;
    tensors->skew = skew;
    tensors->src = make_tensor(problem, problem->src_extent, skew, 1);
    tensors->weights = make_tensor(problem, problem->weight_extent, 0, 2);
    tensors->bias = has_bias ? make_tensor(problem, problem->out_channels, 0, 3) : NULL;
    tensors->bytes = (int64_t)tconv_align_up(
        (size_t)((problem->dst_extent + skew) * (int64_t)problem->element_size) + 2 * GUARD, TCONV_ALIGNMENT);
    tensors->dst = aligned_alloc(TCONV_ALIGNMENT, (size_t)tensors->bytes);
    tensors->expected = aligned_alloc(TCONV_ALIGNMENT, (size_t)tensors->bytes);
    cr_assert(tensors->dst != NULL && tensors->expected != NULL);
}

static void release(struct tensors *tensors)
{
    free(tensors->src);
    free(tensors->weights);
    free(tensors->bias);
    free(tensors->dst);
    free(tensors->expected);
    bare_layer_release(&tensors->layer);
}

/* Runs an implementation; dst holds what no result may depend on. */
static void run(const tconv_implementation *implementation, struct tensors *tensors, char *dst)
{
    const int64_t offset = tensors->skew * (int64_t)tensors->layer.problem.element_size;
    memset(dst, 0xff, (size_t)tensors->bytes);
    bare_layer_run(&tensors->layer, implementation,
                   &(struct bare_tensors){.src = tensors->src + offset,
                                          .weights = tensors->weights,
                                          .bias = tensors->bias,
                                          .dst = dst + GUARD + offset});
}

/* The layer's bits are the reference's; false if cpu_pixels does not take it. */
static bool check_layer(struct tensors *tensors, const char *text, int skew, bool has_bias)
{
    bool taken = bare_layer_is_taken(&tensors->layer, &tconv_cpu_pixels, NULL);
    make_tensors(tensors, skew, has_bias);
    if (taken) {
        const tconv_cpu_target cpu = tconv_cpu_target_of(&tensors->layer.target);
        run(&tconv_cpu_reference, tensors, tensors->expected);
        run(&tconv_cpu_pixels, tensors, tensors->dst);
        cr_assert(memcmp(tensors->dst, tensors->expected, (size_t)tensors->bytes) == 0,
                  "%s, dtype %d, isa %d, cache %zu, skew %d: not as the reference", text,
                  (int)tensors->layer.problem.dtype, (int)cpu.cpu_isa, cpu.l2_bytes, skew);
    }
    release(tensors);
    return taken;
}

static void check(const char *text, tconv_dtype dtype, tconv_cpu_isa isa, size_t cache, int skew)
{
    struct tensors tensors;
    bool has_bias = make_layer(text, dtype, isa, cache, 1 + skew % 3, &tensors.layer);
    check_layer(&tensors, text, skew, has_bias);
}

Test(pixels, small_caches_give_the_bits_of_the_reference)
{
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        for (size_t i = 0; tconv_cpu_has_isa((tconv_cpu_isa)isa) && i < COUNT(problems); i++)
            for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
                for (size_t s = 0; s < COUNT(skews); s++) {
                    check(problems[i], (tconv_dtype)dtype, (tconv_cpu_isa)isa, SMALL_CACHE, skews[s]);
                    check(problems[i], (tconv_dtype)dtype, (tconv_cpu_isa)isa, TINY_CACHE, skews[s]);
                }
}

/* That the layers above meet what they are there for. */
Test(pixels, small_caches_reach_every_way)
{
    bool partial = false, passes = false, cascades = false, by_weights = false, stages = false, depthwise = false;
    for (size_t i = 0; i < COUNT(problems); i++) {
        for (int c = 0; c < 2; c++) {
            tconv_layer layer;
            tconv_cpu_pixel_plan plan;
            tconv_issue issue;
            make_layer(problems[i], TCONV_F32, TCONV_CPU_ISA_GENERIC, c ? SMALL_CACHE : TINY_CACHE, 1, &layer);
            if (bare_layer_is_taken(&layer, &tconv_cpu_pixels, NULL)) {
                cr_assert_eq(tconv_cpu_pixel_plan_init(&plan, &layer, &issue), TCONV_SUCCESS);
                partial |= plan.partial_sums;
                passes |= plan.partial_sums && plan.pass_phases < layer.rows.count * layer.columns.count;
                cascades |= plan.partial_sums && plan.levels > 1;
                by_weights |= !plan.partial_sums && !plan.pixels_first;
                stages |= plan.can_stage;
                depthwise |= plan.depthwise;
            }
            bare_layer_release(&layer);
        }
    }
    cr_assert(partial && passes && cascades && by_weights && stages && depthwise, "%d %d %d %d %d %d", partial, passes,
              cascades, by_weights, stages, depthwise);
}

/* A weight that is not finite reaches the outputs whose taps lie in the image, in K-blocks and stages too. */
Test(pixels, taps_outside_the_image_are_left_out)
{
    for (size_t i = 0; i < COUNT(problems); i++) {
        for (int c = 0; c < 2; c++) {
            struct tensors tensors;
            bool has_bias = make_layer(problems[i], TCONV_F32, TCONV_CPU_ISA_DEFAULT, c ? SMALL_CACHE : TINY_CACHE, 1,
                                       &tensors.layer);
            make_tensors(&tensors, 0, has_bias);
            ((float *)(void *)tensors.weights)[0] = NAN; /* the first tap, which reads outside at a border */
            if (bare_layer_is_taken(&tensors.layer, &tconv_cpu_pixels, NULL)) {
                run(&tconv_cpu_reference, &tensors, tensors.expected);
                run(&tconv_cpu_pixels, &tensors, tensors.dst);
                const float *got = (const float *)(void *)(tensors.dst + GUARD);
                const float *expected = (const float *)(void *)(tensors.expected + GUARD);
                for (int64_t e = 0; e < tensors.layer.problem.dst_extent; e++)
                    cr_assert(isnan(expected[e]) ? isnan(got[e]) : got[e] == expected[e],
                              "%s: element %d is %g, not %g", problems[i], (int)e, (double)got[e], (double)expected[e]);
            }
            release(&tensors);
        }
    }
}

static const char *refusal(const char *problem, tconv_layout layout, size_t cache)
{
    static tconv_issue issue;
    tconv_layer layer;
    bare_layer_make(&layer, problem, TCONV_F32, layout,
                    &(struct bare_target){.isa = TCONV_CPU_ISA_GENERIC, .cache = cache, .threads = 1});
    tconv_issue_clear(&issue);
    bool taken = bare_layer_is_taken(&layer, &tconv_cpu_pixels, &issue);
    cr_assert_eq(taken, issue.message[0] == '\0', "a refusal has a reason, and nothing else has");
    bare_layer_release(&layer);
    return issue.message;
}

Test(pixels, refuses_what_vectors_of_channels_do_not_suit)
{
    cr_assert_str_empty(refusal("n=1 ci=8 h=4 w=4 co=16 k=3", TCONV_NHWC, SMALL_CACHE));
    cr_assert_str_not_empty(refusal("n=1 ci=8 h=4 w=4 co=16 k=3", TCONV_NCHW, SMALL_CACHE));
    /* A last vector with one lane filled: too much of long sums, not of short ones. */
    cr_assert_str_not_empty(refusal("n=1 ci=99 h=4 w=4 co=17 k=3", TCONV_NHWC, SMALL_CACHE));
    cr_assert_str_empty(refusal("n=1 ci=4 h=4 w=4 co=17 k=3", TCONV_NHWC, SMALL_CACHE));
    cr_assert_str_not_empty(refusal("n=1 ci=8 h=4 w=4 co=1 k=3", TCONV_NHWC, SMALL_CACHE));
    cr_assert_str_not_empty(refusal("n=1 ci=8 h=99 w=99 co=8 k=90", TCONV_NHWC, SMALL_CACHE));
}

/* NCHW images of one input pixel: of which all outputs lie side by side, and have a tap. */
static const char *const single_pixels[] = {
    "n=5 ci=20 h=1 w=1 co=9 k=4 b=1",
    "n=3 ci=70 h=1 w=1 co=17 k=3x5 s=2x3 p=0x1x2x1 b=1",    /* some taps cut off */
    "n=2 ci=9 h=1 w=1 co=40 k=1 b=1",                       /* one output */
    "n=2 ci=9 h=1 w=1 co=40 k=3 p=1",                       /* one output, of the middle tap */
    "n=3 ci=12 h=1 w=1 co=30 k=4x3 g=3 b=1",                /* groups */
    "n=3 ci=18 h=1 w=1 co=18 k=4x3 g=18 b=1",               /* depthwise */
    "n=4 ci=6 h=1 w=1 co=8 k=3 ss=9x1x1x1 ds=80x9x3x1 b=1", /* images of slices */
    "n=2 ci=300 h=1 w=1 co=16 k=2x8 s=2x8",                 /* K-blocks */
};

Test(pixels, images_of_one_pixel_in_nchw)
{
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        for (size_t i = 0; tconv_cpu_has_isa((tconv_cpu_isa)isa) && i < COUNT(single_pixels); i++)
            for (int dtype = TCONV_F32; dtype <= TCONV_BF16; dtype++)
                for (int weights = TCONV_WEIGHT_IOHW; weights <= TCONV_WEIGHT_HWOI; weights++)
                    for (size_t c = 0; c < 2; c++) {
                        const struct bare_target target = {.isa = (tconv_cpu_isa)isa,
                                                           .cache = c ? SMALL_CACHE : TINY_CACHE,
                                                           .threads = 2,
                                                           .weights = (tconv_weight_layout)weights};
                        struct tensors tensors;
                        bool has_bias =
                            bare_layer_make(&tensors.layer, single_pixels[i], (tconv_dtype)dtype, TCONV_NCHW, &target);
                        cr_assert(check_layer(&tensors, single_pixels[i], (int)c, has_bias), "%s is not taken",
                                  single_pixels[i]);
                    }
}

Test(pixels, refuses_images_whose_outputs_are_not_its_taps)
{
    cr_assert_str_empty(refusal("n=1 ci=8 h=1 w=1 co=8 k=3", TCONV_NCHW, SMALL_CACHE));
    const char *const refused[] = {
        "n=1 ci=8 h=1 w=2 co=8 k=3",                    /* two pixels */
        "n=1 ci=8 h=1 w=1 co=8 k=3 s=2 op=1",           /* the last row and column have no tap */
        "n=1 ci=8 h=1 w=1 co=8 k=3 d=2",                /* every other one has none */
        "n=1 ci=8 h=1 w=1 co=8 k=2 s=5 p=2x2x0x0 op=2", /* none has: all taps are cut off */
        "n=2 ci=8 h=1 w=1 co=8 k=3 ss=20x2x1x1",        /* channels of src apart */
        "n=2 ci=8 h=1 w=1 co=8 k=3 ds=90x10x3x1",       /* channels of dst apart */
        "n=1 ci=8 h=1 w=1 co=1 k=1",                    /* too few outputs */
    };
    for (size_t i = 0; i < COUNT(refused); i++)
        cr_assert_str_not_empty(refusal(refused[i], TCONV_NCHW, SMALL_CACHE), "%s is taken", refused[i]);
}

/* Weights of less than 2^63 bytes in f16 may take more in the type of the sums: no plan is made of sizes that wrapped. */
Test(pixels, weights_too_large_to_pack_are_an_error)
{
    const tconv_implementation *const implementations[] = {&tconv_cpu_phases, &tconv_cpu_pixels};
    tconv_layer layer;
    make_layer("n=1 ci=1073741824 h=1 w=3 co=1073741824 k=1x3 p=0x1", TCONV_F16, TCONV_CPU_ISA_GENERIC, SMALL_CACHE, 1,
               &layer);
    for (size_t i = 0; i < COUNT(implementations); i++) {
        tconv_memory_sizes sizes;
        tconv_issue issue;
        void *made;
        cr_assert_eq(bare_layer_plan(&layer, implementations[i], &made, &sizes, &issue), TCONV_ERROR_OVERFLOW);
        cr_assert_str_eq(issue.field, "packed weights");
    }
    bare_layer_release(&layer);
}
