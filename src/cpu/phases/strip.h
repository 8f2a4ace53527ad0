/* Loads the input of a task, in the order in which the microkernels read it. */
#ifndef TCONV_CPU_PHASES_STRIP_H
#define TCONV_CPU_PHASES_STRIP_H

#include "task.h"

/* Loads the halo strip of a task. */
void tconv_cpu_load_halo(const tconv_cpu_task *task);

/* Plans to prefetch the strip of the next task, evenly over the microkernel calls of this one. next is NULL after the
 * last task. */
void tconv_cpu_begin_prefetch(tconv_cpu_task *task, const tconv_cpu_task *next);

/* Plans to prefetch bytes that lie side by side, evenly over microkernel calls of so many segments together. */
void tconv_cpu_prefetch_run(tconv_cpu_prefetch *prefetch, const void *first, int64_t bytes, int64_t segments);

/* Makes a microkernel call of so many segments prefetch its share. */
void tconv_cpu_attach_prefetch(tconv_cpu_prefetch *prefetch, int64_t segments, tconv_cpu_microtile *microtile);

/* A stencil has no microkernel: it counts the cache lines that are left to prefetch, and prefetches so many at a
 * time. */
int64_t tconv_cpu_count_lines(const tconv_cpu_prefetch *prefetch);
void tconv_cpu_prefetch_lines(tconv_cpu_prefetch *prefetch, int64_t lines);

/* Loads terms [begin, end) of a pass (of one row phase and one column phase) for group: term = tap * group_in + input
 * channel. */
void tconv_cpu_load_gathered(const tconv_cpu_task *task, int64_t group, const tconv_cpu_pass *pass, int64_t begin,
                             int64_t end);

#endif
