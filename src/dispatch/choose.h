/* The choice of an implementation. */
#ifndef TCONV_DISPATCH_CHOOSE_H
#define TCONV_DISPATCH_CHOOSE_H

#include "plan_object.h"

/*
 * Has the implementations of the plan's backend plan the layer, and takes the one with the shortest predicted time; the
 * first that predicts none ends the search, and is taken if none before it was. Only the one that the plan names is asked
 * if it names one. Fills in the plan's implementation, made and sizes, or of a layer with depth its volume, whose parts have
 * plans of their own. tconv_plan_forget frees them, also where this fails.
 */
tconv_status tconv_plan_choose(tconv_plan *plan, tconv_issue *issue);

/* Does so by an implementation that takes the layer as it is, also where that has depth. */
tconv_status tconv_plan_choose_implementation(tconv_plan *plan, tconv_issue *issue);

/* Frees what tconv_plan_choose decided. */
void tconv_plan_forget(tconv_plan *plan);

/* Whether each image has the bits that it has alone. */
bool tconv_plan_is_batch_invariant(const tconv_plan *plan);

#endif
