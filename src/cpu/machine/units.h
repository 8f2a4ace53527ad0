/* Counts the processing units that this process may use. */
#ifndef TCONV_CPU_MACHINE_UNITS_H
#define TCONV_CPU_MACHINE_UNITS_H

#include <stdbool.h>

/* The environment variables of the longest list, that of OpenMP's binding (units.c). */
enum { TCONV_CPU_MAX_VARIABLES = 5 };

/* Whether one of these environment variables is set; the list ends at the first NULL. */
bool tconv_cpu_is_any_set(const char *const variables[TCONV_CPU_MAX_VARIABLES]);

/* Reads once how the environment may have OpenMP bind threads. */
void tconv_cpu_units_init(void);

/* Returns the processing units that the process may use: those of its affinity, or as many as OpenMP found before it
 * may have bound the calling thread to one of them (OMP_PROC_BIND). At least 1. */
int tconv_cpu_allowed_units(int by_affinity);

static inline int tconv_cpu_at_least_one(long count)
{
    return count < 1 ? 1 : (int)count;
}

#endif
