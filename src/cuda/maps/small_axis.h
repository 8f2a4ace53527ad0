/* An axis whose phases are few enough to go with a kernel's parameters, and whose numbers all fit in 32 bits. */
#ifndef TCONV_CUDA_MAPS_SMALL_AXIS_H
#define TCONV_CUDA_MAPS_SMALL_AXIS_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

enum {
    SMALL_AXIS_STRIDE = 16,     /* the most residues: two axes take 0.4 of 4 KB of parameters */
    SMALL_AXIS_EXTENT = 1 << 28 /* coordinates are below this: sums of a few do not overflow */
};

/* Names are those of core/phases.h. A residue without a phase has no taps, and the least shift. */
typedef struct small_axis {
    int in, out, kernel, stride, dilation, pad;
    int kernel_step, shift_step;
    int min_shift;
    int reach;                   /* from the least shift to the greatest */
    int taps[SMALL_AXIS_STRIDE]; /* by residue, as the next two */
    int first_kernel[SMALL_AXIS_STRIDE];
    int first_shift[SMALL_AXIS_STRIDE];
} small_axis;

/* Says whether an axis is such a one. */
bool tconv_cuda_is_small_axis(const tconv_axis *axis);

/* Makes it from an axis for which tconv_cuda_is_small_axis is true. */
small_axis tconv_cuda_make_small_axis(const tconv_axis *axis, const tconv_phase_table *table);

TCONV_ROOM_END

#endif
