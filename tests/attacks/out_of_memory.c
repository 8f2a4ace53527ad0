/*
 * Allocation failure in the whole process, not in the plan's allocator alone: for every n, a cold process in which the
 * n-th call of malloc fails, or all from the n-th on, uses the whole API (oom_child.c). No process may end by a signal
 * or by an exit that is not its own, and nothing leaks.
 *
 *     attack_out_of_memory PRELOADED CHILD UNLINKED_CHILD LIBRARY
 */
#include <stdio.h>
#include <string.h>

#include "oom_child.h"
#include "oom_driver.h"

#define SECONDS 20

static const char *judge(attack_outcome outcome, const char *output, long n)
{
    (void)output, (void)n;
    return outcome.code == OOM_CHILD_ENDED ? NULL : "the child did not come to its end";
}

static void attack(const char *name, char **argv, const char *threads, bool loaded, const char *only_report)
{
    for (int forever = 0; forever < 2; forever++) {
        const char *arguments[] = {argv[loaded ? 3 : 2], threads, forever ? "forever" : "once", loaded ? argv[4] : NULL,
                                   NULL};
        const oom_command command = {.name = name,
                                     .arguments = arguments,
                                     .preload = argv[1],
                                     .from = FAIL_MALLOC_FROM_MARKER,
                                     .forever = forever != 0,
                                     .seconds = SECONDS,
                                     .only_report = only_report,
                                     .judge = judge};
        oom_attack(&command);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        printf("usage: %s PRELOADED CHILD UNLINKED_CHILD LIBRARY\n", argv[0]);
        return 2;
    }
    attack("library, one thread", argv, "one", false, NULL);
    attack("library, the caller's threads", argv, "pool", false, NULL);
    attack("library loaded by dlopen, one thread", argv, "one", true, NULL);
    attack("library, two threads of OpenMP", argv, "openmp", false,
           "libgomp ends a process whose memory is short when it makes its threads, as the header says");
    return attack_end();
}
