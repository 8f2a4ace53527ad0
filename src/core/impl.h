/*
 * The interface of an implementation. src/dispatch/impl_list.c lists the implementations of the CPU,
 * src/cuda/cuda_impls.c those of CUDA, best first; adding one is a struct of this kind and a line there.
 *
 * A plan calls supports and suits, in that order, of each implementation of its backend, until one suits that gives no
 * estimate to compare. Of the implementation that is taken it then calls decide and memory once, and pack and execute
 * any number of times. Every function may be called from several threads at once and keeps no state but what the plan
 * holds.
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

/* Everything that an implementation may read while it works. */
typedef struct tconv_layer {
    tconv_problem problem;
    tconv_phase_table rows, columns; /* phase tables of problem.h and problem.w */
    tconv_target target;
    /* A number with a meaning private to the implementation. supports sets it, and every function called later finds
     * it. */
    int64_t choice;
    /* The decisions that decide made, for every function called later; NULL where there is no decide. */
    const void *decisions;
} tconv_layer;

/* The memory that execute needs beside the tensors. Both blocks lie where the plan runs, aligned to TCONV_ALIGNMENT
 * (CUDA: 256 bytes). */
typedef struct tconv_memory_sizes {
    size_t packed;  /* the packed weights */
    size_t scratch; /* everything else, all threads together */
    /* Whether execute packs the weights itself, while it prepares other data, where the plan does not hold them
     * packed. */
    bool execute_packs;
} tconv_memory_sizes;

/* The pointers of one execute. The tensors have the names of their roles in every operation (operation.h): a gradient has
 * its tensor's. What the operation reads is not written. They are checked before: none that it needs is NULL, and dtype
 * and location are the plan's; one without a part in the operation is NULL. */
typedef struct tconv_arguments {
    void *src;
    const void *packed; /* the weights, made by pack, in this execute's workspace or once for the plan */
    void *bias;         /* NULL: there is none */
    void *dst;
    void *scratch;
    void *stream; /* CUDA: a cudaStream_t */
    /* Whether the same call just had pack write packed on the stream, with nothing queued since. */
    bool packs;
    /* Where the operation writes them, the gradient of the weights. Where it reads them, NULL: packed holds them; but with
     * execute_packs the weights for execute to pack into packed. */
    void *weights;
} tconv_arguments;

#define TCONV_REASON_SIZE 128 /* bytes of the text that says why an implementation does not take a layer */

typedef struct tconv_implementation {
    const char *name; /* "cpu_phases": backend, underscore, algorithm */
    tconv_backend backend;
    /* The accepted dtypes, as a set of TCONV_DTYPE_BIT. The functions below are never called with another one. */
    unsigned dtypes;
    /* Whether the implementation takes the layer; if not, writes why to reason. It never says yes and fails later. May
     * write layer->choice, which is 0 before, and nothing else of the layer. */
    bool (*supports)(tconv_layer *layer, char reason[TCONV_REASON_SIZE]);
    /* Computes the memory that the implementation needs; fails only where a size overflows. */
    tconv_status (*memory)(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue);
    /* Packs the weights into packed (sizes.packed bytes). CUDA: on stream. */
    tconv_status (*pack)(const tconv_layer *layer, const void *weights, void *packed, void *stream, tconv_issue *issue);
    /* Computes what the operation writes (operation.h). The batch is at least 1 where that is src or dst. CUDA: on
     * arguments->stream, no synchronisation. Allocates nothing. */
    tconv_status (*execute)(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue);
    /* Whether to take the implementation for a layer that it supports, rather than one after it in the list; if not,
     * writes why to reason. May write its estimate of the layer's time to cycles, which is 0 before. Implementations
     * with an estimate are compared with each other, wherever they stand in the list, and the least time is taken; one
     * without an estimate ends the search, and is taken if none before it was. Not called where the caller named the
     * implementation. NULL: it always suits and has no estimate. */
    bool (*suits)(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE]);
    /* Decides how to cut the layer into tiles and tasks, and writes that to decisions: decisions_bytes of memory that
     * lives as long as the plan, and that layer->decisions points to afterwards. Fails only where a size overflows.
     * NULL, and 0 bytes: there is nothing to decide. */
    tconv_status (*decide)(const tconv_layer *layer, void *decisions, tconv_issue *issue);
    size_t decisions_bytes;
} tconv_implementation;

#ifdef __cplusplus
}
#endif

#endif
