/*
 * Times a layer as an engine would run it: planned once, weights packed once (or with every run, if asked for),
 * executed again and again after a warm-up. On CUDA each run is timed between two events, over several sets of src and
 * dst that together are larger than the L2 cache, so that no run finds its tensors there. On the CPU each run is timed
 * by the clock.
 */
#ifndef TCONV_CLI_TIMING_H
#define TCONV_CLI_TIMING_H

#include "harness.h"

#define TIMING_MOST_RUNS 5000

typedef struct timing_request {
    const harness_case *test;
    const tconv_options *options;
    bool pack_each;
    int64_t repeat; /* runs, at most TIMING_MOST_RUNS; 0: as many as take 0.3 s, at least five */
} timing_request;

typedef struct timing {
    double median_ms, minimum_ms;
    int64_t runs;
    size_t workspace_bytes;
    const char *implementation;
    bool cuda;
    int threads;           /* CPU */
    tconv_cpu_isa cpu_isa; /* CPU: the plan's instruction set; DEFAULT on CUDA */
    tconv_math math;       /* as the plan resolved it: STRICT or TF32 */
} timing;

tconv_status timing_measure(const timing_request *request, timing *result, tconv_issue *issue);

/* Finds key, " isa=" for instance, in tconv_plan_describe's line, and writes what follows it up to the next space, cut
 * at capacity; "" where there is none. */
void timing_plan_fact(const tconv_plan *plan, const char *key, char *value, size_t capacity);

#endif
