#include "check.h"

#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define TIMINGS      11   /* whose median counts */
#define LOOP_SECONDS 1e-3 /* the least of one timing: thousands of times what the clock shows */

enum { MOST_BUFFERS = 16, NAME_COLUMNS = 44 };

typedef enum wanted_kind { UNTOUCHED, VALUE, ANYTHING } wanted_kind;

struct check_wanted {
    long double value;
    double bound;
    wanted_kind kind;
};

static struct {
    check_options options;
    int listed, checked, failed;
    char name[128], text[256]; /* of the kernel, and of its case */
    char remark[128];          /* on the kernel */
    harness_random random;
    check_buffer buffers[MOST_BUFFERS];
    int buffer_count;
    sigjmp_buf escape; /* out of a kernel's check or bench */
    volatile sig_atomic_t signal;
    void *volatile address;
} state;

/* ---------------------------------------------------------------------------------------------------------- buffers */

static void release_buffers(void)
{
    while (state.buffer_count > 0) {
        check_buffer *buffer = &state.buffers[--state.buffer_count];
        guard_release(&buffer->memory);
        free(buffer->wanted);
    }
}

static check_buffer *make_buffer(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side)
{
    if (state.buffer_count == MOST_BUFFERS)
        check_fail("a case has more than %d buffers", MOST_BUFFERS);
    check_buffer *buffer = &state.buffers[state.buffer_count++];
    *buffer = (check_buffer){.name = name, .dtype = dtype, .count = count};
    buffer->memory = guard_allocate((size_t)count * harness_element_size(dtype), side);
    buffer->data = buffer->memory.data;
    return buffer;
}

/* A third is any bits, a third is ties or tiny numbers of f16 and bf16, which are rare among the bits of a float. */
static void fill_bits(check_buffer *buffer, int64_t index)
{
    const size_t size = harness_element_size(buffer->dtype);
    const uint64_t bits = harness_random_bits(&state.random);
    switch (bits % 3) {
    case 0: memcpy((char *)buffer->data + (size_t)index * size, &bits, size); break;
    case 1: harness_element_set(buffer->dtype, buffer->data, index, 100 * harness_random_real(&state.random)); break;
    default:
        harness_element_set(
            buffer->dtype, buffer->data, index,
            ldexp((double)harness_random_integer(&state.random, -8191, 8191), 4 - (int)(bits >> 40) % 27));
    }
}

static void fill_element(check_buffer *buffer, int64_t index, check_fill fill)
{
    switch (fill) {
    case CHECK_INTEGERS:
        harness_element_set(buffer->dtype, buffer->data, index, (double)harness_random_integer(&state.random, -4, 4));
        break;
    case CHECK_REALS:
        harness_element_set(buffer->dtype, buffer->data, index, harness_random_real(&state.random));
        break;
    case CHECK_ALIKE: harness_element_set(buffer->dtype, buffer->data, index, 0.1); break;
    case CHECK_BITS: fill_bits(buffer, index); break;
    }
}

check_buffer *check_input(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side, check_fill fill)
{
    check_buffer *buffer = make_buffer(name, dtype, count, side);
    for (int64_t i = 0; i < count; i++)
        fill_element(buffer, i, fill);
    guard_protect(&buffer->memory);
    return buffer;
}

check_buffer *check_scratch(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side)
{
    return make_buffer(name, dtype, count, side);
}

check_buffer *check_output(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side)
{
    check_buffer *buffer = make_buffer(name, dtype, count, side);
    buffer->wanted = calloc((size_t)count + 1, sizeof *buffer->wanted);
    if (buffer->wanted == NULL)
        check_fail("no memory for what is wanted of %s", name);
    return buffer;
}

double check_get(const check_buffer *buffer, int64_t index)
{
    return harness_element_get(buffer->dtype, buffer->data, index);
}

double check_hold(check_buffer *output, int64_t index, check_fill fill)
{
    fill_element(output, index, fill);
    return check_get(output, index);
}

void check_want(check_buffer *output, int64_t index, long double value, double bound)
{
    output->wanted[index] = (check_wanted){value, bound, VALUE};
}

void check_want_anything(check_buffer *output, int64_t index)
{
    output->wanted[index].kind = ANYTHING;
}

/* ------------------------------------------------------------------------------------------------------- comparison */

double check_rounding(tconv_dtype real)
{
    return real == TCONV_F64 ? 0x1p-53 : 0x1p-24;
}

static bool is_untouched(const char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == (char)0xff && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static void compare_element(const check_buffer *buffer, int64_t index)
{
    const check_wanted *wanted = &buffer->wanted[index];
    const size_t size = harness_element_size(buffer->dtype);
    const char *bytes = (const char *)buffer->data + (size_t)index * size;
    const double got = check_get(buffer, index);
    if (wanted->kind == UNTOUCHED && !is_untouched(bytes, size))
        check_fail("%s[%lld] is %.9g: nothing may be written there", buffer->name, (long long)index, got);
    if (wanted->kind != VALUE)
        return;
    const bool right = isnan(wanted->value) ? isnan(got)
                                            : (long double)got == wanted->value ||
                                                  fabsl((long double)got - wanted->value) <= (long double)wanted->bound;
    if (!right && is_untouched(bytes, size))
        check_fail("%s[%lld] was not written: it should be %.17Lg", buffer->name, (long long)index, wanted->value);
    if (!right)
        check_fail("%s[%lld] is %.17g, not %.17Lg (within %.3g)", buffer->name, (long long)index, got, wanted->value,
                   wanted->bound);
}

/* The rest of the pages that a buffer lies in must be as it was. */
static void compare_surroundings(const check_buffer *buffer)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 size = (size_t)buffer->count * harness_element_size(buffer->dtype);
    const char *first = (const char *)buffer->memory.mapping + page, *data = buffer->data;
    const size_t room = buffer->memory.mapping_size - 2 * page, before = (size_t)(data - first);
    if (!is_untouched(first, before) || !is_untouched(data + size, room - before - size))
        check_fail("something was written %s %s", is_untouched(first, before) ? "behind" : "before", buffer->name);
}

void check_outputs(void)
{
    for (int b = 0; b < state.buffer_count; b++) {
        const check_buffer *buffer = &state.buffers[b];
        for (int64_t i = 0; buffer->wanted != NULL && i < buffer->count; i++)
            compare_element(buffer, i);
        compare_surroundings(buffer);
    }
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

void check_case(const char *format, ...)
{
    va_list arguments;
    release_buffers();
    va_start(arguments, format);
    vsnprintf(state.text, sizeof state.text, format, arguments);
    va_end(arguments);
}

void check_remark(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.remark, sizeof state.remark, format, arguments);
    va_end(arguments);
}

_Noreturn void check_fail(const char *format, ...)
{
    va_list arguments;
    printf("FAILED %s, %s: ", state.name, state.text);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    siglongjmp(state.escape, 1);
}

/* SIGSEGV and its like stand for a mistake of the kernel, which is called synchronously: it may be left. */
static void catch_signal(int number, siginfo_t *information, void *context)
{
    (void)context;
    state.signal = number;
    state.address = information->si_addr;
    siglongjmp(state.escape, 1); /* NOLINT(bugprone-signal-handler,cert-sig30-c) */
}

static void report_signal(void)
{
    const char *address = state.address;
    printf("FAILED %s, %s: %s", state.name, state.text, strsignal(state.signal));
    for (int b = 0; b < state.buffer_count; b++) {
        const check_buffer *buffer = &state.buffers[b];
        const char *mapping = buffer->memory.mapping;
        if (address >= mapping && address < mapping + buffer->memory.mapping_size)
            printf(" at byte %td of %s, which has %lld elements of %s", address - (const char *)buffer->data,
                   buffer->name, (long long)buffer->count, harness_dtype_name(buffer->dtype));
    }
    printf("\n");
}

/* Returns false where the function failed. */
static bool run(check_function *function, const void *kernel)
{
    state.signal = 0;
    if (sigsetjmp(state.escape, 1) != 0) {
        if (state.signal != 0)
            report_signal();
        release_buffers();
        return false;
    }
    check_case("before its first case");
    function(kernel);
    release_buffers();
    return true;
}

/* Tells whether name has isa, if that is not NULL, between its first two slashes. */
static bool has_isa(const char *name, const char *isa)
{
    const char *second = strchr(name, '/');
    const size_t length = isa != NULL ? strlen(isa) : 0;
    return isa == NULL || (second != NULL && strncmp(second + 1, isa, length) == 0 && second[1 + length] == '/');
}

static bool is_asked_for(const char *name)
{
    const char *pattern = state.options.pattern;
    return has_isa(name, state.options.isa) &&
           (pattern == NULL || strstr(name, pattern) != NULL || fnmatch(pattern, name, 0) == 0);
}

/* A kernel's numbers do not depend on which others are checked. */
static void seed_by_name(void)
{
    uint64_t seed = state.options.seed;
    for (const char *at = state.name; *at != '\0'; at++)
        seed = (seed ^ (unsigned char)*at) * 0x100000001b3;
    harness_random_seed(&state.random, seed);
}

void check_kernel(const check_entry *entry, const void *kernel, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.name, sizeof state.name, format, arguments);
    va_end(arguments);
    if (!is_asked_for(state.name))
        return;
    state.listed++;
    if (state.options.list) {
        printf("%s\n", state.name);
        return;
    }
    seed_by_name();
    state.remark[0] = '\0';
    state.checked++;
    if (!run(entry->check, kernel) || (state.options.bench && !run(entry->bench, kernel)))
        state.failed++;
    else if (state.options.verbose && !state.options.bench)
        printf("ok     %s%s%s\n", state.name, state.remark[0] != '\0' ? ": " : "", state.remark);
    fflush(stdout);
}

/* ----------------------------------------------------------------------------------------------------------- timing */

static double time_calls(check_function *call, const void *argument, long calls)
{
    const double start = harness_seconds();
    for (long i = 0; i < calls; i++)
        call(argument);
    return harness_seconds() - start;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double check_seconds(check_function *call, const void *argument)
{
    double seconds[TIMINGS];
    long calls = 1;
    while (time_calls(call, argument, calls) < LOOP_SECONDS)
        calls *= 2;
    for (int i = 0; i < TIMINGS; i++)
        seconds[i] = time_calls(call, argument, calls) / (double)calls;
    qsort(seconds, TIMINGS, sizeof seconds[0], compare_doubles);
    return seconds[TIMINGS / 2];
}

void check_rate(check_function *call, const void *argument, double work, const char *unit, double machine)
{
    const double rate = work / check_seconds(call, argument);
    printf("%-*s %9.2f %-7s %5.1f %% of %.2f\n", NAME_COLUMNS, state.name, 1e-9 * rate, unit, 100 * rate / machine,
           1e-9 * machine);
}

/* ------------------------------------------------------------------------------------------------------ the program */

void check_begin(const check_options *options)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = catch_signal;
    state.options = *options;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}

int check_end(void)
{
    if (state.listed == 0) {
        fprintf(stderr, "check_kernels: no kernel of this machine has such a name (see --list)\n");
        return EXIT_FAILURE;
    }
    if (!state.options.list)
        printf("%d kernels checked, %d failed, seed %llu\n", state.checked, state.failed,
               (unsigned long long)state.options.seed);
    return state.failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
