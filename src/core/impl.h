/*
 * What an implementation is. src/dispatch/impl_list.c lists those of the CPU, src/cuda/cuda_impls.c those of CUDA, best
 * first; adding one is a struct of this kind and a line there.
 *
 * Every implementation of the plan's backend is asked supports and suits in that order, until one is taken that has no
 * estimate to compare; the one that is taken is then asked decide and memory once, and pack and execute any number of times.
 * Every function may be called from several threads at once and keeps no state but what the plan holds.
 */
#ifndef TCONV_CORE_IMPL_H
#define TCONV_CORE_IMPL_H

#include "dtype.h"
#include "phases.h"
#include "problem.h"
#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The machine as a plan may use it, resolved once from options, environment and hardware. */
typedef struct tconv_target {
    tconv_backend backend;     /* CPU or CUDA */
    tconv_math math;           /* STRICT or TF32 */
    int threads;               /* CPU: at least 1 */
    tconv_parallel parallel;   /* CPU: the caller's threads; without parallel_for, OpenMP's */
    tconv_cpu_isa cpu_isa;     /* CPU: a level that this machine has */
    size_t l1_bytes, l2_bytes; /* CPU: data caches of one core */
    size_t l3_bytes;           /* CPU: the cache that cores share */
    int device;                /* CUDA: ordinal */
    int compute_capability;    /* CUDA: major * 10 + minor */
} tconv_target;

/* All that an implementation may read while it works. */
typedef struct tconv_layer {
    tconv_problem problem;
    tconv_phase_table rows, columns; /* of problem.h and problem.w */
    tconv_target target;
    int64_t choice;        /* an implementation's own number, left by supports and found by all that is called later */
    const void *decisions; /* what its decide made, for all that is called later; NULL without one */
} tconv_layer;

/* What execute needs beside the tensors. Both lie where the plan runs, aligned to TCONV_ALIGNMENT (CUDA: 256 bytes). */
typedef struct tconv_memory_sizes {
    size_t packed;      /* the packed weights */
    size_t scratch;     /* everything else, all threads together */
    bool execute_packs; /* whether execute itself packs weights that no plan holds, beside what else it gets ready */
} tconv_memory_sizes;

/* Pointers of one execute. The tensors were checked: not NULL but for bias, dtype and location as the plan's. */
typedef struct tconv_arguments {
    const void *src;
    const void *packed; /* made by pack, in this execute's workspace or once and for all */
    const void *bias;   /* NULL for none */
    void *dst;
    void *scratch;
    void *stream;        /* CUDA: a cudaStream_t */
    bool packs;          /* the same call had pack put packed on the stream, and nothing since */
    const void *weights; /* that execute_packs packs, into packed; NULL where they are */
} tconv_arguments;

#define TCONV_REASON_SIZE 128 /* for the text why an implementation does not take a layer */

typedef struct tconv_implementation {
    const char *name; /* "cpu_phases": backend, underscore, algorithm */
    tconv_backend backend;
    unsigned dtypes; /* that it takes, as TCONV_DTYPE_BIT: the other functions see no others */
    /* Whether it takes the layer; where not, writes why to reason. Never says yes and fails later. May write layer->choice,
     * which is 0 before, and nothing else of the layer. */
    bool (*supports)(tconv_layer *layer, char reason[TCONV_REASON_SIZE]);
    /* The memory it needs; fails only where a size overflows. */
    tconv_status (*memory)(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue);
    /* Packs the weights into packed (sizes.packed bytes). CUDA: on stream. */
    tconv_status (*pack)(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue);
    /* Computes dst. Batch is at least 1. CUDA: on arguments->stream, no synchronisation. Allocates nothing. */
    tconv_status (*execute)(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue);
    /* Of a layer that it supports: whether to take it rather than those after it in the list; where not, writes why to reason.
     * May write to cycles, which is 0 before, how long it takes by its estimate: those that do are compared with each other,
     * wherever they stand in the list, and the least is taken; one that writes none ends the search, and is taken where none
     * before it was. Not asked where a caller named the implementation. NULL: always, without an estimate. */
    bool (*suits)(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE]);
    /* How it cuts the layer up, written to decisions, memory of decisions_bytes that lives as long as the plan and is the
     * layer's later; fails only where a size overflows. NULL, and 0 bytes: there is nothing to decide. */
    tconv_status (*decide)(const tconv_layer *layer, void *decisions, tconv_issue *issue);
    size_t decisions_bytes;
} tconv_implementation;

#ifdef __cplusplus
}
#endif

#endif
