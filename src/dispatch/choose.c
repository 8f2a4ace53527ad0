/* The choice of an implementation: each plans the layer, and the one with the shortest predicted time is taken. */
#include "choose.h"

#include <stdio.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "impl_list.h"
#include "verbose.h"
#include "volume.h"

static void pass_over(const tconv_plan *plan, const tconv_implementation *candidate, const char *reason)
{
    if (plan->verbose >= 2)
        tconv_verbose_passed_over(plan, candidate->name, reason);
}

/* Logs that the implementation with the longer predicted time is passed over. */
static void pass_over_slower(const tconv_plan *plan, const tconv_implementation *slower, double slower_seconds,
                             const tconv_implementation *faster, double faster_seconds)
{
    char reason[128];
    snprintf(reason, sizeof reason, "%s is predicted to take %.0f %% of its time", faster->name,
             100 * faster_seconds / slower_seconds);
    pass_over(plan, slower, reason);
}

/* Takes what the candidate planned, in trial, if it is better than what the plan has; the worse of both is in trial
 * afterwards. */
static void take_faster(tconv_plan *plan, double *seconds, const tconv_implementation *candidate,
                        const tconv_planned *planned, void **trial)
{
    const double its = tconv_compared_seconds(&planned->prediction);
    if (plan->implementation != NULL && its >= *seconds) {
        pass_over_slower(plan, candidate, its, plan->implementation, *seconds);
        return;
    }
    if (plan->implementation != NULL)
        pass_over_slower(plan, plan->implementation, *seconds, candidate, its);
    void *const worse = plan->made;
    plan->made = *trial;
    *trial = worse;
    plan->implementation = candidate;
    plan->sizes = planned->sizes;
    plan->seconds = planned->prediction.seconds;
    *seconds = its;
}

/* Does what tconv_plan_choose says, with plan->made and *trial as memory for plans. A candidate whose sizes overflow is
 * passed over as one that declines: another may need less. */
static tconv_status plan_best(tconv_plan *plan, void **trial, tconv_issue *issue)
{
    const tconv_implementation *const named = plan->named;
    const tconv_op op = plan->layer.problem.desc.op;
    const tconv_implementation *candidate;
    tconv_issue refusal, overflow;
    double seconds = 0; /* that plan->implementation is compared by */
    tconv_issue_clear(&refusal);
    tconv_issue_clear(&overflow);
    for (size_t i = 0; (candidate = tconv_implementation_at(op, i)) != NULL; i++) {
        /* Where it is told why others are passed over, all are planned to the end. */
        tconv_planned planned = {.limit = plan->verbose >= 2 ? 0 : seconds, .named = named != NULL};
        if (candidate->backend != plan->layer.target.backend || (named != NULL && candidate != named))
            continue;
        tconv_status status = tconv_implementation_plan(candidate, &plan->layer, *trial, &planned, &refusal);
        if (status == TCONV_ERROR_UNSUPPORTED || status == TCONV_ERROR_OVERFLOW) {
            pass_over(plan, candidate, refusal.message);
            if (status == TCONV_ERROR_OVERFLOW && overflow.status == TCONV_SUCCESS)
                overflow = refusal;
            continue;
        }
        if (status != TCONV_SUCCESS) {
            *issue = refusal;
            return status;
        }
        if (planned.prediction.seconds > 0 || plan->implementation == NULL)
            take_faster(plan, &seconds, candidate, &planned, trial);
        if (planned.prediction.seconds <= 0)
            break;
    }
    if (plan->implementation == NULL && overflow.status != TCONV_SUCCESS) {
        *issue = overflow;
        return overflow.status;
    }
    if (plan->implementation == NULL)
        return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation", "implementation = %.40s: %.120s",
                          named != NULL ? named->name : tconv_backend_name(plan->layer.target.backend),
                          refusal.message);
    return TCONV_SUCCESS;
}

tconv_status tconv_plan_choose(tconv_plan *plan, tconv_issue *issue)
{
    plan->implementation = NULL;
    return tconv_has_depth(&plan->layer.problem) ? tconv_volume_choose(plan, issue)
                                                 : tconv_plan_choose_implementation(plan, issue);
}

tconv_status tconv_plan_choose_implementation(tconv_plan *plan, tconv_issue *issue)
{
    const tconv_op op = plan->layer.problem.desc.op;
    const size_t bytes = tconv_implementation_most_bytes(op, plan->layer.target.backend);
    void *trial = NULL;
    tconv_status status;
    plan->implementation = NULL;
    if ((status = tconv_allocate_for(&plan->allocator, bytes, "plans", &plan->made, issue)) ||
        (status = tconv_allocate_for(&plan->allocator, bytes, "plans", &trial, issue)))
        return status;
    status = plan_best(plan, &trial, issue);
    tconv_release(&plan->allocator, trial);
    return status;
}

void tconv_plan_forget(tconv_plan *plan)
{
    tconv_release(&plan->allocator, plan->made);
    tconv_volume_release(plan->volume, &plan->allocator);
    plan->made = NULL;
    plan->volume = NULL;
}

bool tconv_plan_is_batch_invariant(const tconv_plan *plan)
{
    return plan->volume != NULL ? tconv_volume_is_batch_invariant(plan->volume)
                                : tconv_is_batch_invariant(plan->implementation, &plan->layer, plan->made);
}
