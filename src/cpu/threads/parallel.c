/*
 * Runs the shares of a parallel loop on the caller's threads or on OpenMP's.
 *
 * OpenMP's run-times end the process where a thread cannot be made. So a team of threads is only asked for where it is
 * known to exist: its threads ran shares of the same calling thread before and have not ended (libgomp keeps a pool of
 * threads for each thread that calls it); or plain threads, as many and as large, were made just before, all alive at
 * once, and are gone again. Where fewer threads could be made, the team is that small, down to the calling thread
 * alone.
 *
 * A team never shrinks while its plan allows as many threads: libgomp would end those that are left over, make them
 * anew for the next larger one, and allocate each time.
 */
#include "parallel.h"

#include <pthread.h>
#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "../cpu_target.h"
#include "environment.h"

/* One parallel loop, with all its shares. */
struct loop {
    tconv_cpu_share *share;
    void *argument;
    int count;
    pthread_t caller;
    tconv_cpu_environment environment; /* the caller's */
    atomic_int raised;                 /* exceptions that other threads raised */
};

/* Runs one share; a parallel_for calls it. It is out of line, and nothing here computes, so that no arithmetic of a
 * share can move across the calls that set its environment. */
static void run_share(void *argument, int32_t index)
{
    struct loop *loop = argument;
    if (index < 0 || index >= loop->count)
        return;
    if (pthread_equal(pthread_self(), loop->caller)) {
        loop->share(loop->argument, index);
        return;
    }
    const tconv_cpu_environment own = tconv_cpu_get_environment();
    tconv_cpu_set_environment(&loop->environment);
    loop->share(loop->argument, index);
    atomic_fetch_or_explicit(&loop->raised, tconv_cpu_raised_exceptions(), memory_order_relaxed);
    tconv_cpu_set_environment(&own);
}

static void run_serially(const struct loop *loop)
{
    for (int index = 0; index < loop->count; index++)
        loop->share(loop->argument, index);
}

/* --------------------------------------------------------------------------------------------------------- OpenMP */

#ifdef _OPENMP

#include "team.h"

/* The region has a function of its own, because the variables that it shares are kept in memory. */
static int run_region(struct loop *loop, tconv_cpu_team *team, int threads)
{
    int got = 1;
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), size = omp_get_num_threads();
        if (thread == 0)
            got = size;
        else
            tconv_cpu_team_join(team);
        for (int index = thread; index < loop->count; index += size)
            run_share(loop, index);
    }
    return got;
}

/* Out of line, because clang moves OpenMP's calls up, and a loop of one share must not reach them. */
__attribute__((noinline)) static void run_by_openmp(struct loop *loop, int most)
{
    tconv_cpu_team *team = omp_in_parallel() ? NULL : tconv_cpu_team_of_caller();
    /* Inside a region of one thread, which omp_in_parallel does not count, OpenMP makes threads anew each time. */
    bool anew = omp_get_level() > 0;
    int threads = team != NULL ? tconv_cpu_team_prepare(team, loop->count, most, anew) : 1;
    if (threads == 1) {
        run_serially(loop);
        return;
    }
    int got = run_region(loop, team, threads);
    if (!anew)
        tconv_cpu_team_ran(team, threads, got);
}

__attribute__((noinline)) static bool in_region_of_caller(void)
{
    return omp_in_parallel();
}

#else

static void run_by_openmp(struct loop *loop, int most)
{
    (void)most;
    run_serially(loop);
}

static bool in_region_of_caller(void)
{
    return true;
}

#endif

/* --------------------------------------------------------------------------------------------------------- public */

int tconv_cpu_count_shares(const tconv_target *target, int threads, int64_t tasks)
{
    if (threads <= 1 || tasks <= 1)
        return 1;
    if (tconv_cpu_target_of(target).parallel.parallel_for == NULL && in_region_of_caller())
        return 1;
    return tasks < threads ? (int)tasks : threads;
}

void tconv_cpu_run_shares(const tconv_target *target, int count, tconv_cpu_share *share, void *argument)
{
    if (count <= 1) {
        share(argument, 0);
        return;
    }
    struct loop loop = {.share = share,
                        .argument = argument,
                        .count = count,
                        .caller = pthread_self(),
                        .environment = tconv_cpu_get_environment()};
    const tconv_cpu_target cpu = tconv_cpu_target_of(target);
    if (cpu.parallel.parallel_for != NULL)
        cpu.parallel.parallel_for(cpu.parallel.context, count, run_share, &loop);
    else
        run_by_openmp(&loop, cpu.threads);
    tconv_cpu_raise_exceptions(atomic_load_explicit(&loop.raised, memory_order_relaxed));
}
