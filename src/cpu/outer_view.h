/* Views a layer whose images have one input pixel as one image of many. */
#ifndef TCONV_CPU_OUTER_VIEW_H
#define TCONV_CPU_OUTER_VIEW_H

#include "../core/impl.h"

/*
 * A layer for the gradients. Images of one input pixel, each of whose outputs has a tap, are the pixels of one row, whose
 * output channels are all outputs of an image: a matrix product, of 1 x 1 kernels. Other layers are what they are. A view
 * must not move, because its layer points into it.
 */
typedef struct tconv_cpu_outer_view {
    tconv_layer layer;
    tconv_phase row, column; /* the only ones of a layer that is not the caller's */
} tconv_cpu_outer_view;

void tconv_cpu_outer_view_init(tconv_cpu_outer_view *view, const tconv_layer *layer);

#endif
