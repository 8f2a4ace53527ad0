/* Size arithmetic that cannot wrap. Every size in the library is an int64_t of at most INT64_MAX. */
#ifndef TCONV_CORE_CHECKED_H
#define TCONV_CORE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Each function writes *result and returns true where the exact result fits, else returns false. */
static inline bool tconv_checked_add(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_add_overflow(a, b, result);
}

static inline bool tconv_checked_sub(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_sub_overflow(a, b, result);
}

static inline bool tconv_checked_mul(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_mul_overflow(a, b, result);
}

/* Adds a * b to *accumulator. */
static inline bool tconv_checked_mul_add(int64_t a, int64_t b, int64_t *accumulator)
{
    int64_t product;
    return tconv_checked_mul(a, b, &product) && tconv_checked_add(*accumulator, product, accumulator);
}

/* Divisions of a possibly negative numerator by a positive denominator, rounded towards minus and plus infinity. */
static inline int64_t tconv_floor_div(int64_t numerator, int64_t denominator)
{
    return numerator / denominator - (numerator % denominator < 0);
}

static inline int64_t tconv_ceil_div(int64_t numerator, int64_t denominator)
{
    return numerator / denominator + (numerator % denominator > 0);
}

/* The least multiple of at least value, which is not negative. */
static inline int64_t tconv_round_up(int64_t value, int64_t multiple)
{
    return tconv_ceil_div(value, multiple) * multiple;
}

static inline int64_t tconv_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t tconv_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
