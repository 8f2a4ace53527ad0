/*
 * The plans of a node, by the shapes that it ran with. A plan that is taken stays until it is given back, also where the
 * collection drops it meanwhile. Functions may be called by any threads at once.
 */
#ifndef TCONV_ORT_PLANS_H
#define TCONV_ORT_PLANS_H

#include <pthread.h>

#include "layer.h"

/* Shapes whose plans are kept: models of variable length see few at a time, and each has packed weights of its own. */
#define TCONV_ORT_MOST_PLANS 8

/* A plan for one shape of src, and of the weights where those are an input of the model. */
struct tconv_ort_plan {
    struct tconv_ort_shape src, weights;
    tconv_plan *plan; /* NULL: every output is the bias */
    size_t workspace_size;
    int64_t dst[TCONV_ORT_MAX_RANK];
    bool is_packed;    /* the plan holds the weights */
    bool would_pack;   /* it does not, and packs constant weights in every run */
    int users;         /* takers, and the collection where it has the plan */
    uint64_t last_use; /* in takes of the collection */
};

struct tconv_ort_plans {
    pthread_mutex_t lock; /* of all that follows, and of users and last_use in the plans */
    uint64_t takes;
    int count, most_packed;
    struct tconv_ort_plan *plans[TCONV_ORT_MOST_PLANS];
};

/* Prepares an empty collection. */
void tconv_ort_plans_init(struct tconv_ort_plans *plans);

/* Destroys the collection and its plans, none of which may still be taken. */
void tconv_ort_plans_destroy(struct tconv_ort_plans *plans);

/* Takes the plan for these shapes; NULL where there is none. */
struct tconv_ort_plan *tconv_ort_plans_take(struct tconv_ort_plans *plans, const struct tconv_ort_shape *src,
                                            const struct tconv_ort_shape *weights);

/*
 * Puts a plan, whose users are 0, into the collection and takes it. The plan replaces the one of the same shapes; else, where
 * there are TCONV_ORT_MOST_PLANS, or most_packed that hold weights as this one does, the one that was used least recently.
 */
void tconv_ort_plans_add(struct tconv_ort_plans *plans, struct tconv_ort_plan *plan);

/* Gives a plan back that was taken. */
void tconv_ort_plans_give(struct tconv_ort_plans *plans, struct tconv_ort_plan *plan);

#endif
