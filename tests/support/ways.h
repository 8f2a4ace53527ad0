/*
 * Ways to run a layer: every implementation of this build that can run on this machine, on the CPU at each instruction
 * set that the machine has, on CUDA in strict math and in TF32, whatever the layer says. A test that holds for one must
 * hold for all.
 */
#ifndef TCONV_TESTS_WAYS_H
#define TCONV_TESTS_WAYS_H

#include "harness.h"

#define MAX_WAYS 64

struct way {
    const char *implementation;
    tconv_backend backend;
    tconv_cpu_isa isa; /* DEFAULT on CUDA */
    tconv_math math;   /* math of f32, on CUDA; DEFAULT on the CPU: the layer's */
    char text[64];     /* "cpu_phases avx2", "cuda_general tf32" */
};

/* The ways of one backend; fills ways and returns how many. At least one on a machine that has the backend. */
size_t list_ways(tconv_backend backend, struct way ways[MAX_WAYS]);

/* Whether the way takes streams and no other layers; its sums are those of an inner layer, which is another's. */
bool way_is_of_streams_alone(const struct way *way);

/* Returns the case with the way's math. Its memory is that of test: it must not be destroyed. */
harness_case case_of_way(const harness_case *test, const struct way *way);

/* Returns options that force a way, with the default number of threads. */
tconv_options way_options(const struct way *way);

/* Asks for this many threads: OpenMP's where the machine has as many, else plain ones of the test's own. 0: as many of
 * OpenMP's as the library takes. The plan must not outlive the test. */
void use_threads(tconv_options *options, int threads);

/* Whether the way multiplies exactly the taps that an output has, with factors that are not split: NaN and Inf then go
 * where the formula takes them. Tensor cores may multiply zeros as well. */
bool way_skips_taps(const struct way *way);

/* Whether the way is the reference, which is the same at every instruction set and listed once. */
bool way_is_reference(const struct way *way);

/* Runs the case as harness_run does. Returns false where the implementation does not take the layer, or the layer is
 * none for the way's math (TF32 is for f32); any other failure fails the test. */
bool run_way(const harness_case *test, const struct way *way, int threads, bool pack_once, harness_output *output);

/* Fails the test unless the output of run_way is right. */
void judge_way(const harness_case *test, const struct way *way, int threads, bool pack_once,
               const harness_output *output);

/* Calls run_way and judge_way. */
bool check_way(const harness_case *test, const struct way *way, int threads, bool pack_once);

/* Whether a word is in what the implementations would do with the layer on an H200 (tconv_explain). Skips the test,
 * visibly, where this build has no CUDA. */
bool is_planned(const tconv_desc *desc, const char *word);

/* Skips the test, visibly, where this machine or build has no CUDA device. ctest looks for the words that this
 * prints. */
void skip_without_cuda(void);

#endif
