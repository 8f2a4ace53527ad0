#include "ways.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../../src/cpu/cpu_backend.h"

/* Whether a plan can be made that uses the ISA: the plan is asked for by its level and described by its name. */
static bool machine_has(tconv_cpu_isa isa)
{
    tconv_desc desc;
    tconv_options options;
    tconv_plan *plan;
    char text[1024], name[32];
    tconv_desc_init(&desc);
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.cpu_isa = isa;
    if (tconv_plan_create(&desc, &options, &plan, NULL) != TCONV_SUCCESS)
        return false;
    tconv_plan_describe(plan, text, sizeof text, NULL);
    tconv_plan_destroy(plan);
    snprintf(name, sizeof name, "isa=%s ", harness_cpu_isa_name(isa));
    return strstr(text, name) != NULL;
}

static void add_way(struct way ways[MAX_WAYS], size_t *count, const char *implementation, tconv_cpu_isa isa,
                    tconv_math math)
{
    cr_assert_lt(*count, MAX_WAYS);
    const bool cpu = isa != TCONV_CPU_ISA_DEFAULT;
    struct way *added = &ways[(*count)++];
    *added = (struct way){implementation, cpu ? TCONV_BACKEND_CPU : TCONV_BACKEND_CUDA, isa, math, ""};
    snprintf(added->text, sizeof added->text, "%s %s", implementation,
             cpu ? harness_cpu_isa_name(isa) : harness_math_name(math));
}

bool way_is_of_streams_alone(const struct way *way)
{
    return strcmp(way->implementation, "cpu_carry") == 0 || strcmp(way->implementation, "cuda_carry") == 0;
}

size_t list_ways(tconv_backend backend, struct way ways[MAX_WAYS])
{
    const char *prefix = backend == TCONV_BACKEND_CUDA ? "cuda_" : "cpu_", *name;
    size_t count = 0;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++) {
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        if (backend == TCONV_BACKEND_CUDA) {
            add_way(ways, &count, name, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_STRICT);
            add_way(ways, &count, name, TCONV_CPU_ISA_DEFAULT, TCONV_MATH_TF32);
            continue;
        }
        for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
            if (machine_has((tconv_cpu_isa)isa) && !harness_is_generic_again(name, (tconv_cpu_isa)isa)) {
                add_way(ways, &count, name, (tconv_cpu_isa)isa, TCONV_MATH_DEFAULT);
                if (way_is_reference(&ways[count - 1]))
                    break;
            }
    }
    cr_assert_gt(count, 0, "no implementation whose name begins with %s runs here", prefix);
    return count;
}

tconv_options way_options(const struct way *way)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = way->backend;
    options.cpu_isa = way->isa;
    options.implementation = way->implementation;
    return options;
}

void use_threads(tconv_options *options, int threads)
{
    enum { MOST_THREADS = 8 };
    static harness_pool *pools[MOST_THREADS + 1];
    options->threads = threads;
    if (threads <= tconv_cpu_limit_threads(threads))
        return;
    cr_assert_leq(threads, MOST_THREADS);
    if (pools[threads] == NULL)
        pools[threads] = harness_pool_create(threads);
    cr_assert_not_null(pools[threads], "no %d threads can be made", threads);
    options->parallel = harness_pool_parallel(pools[threads]);
}

harness_case case_of_way(const harness_case *test, const struct way *way)
{
    harness_case own = *test;
    if (way->math != TCONV_MATH_DEFAULT)
        own.layer.desc.math = way->math;
    return own;
}

bool way_is_reference(const struct way *way)
{
    return strcmp(way->implementation, "cpu_reference") == 0;
}

/* The plain kernels on CUDA; those on tensor cores are not listed. */
static const char *const plain_cuda[] = {"cuda_general", "cuda_depthwise"};

bool way_skips_taps(const struct way *way)
{
    for (size_t i = 0; i < sizeof plain_cuda / sizeof plain_cuda[0]; i++)
        if (strcmp(way->implementation, plain_cuda[i]) == 0)
            return true;
    return way->backend == TCONV_BACKEND_CPU;
}

bool run_way(const harness_case *test, const struct way *way, int threads, bool pack_once, harness_output *output)
{
    const harness_case own = case_of_way(test, way);
    tconv_options options = way_options(way);
    tconv_issue issue;
    char layer[HARNESS_LAYER_TEXT];
    use_threads(&options, threads);
    if (way->math == TCONV_MATH_TF32 && test->layer.desc.dtype != TCONV_F32)
        return false;
    tconv_status status = harness_run(&own, &options, pack_once, output, &issue);
    if (status == TCONV_SUCCESS)
        return true;
    harness_layer_format(&own.layer, layer, sizeof layer);
    cr_assert_eq(status, TCONV_ERROR_UNSUPPORTED, "%s: %s \"%s\": %s", way->text, tconv_status_string(status),
                 issue.message, layer);
    return false;
}

void judge_way(const harness_case *test, const struct way *way, int threads, bool pack_once,
               const harness_output *output)
{
    harness_failure failure;
    const harness_case own = case_of_way(test, way);
    cr_assert(harness_compare(&own, output, &failure), "%s, %d threads%s: %s", way->text, threads,
              pack_once ? ", packed" : "", failure.text);
}

bool check_way(const harness_case *test, const struct way *way, int threads, bool pack_once)
{
    harness_output output;
    if (!run_way(test, way, threads, pack_once, &output))
        return false;
    judge_way(test, way, threads, pack_once, &output);
    harness_output_release(&output);
    return true;
}

bool is_planned(const tconv_desc *desc, const char *word)
{
    const tconv_options options = {.struct_size = sizeof options, .backend = TCONV_BACKEND_CUDA, .device = -1};
    static char text[16384];
    tconv_issue issue;
    if (tconv_explain(desc, &options, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue) != TCONV_SUCCESS)
        cr_skip("this build has no CUDA: %s", issue.message);
    return strstr(text, word) != NULL;
}

void skip_without_cuda(void)
{
    tconv_issue issue;
    if (tconv_backend_available(TCONV_BACKEND_CUDA, &issue) == TCONV_SUCCESS)
        return;
    fprintf(stderr, "skipped: no CUDA device (%s)\n", issue.message);
    cr_skip_test("skipped: no CUDA device");
}
