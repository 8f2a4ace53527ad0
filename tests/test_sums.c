/*
 * The bound on the error of a sum, where it is hardest to keep: every input and every weight is the same number, so
 * that the roundings of a running sum all go one way. Sums have from few terms to 10,000, in each way that the CPU has
 * to sum them, at every instruction set. A second-level cache of a few KiB in the plan's target brings K-blocks to
 * small layers.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../src/cpu/bf16/kernels.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/phases/plan.h"
#include "../src/cpu/pixels/plan.h"
#include "support/bare_layer.h"
#include "support/part.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* Roundings of the sum of magnitudes, at most, where terms are alike. The worst of all data is test_worst_sums.c's. */
#define PROMISED_UNITS 16

/* Bytes of the second-level cache: the machine's, and a size that brings K-blocks. */
static const size_t caches[] = {0, 24 << 10};

static const tconv_implementation *const implementations[] = {&tconv_cpu_phases, &tconv_cpu_pixels, &tconv_cpu_col2im,
                                                              &tconv_cpu_bf16};

static const char *const problems[] = {
    /* The terms are about one segment, and a few of them. */
    "n=1 ci=48 h=2 w=35 co=8 k=1", "n=1 ci=64 h=2 w=35 co=8 k=1", "n=1 ci=96 h=2 w=35 co=8 k=1",
    "n=1 ci=150 h=2 w=35 co=16 k=1", "n=1 ci=384 h=2 w=35 co=16 k=1", "n=1 ci=3 h=5 w=21 co=8 k=3x11",
    /* The number of taps does not divide a segment, and is more than one. */
    "n=1 ci=60 h=3 w=18 co=8 k=3x11", "n=1 ci=124 h=3 w=18 co=8 k=3x11", "n=1 ci=117 h=5 w=9 co=8 k=5x7",
    "n=1 ci=113 h=4 w=9 co=8 k=3", "n=1 ci=64 h=8 w=9 co=8 k=8", "n=1 ci=8 h=36 w=36 co=8 k=35 p=33",
    /* The sums are long and have few taps, or are those of phases. */
    "n=1 ci=1000 h=2 w=9 co=8 k=1", "n=1 ci=2000 h=2 w=9 co=16 k=1", "n=3 ci=4096 h=1 w=5 co=16 k=1",
    "n=2 ci=10000 h=1 w=3 co=16 k=1", "n=1 ci=2500 h=4 w=4 co=16 k=4 s=2 p=1",
    "n=1 ci=700 h=3 w=9 co=3 k=7 s=3 p=1",                  /* column phases fused, of two and three taps */
    "n=1 ci=300 h=3 w=35 co=1 k=7 s=3 p=1",                 /* the same in micro-tiles of few channels */
    "n=1 ci=2000 h=3 w=3 co=2 k=16 s=4",                    /* 16 products of an output, of many weights */
    "n=1 ci=4 h=14 w=20 co=4 k=6x8 s=1 g=4",                /* a stencil of a segment of taps */
    "n=2 ci=40 h=13 w=20 co=40 k=11x13 s=1 g=40",           /* depthwise, several segments of taps */
    "n=1 ci=16 h=104 w=104 co=16 k=101x99 s=1 p=99x97 g=16" /* depthwise, 10,000 terms */
};

/* Inputs and weights. Products of the first ones with 1 are the worst, of 200,000 that were tried, for running sums
 * of 32, 45, 48, 56, 64, 80, 90 and 96 terms. With 1, a fused multiply-add rounds as a multiplication and an
 * addition do. */
static const float pairs[][2] = {
    {1.8824634552001953F, 1},
    {1.2800350189208984F, 1},
    {1.1034679412841797F, 1},
    {1.9396400451660156F, 1},
    {1.5613822937011719F, 1},
    {1.4234428405761719F, 1},
    {1.3064765930175781F, 1},
    {0.1F, 0.1F},
    {0.3F, 0.3F},
    {0.7F, 0.7F},
    {0.451F, 0.451F},
    {1.9489868879318237F, 1.4316719770431519F},
};

/* A layer's tensors; dst follows another. */
struct sums {
    tconv_layer layer;
    float *src, *weights, *dst, *terms; /* terms: number of terms of each output */
};

static float *make_floats(int64_t count)
{
    float *made = malloc((size_t)count * sizeof *made);
    cr_assert(made != NULL);
    return made;
}

static void fill(float *values, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
}

static void run(struct sums *sums, const tconv_implementation *implementation, const float pair[2], float *dst)
{
    const tconv_problem *problem = &sums->layer.problem;
    fill(sums->src, problem->src_extent, pair[0]);
    fill(sums->weights, problem->weight_extent, pair[1]);
    bare_layer_run(&sums->layer, implementation,
                   &(struct bare_tensors){.src = sums->src, .weights = sums->weights, .dst = dst});
}

/* Returns the worst error of any output in units of 2^-24 of the sum. */
static double worst_error(struct sums *sums, const float pair[2])
{
    const double product = (double)pair[0] * (double)pair[1];
    double worst = 0;
    for (int64_t i = 0; i < sums->layer.problem.dst_extent; i++) {
        double exact = (double)sums->terms[i] * product;
        worst = fmax(worst, fabs((double)sums->dst[i] - exact) / exact * 0x1p24);
    }
    return worst;
}

static void check_problem(const char *problem, tconv_layout layout, const struct bare_target *target)
{
    static const float ones[2] = {1, 1};
    struct sums sums;
    bare_layer_make(&sums.layer, problem, TCONV_F32, layout, target);
    sums.src = make_floats(sums.layer.problem.src_extent);
    sums.weights = make_floats(sums.layer.problem.weight_extent);
    sums.dst = make_floats(sums.layer.problem.dst_extent);
    sums.terms = make_floats(sums.layer.problem.dst_extent);
    run(&sums, &tconv_cpu_reference, ones, sums.terms);
    for (size_t i = 0; i < COUNT_OF(implementations); i++) {
        if (implementations[i] == &tconv_cpu_bf16 && target->isa != TCONV_CPU_ISA_GENERIC &&
            tconv_cpu_find_bf16_kernels(target->isa) == &tconv_cpu_bf16_kernels_generic)
            continue; /* the kernels of another level */
        if (!bare_layer_is_taken(&sums.layer, implementations[i], NULL))
            continue;
        for (size_t p = 0; p < COUNT_OF(pairs); p++) {
            run(&sums, implementations[i], pairs[p], sums.dst);
            double units = worst_error(&sums, pairs[p]);
            cr_expect(units <= PROMISED_UNITS,
                      "%s, isa %d, cache %zu, layout %d: %s, all %.9g * %.9g: off by %.2f units",
                      implementations[i]->name, (int)target->isa, target->cache, (int)layout, problem,
                      (double)pairs[p][0], (double)pairs[p][1], units);
        }
    }
    free(sums.src);
    free(sums.weights);
    free(sums.dst);
    free(sums.terms);
    bare_layer_release(&sums.layer);
}

Test(sums, terms_that_are_alike_stay_in_the_bound)
{
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        for (size_t i = 0; tconv_cpu_has_isa((tconv_cpu_isa)isa) && i < COUNT_OF(problems); i++)
            for (size_t c = 0; c < COUNT_OF(caches); c++) {
                const struct bare_target target = {.isa = (tconv_cpu_isa)isa, .cache = caches[c], .threads = 1};
                if (!in_part(((size_t)isa * COUNT_OF(problems) + i) * COUNT_OF(caches) + c))
                    continue;
                check_problem(problems[i], TCONV_NCHW, &target);
                check_problem(problems[i], TCONV_NHWC, &target);
            }
}

/* The layers above reach the ways to sum that they are there for. */
Test(sums, layers_reach_every_way_to_sum)
{
    bool halo = false, calls = false, fused = false, stencil = false, partial = false, depthwise = false;
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        for (size_t c = 0; c < COUNT_OF(caches); c++) {
            const struct bare_target target = {.cache = caches[c], .threads = 1};
            tconv_layer layer;
            tconv_cpu_plan plan;
            tconv_cpu_pixel_plan pixels;
            tconv_issue issue;
            bare_layer_make(&layer, problems[i], TCONV_F32, TCONV_NCHW, &target);
            cr_assert_eq(tconv_cpu_plan_init(&plan, &layer, &issue), TCONV_SUCCESS);
            halo |= !plan.gather;
            calls |= plan.gather && plan.k_block < layer.problem.group_in;
            fused |= plan.fused;
            stencil |= plan.stencil;
            bare_layer_release(&layer);
            bare_layer_make(&layer, problems[i], TCONV_F32, TCONV_NHWC, &target);
            if (tconv_cpu_pixel_refusal(&layer) == NULL) {
                cr_assert_eq(tconv_cpu_pixel_plan_init(&pixels, &layer, &issue), TCONV_SUCCESS);
                partial |= pixels.partial_sums;
                depthwise |= pixels.depthwise;
            }
            bare_layer_release(&layer);
        }
    }
    cr_assert(halo && calls && fused && stencil && partial && depthwise, "%d %d %d %d %d %d", halo, calls, fused,
              stencil, partial, depthwise);
}
