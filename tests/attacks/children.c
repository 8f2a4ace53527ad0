/*
 * Processes that fork. A child computes right, with one thread and with two, whether or not the parent has used the
 * library before. Where the parent has used OpenMP itself, in the thread that forks, libgomp hangs in the child in the
 * next region of more than one thread: with one thread the library does not enter OpenMP.
 */
#if defined(_OPENMP)
#include <omp.h>
#endif
#include <stdio.h>

#include "attack_layer.h"

#define SECONDS           10
#define SECONDS_OF_A_HANG 2 /* for a child that probably hangs */

static attack_layer layer;

static int compute(void *threads)
{
    tconv_options options;
    tconv_options_init(&options);
    options.threads = *(const int *)threads;
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "in the child");
    return attack_end();
}

/* A child that computes and has a child of its own. */
static int fork_again(void *threads)
{
    compute(threads);
    attack_expect_success(attack_fork(compute, threads, SECONDS), "the child of a child");
    return attack_end();
}

#if defined(_OPENMP)
/* Forks in a process that has used OpenMP, but not the library. */
static int after_openmp(void *unused)
{
    (void)unused;
    int threads = 0, one = 1, two = 2;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads += 1;
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork after the caller's OpenMP, one thread");
    attack_outcome outcome = attack_fork(compute, &two, SECONDS_OF_A_HANG);
    EXPECT(outcome.timed_out || (outcome.signal == 0 && outcome.code == 0),
           "fork after the caller's OpenMP (%d threads), two threads: %s", threads, attack_outcome_text(outcome));
    printf("fork after the caller's OpenMP, two threads: %s\n", attack_outcome_text(outcome));
    return attack_end();
}
#endif

int main(void)
{
    int one = 1, two = 2;
    attack_layer_init(&layer, ATTACK_LARGE);
#if defined(_OPENMP)
    attack_expect_success(attack_fork(after_openmp, NULL, 2 * SECONDS), "the caller's OpenMP");
#endif
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork before use, one thread");
    attack_expect_success(attack_fork(compute, &two, SECONDS), "fork before use, two threads");

    compute(&one);
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork after use with one thread, one thread");
    attack_expect_success(attack_fork(compute, &two, SECONDS), "fork after use with one thread, two threads");

    compute(&two);
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork after use with two threads, one thread");
    attack_expect_success(attack_fork(compute, &two, SECONDS), "fork after use with two threads, two threads");
    attack_expect_success(attack_fork(fork_again, &two, SECONDS), "fork in a child");
    attack_layer_release(&layer);
    return attack_end();
}
