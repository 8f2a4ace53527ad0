/*
 * Keeps a record for each calling thread: how many threads of its team live. They count themselves when they first run
 * for it, and a destructor subtracts them when they end, as libgomp makes them do where the caller's own region is
 * smaller. A thread that ends in this moment may still count; and memory that OpenMP itself needs can only be tried,
 * not reserved.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* syscall */
#endif

#include "team.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif
#if defined(__GLIBC__)
#include <execinfo.h>
#endif

struct tconv_cpu_team {
    atomic_int owners; /* the calling thread, and all threads that live */
    atomic_int alive;  /* threads that live beside the calling thread */
    int asked, got;    /* threads of the last region */
    int denied;        /* regions left to run without trying for more threads */
    bool forked;       /* this process is a child; the team's threads are the parent's */
};

/* Regions that run without trying again after threads could not be made: a trial takes as long as a small layer. It is
 * chosen, not measured. */
enum { DENIED_REGIONS = 64 };

/* Bytes that OpenMP may want for each thread of a team: several times as many as libgomp 12 takes. */
enum { TEAM_BYTES_PER_THREAD = 4096 };

/* ---------------------------------------------------------------------------------------------------------- records */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_keys;
static pthread_key_t caller_key,
    member_key;            /* the record of a calling thread; that of the team to which a thread belongs */
static size_t stack_bytes; /* stack of OpenMP's threads; 0: the system's default */

static void leave(void *record)
{
    tconv_cpu_team *team = record;
    if (atomic_fetch_sub(&team->owners, 1) == 1)
        free(team);
}

static void end_member(void *record)
{
    tconv_cpu_team *team = record;
    atomic_fetch_sub(&team->alive, 1);
    leave(team);
}

/* Parses OMP_STACKSIZE or GOMP_STACKSIZE as OpenMP does: a number of KiB, or one with the unit B, K, M or G. 0 for
 * anything else. */
static size_t parse_stack_size(const char *text)
{
    static const char units[] = "BKMG";
    char *end;
    unsigned long long size = strtoull(text, &end, 10);
    while (isspace((unsigned char)*end))
        end++;
    const char *unit = strchr(units, *end != '\0' ? toupper((unsigned char)*end) : 'K');
    if (end == text || unit == NULL)
        return 0;
    int shift = 10 * (int)(unit - units);
    return size > SIZE_MAX >> shift ? 0 : (size_t)size << shift;
}

/* Loads the unwinder. libgomp's threads end by pthread_exit, for which glibc loads it when it is first called: a child
 * that is forked meanwhile, when a thread with a team of its own just ended, inherits a dynamic linker in the midst of
 * that and crashes. */
static void load_unwinder(void)
{
#if defined(__GLIBC__)
    void *frame;
    (void)backtrace(&frame, 1);
#endif
}

static void make_keys(void)
{
    load_unwinder();
    const char *size = getenv("OMP_STACKSIZE");
    if (size == NULL)
        size = getenv("GOMP_STACKSIZE");
    stack_bytes = size != NULL ? parse_stack_size(size) : 0;
    if (pthread_key_create(&caller_key, leave) != 0)
        return;
    has_keys = pthread_key_create(&member_key, end_member) == 0;
    if (!has_keys)
        pthread_key_delete(caller_key);
}

/* Deletes the keys, because OpenMP's threads outlive the destructors where the static library is part of a plugin that
 * is unloaded. */
__attribute__((destructor)) static void delete_keys(void)
{
    if (!has_keys)
        return;
    pthread_key_delete(caller_key);
    pthread_key_delete(member_key);
}

static void note_fork(void)
{
    tconv_cpu_team *team = pthread_getspecific(caller_key);
    if (team != NULL)
        team->forked = true;
}

static bool watch_forks(void)
{
    static atomic_bool watched;
    if (atomic_exchange(&watched, true))
        return true;
    if (pthread_atfork(NULL, NULL, note_fork) == 0)
        return true;
    atomic_store(&watched, false);
    return false;
}

void tconv_cpu_team_init(void)
{
    pthread_once(&once, make_keys);
}

tconv_cpu_team *tconv_cpu_team_of_caller(void)
{
    tconv_cpu_team_init();
    if (!has_keys)
        return NULL;
    tconv_cpu_team *team = pthread_getspecific(caller_key);
    if (team != NULL)
        return team->forked ? NULL : team;
    if (!watch_forks() || (team = calloc(1, sizeof *team)) == NULL)
        return NULL;
    atomic_store(&team->owners, 1);
    if (pthread_setspecific(caller_key, team) == 0)
        return team;
    free(team);
    return NULL;
}

void tconv_cpu_team_join(tconv_cpu_team *team)
{
    tconv_cpu_team *before = pthread_getspecific(member_key);
    if (before == team || pthread_setspecific(member_key, team) != 0)
        return;
    atomic_fetch_add(&team->owners, 1);
    atomic_fetch_add(&team->alive, 1);
    if (before != NULL)
        end_member(before);
}

/* ----------------------------------------------------------------------------------------------------------- trying */

/* A thread that is made to see whether it can be. */
struct trial {
    pthread_t thread;
    pthread_mutex_t *gate;
    long id;
};

static void *wait_at_gate(void *argument)
{
    struct trial *trial = argument;
#if defined(__linux__)
    trial->id = syscall(SYS_gettid);
#endif
    pthread_mutex_lock(trial->gate);
    pthread_mutex_unlock(trial->gate);
    return NULL;
}

#if defined(__linux__)
/* Yields of the processor after which a wait for a joined thread ends. It is chosen, not measured. */
enum { MAX_YIELDS = 10000 };
#endif

/* Waits until a joined thread is gone: it counts against the limits of its user and cgroup until the system has taken
 * it off its list. */
static void wait_until_gone(const struct trial *trial)
{
#if defined(__linux__)
    for (int yield = 0; yield < MAX_YIELDS && syscall(SYS_tgkill, (long)getpid(), trial->id, 0) == 0; yield++)
        sched_yield();
#else
    (void)trial;
#endif
}

static int make_trials(struct trial *trials, int count, pthread_mutex_t *gate)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int made = 0;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    if (stack_bytes > 0)
        (void)pthread_attr_setstacksize(&attributes,
                                        stack_bytes); /* OpenMP does not take a size that is too small either */
    sigfillset(&all);                                 /* the caller's signal handlers are not for these threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; made < count; made++) {
        trials[made] = (struct trial){.gate = gate};
        if (pthread_create(&trials[made].thread, &attributes, wait_at_gate, &trials[made]) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return made;
}

/* Returns how many more threads can be made now, up to count. */
static int try_threads(int count)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct trial *trials = malloc((size_t)(count + 1) * (sizeof *trials + TEAM_BYTES_PER_THREAD));
    if (trials == NULL)
        return 0;
    pthread_mutex_lock(&gate);
    int made = make_trials(trials, count, &gate);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++)
        pthread_join(trials[i].thread, NULL);
    for (int i = 0; i < made; i++)
        wait_until_gone(&trials[i]);
    pthread_mutex_destroy(&gate);
    free(trials);
    return made;
}

int tconv_cpu_team_prepare(tconv_cpu_team *team, int shares, int most, bool anew)
{
    if (anew)
        return 1 + try_threads(shares - 1);
    /* OpenMP may give fewer threads than were asked for, if it was told so; then those that it gave must still
     * exist. */
    int alive = atomic_load(&team->alive), stands = team->asked;
    if (alive < team->got - 1 && 1 + alive < stands)
        stands = 1 + alive;
    if (shares <= stands)
        return stands < most ? stands : most;
    if (stands < 1)
        stands = 1;
    if (team->denied > 0) {
        team->denied--;
        return stands;
    }
    int size = stands + try_threads(shares - stands);
    if (size < shares)
        team->denied = DENIED_REGIONS;
    return size;
}

void tconv_cpu_team_ran(tconv_cpu_team *team, int asked, int got)
{
    team->asked = asked;
    team->got = got;
}
