/*
 * No more threads can be made: OpenMP's run-time would end the process. The limit is first a C library that makes no
 * more than a given number of threads at once, then the system's own, as the user nobody.
 */
#include "attack_case.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "../../src/cpu/cpu_target.h"
#include "../../src/cpu/threads/parallel.h"

enum { MOST_THREADS = 12, NO_LIMIT = 1 << 20, SECONDS = 30 };

static atomic_int live, limit = NO_LIMIT;

struct start {
    void *(*run)(void *);
    void *argument;
};

static pthread_key_t ended;

static void end_thread(void *start)
{
    free(start);
    atomic_fetch_sub(&live, 1);
}

static void make_key(void)
{
    require(pthread_key_create(&ended, end_thread) == 0, "no key");
}

static void *run_start(void *argument)
{
    const struct start *start = argument;
    pthread_setspecific(ended, argument);
    return start->run(start->argument);
}

/* Replaces the C library's function, for OpenMP's run-time too. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    if (atomic_fetch_add(&live, 1) >= atomic_load(&limit) || start == NULL) {
        atomic_fetch_sub(&live, 1);
        free(start);
        return EAGAIN;
    }
    *start = (struct start){run, argument};
    int error = real(thread, attributes, run_start, start);
    if (error != 0)
        end_thread(start);
    return error;
}

static void count_share(void *argument, int index)
{
    atomic_int *runs = argument;
    atomic_fetch_add(&runs[index], 1);
}

/* Checks that each share runs once, whatever threads there are. */
static void run_shares(int count)
{
    tconv_target target = {.backend = TCONV_BACKEND_CPU};
    tconv_cpu_target_set(&target, (tconv_cpu_target){.threads = count});
    atomic_int runs[MOST_THREADS] = {0};
    tconv_cpu_run_shares(&target, count, count_share, runs);
    for (int i = 0; i < MOST_THREADS; i++)
        require(atomic_load(&runs[i]) == (i < count), "share %d of %d ran %d times", i, count, atomic_load(&runs[i]));
}

/* Attacks in a process of its own, where OpenMP has no threads yet. */
static void attack_limit(int most)
{
    atomic_store(&limit, most);
    for (int turn = 0; turn < 6; turn++) {
        run_shares(2 + (turn * 5) % (MOST_THREADS - 1)); /* 2, 7, 12, 6, 11, 5 */
        if (turn == 3) {
            atomic_store(&limit, NO_LIMIT); /* there are enough threads now */
            for (int i = 0; i < 100; i++)
                run_shares(MOST_THREADS);
#ifdef _OPENMP
#pragma omp parallel num_threads(2) /* the caller's own region leaves OpenMP few of them */
            (void)omp_get_thread_num();
#endif
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
            atomic_store(&limit, most); /* and no more can be made */
        }
    }
    harness_case test = attack_case(ATTACK_PROBLEM);
    attack_run(&test, 2);
    harness_case_destroy(&test);
}

static void attack_limit_in_child(int most)
{
    int status = 0;
    pid_t child = fork();
    require(child >= 0, "no process");
    if (child == 0) {
        alarm(SECONDS);
        attack_limit(most);
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child, "not waited for");
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d threads: status %#x", most, (unsigned)status);
}

static void *nothing(void *argument)
{
    return argument;
}

/* Sets the system's limit; returns false where it does not hold for this user. */
static bool limit_processes(void)
{
    const struct rlimit none = {1, 1};
    pthread_t thread;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return false;
    if (setrlimit(RLIMIT_NPROC, &none) != 0)
        return false;
    if (pthread_create(&thread, NULL, nothing, NULL) != 0)
        return true;
    pthread_join(thread, NULL);
    return false;
}

int main(void)
{
    for (int most = 0; most < MOST_THREADS + 2; most++)
        attack_limit_in_child(most);
    if (!limit_processes()) {
        puts("skipped: this needs a limit of processes that holds");
        return ATTACK_SKIPPED;
    }
    run_shares(MOST_THREADS);
    harness_case test = attack_case(ATTACK_PROBLEM);
    attack_run(&test, 2);
    harness_case_destroy(&test);
    return 0;
}
