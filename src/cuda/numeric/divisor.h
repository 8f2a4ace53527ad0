/* A kernel divides by numbers that only the host knows by a multiplication, which is ten times as fast (divisor.cuh). */
#ifndef TCONV_CUDA_NUMERIC_DIVISOR_H
#define TCONV_CUDA_NUMERIC_DIVISOR_H

#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

/* The quotient of a number from 0 to 2^31 - 1 is number * factor >> shift. */
typedef struct fast_divisor {
    int divisor;
    int shift;
    uint32_t factor; /* 2^shift / divisor, rounded up */
} fast_divisor;

/* Returns the exponent of the least power of two of at least value, which is at most 2^62. */
static inline int log2_at_least(int64_t value)
{
    int log2 = 0;
    while ((int64_t)1 << log2 < value)
        log2++;
    return log2;
}

/* Returns the divisor of a number of at least 1. */
static inline fast_divisor divisor_of(int number)
{
    fast_divisor divisor;
    divisor.divisor = number;
    divisor.shift = 31 + log2_at_least(number);
    divisor.factor = (uint32_t)((((int64_t)1 << divisor.shift) + number - 1) / number);
    return divisor;
}

TCONV_ROOM_END

#endif
