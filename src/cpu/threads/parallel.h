/* The backend's parallel_for: every loop that runs on several threads goes through here. */
#ifndef TCONV_CPU_THREADS_PARALLEL_H
#define TCONV_CPU_THREADS_PARALLEL_H

#include <stdint.h>

#include "../../core/impl.h"

/* One share of a loop that is cut into shares 0 to count - 1. Shares may run at once or one after another, on any
 * thread, in any order, so that none may wait for another; scratch goes by the share's index, never by a thread. */
typedef void tconv_cpu_share(void *argument, int index);

/* Returns the number of shares to cut a loop of so many tasks into: up to `threads`, but no more than there are tasks,
 * and one inside a caller's OpenMP region. */
int tconv_cpu_count_shares(const tconv_target *target, int threads, int64_t tasks);

/*
 * Runs all shares and returns when they are done: by the caller's parallel_for if the target has one, else by OpenMP on
 * as many threads as can be made, and serially where none can. A single share runs on the calling thread with no set-
 * up. All shares see the calling thread's floating-point environment (rounding, flush-to-zero, traps), and the
 * exceptions that they raise are raised in it in the end. Allocates nothing once the calling thread's team exists.
 */
void tconv_cpu_run_shares(const tconv_target *target, int count, tconv_cpu_share *share, void *argument);

#endif
