/* What a plan holds. */
#ifndef TCONV_DISPATCH_PLAN_OBJECT_H
#define TCONV_DISPATCH_PLAN_OBJECT_H

#include "../core/impl.h"

/* What a plan begins with until it is destroyed: no text, no small number, no address that a process has. */
#define TCONV_PLAN_MAGIC UINT64_C(0x9e7c0de7ac0f1a9d)

struct tconv_plan {
    uint64_t magic;
    tconv_layer layer;
    const tconv_implementation *implementation;
    tconv_memory_sizes sizes;
    tconv_allocator allocator;
    void *decisions; /* the implementation's, as the layer points to them */
    void *packed;    /* weights packed once, where the plan runs; NULL where execute packs them */
    int verbose;     /* 0, 1 or 2 */
    tconv_log log;   /* where its lines go */
};

#endif
