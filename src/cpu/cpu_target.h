/* The machine of a plan on the CPU. A target (core/impl.h) carries the machine as bytes that only the CPU reads. */
#ifndef TCONV_CPU_CPU_TARGET_H
#define TCONV_CPU_CPU_TARGET_H

#include <string.h>

#include "../core/impl.h"

typedef struct tconv_cpu_target {
    int threads;               /* at least 1 */
    tconv_cpu_isa cpu_isa;     /* a level that this machine has */
    tconv_cpu_tuning tuning;   /* COMMON or another, never DETECTED */
    tconv_parallel parallel;   /* the caller's threads; without parallel_for, OpenMP's */
    size_t l1_bytes, l2_bytes; /* data caches of one core */
    size_t l3_bytes;           /* the cache that cores share */
} tconv_cpu_target;

_Static_assert(sizeof(tconv_cpu_target) <= TCONV_MACHINE_BYTES, "a target has room for the CPU");

/* Returns the machine of a target whose backend is the CPU. GCC is told the alignment, because it otherwise copies the
 * whole machine before it reads one field; clang 14 crashes over that with its sanitizers. */
static inline tconv_cpu_target tconv_cpu_target_of(const tconv_target *target)
{
    tconv_cpu_target machine;
#ifdef __clang__
    memcpy(&machine, target->machine, sizeof machine);
#else
    memcpy(&machine, __builtin_assume_aligned(target->machine, sizeof target->machine[0]), sizeof machine);
#endif
    return machine;
}

/* Makes machine that of the target. */
static inline void tconv_cpu_target_set(tconv_target *target, tconv_cpu_target machine)
{
    memcpy(target->machine, &machine, sizeof machine);
}

#endif
