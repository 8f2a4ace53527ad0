/* Counts processing units, also where OpenMP may have bound the calling thread to one of them. */
#include "units.h"

#include <stddef.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

bool tconv_cpu_is_any_set(const char *const variables[TCONV_CPU_MAX_VARIABLES])
{
    for (size_t i = 0; i < TCONV_CPU_MAX_VARIABLES && variables[i] != NULL; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && value[0] != '\0')
            return true;
    }
    return false;
}

/* Environment variables by which OpenMP may bind threads, the calling one too. */
static const char *const binding_variables[TCONV_CPU_MAX_VARIABLES] = {
    "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"};

/* Whether one of them is set. They are read once, because other threads may call setenv while a plan is made. */
static bool openmp_may_bind;

#ifdef _OPENMP
/* Out of line, because clang moves OpenMP's calls up, before their conditions. */
__attribute__((noinline)) static int units_of_openmp(void)
{
    return omp_get_num_procs();
}
#endif

void tconv_cpu_units_init(void)
{
    openmp_may_bind = tconv_cpu_is_any_set(binding_variables);
}

int tconv_cpu_allowed_units(int by_affinity)
{
#ifdef _OPENMP
    if (openmp_may_bind) { /* only then, because the call makes LLVM's run-time initialise, which takes memory */
        int by_openmp = units_of_openmp();
        by_affinity = by_openmp > by_affinity ? by_openmp : by_affinity;
    }
#endif
    return tconv_cpu_at_least_one(by_affinity);
}
