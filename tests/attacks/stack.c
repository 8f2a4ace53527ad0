/*
 * Small stacks. The stack that a share takes of its thread is measured, on stacks painted before, and compared with
 * what tconv.h promises. Then OpenMP gives its threads 32 KiB, and last this process has 1 MiB and is asked for 10000
 * threads.
 */
#include "attack_case.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 10, STACK_BYTES = 256 << 10, PAINT = 0xa5, FORMS = 8 };

static const char *const problems[] = {
    "n=2 ci=16 h=9 w=17 co=24 k=3 s=2 p=1 op=1 b=1",
    "n=3 ci=48 h=5 w=7 co=40 k=3x4 s=1x3 p=2x0x1x2 d=1x2 g=4 b=1",
    "ci=64 h=12 w=23 co=64 k=5 s=2 p=2 g=64 b=1",
    "n=5 ci=64 h=4 w=5 co=33 k=3 d=2",
    "ci=24 h=9 w=25 co=3 k=9 s=4 p=4 op=3",
    "ci=16 h=8 w=20 co=1 k=16 s=16 b=1",
    "ci=6 h=20 w=40 co=6 k=5 s=3 p=1 g=6",
    "n=3 ci=100 h=3 w=5 co=100 k=3 p=1 b=1",
    "n=1 ci=64 h=4 w=4 co=64 k=4 s=2 p=1",
    "n=2 ci=40 h=10 w=14 co=66 k=2 s=2 b=1",
    "n=16 ci=32 h=1 w=1 co=64 k=4",
};

enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static unsigned char *stack; /* the stack of one share at a time */
static uintptr_t highest;    /* address where the share's frames begin */

struct call {
    void (*task)(void *argument, int32_t index);
    void *argument;
    int32_t index;
};

static void *run_call(void *argument)
{
    const struct call *call = argument;
    highest = (uintptr_t)__builtin_frame_address(0);
    call->task(call->argument, call->index);
    return NULL;
}

static void run_on_painted_stack(void *context, int32_t count, void (*task)(void *argument, int32_t index),
                                 void *argument)
{
    pthread_attr_t attributes;
    (void)context;
    pthread_attr_init(&attributes);
    require(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0, "no stack");
    for (int32_t index = 0; index < count; index++) {
        struct call call = {task, argument, index};
        pthread_t thread;
        require(pthread_create(&thread, &attributes, run_call, &call) == 0, "no thread");
        require(pthread_join(thread, NULL) == 0, "not joined");
    }
    pthread_attr_destroy(&attributes);
}

static size_t bytes_used(void)
{
    size_t untouched = 0;
    while (untouched < STACK_BYTES && stack[untouched] == PAINT)
        untouched++;
    return highest - (uintptr_t)(stack + untouched);
}

static harness_case make_case(int problem, int form, bool answered)
{
    harness_case test;
    harness_layer layer;
    tconv_issue issue;
    char message[128];
    require(harness_problem_parse(problems[problem], &layer, message, sizeof message), "%s", message);
    layer.desc.dtype = (tconv_dtype)(form / 2);
    layer.desc.layout = (tconv_layout)(form % 2);
    tconv_status status =
        (answered ? harness_case_create : harness_case_create_unanswered)(&test, &layer, HARNESS_INTEGERS, 1, &issue);
    require(status == TCONV_SUCCESS, "%s", issue.message);
    return test;
}

/* Runs each implementation at each instruction set, with weights that are all finite and with some that are not. */
static void run_all_ways(harness_case *test, tconv_options options)
{
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++)
        for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX && strncmp(name, "cpu_", 4) == 0; isa++) {
            harness_output output;
            tconv_issue issue;
            options.implementation = name;
            options.cpu_isa = (tconv_cpu_isa)isa;
            tconv_status status = harness_run(test, &options, isa % 2 == 0, &output, &issue);
            require(status == TCONV_SUCCESS || status == TCONV_ERROR_UNSUPPORTED || status == TCONV_ERROR_UNAVAILABLE,
                    "%s", issue.message);
            if (status == TCONV_SUCCESS)
                harness_output_release(&output);
        }
}

static void measure(void)
{
    tconv_options options;
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(stack != MAP_FAILED, "no memory");
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = 2;
    options.parallel.parallel_for = run_on_painted_stack;
    size_t most = 0;
    for (int problem = 0; problem < PROBLEMS; problem++)
        for (int form = 0; form < FORMS; form++) {
            harness_case test = make_case(problem, form, false);
            memset(stack, PAINT, STACK_BYTES);
            run_all_ways(&test, options);
            memset(test.weights.data, 0xff, harness_element_size(test.layer.desc.dtype)); /* a NaN */
            run_all_ways(&test, options);
            size_t used = bytes_used();
            if (used > most)
                printf("%zu bytes of stack by \"%s\", %s %s\n", most = used, problems[problem],
                       harness_dtype_name(test.layer.desc.dtype), harness_layout_name(test.layer.desc.layout));
            harness_case_destroy(&test);
        }
    require(most > 0 && most <= MOST_BYTES, "a share took %zu bytes of stack, of %d", most, MOST_BYTES);
}

static void run_again(char *program, const char *how)
{
    fflush(stdout);
    execl(program, program, how, (char *)NULL);
    require(false, "cannot run %s", program);
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        measure();
        setenv("OMP_STACKSIZE", "32k", 1);
        run_again(argv[0], "32k");
    }
    const bool many = strcmp(argv[1], "many") == 0;
    for (int problem = 0; problem < PROBLEMS; problem++) {
        harness_case test = make_case(problem, (problem + (many ? 0 : 3)) % FORMS, true);
        attack_run(&test, many ? 10000 : 2);
        attack_run(&test, 0);
        harness_case_destroy(&test);
    }
    if (!many) {
        const struct rlimit little = {1 << 20, 1 << 20};
        setenv("TCONV_NUM_THREADS", "65536", 1);
        unsetenv("OMP_STACKSIZE");
        require(setrlimit(RLIMIT_STACK, &little) == 0, "no limit");
        run_again(argv[0], "many");
    }
    return 0;
}
