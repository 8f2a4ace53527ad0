/* What a pixel is. */
#ifndef TCONV_CPU_PIXELS_VIEW_H
#define TCONV_CPU_PIXELS_VIEW_H

#include "../core/impl.h"

/*
 * A layer as pixels with all their channels side by side: an NHWC layer as it is. An NCHW image of one input pixel lies alike,
 * and if each of its outputs has a tap, they are all that the image has: channels, too, of one output pixel of a 1 x 1 kernel.
 * outputs: of each of the caller's output channels, by the caller's row phases and column phases. It must not move.
 */
typedef struct tconv_cpu_pixel_view {
    tconv_layer layer;
    tconv_phase phase; /* the only one of a layer that is not the caller's */
    int64_t outputs;
} tconv_cpu_pixel_view;

/* False where pixels do not lie so. */
bool tconv_cpu_pixel_view_init(tconv_cpu_pixel_view *view, const tconv_layer *layer);

#endif
