/* A layer with depth that is computed as another one, from copies: in NHWC, or as one group. */
#ifndef TCONV_DISPATCH_VOLUME_VIEW_H
#define TCONV_DISPATCH_VOLUME_VIEW_H

#include "plan_object.h"

/*
 * Kernels read the depth taps of a layer in NHWC where they lie, and those of one group alone. Of another layer they read copies
 * of planes, each plane as often as there are taps. So one transposition of each tensor may cost less, and so may one group
 * whose weights are zeros between the groups of the layer.
 */
typedef struct tconv_volume_view {
    tconv_plan *inner; /* of the other layer; NULL: there is none */
    bool turns;        /* src and dst are transposed; else groups are joined */
    /* The scratch, in this order, before the inner plan's: transposed src and dst, joined weights. */
    size_t src_bytes, dst_bytes, weights_bytes;
} tconv_volume_view;

/* Looks for a view that is predicted to take less time than the plan, which is whole; has the plan be of that view if there is one. */
tconv_status tconv_volume_try_view(tconv_plan *plan, tconv_issue *issue);
void tconv_volume_release_view(tconv_volume_view *view, const tconv_allocator *allocator);

/* tconv_volume_pack and tconv_volume_execute of a plan that has a view. */
tconv_status tconv_volume_pack_view(const tconv_plan *plan, const void *weights, void *packed, void *stream,
                                    tconv_issue *issue);
tconv_status tconv_volume_execute_view(const tconv_plan *plan, const tconv_arguments *arguments, tconv_issue *issue);

#endif
