/*
 * The search that all planners share. A planner lays candidates out one after another and offers their plans; the plan
 * with the least predicted time is kept, the first of those that take as long.
 *
 *     tconv_search search = tconv_search_begin(layer, limit, &plan, sizeof plan);
 *     for (each candidate)
 *         if (!tconv_search_is_beyond(&search, &least) && lay_out(&candidate, &trial, &work))
 *             tconv_search_offer(&search, &trial, &work);
 *     const char *why = tconv_search_refusal(&search, "no tile fits");
 */
#ifndef TCONV_CUDA_MODEL_SEARCH_H
#define TCONV_CUDA_MODEL_SEARCH_H

#include "planned.h"

TCONV_ROOM_BEGIN(tconv)

typedef struct tconv_search {
    tconv_cuda_machine machine; /* the layer's target */
    double limit;               /* seconds that a plan is to be below: at last those of the best */
    bool limited;               /* there is a limit */
    bool found;                 /* a plan was kept */
    void *best;                 /* the plan that was kept: bytes of the planner's */
    size_t plan_bytes;
    tconv_cuda_work work; /* the best plan's */
} tconv_search;

/* Begins a search for a plan of so many bytes that takes less than a limit, 0 for none. */
tconv_search tconv_search_begin(const tconv_layer *layer, double limit, void *best, size_t plan_bytes);

/* Returns whether a plan that does at least this work would not be kept, for certain. */
bool tconv_search_is_beyond(const tconv_search *search, const tconv_cuda_work *least);

/* Keeps a plan that does this work, if it is predicted to take less than the limit. */
void tconv_search_offer(tconv_search *search, const void *plan, const tconv_cuda_work *work);

/* Keeps a plan that takes so many seconds, likewise, but not its work. Returns whether the plan was kept. Seconds are
 * less than 0 of a plan that saves more than it takes. */
bool tconv_search_keep(tconv_search *search, const void *plan, double seconds);

/* Returns NULL where a plan was found, TCONV_NO_FASTER where there was a limit, else the planner's own reason. */
const char *tconv_search_refusal(const tconv_search *search, const char *why);

TCONV_ROOM_END

#endif
