/*
 * Each entry of the table of microarchitectures decides what it says, and is right, on any machine: blocks of output
 * channels with every rest, outputs that are streamed and that are not.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/checked.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/cpu/machine/tuning.h"
#include "../src/cpu/phases/plan.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const tconv_cpu_tuning tunings[] = {TCONV_CPU_TUNING_COMMON, TCONV_CPU_TUNING_XEON};

/* What plans are made for here, whatever the processor has: they do not run. */
#if defined(__aarch64__)
#define PLANNED_ISA TCONV_CPU_ISA_NEON
#else
#define PLANNED_ISA TCONV_CPU_ISA_AVX2
#endif

/* Makes cpu_phases' plan for two threads of a machine with so large caches. */
static tconv_cpu_plan plan_of(const char *problem, tconv_cpu_tuning tuning, size_t l2_bytes, size_t l3_bytes)
{
    const struct bare_target target = {.cache = l2_bytes, .threads = 2};
    tconv_layer layer;
    tconv_cpu_plan plan;
    tconv_issue issue;
    bare_layer_make(&layer, problem, TCONV_F32, TCONV_NCHW, &target);
    tconv_cpu_target cpu = tconv_cpu_target_of(&layer.target);
    cpu.cpu_isa = PLANNED_ISA;
    cpu.l3_bytes = l3_bytes;
    cpu.tuning = tuning;
    tconv_cpu_target_set(&layer.target, cpu);
    cr_assert_eq(tconv_cpu_plan_init(&plan, &layer, &issue), TCONV_SUCCESS, "%s", issue.message);
    bare_layer_release(&layer);
    return plan;
}

Test(tuning, blocks_have_as_many_channels_as_it_says)
{
    for (size_t i = 0; i < COUNT(tunings); i++)
        for (int64_t channels = 1; channels <= 40; channels++) {
            char problem[64];
            snprintf(problem, sizeof problem, "n=1 ci=20 h=9 w=40 co=%d k=3", (int)channels);
            const tconv_cpu_plan plan = plan_of(problem, tunings[i], 1 << 20, 1 << 25);
            const int most = tconv_cpu_find_traits(tunings[i])->block_channels;
            cr_expect_eq(plan.blocks, tconv_ceil_div(channels, tconv_min(most, plan.kernels->max_channels)), "%s %s",
                         tconv_cpu_find_traits(tunings[i])->name, problem);
        }
}

/* 3 MB of outputs, of 36 and of 576 terms. */
Test(tuning, outputs_are_streamed_past_the_caches_that_it_names)
{
    static const char few[] = "n=1 ci=4 h=150 w=400 co=12 k=3", many[] = "n=1 ci=64 h=150 w=400 co=12 k=3";
    const size_t small = 1 << 20, large = 16 << 20;
    if (!plan_of(few, TCONV_CPU_TUNING_XEON, small, large).kernels->streams)
        cr_skip_test("skipped: no streaming stores");
    cr_expect(!plan_of(few, TCONV_CPU_TUNING_COMMON, small, large).stream);
    cr_expect(plan_of(few, TCONV_CPU_TUNING_COMMON, small, 2 * small).stream);
    cr_expect(!plan_of(many, TCONV_CPU_TUNING_COMMON, small, 2 * small).stream);
    cr_expect(plan_of(few, TCONV_CPU_TUNING_XEON, small, large).stream);
    cr_expect(plan_of(many, TCONV_CPU_TUNING_XEON, small, large).stream);
    cr_expect(!plan_of(few, TCONV_CPU_TUNING_XEON, 2 * small, large).stream, "two threads hold it in their caches");
}

Test(tuning, variable_names_every_entry)
{
    char text[4096], line[64];
    for (size_t i = 0; i < COUNT(tunings); i++) {
        const char *name = tconv_cpu_find_traits(tunings[i])->name;
        setenv("TCONV_CPU_TUNING", name, 1);
        tconv_environment_reload(NULL);
        cr_assert_eq(tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, NULL), TCONV_SUCCESS);
        snprintf(line, sizeof line, "\"tuning_used\": \"%s\"", name);
        cr_expect_not_null(strstr(text, line), "%s lacks %s", text, line);
    }
}

Test(tuning, every_entry_is_right)
{
    static const char *const problems[] = {
        "n=1 ci=3 h=151 w=203 co=9 k=4 s=2 p=1 b=1", /* streamed */
        "n=1 ci=5 h=260 w=510 co=17 k=3 b=1",        /* streamed, without residues */
        "n=2 ci=50 h=9 w=31 co=64 k=3 s=2 p=1 op=1 b=1",
        "n=3 ci=21 h=14 w=14 co=25 k=2 s=2",
    };
    for (size_t i = 0; i < COUNT(tunings); i++) {
        struct way ways[MAX_WAYS];
        setenv("TCONV_CPU_TUNING", tconv_cpu_find_traits(tunings[i])->name, 1);
        tconv_environment_reload(NULL);
        const size_t count = list_ways(TCONV_BACKEND_CPU, ways);
        for (size_t p = 0; p < COUNT(problems); p++) {
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[p], &layer, message, sizeof message), "%s", message);
            harness_case test = make_case(&layer, HARNESS_INTEGERS, p);
            for (size_t w = 0; w < count; w++)
                if (strcmp(ways[w].implementation, "cpu_phases") == 0)
                    cr_expect(check_way(&test, &ways[w], 2, true), "%s", problems[p]);
            harness_case_destroy(&test);
        }
    }
}
