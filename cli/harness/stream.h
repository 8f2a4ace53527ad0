/* Layers that are streams, as the harness runs them: one step of the longest chunk that begins with a carry of zeros. */
#ifndef TCONV_HARNESS_STREAM_H
#define TCONV_HARNESS_STREAM_H

#include "tconv/tconv.h"

/* Returns the layer whose one call gives what such a step gives; a layer that is no stream as it is. */
tconv_desc harness_one_call(const tconv_desc *desc);

/* Returns the bytes of a valid stream's carry; 0 for a layer that is none. */
size_t harness_carry_bytes(const tconv_desc *desc);

/* Executes a plan: by tconv_plan_execute_with, or of a stream by tconv_plan_step, with a carry where the plan runs. */
tconv_status harness_execute(const tconv_plan *plan, const tconv_desc *desc, const tconv_operands *operands,
                             void *carry, void *workspace, size_t workspace_size, void *stream);

#endif
