/* Plans as immutable objects: they keep no pointer of the caller's, hold packed weights, describe themselves, and
 * execute in many threads at once. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/expect.h"
#include "support/small_layer.h"
#include "support/ways.h"

static struct small_layer layer;
static tconv_issue issue;

static void set_up(void)
{
    small_layer_init(&layer);
}

TestSuite(plan, .init = set_up);

Test(plan, plan_keeps_no_pointer_of_the_callers)
{
    char *name = strdup("cpu_reference");
    tconv_options *options = malloc(sizeof *options);
    tconv_plan *plan;
    tconv_desc *desc = malloc(sizeof *desc);
    tconv_options_init(options);
    options->implementation = name;
    *desc = layer.desc;
    expect_success(tconv_plan_create(desc, options, &plan, &issue), issue);
    memset(name, 'x', strlen(name));
    memset(options, 0xa5, sizeof *options);
    memset(desc, 0xa5, sizeof *desc);
    free(name);
    free(options);
    free(desc);
    cr_assert_str_eq(tconv_plan_implementation(plan), "cpu_reference");
    small_layer_expect_right(&layer, plan);
    tconv_plan_destroy(plan);
}

Test(plan, packed_plan_stands_by_itself)
{
    tconv_plan *plan = small_layer_plan(&layer, NULL), *packed, *again;
    size_t size, packed_size;
    float weights[SMALL_WEIGHTS];
    memcpy(weights, layer.weights_data, sizeof weights);
    expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
    tconv_plan_workspace_size(plan, &size);
    tconv_plan_workspace_size(packed, &packed_size);
    cr_assert_lt(packed_size, size, "packed weights need no room in the workspace");
    cr_assert_str_eq(tconv_plan_implementation(packed), tconv_plan_implementation(plan));

    memset(layer.weights_data, 0xff, sizeof layer.weights_data); /* a packed plan does not read them any more */
    small_layer_expect_right(&layer, packed);
    cr_assert_eq(
        tconv_plan_execute(packed, &layer.src, NULL, &layer.bias, &layer.dst, layer.workspace, packed_size, NULL),
        TCONV_SUCCESS);
    cr_assert(small_layer_is_right(&layer));
    memcpy(layer.weights_data, weights, sizeof weights);
    small_layer_expect_right(&layer, plan); /* plan stays as it is, */
    tconv_plan_destroy(plan);
    small_layer_expect_right(&layer, packed); /* and packed does not need it any more */

    for (int i = 0; i < SMALL_WEIGHTS; i++)
        weights[i] = 0;
    const tconv_tensor zeros = {weights, TCONV_F32, TCONV_LOCATION_HOST};
    expect_success(tconv_plan_pack_weights(packed, &zeros, NULL, &again, &issue), issue);
    expect_success(small_layer_execute(&layer, again, &issue), issue);
    for (int i = 0; i < SMALL_DST; i++)
        cr_assert_eq(layer.dst_data[i], layer.bias_data[i / 60 % 6]);
    small_layer_expect_right(&layer, packed);
    tconv_plan_destroy(again);
    tconv_plan_destroy(packed);
}

/* An allocator that keeps released blocks, so that a destroyed plan's memory may be read. */
static struct {
    void *blocks[64];
    size_t count;
} kept;

static void *allocate_kept(void *context, size_t size)
{
    (void)context;
    cr_assert_lt(kept.count, sizeof kept.blocks / sizeof kept.blocks[0]);
    return kept.blocks[kept.count++] = malloc(size);
}

static void keep_released(void *releases, void *memory)
{
    (void)memory;
    ++*(int *)releases;
}

Test(plan, destroyed_plan_is_refused)
{
    tconv_options options;
    tconv_plan *plan, *packed, *again;
    char text[256];
    size_t size;
    int releases = 0;
    tconv_options_init(&options);
    options.allocator = (tconv_allocator){allocate_kept, keep_released, &releases};
    plan = small_layer_plan(&layer, &options);
    expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
    small_layer_clear(&layer);
    for (int i = 0; i < 2; i++) {
        tconv_plan *destroyed = i == 0 ? plan : packed;
        tconv_plan_destroy(destroyed);
        const int released = releases;
        tconv_plan_destroy(destroyed);
        cr_assert_eq(releases, released, "a second destroy frees again");
        expect_failure(small_layer_execute(&layer, destroyed, &issue), issue, TCONV_ERROR_INVALID_ARGUMENT, "plan",
                       "was it destroyed?");
        cr_assert(small_layer_is_untouched(&layer));
        expect_failure(tconv_plan_pack_weights(destroyed, &layer.weights, NULL, &again, &issue), issue,
                       TCONV_ERROR_INVALID_ARGUMENT, "plan", "was it destroyed?");
        cr_assert_null(again);
        cr_assert_eq(tconv_plan_workspace_size(destroyed, &size), TCONV_ERROR_INVALID_ARGUMENT);
        cr_assert_eq(tconv_plan_describe(destroyed, text, sizeof text, &size), TCONV_ERROR_INVALID_ARGUMENT);
        cr_assert_str_empty(tconv_plan_implementation(destroyed));
    }
    cr_assert_eq((size_t)releases, kept.count, "all that was allocated was released, once");
    while (kept.count > 0)
        free(kept.blocks[--kept.count]);
}

Test(plan, plan_describes_itself_as_a_line_that_replays)
{
    char text[1024], cut[16], problem[512], message[128];
    size_t length, same;
    harness_layer replayed;
    tconv_options options;
    tconv_options_init(&options);
    use_threads(&options, 3); /* on any machine */
    tconv_plan *plan = small_layer_plan(&layer, &options);
    memset(text, 'x', sizeof text);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, &length), TCONV_SUCCESS);
    cr_assert_eq(strlen(text), length);
    cr_assert_null(strchr(text, '\n'));
    cr_assert_not_null(strstr(text, "backend=cpu"), "%s", text);
    cr_assert_not_null(strstr(text, tconv_plan_implementation(plan)), "%s", text);
    cr_assert_not_null(strstr(text, "threads=3"), "%s", text);

    const char *quote = strstr(text, "--problem \"");
    cr_assert_not_null(quote, "%s", text);
    cr_assert_eq(sscanf(quote, "--problem \"%511[^\"]\"", problem), 1);
    cr_assert(harness_problem_parse(problem, &replayed, message, sizeof message), "%s", message);
    cr_assert_arr_eq(&replayed.desc, &layer.desc, offsetof(tconv_desc, dtype), "%s", problem);

    cr_assert_eq(tconv_plan_describe(plan, NULL, 0, &same), TCONV_SUCCESS);
    cr_assert_eq(same, length);
    cr_assert_eq(tconv_plan_describe(plan, text, sizeof text, NULL), TCONV_SUCCESS);
    memset(cut, 'x', sizeof cut);
    cr_assert_eq(tconv_plan_describe(plan, cut, sizeof cut - 1, &same), TCONV_SUCCESS);
    cr_assert_eq(same, length);
    cr_assert_eq(strncmp(cut, text, sizeof cut - 2), 0);
    cr_assert(cut[sizeof cut - 2] == '\0' && cut[sizeof cut - 1] == 'x', "\"%.16s\"", cut);
    tconv_plan_destroy(plan);
}

Test(plan, system_info_in_both_formats)
{
    for (int format = TCONV_TEXT_PLAIN; format <= TCONV_TEXT_JSON; format++) {
        char text[16384];
        size_t length, same;
        cr_assert_eq(tconv_system_info((tconv_text_format)format, text, sizeof text, &length), TCONV_SUCCESS);
        cr_assert_eq(strlen(text), length);
        cr_assert_not_null(strstr(text, TCONV_VERSION_STRING));
        cr_assert_not_null(strstr(text, "cpu_reference"), "%s", text);
        cr_assert_eq(tconv_system_info((tconv_text_format)format, NULL, 0, &same), TCONV_SUCCESS);
        cr_assert_eq(same, length);
        if (format == TCONV_TEXT_JSON)
            cr_assert(text[0] == '{' && strrchr(text, '}') != NULL, "%.20s", text);
    }
}

Test(plan, explain_in_both_formats)
{
    const tconv_options options = {.struct_size = sizeof options, .backend = TCONV_BACKEND_CPU, .device = -1};
    for (int format = TCONV_TEXT_PLAIN; format <= TCONV_TEXT_JSON; format++) {
        char text[16384], cut[64];
        size_t length, same;
        cr_assert_eq(
            tconv_explain(&layer.desc, &options, NULL, (tconv_text_format)format, text, sizeof text, &length, NULL),
            TCONV_SUCCESS);
        cr_assert_eq(strlen(text), length);
        cr_assert_not_null(strstr(text, "cpu_reference"), "%s", text);
        cr_assert_eq(tconv_explain(&layer.desc, &options, NULL, (tconv_text_format)format, NULL, 0, &same, NULL),
                     TCONV_SUCCESS);
        cr_assert_eq(same, length);
        cr_assert_eq(
            tconv_explain(&layer.desc, &options, NULL, (tconv_text_format)format, cut, sizeof cut, &same, NULL),
            TCONV_SUCCESS);
        cr_assert(same == length && strncmp(cut, text, sizeof cut - 1) == 0 && cut[sizeof cut - 1] == '\0');
    }
}

/* The implementation of rank 1 is the one that a plan takes. */
Test(plan, explain_ranks_as_plans_choose)
{
    const tconv_options options = {.struct_size = sizeof options, .backend = TCONV_BACKEND_CPU, .device = -1};
    char text[16384], first[64];
    tconv_plan *plan;
    cr_assert_eq(tconv_plan_create(&layer.desc, &options, &plan, NULL), TCONV_SUCCESS);
    cr_assert_eq(tconv_explain(&layer.desc, &options, NULL, TCONV_TEXT_PLAIN, text, sizeof text, NULL, NULL),
                 TCONV_SUCCESS);
    snprintf(first, sizeof first, "\n   1 %s ", tconv_plan_implementation(plan));
    cr_assert_not_null(strstr(text, first), "%s", text);
    tconv_plan_destroy(plan);
}

Test(plan, explain_says_what_is_wrong)
{
    tconv_options options;
    tconv_desc wrong = layer.desc;
    char text[64];
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    cr_assert_eq(tconv_explain(NULL, &options, NULL, TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                 TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_str_eq(issue.field, "desc");
    cr_assert_eq(tconv_explain(&layer.desc, &options, NULL, TCONV_TEXT_PLAIN, NULL, 1, NULL, &issue),
                 TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_str_eq(issue.field, "text");
    cr_assert_eq(tconv_explain(&layer.desc, &options, NULL, (tconv_text_format)7, text, sizeof text, NULL, &issue),
                 TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_str_eq(issue.field, "format");
    cr_assert_eq(tconv_explain(&layer.desc, &options, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                 TCONV_ERROR_INVALID_ARGUMENT); /* a GPU, by the CPU's backend */
    cr_assert_str_eq(issue.field, "device");
    wrong.groups = 0;
    cr_assert_eq(tconv_explain(&wrong, &options, NULL, TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                 TCONV_ERROR_INVALID_ARGUMENT);
    cr_assert_str_eq(issue.field, "groups");
}

/* A name is right or wrong in every build, and plans are made for a GPU of a known name in every build. */
Test(plan, explain_knows_the_names_of_devices)
{
    static const char *const unknown[] = {"", "h20", "h2000", "H200", "nothing", "h200 "};
    char text[16384];
    for (int backend = TCONV_BACKEND_AUTO; backend <= TCONV_BACKEND_CUDA; backend++)
        for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
            tconv_options options;
            tconv_options_init(&options);
            options.backend = (tconv_backend)backend;
            expect_failure(
                tconv_explain(&layer.desc, &options, unknown[i], TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                issue, TCONV_ERROR_INVALID_ARGUMENT, "device", "must be one of");
            cr_assert_not_null(strstr(issue.message, "h200"), "%s", issue.message);
        }
    static const char *const known[] = {"h200", "h100", "a100", "b200"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char device[32];
        expect_success(tconv_explain(&layer.desc, NULL, known[i], TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                       issue);
        snprintf(device, sizeof device, "device: %s\n", known[i]);
        cr_assert_not_null(strstr(text, device), "%s", text);
        cr_assert_not_null(strstr(text, "\n   1 cuda_"), "no plan: %s", text);
    }
}

/* Plans for a GPU by its name are all that there is of CUDA where CUDA is not: what would execute is refused, in a build
 * without CUDA by the build, else by what the machine lacks. */
Test(plan, explain_makes_plans_that_nothing_here_executes)
{
    char text[16384];
    tconv_issue why;
    tconv_plan *plan = NULL;
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    if (tconv_backend_available(TCONV_BACKEND_CUDA, &why) == TCONV_SUCCESS)
        cr_skip_test("this machine has a CUDA device");
    expect_success(tconv_explain(&layer.desc, &options, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                   issue);
    cr_assert_not_null(strstr(text, "\n   1 cuda_"), "no plan: %s", text);
    expect_failure(tconv_explain(&layer.desc, &options, NULL, TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue), issue,
                   TCONV_ERROR_UNAVAILABLE, "backend", why.message);
    for (size_t i = 0; tconv_implementation_name(i) != NULL; i++) {
        options.implementation = tconv_implementation_name(i);
        if (strncmp(options.implementation, "cuda_", strlen("cuda_")) != 0)
            continue;
        const tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
        cr_assert(status == TCONV_ERROR_UNAVAILABLE || status == TCONV_ERROR_UNSUPPORTED, "%s: %s",
                  options.implementation, issue.message);
        cr_assert_null(plan);
    }
}

/* The longest words, of plans inside of plans, end with the last word of the inner plan: nothing is cut. */
Test(plan, explain_tells_whole_plans)
{
    static const struct {
        const char *problem;
        tconv_op op;
        const char *name, *last; /* the last word of the implementation, or of the implementation inside of it */
    } rows[] = {
        {"n=16 ci=128 h=128 w=128 co=128 k=9 s=3", TCONV_BACKWARD_WEIGHTS, "cuda_wgrad", "bias"},
        {"n=16 ci=64 h=128 w=416 co=64 k=3x7 p=1x3", TCONV_FORWARD, "cuda_cells", "flat"},
        {"n=16 ci=64 h=128 w=416 co=64 k=3x7 p=1x3", TCONV_FORWARD, "cuda_gemm_col2im", "flat"},
        {"n=16 ci=128 h=128 w=128 co=128 k=9 s=3", TCONV_BACKWARD_DATA, "cuda_dgrad", "flat"},
        {"n=16 ci=128 h=128 w=128 co=128 k=9 s=3 acc=1", TCONV_BACKWARD_DATA, "cuda_finish", "flat"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static char text[1 << 15];
        harness_layer large;
        char message[128], word[32];
        cr_assert(harness_problem_parse(rows[i].problem, &large, message, sizeof message), "%s", message);
        large.desc.op = rows[i].op;
        large.desc.math = TCONV_MATH_TF32;
        expect_success(tconv_explain(&large.desc, NULL, "h200", TCONV_TEXT_PLAIN, text, sizeof text, NULL, &issue),
                       issue);
        char *line = strstr(text, rows[i].name);
        cr_assert_not_null(line, "%s", text);
        line[strcspn(line, "\n")] = '\0';
        snprintf(word, sizeof word, " %s=", rows[i].last);
        const char *last = strstr(line, word);
        cr_assert(last != NULL && strncmp(strchr(last + 1, ' '), " batch_invariant=", strlen(" batch_invariant=")) == 0,
                  "%s", line);
    }
}

/* On failure nothing is written: neither text nor length. */
Test(plan, explain_that_fails_writes_nothing)
{
    static const char untouched[] = "as it was before";
    tconv_desc wrong = layer.desc;
    wrong.stride_h = 0;
    for (int i = 0; i < 5; i++) {
        tconv_options options;
        char text[sizeof untouched];
        size_t length = 12345;
        memcpy(text, untouched, sizeof text);
        tconv_options_init(&options);
        options.threads = i == 2 ? -1 : 0;
        cr_assert_neq(tconv_explain(i == 0   ? NULL
                                    : i == 1 ? &wrong
                                             : &layer.desc,
                                    &options, i == 3 ? "nothing" : NULL,
                                    i == 4 ? (tconv_text_format)7 : TCONV_TEXT_JSON, text, sizeof text, &length,
                                    &issue),
                      TCONV_SUCCESS);
        cr_assert(memcmp(text, untouched, sizeof text) == 0 && length == 12345, "case %d", i);
    }
}

/* ---------------------------------------------------------------------------------------------------------- threads */

struct worker {
    pthread_t thread;
    const tconv_plan *plan;
    struct small_layer own;
    int wrong;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct small_layer *own = &worker->own;
    for (int i = 0; i < 200; i++) {
        small_layer_clear(own);
        if (tconv_plan_execute(worker->plan, &own->src, &own->weights, &own->bias, &own->dst, own->workspace,
                               sizeof own->workspace, NULL) != TCONV_SUCCESS ||
            !small_layer_is_right(own))
            worker->wrong++;
    }
    return NULL;
}

static void check_many_threads(const tconv_plan *plan)
{
    enum { WORKERS = 6 };
    static struct worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i].plan = plan;
        workers[i].wrong = 0;
        small_layer_init(&workers[i].own);
        cr_assert_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        cr_assert_eq(pthread_join(workers[i].thread, NULL), 0);
        cr_assert_eq(workers[i].wrong, 0, "thread %d: %d of 200 executes were wrong", i, workers[i].wrong);
    }
}

Test(plan, one_plan_executes_in_many_threads_at_once)
{
    tconv_options options;
    tconv_plan *packed;
    tconv_options_init(&options);
    for (options.threads = 1; options.threads <= 2; options.threads++) {
        tconv_plan *plan = small_layer_plan(&layer, &options);
        check_many_threads(plan);
        expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
        check_many_threads(packed);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
    }
}

Test(plan, runs_inside_an_openmp_region)
{
    enum { REGIONS = 4 };
    static struct small_layer layers[REGIONS];
    tconv_options options;
    int wrong = 0;
    tconv_options_init(&options);
    options.threads = 2;
    tconv_plan *plan = small_layer_plan(&layer, &options);
    for (int i = 0; i < REGIONS; i++)
        small_layer_init(&layers[i]);
#pragma omp parallel for num_threads(REGIONS) schedule(static, 1) reduction(+ : wrong)
    for (int i = 0; i < REGIONS; i++) {
        struct small_layer *own = &layers[i];
        wrong += tconv_plan_execute(plan, &own->src, &own->weights, &own->bias, &own->dst, own->workspace,
                                    sizeof own->workspace, NULL) != TCONV_SUCCESS;
        wrong += !small_layer_is_right(own);
    }
    cr_assert_eq(wrong, 0);
    tconv_plan_destroy(plan);
}
