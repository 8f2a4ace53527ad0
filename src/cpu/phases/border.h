/* Computes outputs at the borders of layers whose weights have Inf or NaN. */
#ifndef TCONV_CPU_PHASES_BORDER_H
#define TCONV_CPU_PHASES_BORDER_H

#include "task.h"

/* Computes anew the outputs of a task that have live taps outside the image; where the layer accumulates, which can be
 * done only once, all outputs that have a phase. */
void tconv_cpu_compute_border(const tconv_cpu_task *task);

#endif
