/*
 * The frame of check_kernels, for the kernels of any machine: their names, guarded buffers, random numbers, comparison
 * and timing.
 *
 * A family is a file. It has a table of check_entry, and a function that calls check_kernel for each entry and each
 * variant of it that this machine has; main.c lists these functions. A check goes through cases, each of which is
 *
 *     check_case("%d rows of %d", rows, count);
 *     check_buffer *src = check_input("src", TCONV_F32, count, GUARD_AFTER, CHECK_REALS);
 *     check_buffer *dst = check_output("dst", TCONV_F32, count + 1, GUARD_BEFORE);
 *     kernel(src->data, dst->data, count);
 *     for (int64_t i = 0; i < count; i++)
 *         check_want(dst, i, check_get(src, i), 0);      // what is not wanted may not be written
 *     check_outputs();
 *
 * Buffers are released where the next case begins. A kernel that fails a case, or touches memory that it may not touch,
 * is reported by name, and the next kernel's check begins.
 */
#ifndef TCONV_CHECK_H
#define TCONV_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "../support/guard.h"
#include "tconv/tconv.h"

/* ---------------------------------------------------------------------------------------------------------- kernels */

/* kernel is what the family gave to check_kernel. */
typedef void check_function(const void *kernel);

typedef struct check_entry {
    const char *name;
    check_function *check;
    check_function *bench; /* calls check_rate once */
} check_entry;

typedef void check_family(void);

/* Lists, checks or times one kernel, if its name is asked for. A name is MACHINE/INSTRUCTIONS/KERNEL VARIANT, such as
 * "cpu/avx512/microtile f32 6x2". */
void check_kernel(const check_entry *entry, const void *kernel, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins a case; the text says which, where it fails. */
void check_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Adds to what is printed of a kernel that is right, with --verbose. */
void check_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends this kernel's check. */
_Noreturn void check_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------------------------------------------------- buffers */

typedef enum check_fill {
    CHECK_INTEGERS, /* from -4 to 4: sums and products of them are exact */
    CHECK_REALS,    /* in [-1, 1) */
    CHECK_ALIKE,    /* all the same number, so that the roundings of a sum all go one way */
    CHECK_BITS      /* anything that the dtype has: NaN, infinities, tiny numbers, and ties where it is rounded */
} check_fill;

typedef struct check_wanted check_wanted;

/* A buffer is elements in guarded memory. */
typedef struct check_buffer {
    const char *name;
    tconv_dtype dtype;
    int64_t count;
    void *data;
    struct guarded memory;
    check_wanted *wanted; /* [count]; NULL: nothing is compared */
} check_buffer;

/* It is filled from the kernel's random numbers, and read-only from then on. */
check_buffer *check_input(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side, check_fill fill);

/* All bytes are 0xff, a NaN, and must stay so in every element of which nothing else is wanted. */
check_buffer *check_output(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side);

/* A kernel may write anything there. */
check_buffer *check_scratch(const char *name, tconv_dtype dtype, int64_t count, enum guard_side side);

double check_get(const check_buffer *buffer, int64_t index);

/* Gives an element of an output a random number, which a kernel is to add to, and returns it. */
double check_hold(check_buffer *output, int64_t index, check_fill fill);

/* Wants an element within bound of value, a NaN if that is one. */
void check_want(check_buffer *output, int64_t index, long double value, double bound);

/* Wants anything of an element. */
void check_want_anything(check_buffer *output, int64_t index);

/* Fails at the first element that is not as wanted, or where something beside a buffer was written. */
void check_outputs(void);

/* Returns the error of one rounding in real: 2^-24 or 2^-53. */
double check_rounding(tconv_dtype real);

/* The library promises of a sum in float or double that it is off by at most so many roundings of the sum of
 * magnitudes. */
#define CHECK_SUM_ROUNDINGS 16

/* ----------------------------------------------------------------------------------------------------------- timing */

/* Returns the seconds of one call: the median of several loops of calls, each of them long enough for the clock. */
double check_seconds(check_function *call, const void *argument);

/* Times call and prints how much work it does, in 1e9 units a second, beside what the machine does, in units a
 * second. */
void check_rate(check_function *call, const void *argument, double work, const char *unit, double machine);

/* ------------------------------------------------------------------------------------------------- for main.c alone */

typedef struct check_options {
    bool list, bench, verbose;
    const char *isa;     /* the second part of the names that are asked for; NULL: any */
    const char *pattern; /* a part of them, or a pattern as the shell has them; NULL: any */
    uint64_t seed;
} check_options;

void check_begin(const check_options *options);

/* Prints the summary and returns the exit status. */
int check_end(void);

#endif
