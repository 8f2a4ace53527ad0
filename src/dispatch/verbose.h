/* Verbose lines, to stderr or to the caller's callback: comma-separated key=value pairs that begin with "tconv" and the
 * event. The last key, bench, is the rest of the line: the arguments of `tconv bench` that run the same layer again. */
#ifndef TCONV_DISPATCH_VERBOSE_H
#define TCONV_DISPATCH_VERBOSE_H

#include "plan_object.h"

void tconv_verbose_passed_over(const tconv_plan *plan, const char *implementation, const char *reason);
void tconv_verbose_chosen(const tconv_plan *plan, size_t workspace_size);
void tconv_verbose_executed(const tconv_plan *plan, bool has_bias, int64_t nanoseconds);

/* Returns monotonic time in nanoseconds. */
int64_t tconv_verbose_clock(void);

#endif
