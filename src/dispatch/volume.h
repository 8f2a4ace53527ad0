/* Plans of layers with depth: the plans of their parts (core/volume.h), which are layers of two axes. */
#ifndef TCONV_DISPATCH_VOLUME_H
#define TCONV_DISPATCH_VOLUME_H

#include "plan_object.h"

/* Cuts a layer with depth into parts, chooses an implementation for the layer of each, and fills in the plan's volume,
 * implementation, sizes and predicted time: those of all parts together, the implementation being that of the part with the most
 * work. An implementation that the plan names computes the parts that it takes; UNSUPPORTED where it takes none. The plan's
 * volume is to be released, also where this fails. */
tconv_status tconv_volume_choose(tconv_plan *plan, tconv_issue *issue);
void tconv_volume_release(tconv_volume_plan *volume, const tconv_allocator *allocator);

/* Packs the weights of all parts into `packed`, the plan's sizes.packed bytes. */
tconv_status tconv_volume_pack(const tconv_plan *plan, const void *weights, void *packed, void *stream,
                               tconv_issue *issue);

/* Computes all parts. Where arguments->packed is NULL, the weights are arguments->weights. */
tconv_status tconv_volume_execute(const tconv_plan *plan, const tconv_arguments *arguments, tconv_issue *issue);

/* Whether each image has the bits that it has alone. */
bool tconv_volume_is_batch_invariant(const tconv_volume_plan *volume);

/* The plan of the part with the most work, which is computed by the plan's implementation; NULL where no part has any. */
const tconv_plan *tconv_volume_main(const tconv_volume_plan *volume);

/* The number of calls of plans of two axes that one execute makes. */
int64_t tconv_volume_calls(const tconv_plan *plan);

#endif
