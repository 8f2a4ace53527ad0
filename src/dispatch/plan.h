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
void tconv_plan_free(tconv_plan *plan);

/* Writes the plan's line as tconv_plan_describe does; returns the line's length. */
size_t tconv_plan_format(const tconv_plan *plan, char *text, size_t capacity);

#endif
