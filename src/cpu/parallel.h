/* The few calls of OpenMP that the backend makes, with their serial meaning for a compiler without OpenMP. */
#ifndef TCONV_CPU_PARALLEL_H
#define TCONV_CPU_PARALLEL_H

#ifdef _OPENMP
#include <omp.h>
#endif

#include <stdint.h>

/* Threads to start for a number of tasks: as many as the plan has, but no more than there are tasks, and one inside a
 * caller's parallel region. */
static inline int tconv_cpu_team_size(int threads, int64_t tasks)
{
#ifdef _OPENMP
    if (!omp_in_parallel())
        return tasks < threads ? (int)(tasks > 1 ? tasks : 1) : threads;
#else
    (void)threads, (void)tasks;
#endif
    return 1;
}

/* The calling thread's number in its team. */
static inline int tconv_cpu_thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

#endif
