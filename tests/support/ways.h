/*
 * Ways to run a layer: every implementation of this build that can run on this machine, on the CPU at each instruction
 * set that the machine has. A test that holds for one must hold for all.
 */
#ifndef TCONV_TESTS_WAYS_H
#define TCONV_TESTS_WAYS_H

#include "harness.h"

#define MAX_WAYS 64

struct way {
    const char *implementation;
    tconv_backend backend;
    tconv_cpu_isa isa; /* DEFAULT on CUDA */
    char text[64];     /* "cpu_phases avx2" */
};

/* The ways of one backend; fills ways and returns how many. At least one on a machine that has the backend. */
size_t list_ways(tconv_backend backend, struct way ways[MAX_WAYS]);

/* Options that force a way, with the default number of threads. */
tconv_options way_options(const struct way *way);

/* Runs the case as harness_run does. False where the implementation does not take the layer; any other failure fails the
 * test. */
bool run_way(const harness_case *test, const struct way *way, int threads, bool pack_once, harness_output *output);

/* run_way, and fails the test unless the output is right. */
bool check_way(const harness_case *test, const struct way *way, int threads, bool pack_once);

/* Skips the test, visibly, where this machine or build has no CUDA device. ctest looks for the words. */
void skip_without_cuda(void);

#endif
