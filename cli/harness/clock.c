/* The monotonic clock of POSIX. */
#define _POSIX_C_SOURCE 200809L

#include "clock.h"

#include <time.h>

double harness_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
