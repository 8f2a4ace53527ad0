/* Views a layer with many taps, or images of one input pixel, as one with more channels. */
#ifndef TCONV_CPU_WGRAD_VIEW_H
#define TCONV_CPU_WGRAD_VIEW_H

#include "../../core/impl.h"

/* A layer for the gradients, which is what it is, or a view of it. A view must not move, because its layer points into it. */
typedef struct tconv_cpu_wgrad_view {
    tconv_layer layer;
    tconv_phase row, column; /* the only ones of an axis that is not the caller's */
} tconv_cpu_wgrad_view;

/* Views images of one input pixel, each of whose outputs has a tap, as the pixels of one row, whose output channels are all
 * outputs of an image: a matrix product, of 1 x 1 kernels; or, where a kernel has many taps, views those of a stride as
 * output channels (core/space_to_depth.h). The layout of a view says nothing, only its strides. */
void tconv_cpu_wgrad_view_init(tconv_cpu_wgrad_view *view, const tconv_layer *layer);

#endif
