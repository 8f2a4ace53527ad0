/* Loads the input of a task, pixel by pixel. */
#ifndef TCONV_CPU_PIXELS_STRIP_H
#define TCONV_CPU_PIXELS_STRIP_H

#include "task.h"

/* Loads input channels [begin, begin + channels) of each of a task's groups; of a depthwise layer, those of its
 * blocks. */
void tconv_cpu_load_pixels(const tconv_cpu_pixel_task *task, int64_t begin, int64_t channels);

#endif
