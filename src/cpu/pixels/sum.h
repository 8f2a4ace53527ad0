/* Sums the outputs of a task, and stores them as pixels. */
#ifndef TCONV_CPU_PIXELS_SUM_H
#define TCONV_CPU_PIXELS_SUM_H

#include "task.h"

/* Sum and store all outputs of a task that have a phase. Either the loop over weights is outside or the one over
 * pixels; the latter returns false, and has done nothing, for a task whose phases end at different positions. */
void tconv_cpu_run_by_weights(tconv_cpu_pixel_task *task);
bool tconv_cpu_run_by_pixels(tconv_cpu_pixel_task *task);

#endif
