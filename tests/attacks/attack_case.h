/* The attacks that are plain programs share this: they need a process of their own, a limit, or a C library that
 * refuses. They end with 0 where the promise held, 77 where it could not be tested here. */
#ifndef TCONV_ATTACKS_ATTACK_CASE_H
#define TCONV_ATTACKS_ATTACK_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

enum { ATTACK_SKIPPED = 77 };

/* Ends the program unless what is claimed holds. */
#define require(claim, ...)                                                                                            \
    do {                                                                                                               \
        if (!(claim)) {                                                                                                \
            fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #claim);                                      \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A case whose layer is worth many threads. */
static inline harness_case attack_case(const char *problem)
{
    harness_layer layer;
    harness_case test;
    tconv_issue issue;
    char message[128];
    require(harness_problem_parse(problem, &layer, message, sizeof message), "%s", message);
    require(harness_case_create(&test, &layer, HARNESS_INTEGERS, 1, &issue) == TCONV_SUCCESS, "%s", issue.message);
    return test;
}

#define ATTACK_PROBLEM "n=4 ci=32 h=17 w=19 co=32 k=3 s=2 p=1 b=1"

/* Plans and runs the case on this many of OpenMP's threads; the output must be right. */
static inline void attack_run(const harness_case *test, int threads)
{
    harness_output output;
    harness_failure failure;
    tconv_options options;
    tconv_issue issue;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.threads = threads;
    require(harness_run(test, &options, false, &output, &issue) == TCONV_SUCCESS, "%s", issue.message);
    require(harness_compare(test, &output, &failure), "%s", failure.text);
    harness_output_release(&output);
}

#endif
