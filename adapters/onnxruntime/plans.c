#include "plans.h"

#include <stdlib.h>
#include <string.h>

void tconv_ort_plans_init(struct tconv_ort_plans *plans)
{
    memset(plans, 0, sizeof *plans);
    pthread_mutex_init(&plans->lock, NULL);
    plans->most_packed = TCONV_ORT_MOST_PLANS;
}

static void destroy(struct tconv_ort_plan *plan)
{
    if (plan == NULL)
        return;
    tconv_plan_destroy(plan->plan);
    free(plan);
}

void tconv_ort_plans_destroy(struct tconv_ort_plans *plans)
{
    for (int i = 0; i < plans->count; i++)
        destroy(plans->plans[i]);
    pthread_mutex_destroy(&plans->lock);
}

static bool is_same(const struct tconv_ort_shape *a, const struct tconv_ort_shape *b)
{
    return a->rank == b->rank && (a->rank <= 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0);
}

/* The place of the plan for these shapes, -1 where there is none. */
static int find(const struct tconv_ort_plans *plans, const struct tconv_ort_shape *src,
                const struct tconv_ort_shape *weights)
{
    for (int i = 0; i < plans->count; i++) {
        if (is_same(&plans->plans[i]->src, src) && is_same(&plans->plans[i]->weights, weights))
            return i;
    }
    return -1;
}

struct tconv_ort_plan *tconv_ort_plans_take(struct tconv_ort_plans *plans, const struct tconv_ort_shape *src,
                                            const struct tconv_ort_shape *weights)
{
    struct tconv_ort_plan *found = NULL;
    pthread_mutex_lock(&plans->lock);
    const int place = find(plans, src, weights);
    if (place >= 0) {
        found = plans->plans[place];
        found->users++;
        found->last_use = ++plans->takes;
    }
    pthread_mutex_unlock(&plans->lock);
    return found;
}

/* Lets go of a plan and returns it where nobody else has it, to be destroyed. */
static struct tconv_ort_plan *let_go(struct tconv_ort_plan *plan)
{
    return --plan->users == 0 ? plan : NULL;
}

/* The place that a new plan gets. */
static int place_for(const struct tconv_ort_plans *plans, const struct tconv_ort_plan *plan)
{
    const int same = find(plans, &plan->src, &plan->weights);
    int packed = 0, oldest = -1;
    for (int i = 0; i < plans->count; i++)
        packed += plans->plans[i]->is_packed;
    const bool is_full = plan->is_packed && packed >= plans->most_packed;
    if (same >= 0 || (!is_full && plans->count < TCONV_ORT_MOST_PLANS))
        return same >= 0 ? same : plans->count;
    for (int i = 0; i < plans->count; i++) {
        if ((!is_full || plans->plans[i]->is_packed) &&
            (oldest < 0 || plans->plans[i]->last_use < plans->plans[oldest]->last_use))
            oldest = i;
    }
    return oldest;
}

void tconv_ort_plans_add(struct tconv_ort_plans *plans, struct tconv_ort_plan *plan)
{
    struct tconv_ort_plan *dropped = NULL;
    pthread_mutex_lock(&plans->lock);
    const int place = place_for(plans, plan);
    if (place == plans->count)
        plans->count++;
    else
        dropped = let_go(plans->plans[place]);
    plans->plans[place] = plan;
    plan->users = 2;
    plan->last_use = ++plans->takes;
    pthread_mutex_unlock(&plans->lock);
    destroy(dropped);
}

void tconv_ort_plans_give(struct tconv_ort_plans *plans, struct tconv_ort_plan *plan)
{
    pthread_mutex_lock(&plans->lock);
    struct tconv_ort_plan *dropped = let_go(plan);
    pthread_mutex_unlock(&plans->lock);
    destroy(dropped);
}
