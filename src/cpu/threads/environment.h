/*
 * The part of a thread's floating-point environment that decides what kernels compute: rounding, flush-to-zero, traps,
 * and exceptions that were raised. On x86-64 that is one register: nothing here computes on the x87, whose share of
 * fenv.h takes most of a microsecond. The functions are for calls around arithmetic, not amid it.
 */
#ifndef TCONV_CPU_THREADS_ENVIRONMENT_H
#define TCONV_CPU_THREADS_ENVIRONMENT_H

#if defined(__x86_64__)

#include <xmmintrin.h>

typedef unsigned tconv_cpu_environment;

static inline tconv_cpu_environment tconv_cpu_get_environment(void)
{
    return _mm_getcsr();
}

static inline void tconv_cpu_set_environment(const tconv_cpu_environment *environment)
{
    _mm_setcsr(*environment);
}

static inline int tconv_cpu_raised_exceptions(void)
{
    return (int)(_mm_getcsr() & 0x3f);
}

static inline void tconv_cpu_raise_exceptions(int exceptions)
{
    _mm_setcsr(_mm_getcsr() | (unsigned)exceptions);
}

#else

#include <fenv.h>

typedef fenv_t tconv_cpu_environment;

static inline tconv_cpu_environment tconv_cpu_get_environment(void)
{
    fenv_t environment;
    fegetenv(&environment);
    return environment;
}

static inline void tconv_cpu_set_environment(const tconv_cpu_environment *environment)
{
    fesetenv(environment);
}

static inline int tconv_cpu_raised_exceptions(void)
{
    return fetestexcept(FE_ALL_EXCEPT);
}

static inline void tconv_cpu_raise_exceptions(int exceptions)
{
    feraiseexcept(exceptions & ~fetestexcept(FE_ALL_EXCEPT));
}

#endif

#endif
