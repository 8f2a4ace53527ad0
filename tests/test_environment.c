/* Each environment variable: good values do what tconv.h says, bad ones are errors that name the variable and the
 * accepted values, and the caller's options win. What TCONV_VERBOSE prints is in test_verbose.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/cpu/machine/topology.h"
#include "harness.h"
#include "support/capture.h"
#include "support/expect.h"
#include "support/machine.h"
#include "support/small_layer.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const variables[] = {"TCONV_BACKEND",     "TCONV_CPU_ISA", "TCONV_CPU_TUNING",
                                        "TCONV_NUM_THREADS", "TCONV_MATH",    "TCONV_VERBOSE"};

static struct small_layer layer;
static tconv_issue issue;
static char text[1024];

static void set_up(void)
{
    for (size_t i = 0; i < COUNT(variables); i++)
        unsetenv(variables[i]);
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* no device, on any machine */
    small_layer_init(&layer);
}

TestSuite(environment, .init = set_up);

/* Sets a variable, or removes it where value is NULL, and has the library reread the environment. */
static void set_variable(const char *name, const char *value)
{
    cr_assert_eq(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
    tconv_environment_reload(NULL);
}

/* Returns the description of a plan made now. */
static const char *describe(const tconv_options *options)
{
    tconv_plan *plan;
    expect_success(tconv_plan_create(&layer.desc, options, &plan, &issue), issue);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    tconv_plan_destroy(plan);
    return text;
}

#define expect_described(options, what)                                                                                \
    cr_assert_not_null(strstr(describe(options), (what)), "\"%s\" lacks \"%s\"", text, (what))

Test(environment, bad_values_name_the_variable_and_what_it_accepts)
{
    static const struct {
        const char *variable, *accepts;
        const char *values[12];
    } cases[] = {
        {"TCONV_BACKEND", "auto, cpu or cuda", {"gpu", "CPU", "cpu ", " cpu", "0", "1", "cud", "cudaa", "auto,cpu"}},
        {"TCONV_CPU_ISA",
         "generic, avx2, avx512, neon, avx512_bf16 or amx",
         {"default", "sse", "AVX2", "avx-512", "avx5", "2", "best"}},
        {"TCONV_CPU_TUNING", "auto, common or xeon", {"default", "zen", "Xeon", "1", "xeon "}},
        {"TCONV_NUM_THREADS",
         "from 1 to 65536",
         {"0", "-1", "65537", "two", "2x", "2 ", " 2", "1.5", "0x10", "99999999999999999999", "+2", "4294967297"}},
        {"TCONV_MATH", "strict or tf32", {"default", "TF32", "fast", "1", "strict\n"}},
        {"TCONV_VERBOSE", "0, 1 or 2", {"3", "-1", "yes", "true", "01", "2 ", "1\n"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t j = 0; j < COUNT(cases[i].values) && cases[i].values[j] != NULL; j++) {
            tconv_plan *plan;
            set_variable(cases[i].variable, cases[i].values[j]);
            expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_ENVIRONMENT,
                           cases[i].variable, cases[i].accepts);
            snprintf(text, sizeof text, "%s = %s", cases[i].variable, cases[i].values[j]);
            cr_assert_not_null(strstr(issue.message, text), "\"%s\" lacks \"%s\"", issue.message, text);
            cr_assert_null(plan);
            expect_failure(
                tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
                issue, TCONV_ERROR_ENVIRONMENT, cases[i].variable, cases[i].accepts);
            cr_assert(small_layer_is_untouched(&layer));
            set_variable(cases[i].variable, NULL);
        }
}

/* A value far longer than an issue has room for is cut, not copied past its end. */
Test(environment, very_long_value)
{
    static char value[100000];
    tconv_plan *plan;
    memset(value, 'v', sizeof value - 1);
    for (size_t i = 0; i < COUNT(variables); i++) {
        set_variable(variables[i], value);
        expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_ENVIRONMENT,
                       variables[i], "must be");
        set_variable(variables[i], NULL);
    }
}

Test(environment, bad_value_is_an_error_even_where_the_caller_names_it_all)
{
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    options.cpu_isa = TCONV_CPU_ISA_GENERIC;
    layer.desc.math = TCONV_MATH_STRICT;
    for (size_t i = 0; i < COUNT(variables); i++) {
        set_variable(variables[i], "nonsense");
        expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_ENVIRONMENT,
                       variables[i], "nonsense");
        set_variable(variables[i], NULL);
    }
}

/* tconv_validate answers the same on every machine, whatever its environment, and the desc is checked first. */
Test(environment, validation_comes_before_it)
{
    tconv_plan *plan;
    set_variable("TCONV_MATH", "nonsense");
    expect_success(tconv_validate(&layer.desc, &issue), issue);
    layer.desc.stride_h = 0;
    expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "stride_h",
                   "must be at least 1");
}

Test(environment, empty_is_as_good_as_not_set)
{
    for (size_t i = 0; i < COUNT(variables); i++)
        set_variable(variables[i], "");
    expect_described(NULL, "backend=cpu");
    expect_described(NULL, "--math strict");
}

Test(environment, backend)
{
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    set_variable("TCONV_BACKEND", "cpu");
    expect_described(NULL, "backend=cpu");
    options.location = TCONV_LOCATION_CUDA; /* the environment decides what AUTO means, not the tensors */
    expect_described(&options, "backend=cpu");
    set_variable("TCONV_BACKEND", "auto");
    expect_described(NULL, "backend=cpu");
    set_variable("TCONV_BACKEND", "cuda");
    expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                   "backend = cuda");
    options.backend = TCONV_BACKEND_CPU; /* the caller wins */
    expect_described(&options, "backend=cpu");
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    cr_assert(small_layer_is_right(&layer));
    tconv_options_init(&options);
    options.implementation = "cpu_reference"; /* a name implies its backend */
    expect_described(&options, "backend=cpu");
    set_variable("TCONV_BACKEND", "cpu");
    options.implementation = NULL;
    options.backend = TCONV_BACKEND_CUDA;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "backend",
                   "backend = cuda");
}

static void no_threads(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context, (void)count, (void)task, (void)argument;
}

/* The caller's own threads are not limited by the machine. */
Test(environment, threads)
{
    tconv_options options;
    tconv_options_init(&options);
    options.parallel.parallel_for = no_threads;
    set_variable("TCONV_NUM_THREADS", "3");
    expect_described(&options, "threads=3 ");
    options.threads = 2;
    expect_described(&options, "threads=2 ");
    options.threads = 0;
    set_variable("TCONV_NUM_THREADS", "1");
    expect_described(&options, "threads=1 ");
    expect_described(NULL, "threads=1 ");
    set_variable("TCONV_NUM_THREADS", "65536");
    expect_described(&options, "threads=1024 ");
    set_variable("TCONV_NUM_THREADS", "007");
    expect_described(&options, "threads=7 ");
}

/* OpenMP's threads are as many as can run. */
Test(environment, threads_of_openmp)
{
    char all[32];
    const int units = tconv_cpu_get_topology()->allowed_units;
    snprintf(all, sizeof all, "threads=%d ", units);
    set_variable("TCONV_NUM_THREADS", "65536");
    expect_described(NULL, all);
    snprintf(all, sizeof all, "threads=%d ", units < 3 ? units : 3);
    set_variable("TCONV_NUM_THREADS", "3");
    expect_described(NULL, all);
}

static bool describe_machine(const char *topology)
{
    static char machine[16384];
    cr_assert_eq(tconv_system_info(TCONV_TEXT_PLAIN, machine, sizeof machine, NULL), TCONV_SUCCESS);
    snprintf(text, sizeof text, "%.1000s", machine);
    return strstr(text, topology) != NULL;
}

/* The library asks Linux itself; it asks hwloc about a machine that is described to hwloc. */
Test(environment, another_machine_for_hwloc)
{
    setenv("HWLOC_SYNTHETIC", "package:2 l3:1(size=8MB) l2:4(size=256KiB) l1:1(size=16KiB) core:1 pu:2", 1);
    if (!tconv_cpu_read_hwloc(&(tconv_cpu_topology){0}))
        cr_skip_test("skipped: this needs hwloc");
    cr_assert(describe_machine("topology: hwloc"), "%s", text);
    cr_assert_not_null(strstr(text, " cores: 8\n"), "%s", text);
    cr_assert_not_null(strstr(text, " l2_bytes: 262144\n"), "%s", text);
    expect_described(NULL, "backend=cpu");
}

Test(environment, hwloc_and_linux_agree)
{
    tconv_cpu_topology linux_says = {0}, hwloc_says = {0};
    if (machine_played() != NULL)
        cr_skip_test("skipped: hwloc sees this machine, and another one is played");
    if (!tconv_cpu_read_linux(&linux_says) || !tconv_cpu_read_hwloc(&hwloc_says))
        cr_skip_test("skipped: this needs Linux and hwloc");
    cr_assert_eq(linux_says.allowed_cores, hwloc_says.allowed_cores);
    cr_assert_eq(linux_says.l1_bytes, hwloc_says.l1_bytes);
    cr_assert_eq(linux_says.l2_bytes, hwloc_says.l2_bytes);
    cr_assert_eq(linux_says.l3_bytes, hwloc_says.l3_bytes);
    cr_assert_str_eq(linux_says.model, hwloc_says.model);
    cr_assert(describe_machine("topology: Linux"), "%s", text);
}

Test(environment, cpu_isa_is_a_cap)
{
    struct way ways[MAX_WAYS];
    size_t count = list_ways(TCONV_BACKEND_CPU, ways);
    tconv_options options;
    char best[32], name[32];
    cr_assert_eq(sscanf(strstr(describe(NULL), "isa="), "isa=%31s", best), 1);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "isa=%s ", harness_cpu_isa_name(ways[i].isa));
        set_variable("TCONV_CPU_ISA", harness_cpu_isa_name(ways[i].isa));
        expect_described(NULL, name);
        tconv_options_init(&options);
        options.cpu_isa = TCONV_CPU_ISA_GENERIC; /* the caller wins */
        expect_described(&options, "isa=generic ");
        set_variable("TCONV_CPU_ISA", "generic");
        options.cpu_isa = ways[i].isa;
        expect_described(&options, name);
    }
}

/* Every level is a value that is read, on a machine of whatever architecture. */
Test(environment, cpu_isa_has_all_levels)
{
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++) {
        tconv_plan *plan = NULL;
        set_variable("TCONV_CPU_ISA", harness_cpu_isa_name((tconv_cpu_isa)isa));
        const tconv_status status = tconv_plan_create(&layer.desc, NULL, &plan, &issue);
        cr_expect(status == TCONV_SUCCESS || status == TCONV_ERROR_UNAVAILABLE, "%s: %s",
                  harness_cpu_isa_name((tconv_cpu_isa)isa), issue.message);
        tconv_plan_destroy(plan);
    }
}

Test(environment, cpu_isa_of_another_architecture)
{
#if defined(__aarch64__)
    const char *other = "avx2";
    const tconv_cpu_isa isa = TCONV_CPU_ISA_AVX2;
#else
    const char *other = "neon";
    const tconv_cpu_isa isa = TCONV_CPU_ISA_NEON;
#endif
    tconv_options options;
    tconv_plan *plan;
    tconv_options_init(&options);
    options.cpu_isa = isa;
    expect_failure(tconv_plan_create(&layer.desc, &options, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "cpu_isa",
                   other);
    set_variable("TCONV_CPU_ISA", other);
    expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_UNAVAILABLE, "cpu_isa",
                   other);
}

Test(environment, math)
{
    expect_described(NULL, "--math strict");
    set_variable("TCONV_MATH", "tf32");
    expect_described(NULL, "--math tf32");
    layer.desc.math = TCONV_MATH_STRICT;
    expect_described(NULL, "--math strict");
    set_variable("TCONV_MATH", "strict");
    layer.desc.math = TCONV_MATH_DEFAULT;
    expect_described(NULL, "--math strict");
    layer.desc.math = TCONV_MATH_TF32;
    expect_described(NULL, "--math tf32");
}

/* ------------------------------------------------------------------------------------------------ when it is read */

Test(environment, plan_that_exists_stays_as_it_is)
{
    struct capture capture;
    tconv_plan *plan;
    expect_success(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue);
    for (size_t i = 0; i < COUNT(variables); i++)
        set_variable(variables[i], strcmp(variables[i], "TCONV_VERBOSE") == 0 ? "2" : "nonsense");
    capture_start(&capture);
    tconv_status status = tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, layer.workspace,
                                             sizeof layer.workspace, NULL);
    capture_end(&capture);
    cr_assert_eq(status, TCONV_SUCCESS);
    cr_assert(small_layer_is_right(&layer));
    cr_assert_str_empty(capture.text[CAPTURED_STDERR]);
    capture_release(&capture);
    tconv_plan_destroy(plan);
}

Test(environment, read_once_and_again_when_the_caller_asks)
{
    setenv("TCONV_CPU_ISA", "generic", 1);
    setenv("TCONV_MATH", "tf32", 1);
    expect_described(NULL, "isa=generic ");
    setenv("TCONV_CPU_ISA", "nonsense", 1);
    unsetenv("TCONV_MATH");
    expect_described(NULL, "isa=generic ");
    cr_assert_eq(tconv_system_info(TCONV_TEXT_PLAIN, text, sizeof text, NULL), TCONV_SUCCESS);
    expect_described(NULL, "--math tf32");
    unsetenv("TCONV_CPU_ISA");
    setenv("TCONV_MATH", "strict", 1);
    expect_success(tconv_environment_reload(&issue), issue);
    expect_described(NULL, "--math strict");
    unsetenv("TCONV_MATH");
    expect_success(tconv_environment_reload(NULL), issue);
    expect_described(NULL, "--math strict");
}

/* A value that is bad when it is read stays an error of every plan, whatever setenv changes later. */
Test(environment, bad_value_stays_an_error_until_it_is_reloaded)
{
    static const char *const stated = "TCONV_MATH = fast: must be strict or tf32";
    tconv_plan *plan;
    setenv("TCONV_MATH", "fast", 1);
    for (int i = 0; i < 2; i++) {
        expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_ENVIRONMENT,
                       "TCONV_MATH", stated);
        setenv("TCONV_MATH", "tf32", 1);
    }
    expect_success(tconv_environment_reload(&issue), issue);
    expect_described(NULL, "--math tf32");
    setenv("TCONV_MATH", "fast", 1);
    expect_failure(tconv_environment_reload(&issue), issue, TCONV_ERROR_ENVIRONMENT, "TCONV_MATH", stated);
    tconv_last_issue(&issue);
    cr_assert_str_eq(issue.message, stated);
    expect_failure(tconv_plan_create(&layer.desc, NULL, &plan, &issue), issue, TCONV_ERROR_ENVIRONMENT, "TCONV_MATH",
                   stated);
}

/* tconv_system_info shows the values that are in effect. */
Test(environment, system_info_shows_what_was_read)
{
    static char info[16384];
    setenv("TCONV_NUM_THREADS", "3", 1);
    cr_assert_eq(tconv_system_info(TCONV_TEXT_PLAIN, info, sizeof info, NULL), TCONV_SUCCESS);
    cr_assert_not_null(strstr(info, "TCONV_NUM_THREADS: 3"), "%s", info);
    setenv("TCONV_NUM_THREADS", "5", 1);
    cr_assert_eq(tconv_system_info(TCONV_TEXT_PLAIN, info, sizeof info, NULL), TCONV_SUCCESS);
    cr_assert_not_null(strstr(info, "TCONV_NUM_THREADS: 3"), "%s", info);
    set_variable("TCONV_NUM_THREADS", "zero");
    cr_assert_eq(tconv_system_info(TCONV_TEXT_PLAIN, info, sizeof info, NULL), TCONV_SUCCESS);
    cr_assert_not_null(strstr(info, "TCONV_NUM_THREADS: zero"), "%s", info);
    cr_assert_not_null(strstr(info, "must be a whole number"), "%s", info);
}

/* Some threads make plans while another reloads the environment, unchanged, and a third changes it by setenv, which
 * must not matter once the library has read its own. Under ThreadSanitizer this test finds more. */
enum { READERS = 3, ROUNDS = 300 };

static void *make_plans(void *wrong)
{
    for (int i = 0; i < ROUNDS; i++) {
        tconv_plan *plan = NULL;
        char line[1024];
        bool good = tconv_plan_create(&layer.desc, NULL, &plan, NULL) == TCONV_SUCCESS &&
                    tconv_plan_describe(plan, line, sizeof line, NULL) == TCONV_SUCCESS &&
                    strstr(line, "isa=generic ") != NULL && strstr(line, "--math tf32") != NULL;
        tconv_plan_destroy(plan);
        if (!good)
            ++*(int *)wrong;
    }
    return NULL;
}

static void *change_environment(void *none)
{
    for (int i = 0; i < 20 * ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "TCONV_TEST_%d", i % 500);
        setenv(name, "moves the environment", 1);
    }
    return none;
}

Test(environment, plans_are_made_beside_reload_and_setenv)
{
    pthread_t threads[READERS];
    int wrong[READERS] = {0};
    setenv("TCONV_CPU_ISA", "generic", 1);
    setenv("TCONV_MATH", "tf32", 1);
    for (int beside = 0; beside < 2; beside++) {
        for (int i = 0; i < READERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, make_plans, &wrong[i]), 0);
        if (beside == 0)
            for (int i = 0; i < ROUNDS; i++)
                tconv_environment_reload(NULL);
        else
            change_environment(NULL);
        for (int i = 0; i < READERS; i++) {
            pthread_join(threads[i], NULL);
            cr_assert_eq(wrong[i], 0, "%d plans had another environment", wrong[i]);
        }
    }
}
