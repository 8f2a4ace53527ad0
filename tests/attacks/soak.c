/*
 * A soak: random layers, many plans alive at once, executed from several threads in random order, for as long as is
 * asked. Each plan's first result is compared with the reference, each later one with the bits of the first. Between
 * the rounds some plans are replaced. After every cycle of rounds all are destroyed: then the allocator must have all
 * its blocks back, and the memory of the process, and of the device, is measured. A straight line through the samples
 * may rise by at most a megabyte a minute.
 *
 *     soak [--minutes M] [--seed S] [--backend cpu|cuda] [--threads N] [--plans N]
 *
 * Layers, ways, and the order of each thread follow from the seed; which executions coincide does not. Ends with 1
 * after a failure, and with 77 where the backend is not here.
 */
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "attack.h"
#include "soak_entry.h"

#define MOST_PLANS     64
#define MOST_EXECUTORS 64
#define MOST_SAMPLES   100000
#define ROUNDS         8          /* rounds in a cycle */
#define TURNS          30         /* executions of each thread in a round */
#define REPLACED       25         /* percent of the plans that are replaced between rounds */
#define AT_ONCE        10         /* percent of the executions that are one-shot calls */
#define MOST_GROWTH    1.0        /* MB a minute */
#define WARM           0.25       /* part of the time whose samples do not count */
#define LEAST_MINUTES  1.0        /* a shorter run shows no drift */
#define LARGE_BLOCK    (64 << 10) /* bytes */
#define MB             0x1p20
#define POLL_MS        10
#define MOST_POLLS     1000 /* until threads are gone */
#define STILL_POLLS    30   /* without a change, after which those that are left stay */

typedef struct request {
    double minutes;
    uint64_t seed;
    bool cuda;
    int executors, plans;
} request;

typedef struct sample {
    double minutes, resident, allocated, device; /* MB */
} sample;

struct executor {
    pthread_t thread;
    soak_room room;
    harness_random random;
};

static struct soak {
    request asked;
    soak_allocator allocator;
    soak_entry entries[MOST_PLANS];
    struct executor executors[MOST_EXECUTORS];
    pthread_barrier_t barrier;
    bool over; /* read by the executors after the barrier */
    atomic_long executions, failures;
    long plans;
    sample samples[MOST_SAMPLES];
    int sample_count;
} soak;

static void report(const harness_failure *failure)
{
    if (atomic_fetch_add(&soak.failures, 1) < 20) {
        printf("%s\n", failure->text);
        fflush(stdout);
    }
}

/* ------------------------------------------------------------------------------------------------------------- threads */

static void take_turns(struct executor *self)
{
    for (int i = 0; i < TURNS; i++) {
        harness_failure failure = {""};
        const soak_entry *entry = &soak.entries[harness_random_integer(&self->random, 0, soak.asked.plans - 1)];
        bool at_once = harness_random_chance(&self->random, AT_ONCE);
        if (entry->plan != NULL && !soak_entry_repeat(entry, at_once, &self->room, &failure))
            report(&failure);
        atomic_fetch_add(&soak.executions, 1);
    }
}

static void *work(void *argument)
{
    for (;;) {
        pthread_barrier_wait(&soak.barrier); /* the plans are made, or all is over */
        if (soak.over)
            return NULL;
        take_turns(argument);
        soak_room_empty(&((struct executor *)argument)->room);
        pthread_barrier_wait(&soak.barrier);
    }
}

static bool start_executors(void)
{
    pthread_barrier_init(&soak.barrier, NULL, (unsigned)soak.asked.executors + 1);
    for (int i = 0; i < soak.asked.executors; i++) {
        struct executor *executor = &soak.executors[i];
        harness_random_seed(&executor->random, soak.asked.seed + (uint64_t)i + 1);
        if (!soak_room_init(&executor->room, soak.asked.cuda) ||
            pthread_create(&executor->thread, NULL, work, executor) != 0)
            return false;
    }
    return true;
}

static long thread_count(void)
{
    struct stat status;
    return stat("/proc/self/task", &status) == 0 ? (long)status.st_nlink - 2 : 0;
}

/* Waits until threads have ended that end by themselves: an executor's team of OpenMP does some time after it has been joined,
 * and LeakSanitizer finds what such a thread is about to free. */
static void wait_for_teams(void)
{
    long count = thread_count();
    for (int poll = 0, still = 0; poll < MOST_POLLS && still < STILL_POLLS; poll++) {
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
        const long now = thread_count();
        still = now == count ? still + 1 : 0;
        count = now;
    }
}

static void stop_executors(void)
{
    soak.over = true;
    pthread_barrier_wait(&soak.barrier);
    for (int i = 0; i < soak.asked.executors; i++) {
        pthread_join(soak.executors[i].thread, NULL);
        soak_room_release(&soak.executors[i].room);
    }
    wait_for_teams();
}

/* -------------------------------------------------------------------------------------------------------------- cycles */

static void replace(soak_entry *entry, harness_random *random, soak_room *room)
{
    harness_failure failure = {""};
    soak_entry_release(entry);
    if (!soak_entry_make(entry, soak.asked.cuda, random, &soak.allocator, room, &failure))
        report(&failure);
    soak.plans++;
}

/* Runs a cycle, which begins and ends without a plan. */
static void run_cycle(harness_random *random)
{
    soak_room room;
    if (!soak_room_init(&room, soak.asked.cuda)) {
        atomic_fetch_add(&soak.failures, 1);
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < soak.asked.plans; i++)
            if (round == 0 || harness_random_chance(random, REPLACED))
                replace(&soak.entries[i], random, &room);
        pthread_barrier_wait(&soak.barrier);
        pthread_barrier_wait(&soak.barrier);
    }
    for (int i = 0; i < soak.asked.plans; i++)
        soak_entry_release(&soak.entries[i]);
    soak_room_release(&room);
    long live = atomic_load(&soak.allocator.live);
    if (live != 0) {
        printf("%ld blocks of the allocator's are left when all plans are destroyed\n", live);
        atomic_fetch_add(&soak.failures, 1);
        atomic_store(&soak.allocator.live, 0);
    }
}

/* Has malloc map large blocks separately and unmap them, for good. Else glibc takes larger and larger ones from its
 * heaps, where blocks above them keep their pages resident, and resident memory shows fragmentation, not leaks. */
static void keep_heaps_small(void)
{
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
#endif
}

/* Returns the megabytes allocated in the process by anybody, the driver included; 0 where malloc does not tell. */
static double allocated_mb(void)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 heaps = mallinfo2();
    return (double)(heaps.uordblks + heaps.hblkhd) / MB;
#else
    return 0;
#endif
}

/* Measures memory while there is no plan. Memory that malloc keeps for later goes back to the system first: its amount
 * depends on the layers before, and hides a drift. */
static void measure(double minutes, bool print)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    sample now = {minutes, (double)attack_resident_kb() / 1024, allocated_mb(),
                  soak.asked.cuda ? -(double)harness_device_free_bytes() / MB : 0};
    if (soak.sample_count < MOST_SAMPLES)
        soak.samples[soak.sample_count++] = now;
    if (!print)
        return;
    printf("%7.1f min: resident %.1f MB, allocated %.3f MB, device %.1f MB free, %ld plans, %ld executions, %ld "
           "allocations, "
           "%ld failures\n",
           minutes, now.resident, now.allocated, -now.device, soak.plans, atomic_load(&soak.executions),
           atomic_load(&soak.allocator.calls), atomic_load(&soak.failures));
    fflush(stdout);
}

/* Returns the slope of a straight line through one figure of the samples after the warm-up, in MB a minute. */
static double growth(size_t figure)
{
    double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
    for (int i = 0; i < soak.sample_count; i++) {
        double x = soak.samples[i].minutes, y;
        memcpy(&y, (const char *)&soak.samples[i] + figure, sizeof y);
        if (x < WARM * soak.asked.minutes)
            continue;
        n += 1, sum_x += x, sum_y += y, sum_xx += x * x, sum_xy += x * y;
    }
    double spread = n * sum_xx - sum_x * sum_x;
    return spread > 0 ? (n * sum_xy - sum_x * sum_y) / spread : 0;
}

static void judge_growth(const char *what, double rise)
{
    printf("%s rises by %.3f MB a minute\n", what, rise);
    if (soak.asked.minutes >= LEAST_MINUTES && rise > MOST_GROWTH) {
        printf("that is more than %.1f\n", MOST_GROWTH);
        atomic_fetch_add(&soak.failures, 1);
    }
}

/* ------------------------------------------------------------------------------------------------------------- request */

static bool read_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return *text != '\0' && *end == '\0' && *number >= least && *number <= most;
}

static bool read_request(int argc, char **argv, request *asked)
{
    *asked = (request){.minutes = 30, .seed = 1, .executors = 4, .plans = 24};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        double number = 0;
        if (strcmp(name, "--backend") == 0 && (strcmp(value, "cpu") == 0 || strcmp(value, "cuda") == 0))
            asked->cuda = strcmp(value, "cuda") == 0;
        else if (strcmp(name, "--minutes") == 0 && read_number(value, 0, 1e6, &number))
            asked->minutes = number;
        else if (strcmp(name, "--seed") == 0 && read_number(value, 0, 0x1p53, &number))
            asked->seed = (uint64_t)number;
        else if (strcmp(name, "--threads") == 0 && read_number(value, 1, MOST_EXECUTORS, &number))
            asked->executors = (int)number;
        else if (strcmp(name, "--plans") == 0 && read_number(value, 1, MOST_PLANS, &number))
            asked->plans = (int)number;
        else
            return false;
    }
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    harness_random random;
    if (!read_request(argc, argv, &soak.asked)) {
        printf("usage: soak [--minutes M] [--seed S] [--backend cpu|cuda] [--threads N] [--plans N]\n");
        return 2;
    }
    if (soak.asked.cuda && tconv_backend_available(TCONV_BACKEND_CUDA, &issue) != TCONV_SUCCESS) {
        attack_skip("%s", issue.message);
        return attack_end();
    }
    keep_heaps_small();
    soak_allocator_init(&soak.allocator);
    harness_random_seed(&random, soak.asked.seed);
    if (!start_executors()) {
        printf("the threads cannot be started\n");
        return EXIT_FAILURE;
    }
    double start = harness_seconds(), minutes = 0, printed = 0;
    do {
        run_cycle(&random);
        minutes = (harness_seconds() - start) / 60;
        measure(minutes, minutes - printed >= 1);
        printed = minutes - printed >= 1 ? minutes : printed;
    } while (minutes < soak.asked.minutes && atomic_load(&soak.failures) < 100);
    stop_executors();
    measure(minutes, true);
    judge_growth("resident memory", growth(offsetof(sample, resident)));
    judge_growth("allocated memory", growth(offsetof(sample, allocated)));
    if (soak.asked.cuda)
        judge_growth("device memory", growth(offsetof(sample, device)));
    return atomic_load(&soak.failures) > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
