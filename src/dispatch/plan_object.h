/* The fields of a plan. */
#ifndef TCONV_DISPATCH_PLAN_OBJECT_H
#define TCONV_DISPATCH_PLAN_OBJECT_H

#include "../core/impl.h"

/* The first word of a plan until it is destroyed. It is chosen to be no text, no small number and no address of a
 * process. */
#define TCONV_PLAN_MAGIC UINT64_C(0x9e7c0de7ac0f1a9d)

/* Bytes; cudaMalloc aligns to that, so that kernels may use any vector width. */
#define TCONV_CUDA_ALIGNMENT 256

/* What the plan of a layer with depth holds (volume.h). */
typedef struct tconv_volume_plan tconv_volume_plan;

struct tconv_plan {
    uint64_t magic;
    tconv_layer layer;
    const tconv_implementation *named; /* that the caller asks for; NULL: whichever is fastest */
    const tconv_implementation *implementation;
    tconv_memory_sizes sizes;
    double seconds; /* predicted, without packing; 0: there is no prediction */
    tconv_allocator allocator;
    void *made;                /* what the implementation's plan wrote */
    tconv_volume_plan *volume; /* of a layer with depth, whose parts have plans of their own; else NULL */
    bool holds_packed;         /* the plan is made to hold its weights packed */
    void *packed;              /* weights packed once, where the plan runs; NULL where execute packs them */
    int verbose;               /* 0, 1 or 2 */
    tconv_log log;             /* receives the verbose lines */
};

#endif
