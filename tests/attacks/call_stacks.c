/*
 * Small stacks: a thread of the caller's has the stack that the header says a call takes, beyond what the system takes
 * of every thread. It makes plans, packs, executes with one thread and asks for the issue of a failed call, for random
 * layers and every implementation. The stack is painted before; the test prints how much of it was used, the most over
 * all layers.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attack.h"
#include "harness.h"

#define PROMISED                 ((size_t)16 << 10) /* the most bytes of stack that a call takes */
#define LARGE                    ((size_t)1 << 20)
#define GUARD                    ((size_t)64 << 10) /* bytes below the stack: a thread that touches them crashes */
#define PAINT                    0xa5
#define LAYERS                   150
#define COLD_LAYERS              20
#define MOST_BYTES_OF_AN_ELEMENT 8
#define SEED                     1
#define SECONDS                  100

typedef struct job {
    const harness_case *test;
    const char *implementation;
    tconv_plan *plan, *packed;
    void *workspace, *dst;
    size_t workspace_size;
    tconv_status status;
} job;

/* ------------------------------------------------------------------------------------------- what a thread may be asked */

static void *nothing(void *argument)
{
    return argument;
}

static void *make_plan(void *argument)
{
    job *work = argument;
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    options.implementation = work->implementation;
    work->status = tconv_plan_create(&work->test->layer.desc, &options, &work->plan, NULL);
    return NULL;
}

static tconv_tensor tensor(const job *work, void *data)
{
    return (tconv_tensor){data, work->test->layer.desc.dtype, TCONV_LOCATION_HOST};
}

static void *pack(void *argument)
{
    job *work = argument;
    tconv_tensor weights = tensor(work, work->test->weights.data);
    work->status = tconv_plan_pack_weights(work->plan, &weights, NULL, &work->packed, NULL);
    return NULL;
}

static void *execute(void *argument)
{
    job *work = argument;
    tconv_tensor src = tensor(work, work->test->src.data), weights = tensor(work, work->test->weights.data);
    tconv_tensor bias = tensor(work, work->test->bias.data), dst = tensor(work, work->dst);
    work->status = tconv_plan_execute(work->plan, &src, &weights, bias.data != NULL ? &bias : NULL, &dst,
                                      work->workspace, work->workspace_size, NULL);
    return NULL;
}

static void *execute_packed(void *argument)
{
    job *work = argument;
    tconv_tensor src = tensor(work, work->test->src.data), dst = tensor(work, work->dst);
    tconv_tensor bias = tensor(work, work->test->bias.data);
    work->status = tconv_plan_execute(work->packed, &src, NULL, bias.data != NULL ? &bias : NULL, &dst, work->workspace,
                                      work->workspace_size, NULL);
    return NULL;
}

static void *one_shot(void *argument)
{
    job *work = argument;
    tconv_tensor src = tensor(work, work->test->src.data), weights = tensor(work, work->test->weights.data);
    tconv_tensor bias = tensor(work, work->test->bias.data), dst = tensor(work, work->dst);
    tconv_options options;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 1;
    work->status = tconv_conv_transpose2d(&work->test->layer.desc, &options, &src, &weights,
                                          bias.data != NULL ? &bias : NULL, &dst, NULL);
    return NULL;
}

static void *fail(void *argument)
{
    job *work = argument;
    tconv_issue issue;
    tconv_desc bad = work->test->layer.desc;
    bad.stride_h = 0;
    work->status = tconv_validate(&bad, NULL) == TCONV_ERROR_INVALID_ARGUMENT ? TCONV_SUCCESS : TCONV_ERROR_UNSUPPORTED;
    tconv_last_issue(&issue);
    return NULL;
}

static void *describe(void *argument)
{
    static char text[1 << 16];
    job *work = argument;
    work->status = tconv_plan_describe(work->plan, text, sizeof text, NULL);
    if (work->status == TCONV_SUCCESS)
        work->status = tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, NULL);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ measuring */

/* Returns the bytes of stack that a thread with stack_size used for body. */
static size_t stack_used(void *(*body)(void *), job *work, size_t stack_size)
{
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *memory =
        mmap(NULL, GUARD + stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    unsigned char *stack = memory + GUARD;
    if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE) != 0)
        exit(EXIT_FAILURE);
    memset(stack, PAINT, stack_size);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, stack_size);
    bool started = pthread_create(&thread, &attributes, body, work) == 0;
    EXPECT(started, "no thread with a stack of %zu bytes", stack_size);
    if (started)
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    size_t left = 0;
    while (left < stack_size && stack[left] == PAINT)
        left++;
    munmap(memory, GUARD + stack_size);
    return stack_size - left;
}

static const struct call {
    const char *name;
    void *(*body)(void *);
} calls[] = {
    {"plan_create", make_plan},
    {"plan_execute", execute},
    {"plan_pack_weights", pack},
    {"plan_execute, packed", execute_packed},
    {"conv_transpose2d", one_shot},
    {"validate and last_issue", fail},
    {"plan_describe and system_info", describe},
};
#define CALLS (sizeof calls / sizeof calls[0])

/* The measured stack: the most of each call, and the layer that took it. */
struct measured {
    size_t stack_size, system; /* size of the threads' stacks; bytes that an idle thread takes */
    size_t most[CALLS];
    char worst[CALLS][HARNESS_LAYER_TEXT + 32];
};

/* Runs all calls for a layer with an implementation; NULL: the one that the library chooses. */
static void run_layer(const harness_case *test, const char *implementation, struct measured *measured)
{
    job work = {.test = test, .implementation = implementation};
    harness_buffer dst = harness_buffer_create(test->dst_view.extent, MOST_BYTES_OF_AN_ELEMENT, 0);
    const char *name = "";
    for (size_t i = 0; i < CALLS; i++) {
        size_t used = stack_used(calls[i].body, &work, measured->stack_size) - measured->system;
        if (i == 0 && work.status != TCONV_SUCCESS)
            break; /* the implementation does not take the layer */
        EXPECT(work.status == TCONV_SUCCESS, "%s: status %d", calls[i].name, (int)work.status);
        if (i == 0) {
            EXPECT(tconv_plan_workspace_size(work.plan, &work.workspace_size) == TCONV_SUCCESS, "no workspace size");
            work.workspace = calloc(1, work.workspace_size + 1);
            work.dst = dst.data;
            name = tconv_plan_implementation(work.plan);
        }
        if (used > measured->most[i]) {
            measured->most[i] = used;
            int length = snprintf(measured->worst[i], sizeof measured->worst[i], "%s ", name);
            harness_layer_format(&test->layer, measured->worst[i] + length, HARNESS_LAYER_TEXT);
        }
    }
    tconv_plan_destroy(work.packed);
    tconv_plan_destroy(work.plan);
    free(work.workspace);
    harness_buffer_release(&dst);
}

/* Runs random layers, each by every implementation, or by the one that the library chooses. */
static void run_layers(int count, bool every_implementation, struct measured *measured)
{
    harness_random random;
    harness_random_seed(&random, SEED);
    for (int i = 0; i < count; i++) {
        harness_layer layer;
        harness_case test;
        harness_random_layer(&random, &layer);
        if (harness_case_create_unanswered(&test, &layer, HARNESS_INTEGERS, SEED, NULL) != TCONV_SUCCESS)
            continue;
        if (!every_implementation)
            run_layer(&test, NULL, measured);
        for (size_t j = 0; every_implementation && tconv_implementation_name(j) != NULL; j++)
            if (strncmp(tconv_implementation_name(j), "cpu_", 4) == 0)
                run_layer(&test, tconv_implementation_name(j), measured);
        harness_case_destroy(&test);
    }
}

/* A cold process whose first calls come from threads with as much stack as is promised to be enough. */
static int smallest(void *unused)
{
    (void)unused;
    static struct measured measured = {.stack_size = 0};
    measured.stack_size = PROMISED + (size_t)PTHREAD_STACK_MIN;
    run_layers(COLD_LAYERS, false, &measured);
    return attack_end();
}

static int measure(void *unused)
{
    (void)unused;
    static struct measured measured = {.stack_size = LARGE};
    measured.system = stack_used(nothing, NULL, LARGE);
    run_layers(LAYERS, true, &measured);
    printf("bytes of stack (a thread that does nothing takes %zu):\n", measured.system);
    for (size_t i = 0; i < CALLS; i++) {
        printf("%8zu  %-30s %s\n", measured.most[i], calls[i].name, measured.worst[i]);
        EXPECT(measured.most[i] <= PROMISED, "%s takes %zu bytes of stack", calls[i].name, measured.most[i]);
    }
    return attack_end();
}

int main(void)
{
    attack_expect_success(attack_fork(smallest, NULL, SECONDS), "the smallest stack, in a cold process");
    attack_expect_success(attack_fork(measure, NULL, SECONDS), "the stack that calls take");
    return attack_end();
}
