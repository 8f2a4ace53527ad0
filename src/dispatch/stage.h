/* The one-shot call makes a plan, copies tensors to where the plan runs, runs, and copies the results back. */
#ifndef TCONV_DISPATCH_STAGE_H
#define TCONV_DISPATCH_STAGE_H

#include "tensors.h"

/* Does the work of tconv_conv_transpose2d; fills issue and reports nothing. */
tconv_status tconv_stage_and_run(const tconv_desc *desc, const tconv_options *options, const tconv_tensors *tensors,
                                 tconv_issue *issue);

#endif
