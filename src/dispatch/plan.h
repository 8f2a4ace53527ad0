/* Plans: they choose once, own what was decided, describe themselves, and execute. */
#ifndef TCONV_DISPATCH_PLAN_H
#define TCONV_DISPATCH_PLAN_H

#include "plan_object.h"
#include "tensors.h"

/* Whether plan points to a plan, as far as can be told: it is not NULL and its memory does not say that it was
 * destroyed. */
bool tconv_plan_is_alive(const tconv_plan *plan);
tconv_status tconv_plan_check(const tconv_plan *plan, tconv_issue *issue);

/* The functions behind the public ones of the same names; they fill issue and report nothing. */
tconv_status tconv_plan_make(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                             tconv_issue *issue);
tconv_status tconv_plan_pack(const tconv_plan *plan, const tconv_tensor *weights, void *stream, tconv_plan **packed,
                             tconv_issue *issue);
tconv_status tconv_plan_run(const tconv_plan *plan, const tconv_tensors *given, void *workspace, size_t workspace_size,
                            void *stream, tconv_issue *issue);
size_t tconv_plan_workspace(const tconv_plan *plan);

/* Fails where the layer is a stream, whose chunks tconv_plan_step computes. */
tconv_status tconv_plan_check_no_stream(const tconv_problem *problem, tconv_issue *issue);

/* One call of a plan: what it computes, of the plan's own problem or a stream's chunk, and where. */
typedef struct tconv_plan_call {
    const tconv_plan *plan;
    const tconv_problem *problem;
    tconv_tensors tensors; /* those in use */
    void *workspace;
    size_t workspace_size;
    void *stream;
    const tconv_step_arguments *step; /* of a stream; else NULL */
} tconv_plan_call;

/* Checks the tensors and the memory of a call, packs the weights unless the plan holds them packed, and executes. */
tconv_status tconv_plan_compute(tconv_plan_call *call, tconv_issue *issue);

/* The functions behind tconv_plan_step and tconv_plan_flush (step.c). */
tconv_status tconv_plan_run_step(const tconv_plan *plan, const tconv_step *given, bool flushes, tconv_issue *issue);

void tconv_plan_free(tconv_plan *plan);

/* Writes the plan's line as tconv_plan_describe does; returns the line's length. */
size_t tconv_plan_format(const tconv_plan *plan, char *text, size_t capacity);

#endif
