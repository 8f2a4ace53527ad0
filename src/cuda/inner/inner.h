/*
 * A plan inside of a plan. Five implementations (cuda_gemm_col2im, cuda_dgrad, cuda_finish, cuda_nhwc, cuda_carry) derive another layer
 * from theirs, the inner layer, and have another implementation compute it, whichever is predicted to be fastest.
 *
 *     tconv_inner_begin(&plan->inner, plan->inner_bytes, sizeof plan->inner_bytes);
 *     plan->inner.layer = ...;
 *     if (tconv_inner_choose(&plan->inner, &search) &&
 *         tconv_inner_plan_by(&plan->inner, plan->inner.implementation, 0, &work).prediction.seconds > 0)
 *         ...
 */
#ifndef TCONV_CUDA_INNER_INNER_H
#define TCONV_CUDA_INNER_INNER_H

#include "../../core/checked.h"
#include "../../core/impl.h"
#include "../implementations.h"
#include "../model/work.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

enum { INNER_ALIGNMENT = 256 }; /* bytes, of each part of the packed weights and of the scratch */

/* It lies in the plan of the outer layer. Plans keep their place, because the inner layer's phase tables and the inner
 * plan point to other members of the outer plan. */
typedef struct tconv_inner_plan {
    tconv_layer layer;                          /* the inner layer; the phases of its tables are not held here */
    const tconv_implementation *implementation; /* computes it; NULL: none does */
    tconv_memory_sizes sizes;                   /* that implementation needs them */
    /* The implementation's own plan: memory of the outer plan, aligned to 16 bytes. Most have
     * TCONV_CUDA_MAX_INNER_PLAN. */
    void *bytes;
    size_t capacity;
} tconv_inner_plan;

/* Begins an inner plan: all zero, but for the memory that the plan of an implementation is written to. */
void tconv_inner_begin(tconv_inner_plan *inner, void *bytes, size_t capacity);

/* Returns whether an implementation may be asked for the inner layer: it has the layer's dtype, accumulates or applies
 * post-ops where the layer does, takes planes where they lie where the layer has them, is not for streams, and its plan fits in
 * the memory. */
bool tconv_inner_may_plan(const tconv_inner_plan *inner, const tconv_implementation *implementation);

/* Has an implementation that may plan the inner layer plan it, to take less than limit seconds (0: any time), and sets
 * inner->sizes. Seconds of the prediction are negative where it declines. Leaves its work to *work, unless work is
 * NULL. */
tconv_planned tconv_inner_plan_by(tconv_inner_plan *inner, const tconv_implementation *implementation, double limit,
                                  tconv_cuda_work *work);

/* A search for the implementation that computes an inner layer. Its functions may be NULL. */
typedef struct tconv_inner_search {
    const tconv_implementation *const *list; /* ends with NULL */
    double limit;                            /* seconds that the layer is to take less than; 0: any time */
    const void *outer;                       /* the functions are given this: the outer plan */
    /* Returns what is to plan the inner layer in place of an implementation of the list, which is that one most of the
     * time; NULL: none is. inner->implementation is the best one yet, or NULL. */
    const tconv_implementation *(*admit)(const void *outer, const tconv_inner_plan *inner,
                                         const tconv_implementation *implementation);
    /* Returns the seconds that a plan is compared by; 0 or less where the outer layer has no use for it. It may read
     * inner->sizes, which are this plan's. NULL: the predicted seconds. */
    double (*seconds)(const void *outer, const tconv_inner_plan *inner, const tconv_implementation *implementation,
                      const tconv_planned *planned, const tconv_cuda_work *work);
} tconv_inner_search;

/* Sets inner->implementation to that of a list whose plan takes the least time below the limit, the first of those that
 * take as long; returns false where none does. The inner plan is not the chosen one's afterwards: tconv_inner_plan_by
 * makes it. */
bool tconv_inner_choose(tconv_inner_plan *inner, const tconv_inner_search *search);

/* Returns how many of `have` things come at a time where `most` elements have room, and each thing has `each`: chunks
 * are as even as they come, and have one thing at least. */
int64_t tconv_inner_fit(int64_t have, double each, double most);

/* Rounds bytes up, so that another part of the memory may follow them. */
static inline int64_t tconv_inner_aligned(int64_t bytes)
{
    return tconv_round_up(bytes, INNER_ALIGNMENT);
}

/* Returns the bytes of the weights that the inner implementation packs, up to where another part may follow them. */
static inline int64_t tconv_inner_packed_bytes(const tconv_inner_plan *inner)
{
    return tconv_inner_aligned((int64_t)inner->sizes.packed);
}

/* Begins the arguments of an execution of the inner layer: the outer one's stream, and the inner packed weights and the
 * inner scratch at so many bytes of the outer ones. */
tconv_arguments tconv_inner_arguments(const tconv_arguments *outer, int64_t packed_at, int64_t scratch_at);

tconv_status tconv_inner_pack(const tconv_inner_plan *inner, const void *weights, void *packed, void *stream,
                              tconv_issue *issue);
tconv_status tconv_inner_execute(const tconv_inner_plan *inner, const tconv_arguments *arguments, tconv_issue *issue);

/* Describes the inner plan; "" where its implementation has nothing to say. */
void tconv_inner_describe(const tconv_inner_plan *inner, char *text, size_t capacity);

TCONV_ROOM_END

#endif
