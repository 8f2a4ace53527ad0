/* Threads are the caller's choice: OpenMP's, the caller's own, or none, with tasks one after another in any order. The
 * bits are the same with all of them and in any floating-point environment of the caller. That environment holds in
 * every thread and is left as it was. */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/cpu/phases/plan.h"
#include "../src/cpu/threads/parallel.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/expect.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct way ways[MAX_WAYS];
static tconv_issue issue;

/* ------------------------------------------------------------------------------------------------ the caller's threads */

/* No threads at all: all tasks run on this one. */
static struct {
    int calls, count, most;
} seen;

static void note(int32_t count)
{
    seen.calls++;
    seen.count = count;
    seen.most = count > seen.most ? count : seen.most;
}

static void run_in_order(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    note(count);
    for (int32_t index = 0; index < count; index++)
        task(argument, index);
}

static void run_in_reverse(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    note(count);
    for (int32_t index = count; index-- > 0;)
        task(argument, index);
}

static const tconv_parallel in_order = {run_in_order, NULL}, in_reverse = {run_in_reverse, NULL};

/* Fourteen threads are more than some layers have work for, three share it unevenly. */
static tconv_parallel pool_of(int threads)
{
    static harness_pool *pools[15];
    if (pools[threads] == NULL)
        pools[threads] = harness_pool_create(threads);
    cr_assert_not_null(pools[threads]);
    return harness_pool_parallel(pools[threads]);
}

static void check_bits(const harness_case *test, const struct way *way, const harness_output *first,
                       tconv_parallel parallel, int threads, const char *what)
{
    tconv_options options = way_options(way);
    harness_output output;
    harness_failure failure;
    options.threads = threads;
    options.parallel = parallel;
    for (int pack_once = 0; pack_once <= 1; pack_once++) {
        expect_success(harness_run(test, &options, pack_once != 0, &output, &issue), issue);
        cr_assert(harness_same_bits(test, first, &output, &failure), "%s, %s%s: %s", way->text, what,
                  pack_once != 0 ? ", packed" : "", failure.text);
        harness_output_release(&output);
    }
}

static void check_way_by_any_threads(const harness_case *test, const struct way *way, size_t layer)
{
    harness_output first;
    if (!run_way(test, way, 1, false, &first))
        return;
    seen.calls = 0;
    check_bits(test, way, &first, in_order, 7, "one after another");
    check_bits(test, way, &first, in_reverse, 7, "in reverse");
    cr_assert_gt(seen.calls, 0, "%s: the caller's threads were not asked", way->text);
    check_bits(test, way, &first, pool_of(7), 7, "7 own threads");
    if (layer % 2 == 0)
        check_bits(test, way, &first, pool_of(2), 2, "2 own threads");
    else
        check_bits(test, way, &first, pool_of(3), 14, "3 own threads for 14");
    check_bits(test, way, &first, (tconv_parallel){NULL, NULL}, 0, "OpenMP");
    harness_output_release(&first);
}

Test(threads, any_threads_give_the_same_bits)
{
    const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t i = 0; i < LARGER_LAYERS; i++) {
        harness_layer layer = larger_layer(i, (int)(3 * i % LARGER_FORMS));
        harness_case test = make_case(&layer, HARNESS_REALS, i);
        for (size_t w = 0; w < count; w++)
            if (strcmp(ways[w].implementation, "cpu_reference") != 0 || i % 4 == 0) /* it is slow */
                check_way_by_any_threads(&test, &ways[w], i);
        harness_case_destroy(&test);
    }
}

static tconv_plan *make_plan(const harness_case *test, const struct way *way, tconv_parallel parallel, int threads)
{
    tconv_options options = way_options(way);
    tconv_plan *plan;
    options.threads = threads;
    options.parallel = parallel;
    expect_success(tconv_plan_create(&test->layer.desc, &options, &plan, &issue), issue);
    return plan;
}

Test(threads, packing_goes_to_the_callers_threads)
{
    static const char *const names[] = {"cpu_phases", "cpu_pixels"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct way way = {names[i], TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_DEFAULT, ""};
        harness_layer layer;
        char message[128];
        cr_assert(harness_problem_parse("ci=256 h=4 w=4 co=256 k=3", &layer, message, sizeof message), "%s", message);
        layer.desc.layout = i == 1 ? TCONV_NHWC : TCONV_NCHW;
        harness_case test = make_case(&layer, HARNESS_REALS, i);
        tconv_plan *plan = make_plan(&test, &way, in_order, 5), *packed;
        const tconv_tensor weights = {test.weights.data, layer.desc.dtype, TCONV_LOCATION_HOST};
        memset(&seen, 0, sizeof seen);
        expect_success(tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue), issue);
        cr_assert(seen.calls == 1 && seen.count == 5, "%s: %d calls, of %d", names[i], seen.calls, seen.count);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
        harness_case_destroy(&test);
    }
}

/* ------------------------------------------------------------------------------------------------------------- counts */

static int planned_threads(tconv_parallel parallel, int threads, size_t *workspace)
{
    const struct way way = {"cpu_phases", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_DEFAULT, ""};
    harness_layer layer;
    char text[1024], message[128];
    int planned = 0;
    cr_assert(harness_problem_parse("n=64 ci=64 h=64 w=64 co=64 k=3", &layer, message, sizeof message), "%s", message);
    const harness_case test = {.layer = layer};
    tconv_plan *plan = make_plan(&test, &way, parallel, threads);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    cr_assert_eq(sscanf(strstr(text, " threads="), " threads=%d", &planned), 1, "%s", text);
    cr_assert_eq(tconv_plan_workspace_size(plan, workspace), TCONV_SUCCESS);
    tconv_plan_destroy(plan);
    return planned;
}

Test(threads, no_more_are_planned_than_can_run)
{
    const int units = tconv_cpu_get_topology()->allowed_units;
    const tconv_parallel openmp = {NULL, NULL};
    size_t one, all, too_many;
    cr_assert_eq(planned_threads(openmp, 1, &one), 1);
    cr_assert_eq(planned_threads(openmp, units, &all), units);
    cr_assert_eq(planned_threads(openmp, 65536, &too_many), units);
    cr_assert_eq(too_many, all);
    cr_assert_eq(planned_threads(in_order, 7, &all), 7);
    cr_assert_lt(all, 7 * one);
    cr_assert_eq(planned_threads(in_order, 65536, &all), TCONV_CPU_MAX_THREADS);
    cr_assert_lt(all, TCONV_CPU_MAX_THREADS * one);
    cr_assert_leq(planned_threads(in_order, 0, &all), units);
}

/* A small layer is one task, for which the caller's parallel_for is not called. In the caller's OpenMP region
 * parallel_for still is, for a large one. */
Test(threads, the_caller_is_asked_where_there_is_work)
{
    const struct way way = {"cpu_phases", TCONV_BACKEND_CPU, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_DEFAULT, ""};
    harness_layer small = larger_layer(0, 0), large = small;
    harness_output output;
    tconv_options options = way_options(&way);
    small.desc.batch = small.desc.in_channels = small.desc.out_channels = small.desc.in_h = small.desc.in_w = 1;
    options.threads = 7;
    options.parallel = in_order;
    harness_case tests[] = {make_case(&small, HARNESS_REALS, 1), make_case(&large, HARNESS_REALS, 1)};
    for (int i = 0; i < 2; i++) {
        memset(&seen, 0, sizeof seen);
        expect_success(harness_run(&tests[i], &options, false, &output, &issue), issue);
        harness_output_release(&output);
        cr_assert_eq(seen.calls > 0, i == 1);
    }
    memset(&seen, 0, sizeof seen);
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        tconv_status status = harness_run(&tests[1], &options, false, &output, NULL);
        cr_assert_eq(status, TCONV_SUCCESS);
    }
    harness_output_release(&output);
    cr_assert_gt(seen.calls, 0);
    for (int i = 0; i < 2; i++)
        harness_case_destroy(&tests[i]);
}

/* -------------------------------------------------------------------------------------- the floating-point environment */

/* Makes a case whose first image has numbers so small that its sums are denormal, and whose last has numbers so large
 * that they overflow. */
static harness_case extreme_case(const harness_layer *layer)
{
    harness_case test = make_case(layer, HARNESS_REALS, 3);
    const tconv_desc *desc = &layer->desc;
    float *src = test.src.data, *weights = test.weights.data;
    const int64_t image = test.src_view.extent / desc->batch;
    for (int64_t i = 0; i < image; i++) {
        src[i] *= 0x1p-127F;
        src[test.src_view.extent - 1 - i] *= 0x1.8p127F;
    }
    for (int64_t i = 0; i < test.weights_view.extent; i++)
        weights[i] *= 1.5F;
    return test;
}

static void set_flush_to_zero(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ and DAZ */
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | UINT64_C(1) << 24));
#endif
}

static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

/* Runs on some threads in the environment that is set, and returns the exceptions that it raised. */
static int run_in_environment(const harness_case *test, const struct way *way, tconv_parallel parallel, int threads,
                              int mode, bool flush, harness_output *output)
{
    tconv_options options = way_options(way);
    fenv_t before;
    options.parallel = parallel;
    options.threads = threads;
    fegetenv(&before);
    fesetround(mode);
    if (flush)
        set_flush_to_zero();
    feclearexcept(FE_ALL_EXCEPT);
    tconv_status status = harness_run(test, &options, false, output, &issue);
    int raised = fetestexcept(FE_ALL_EXCEPT), left = fegetround();
    fesetenv(&before);
    cr_assert_eq(left, mode);
    if (status != TCONV_ERROR_UNSUPPORTED)
        expect_success(status, issue);
    return status == TCONV_SUCCESS ? raised : -1;
}

static void check_environment(const harness_case *test, const struct way *way, int mode, bool flush,
                              harness_output *first)
{
    const struct {
        const char *name;
        tconv_parallel parallel;
        int threads;
    } others[] = {
        {"OpenMP", {NULL, NULL}, 2}, {"2 own", pool_of(2), 2}, {"7 own", pool_of(7), 7}, {"in reverse", in_reverse, 3}};
    harness_failure failure;
    const int alone = run_in_environment(test, way, (tconv_parallel){NULL, NULL}, 1, mode, flush, first);
    if (alone < 0)
        return;
    cr_assert_neq(alone & FE_OVERFLOW, 0);
    for (size_t i = 0; i < COUNT(others); i++) {
        harness_output output;
        /* The same tiles by the calling thread: results that are dropped at the ends of others may raise more. */
        const int planned =
            others[i].parallel.parallel_for != NULL ? others[i].threads : tconv_cpu_limit_threads(others[i].threads);
        const int raised = run_in_environment(test, way, in_order, planned, mode, flush, &output);
        harness_output_release(&output);
        int other = run_in_environment(test, way, others[i].parallel, others[i].threads, mode, flush, &output);
        cr_assert_eq(other, raised, "%s, %s: raises %#x, in order %#x", way->text, others[i].name, (unsigned)other,
                     (unsigned)raised);
        cr_assert(harness_same_bits(test, first, &output, &failure), "%s, %s, mode %d%s: %s", way->text, others[i].name,
                  mode, flush ? ", flushing" : "", failure.text);
        harness_output_release(&output);
    }
}

Test(threads, the_callers_environment_holds_in_all_threads)
{
    const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    for (size_t w = 0; w < count; w++) {
        const bool pixels = strcmp(ways[w].implementation, "cpu_pixels") == 0;
        harness_layer layer = larger_layer(2, pixels ? 1 : 0);
        layer.desc.batch = 3; /* denormal numbers take long */
        harness_case test = extreme_case(&layer);
        harness_output first[2 * COUNT(modes)] = {{.implementation = NULL}};
        harness_failure failure;
        for (size_t i = 0; i < COUNT(first); i++)
            check_environment(&test, &ways[w], modes[i % COUNT(modes)], i >= COUNT(modes), &first[i]);
        /* This shows that the environment was in effect at all. */
        for (size_t i = 1; i < COUNT(first) && first[0].dst.memory != NULL; i++) {
            if (i < COUNT(modes))
                cr_assert_not(harness_same_bits(&test, &first[0], &first[i], &failure), "%s, mode %zu", ways[w].text,
                              i);
        }
        if (strcmp(ways[w].implementation, "cpu_reference") != 0 && first[0].dst.memory != NULL)
            cr_assert_not(harness_same_bits(&test, &first[0], &first[COUNT(modes)], &failure), "%s", ways[w].text);
        for (size_t i = 0; i < COUNT(first); i++)
            harness_output_release(&first[i]);
        harness_case_destroy(&test);
    }
}

static bool rounds_upward(void)
{
    const volatile double one = 1, tiny = 0x1p-60;
    return one + tiny > one;
}

static tconv_target target_of(tconv_cpu_target machine)
{
    tconv_target target = {.backend = TCONV_BACKEND_CPU};
    tconv_cpu_target_set(&target, machine);
    return target;
}

static void count_upward(void *argument, int index)
{
    (void)index;
    atomic_fetch_add((atomic_int *)argument, rounds_upward());
}

/* The caller's own region finds its threads as they were. */
Test(threads, threads_get_their_own_environment_back)
{
    const tconv_target target = target_of((tconv_cpu_target){.threads = 4});
    atomic_int upward = 0;
    int later = 0;
    tconv_cpu_run_shares(&target, 4, count_upward, &upward); /* a new thread begins with the environment of its maker */
    cr_assert_eq(atomic_load(&upward), 0);
    fesetround(FE_UPWARD);
    tconv_cpu_run_shares(&target, 4, count_upward, &upward);
    fesetround(FE_TONEAREST);
#pragma omp parallel num_threads(4) reduction(+ : later)
    later += rounds_upward();
    cr_assert_eq(atomic_load(&upward), 4);
    cr_assert_eq(later, 0);
}

/* The caller's rounding mode does not change a plan. */
Test(threads, plans_do_not_depend_on_rounding)
{
    static const char *const problems[] = {"ci=8 h=16 w=16 co=8 k=3", "n=3 ci=100 h=7 w=13 co=30 k=5 s=2",
                                           "n=7 ci=333 h=9 w=31 co=77 k=4x3 s=3x2 d=2"};
    for (size_t i = 0; i < COUNT(problems); i++) {
        const struct bare_target target = {.threads = 7};
        tconv_layer layer;
        tconv_memory_sizes first, sizes;
        void *made;
        bare_layer_make(&layer, problems[i], TCONV_F32, i == 1 ? TCONV_NHWC : TCONV_NCHW, &target);
        const tconv_implementation *implementation = i == 1 ? &tconv_cpu_pixels : &tconv_cpu_phases;
        for (size_t m = 0; m < COUNT(modes); m++) {
            fesetround(modes[m]);
            tconv_status status = bare_layer_plan(&layer, implementation, &made, m == 0 ? &first : &sizes, &issue);
            fesetround(FE_TONEAREST);
            expect_success(status, issue);
            free(made);
            cr_assert(m == 0 || (first.scratch == sizes.scratch && first.packed == sizes.packed), "%s", problems[i]);
        }
        bare_layer_release(&layer);
    }
    for (size_t m = 0; m < COUNT(modes); m++) {
        fenv_t caller;
        fesetround(modes[m]);
        const bool changed = tconv_cpu_round_to_nearest(&caller);
        const int within = fegetround();
        if (changed)
            fesetenv(&caller);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        cr_assert(changed == (modes[m] != FE_TONEAREST) && within == FE_TONEAREST && after == modes[m]);
    }
}

/* ----------------------------------------------------------------------------------------------------------- the module */

enum { MOST_SHARES = 40 };

struct tally {
    atomic_int runs[MOST_SHARES];
};

static void count_share(void *argument, int index)
{
    struct tally *tally = argument;
    atomic_fetch_add(&tally->runs[index], 1);
}

/* Teams of all sizes run in turn, beside regions of the caller's own: each share runs once. */
Test(threads, each_share_runs_once)
{
    const tconv_parallel by[] = {{NULL, NULL}, {run_in_order, NULL}, {run_in_reverse, NULL}, pool_of(3)};
    for (size_t b = 0; b < COUNT(by); b++)
        for (int turn = 0; turn < 60; turn++) {
            const int count = turn % 7 == 0 ? MOST_SHARES / 4 : 1 + turn % 6;
            const tconv_target target =
                target_of((tconv_cpu_target){.threads = turn % 2 == 0 ? count : MOST_SHARES / 4, .parallel = by[b]});
            struct tally tally = {0};
            tconv_cpu_run_shares(&target, count, count_share, &tally);
            for (int i = 0; i < MOST_SHARES; i++)
                cr_assert_eq(atomic_load(&tally.runs[i]), i < count, "share %d of %d", i, count);
            if (turn % 5 == 0) {
                const tconv_target four = target_of((tconv_cpu_target){.threads = 4});
                int threads = 0;
#pragma omp parallel num_threads(1 + turn % 3) reduction(+ : threads)
                {
                    struct tally own = {0};
                    tconv_cpu_run_shares(&four, 4, count_share, &own);
                    threads += atomic_load(&own.runs[3]);
                }
                cr_assert_gt(threads, 0);
            }
        }
}
