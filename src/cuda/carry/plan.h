/* The plan of a stream. */
#ifndef TCONV_CUDA_CARRY_PLAN_H
#define TCONV_CUDA_CARRY_PLAN_H

#include "../inner/inner.h"
#include "fold.h"

enum { RUNGS = 2 };

/* The inner layer for so many pixels. */
typedef struct rung {
    int64_t pixels;
    tconv_inner_plan inner;
    tconv_phase row_phase, column_phase;
    int64_t packed_at; /* bytes of the packed weights before its own */
    _Alignas(16) unsigned char bytes[TCONV_CUDA_MAX_OUTER_PLAN];
} rung;

typedef struct carry_plan {
    int rungs;      /* none: the fold forms the products */
    bool widens;    /* src and weights are of 16 bits */
    bool invariant; /* no cut changes a bit of a sum */
    int64_t real_size;
    int64_t weights_bytes;                /* of widened weights, before what the rungs pack */
    int64_t staged_bytes, products_bytes; /* of the last rung, where the scratch begins; the inner scratch follows */
    rung of[RUNGS];
} carry_plan;

/* Plans a stream, as tconv_implementation's plan does; bytes: a carry_plan. */
tconv_status tconv_carry_plan(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue);

#endif
