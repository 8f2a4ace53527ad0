/* An axis whose phases are few enough to go with a kernel's parameters, and whose numbers all fit in 32 bits. */
#ifndef TCONV_CUDA_MAPS_SMALL_AXIS_H
#define TCONV_CUDA_MAPS_SMALL_AXIS_H

#include "../../core/impl.h"

namespace tconv
{

constexpr int SMALL_AXIS_STRIDE = 16;                   /* the most residues: two axes take 0.4 of 4 KB of parameters */
constexpr int64_t SMALL_AXIS_EXTENT = (int64_t)1 << 28; /* coordinates are below this: sums of a few do not overflow */

/* Names are those of core/phases.h. A residue without a phase has no taps, and the least shift. */
struct small_axis {
    int in, out, kernel, stride, dilation, pad;
    int kernel_step, shift_step;
    int min_shift;
    int reach;                   /* from the least shift to the greatest */
    int taps[SMALL_AXIS_STRIDE]; /* by residue, as the next two */
    int first_kernel[SMALL_AXIS_STRIDE];
    int first_shift[SMALL_AXIS_STRIDE];
};

/* Says whether an axis is such a one. */
bool is_small_axis(const tconv_axis *axis);

/* Makes it from an axis for which is_small_axis is true. */
small_axis make_small_axis(const tconv_axis *axis, const tconv_phase_table *table);

} // namespace tconv

#endif
