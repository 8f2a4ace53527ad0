/* The one-shot call: plan, bring tensors to where the plan runs, run, bring dst back. */
#ifndef TCONV_DISPATCH_STAGE_H
#define TCONV_DISPATCH_STAGE_H

#include "tconv/tconv.h"

typedef struct tconv_call {
    const tconv_tensor *src, *weights, *bias, *dst; /* bias may be NULL */
} tconv_call;

/* What tconv_conv_transpose2d does; fills issue and reports nothing. */
tconv_status tconv_stage_and_run(const tconv_desc *desc, const tconv_options *options, const tconv_call *call,
                                 tconv_issue *issue);

#endif
