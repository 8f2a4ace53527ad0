/* Two workers share the runs; their findings are in memory that both see. */
#include "oom_driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS     2
#define MOST_RUNS   20000
#define OUTPUT_SIZE 65536
#define SHOWN       8 /* number of bad ends that are described */

struct finding {
    long n;
    bool bad;
    char why[160];
};

struct findings {
    long counted, live;   /* counts of the run in which nothing fails */
    atomic_long next;     /* number of the next run to take */
    atomic_long past_end; /* the least n that no run reached; 0: none yet */
    struct finding runs[MOST_RUNS];
};

static void *shared_memory(int descriptor, size_t size)
{
    int flags = MAP_SHARED | (descriptor < 0 ? MAP_ANONYMOUS : 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* A worker's state for its runs: the descriptor that children inherit, and where their output goes. */
struct worker {
    int descriptor;
    struct fail_malloc *told;
    char variable[64], preload[1024];
    char output[OUTPUT_SIZE];
};

static void worker_init(struct worker *worker, const char *preload)
{
    worker->descriptor = memfd_create("fail_malloc", 0);
    if (worker->descriptor < 0 || ftruncate(worker->descriptor, sizeof *worker->told) != 0) {
        perror("memfd_create");
        exit(EXIT_FAILURE);
    }
    worker->told = shared_memory(worker->descriptor, sizeof *worker->told);
    snprintf(worker->variable, sizeof worker->variable, FAIL_MALLOC_VARIABLE "=%d", worker->descriptor);
    snprintf(worker->preload, sizeof worker->preload, "LD_PRELOAD=%s", preload);
}

static attack_outcome run(struct worker *worker, const oom_command *command, long n)
{
    const char *settings[] = {worker->preload, worker->variable, NULL};
    attack_program program = {.arguments = command->arguments, .settings = settings, .seconds = command->seconds};
    worker->told->from = (int)command->from;
    worker->told->at = n;
    worker->told->all_from_there = command->forever;
    atomic_store(&worker->told->counted, 0);
    atomic_store(&worker->told->live, 0);
    return attack_run(&program, worker->output, sizeof worker->output);
}

static void judge(const struct worker *worker, const oom_command *command, struct findings *found, long n,
                  attack_outcome outcome, struct finding *finding)
{
    long live = atomic_load(&worker->told->live);
    const char *wrong = command->judge(outcome, worker->output, n);
    finding->n = n;
    if (outcome.timed_out || outcome.signal != 0 || wrong != NULL) {
        finding->bad = true;
        snprintf(finding->why, sizeof finding->why, "%s%s%s: %.80s", attack_outcome_text(outcome),
                 wrong != NULL ? ", " : "", wrong != NULL ? wrong : "", worker->output);
    } else if (!command->may_keep && live > found->live) {
        finding->bad = true;
        snprintf(finding->why, sizeof finding->why, "%ld blocks leak", live - found->live);
    }
    for (char *c = finding->why; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
}

static void work(const oom_command *command, struct findings *found, long step, int number)
{
    static struct worker worker;
    char directory[16];
    snprintf(directory, sizeof directory, "%d", number);
    if (command->own_directory && (mkdir(directory, 0700) != 0 || chdir(directory) != 0)) {
        perror(directory);
        _exit(EXIT_FAILURE);
    }
    worker_init(&worker, command->preload);
    for (;;) {
        long index = atomic_fetch_add(&found->next, 1), n = 1 + index * step;
        if (index >= MOST_RUNS || atomic_load(&found->past_end) != 0)
            break;
        attack_outcome outcome = run(&worker, command, n);
        if (atomic_load(&worker.told->counted) < n && outcome.signal == 0) {
            atomic_store(&found->past_end, n);
            command->judge(outcome, worker.output, n); /* the judge removes what the run made */
        } else {
            judge(&worker, command, found, n, outcome, &found->runs[index]);
        }
    }
    if (command->own_directory && (chdir("..") != 0 || rmdir(directory) != 0))
        perror(directory);
    fflush(stdout);
    _exit(EXIT_SUCCESS);
}

/* Prints the bad ends as ranges of neighbours, "n = 3-8 17". */
static void print_ranges(const struct findings *found, long step)
{
    printf("  bad: n =");
    for (int i = 0; i < MOST_RUNS; i++) {
        long first = found->runs[i].n;
        if (!found->runs[i].bad)
            continue;
        while (i + 1 < MOST_RUNS && found->runs[i + 1].bad)
            i++;
        long last = found->runs[i].n;
        if (last - first < step)
            printf(" %ld", first);
        else
            printf(" %ld-%ld", first, last);
    }
    printf("\n");
}

/* Whether a run before the index-th ended as badly in the same way. */
static bool shown_before(const struct findings *found, int index)
{
    for (int i = 0; i < index; i++)
        if (found->runs[i].bad && strcmp(found->runs[i].why, found->runs[index].why) == 0)
            return true;
    return false;
}

static void report(const oom_command *command, const struct findings *found, long step)
{
    long runs = 0, bad = 0;
    int shown = 0;
    for (int i = 0; i < MOST_RUNS; i++) {
        const struct finding *finding = &found->runs[i];
        runs += finding->n != 0;
        if (!finding->bad)
            continue;
        /* only the first of each kind is shown */
        if (shown < SHOWN && !shown_before(found, i) && ++shown > 0)
            printf("  n = %ld: %s\n", finding->n, finding->why);
        bad++;
    }
    printf("%s, %s: %ld allocations, %ld of them failed, every %ldth: %ld bad ends\n", command->name,
           command->forever ? "all from the n-th on" : "the n-th", found->counted, runs, step, bad);
    if (bad > 0)
        print_ranges(found, step);
    if (bad > 0 && command->only_report != NULL)
        printf("  no failure: %s\n", command->only_report);
    EXPECT(bad == 0 || command->only_report != NULL, "%s: %ld of %ld runs end badly", command->name, bad, runs);
}

long oom_attack(const oom_command *command)
{
    static struct worker first;
    struct findings *found = shared_memory(-1, sizeof *found);
    worker_init(&first, command->preload);
    attack_outcome outcome = run(&first, command, 0);
    const char *wrong = command->judge(outcome, first.output, 0);
    long counted = found->counted = atomic_load(&first.told->counted), step = 1;
    found->live = atomic_load(&first.told->live);
    EXPECT(wrong == NULL, "%s, nothing failing: %s, %s: %s", command->name, attack_outcome_text(outcome), wrong,
           first.output);
    if (command->most_runs > 0 && counted > command->most_runs)
        step = (counted + command->most_runs - 1) / command->most_runs;
    fflush(stdout);
    for (int i = 0; i < WORKERS; i++)
        if (fork() == 0)
            work(command, found, step, i);
    while (wait(NULL) > 0)
        continue;
    report(command, found, step);
    munmap(first.told, sizeof *first.told);
    close(first.descriptor);
    munmap(found, sizeof *found);
    return counted;
}
