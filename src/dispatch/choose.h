/* The choice of an implementation. */
#ifndef TCONV_DISPATCH_CHOOSE_H
#define TCONV_DISPATCH_CHOOSE_H

#include "plan_object.h"

/*
 * Has the implementations of the plan's backend plan the layer, and takes the one with the shortest predicted time; the
 * first that predicts none ends the search, and is taken if none before it was. Only the one that the plan names is asked
 * if it names one. Fills in the plan's implementation, made and sizes; made is to be released, also where this fails.
 */
tconv_status tconv_plan_choose(tconv_plan *plan, tconv_issue *issue);

#endif
