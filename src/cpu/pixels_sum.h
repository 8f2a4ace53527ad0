/* Sums of a task, stored as pixels. */
#ifndef TCONV_CPU_PIXELS_SUM_H
#define TCONV_CPU_PIXELS_SUM_H

#include "pixels_task.h"

/* Sum and store all that the phases have of a task: weights outside and pixels inside, or the other way round, which is
 * false, and has done nothing, for a task whose phases end at different positions. */
void tconv_cpu_run_by_weights(tconv_cpu_pixel_task *task);
bool tconv_cpu_run_by_pixels(tconv_cpu_pixel_task *task);

#endif
