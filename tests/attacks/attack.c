/* Children are waited for by polling, so that one that hangs is killed and reported as such. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS  2
#define NOT_RUN  126 /* a child whose program could not be run */
#define MAX_TEXT 96

static int failures, skips, holds;

void attack_expect(bool condition, const char *file, int line, const char *format, ...)
{
    if (condition) {
        holds++;
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    printf("%s:%d: ", file, line);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    failures++;
}

void attack_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("skipped: ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    skips++;
}

void attack_held(const char *what)
{
    printf("held: %s\n", what);
    fflush(stdout);
    holds++;
}

int attack_end(void)
{
    fflush(stdout);
    if (failures > 0)
        return EXIT_FAILURE;
    return skips > 0 && holds == 0 ? ATTACK_SKIPPED : EXIT_SUCCESS;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Reads the pipe from, which is closed at the end, until nobody holds its other side or the time is over. */
static void drain(int from, double until, char *output, size_t capacity)
{
    size_t length = 0;
    while (now() < until) {
        char dropped[512];
        struct pollfd event = {.fd = from, .events = POLLIN};
        if (poll(&event, 1, POLL_MS * 10) <= 0)
            continue;
        bool room = length + 1 < capacity;
        ssize_t got = read(from, room ? output + length : dropped, room ? capacity - 1 - length : sizeof dropped);
        if (got <= 0)
            break;
        length += room ? (size_t)got : 0;
    }
    output[length] = '\0';
    close(from);
}

/* Waits for a child. child is negative where none could be made. */
static attack_outcome wait_for(pid_t child, double until)
{
    attack_outcome outcome = {.code = NOT_RUN};
    if (child < 0)
        return outcome;
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && now() < until)
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    if (ended == 0) {
        outcome.timed_out = true;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return outcome;
}

attack_outcome attack_fork(int (*body)(void *argument), void *argument, int seconds)
{
    fflush(stdout);
    double until = now() + seconds;
    pid_t child = fork();
    if (child == 0) {
        failures = skips = holds = 0;
        int code = body(argument);
        fflush(stdout);
        _exit(code);
    }
    return wait_for(child, until);
}

attack_outcome attack_run(const attack_program *program, char *output, size_t capacity)
{
    int pipes[2] = {-1, -1};
    double until = now() + program->seconds;
    fflush(stdout);
    if (output != NULL && pipe2(pipes, O_CLOEXEC) != 0)
        return (attack_outcome){.code = NOT_RUN};
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        if (output != NULL && (dup2(pipes[1], STDOUT_FILENO) < 0 || dup2(pipes[1], STDERR_FILENO) < 0))
            _exit(NOT_RUN);
        for (const char *const *setting = program->settings; setting != NULL && *setting != NULL; setting++)
            putenv((char *)*setting);
        if (program->prepare != NULL)
            program->prepare(program->argument);
        execv(program->arguments[0], (char *const *)program->arguments);
        _exit(NOT_RUN);
    }
    if (output != NULL) {
        close(pipes[1]);
        if (child > 0)
            drain(pipes[0], until, output, capacity);
        else
            close(pipes[0]);
    }
    return wait_for(child, until);
}

const char *attack_outcome_text(attack_outcome outcome)
{
    static char text[MAX_TEXT];
    if (outcome.timed_out)
        snprintf(text, sizeof text, "killed after its time");
    else if (outcome.signal != 0)
        snprintf(text, sizeof text, "signal %d (%s)", outcome.signal, strsignal(outcome.signal));
    else
        snprintf(text, sizeof text, "exit code %d", outcome.code);
    return text;
}

void attack_expect_success(attack_outcome outcome, const char *what)
{
    bool exited = !outcome.timed_out && outcome.signal == 0;
    if (exited && outcome.code == ATTACK_SKIPPED)
        skips++; /* the child has printed why */
    else
        attack_expect(exited && outcome.code == 0, "child", 0, "%s: %s", what, attack_outcome_text(outcome));
}

long attack_resident_kb(void)
{
    char line[128];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && kb < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (file != NULL)
        fclose(file);
    return kb;
}
