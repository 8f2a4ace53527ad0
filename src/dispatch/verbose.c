/* The only output of the library. */
#define _POSIX_C_SOURCE 200809L

#include "verbose.h"

#include <stdio.h>
#include <time.h>

#include "../core/status.h"

static const char *replay(const tconv_plan *plan, bool has_bias, char line[TCONV_PROBLEM_TEXT_SIZE])
{
    tconv_problem_format(&plan->layer.problem, has_bias, line, TCONV_PROBLEM_TEXT_SIZE);
    return line;
}

void tconv_verbose_passed_over(const tconv_plan *plan, const char *implementation, const char *reason)
{
    char line[TCONV_PROBLEM_TEXT_SIZE];
    const char *backend = tconv_backend_name(plan->layer.target.backend);
    fprintf(stderr, "tconv,passed_over,backend=%s,impl=%s,reason=%s,bench=--backend %s %s\n", backend, implementation,
            reason, backend, replay(plan, false, line));
}

void tconv_verbose_chosen(const tconv_plan *plan)
{
    char line[TCONV_PROBLEM_TEXT_SIZE];
    const char *backend = tconv_backend_name(plan->layer.target.backend);
    fprintf(stderr, "tconv,plan,backend=%s,impl=%s,workspace=%zu,bench=--backend %s %s\n", backend,
            plan->implementation->name, tconv_plan_workspace(plan), backend, replay(plan, false, line));
}

void tconv_verbose_executed(const tconv_plan *plan, bool has_bias, int64_t nanoseconds)
{
    char line[TCONV_PROBLEM_TEXT_SIZE], time[32];
    const char *backend = tconv_backend_name(plan->layer.target.backend);
    if (plan->layer.target.backend == TCONV_BACKEND_CUDA)
        snprintf(time, sizeof time, "queued"); /* it runs on the stream, and asking when would synchronise */
    else
        snprintf(time, sizeof time, "%.4f", (double)nanoseconds * 1e-6);
    fprintf(stderr, "tconv,execute,version=%s,backend=%s,impl=%s,threads=%d,packed=%s,ms=%s,bench=--backend %s %s\n",
            TCONV_VERSION_STRING, backend, plan->implementation->name, plan->layer.target.threads,
            plan->packed != NULL ? "yes" : "no", time, backend, replay(plan, has_bias, line));
}

int64_t tconv_verbose_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
