/*
 * What the attacks share: expectations, and child processes that may end in any way, which is then judged.
 *
 *     static int body(void *argument) { ... EXPECT(...); return attack_end(); }
 *     int main(void)
 *     {
 *         attack_expect_success(attack_fork(body, NULL, 10), "what was attacked");
 *         return attack_end();
 *     }
 */
#ifndef TCONV_ATTACKS_ATTACK_H
#define TCONV_ATTACKS_ATTACK_H

#include <stdbool.h>
#include <stddef.h>

/* The exit code of a program where the machine lacks what the attack needs. ctest knows it. */
#define ATTACK_SKIPPED 77

/* Counts a failure, and prints where and why, unless condition holds. The program goes on in any case. */
#define EXPECT(condition, ...) attack_expect((condition), __FILE__, __LINE__, __VA_ARGS__)
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void attack_expect(bool condition, const char *file, int line, const char *format, ...);

/* Prints "skipped: " and why. A program in which everything was skipped ends with ATTACK_SKIPPED. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void attack_skip(const char *format, ...);

/* Says that something was attacked and held, so that a program with some skips counts as run. */
void attack_held(const char *what);

/* The exit code: 1 after a failed expectation, ATTACK_SKIPPED where all was skipped, else 0. */
int attack_end(void);

/* How a process ended. */
typedef struct attack_outcome {
    bool timed_out; /* it was killed */
    int signal;     /* the signal that ended it; 0 for none */
    int code;       /* exit code where no signal ended it */
} attack_outcome;

/* Runs body in a forked child, which ends with what body returns. */
attack_outcome attack_fork(int (*body)(void *argument), void *argument, int seconds);

/* Runs a program in a new process: arguments begins with the path and ends with NULL, settings ("NAME=value", ending
 * with NULL; NULL for none) add to the environment. Its stdout and stderr go to output, up to capacity bytes with the
 * closing '\0'; with output NULL they stay the test's. prepare, which may be NULL, runs in the child before exec. */
typedef struct attack_program {
    const char *const *arguments, *const *settings;
    void (*prepare)(void *argument);
    void *argument;
    int seconds;
} attack_program;
attack_outcome attack_run(const attack_program *program, char *output, size_t capacity);

/* Fails unless the process ended with 0; one that ended with ATTACK_SKIPPED counts as a skip. */
void attack_expect_success(attack_outcome outcome, const char *what);

/* Returns "exit code 3", "signal 11 (Segmentation fault)" or "killed after its time". Valid until the next call. */
const char *attack_outcome_text(attack_outcome outcome);

/* Returns the kilobytes of memory that the process has in use (VmRSS); -1 where the system does not say. */
long attack_resident_kb(void);

#endif
