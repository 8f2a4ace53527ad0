/* Views a layer as pixels with contiguous channels. */
#ifndef TCONV_CPU_PIXELS_VIEW_H
#define TCONV_CPU_PIXELS_VIEW_H

#include "../../core/impl.h"

/*
 * A layer as pixels whose channels are contiguous: an NHWC layer is one already. An NCHW image of one input pixel has
 * the same memory; if each of its outputs has a tap, they are all that the image has, and count as channels of one
 * output pixel of a 1 x 1 kernel. outputs is their number for each of the caller's output channels, by the caller's row
 * phases and column phases. A view must not move, because its layer points into it.
 */
typedef struct tconv_cpu_pixel_view {
    tconv_layer layer;
    tconv_phase phase; /* the only one of a layer that is not the caller's */
    int64_t outputs;
} tconv_cpu_pixel_view;

/* Makes a view; false where the layer has no such pixels. */
bool tconv_cpu_pixel_view_init(tconv_cpu_pixel_view *view, const tconv_layer *layer);

#endif
