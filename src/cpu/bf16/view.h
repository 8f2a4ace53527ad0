/*
 * What the matrix algorithm computes: a layer as it is, or the gradient of src, seen as a layer of stride 1. Outputs of one
 * residue modulo the stride are a phase, in which a tap reads neighbours for neighbouring positions (core/phases.h). Forward,
 * each phase of dst is summed from src, which is one phase of stride 1 itself; the gradient of src from all phases of dst at
 * once. Those that are read are the phases of the strip.
 */
#ifndef TCONV_CPU_BF16_VIEW_H
#define TCONV_CPU_BF16_VIEW_H

#include "../blocking/blocking.h"

typedef struct tconv_cpu_bf16_view {
    tconv_layer caller; /* whose phases have the taps */
    /* src is what is read, dst what is written. Of the gradient of src they are exchanged, with their channels and the
     * strides of the weights, and there is one phase, which has all taps. group_weights is set. */
    tconv_layer layer;
    tconv_phase row, column; /* then, the only phases of layer, which points to them: a view must not move */
    bool exchanged;
} tconv_cpu_bf16_view;

void tconv_cpu_bf16_view_init(tconv_cpu_bf16_view *view, const tconv_layer *layer);

/* An axis of the strip. Exchanged, shifts count from the first place that a phase's taps reach. */
typedef struct tconv_cpu_bf16_axis {
    int64_t max_taps; /* the most live taps of a phase of the view's layer */
    int64_t phases;   /* of the strip: those with a live tap, or 1 */
    int64_t stride;   /* of what is read, from place to place */
} tconv_cpu_bf16_axis;

/* Makes the axis of rows, or of columns. */
tconv_cpu_axis tconv_cpu_bf16_axis_init(const tconv_cpu_bf16_view *view, bool columns, tconv_cpu_bf16_axis *made);

/* A phase of the strip along an axis: place i of a tile's strip is number i + begin of the phase, counted from the tile's
 * first position. Numbers in [0, count) are inside; number q is element stride * q + residue of what is read. */
typedef struct tconv_cpu_bf16_phase {
    int64_t begin, count, residue;
} tconv_cpu_bf16_phase;

/* Steps to the next phase; *index must be 0 at first. False at the end. of: what tconv_cpu_bf16_axis_init made. */
bool tconv_cpu_next_bf16_phase(const tconv_cpu_bf16_view *view, bool columns, const tconv_cpu_axis *of, int64_t *index,
                               tconv_cpu_bf16_phase *phase);

#endif
