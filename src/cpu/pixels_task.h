/* What the parts of the pixels algorithm share while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_PIXELS_TASK_H
#define TCONV_CPU_PIXELS_TASK_H

#include "pixels_plan.h"

/* One call of execute: what all tasks share. */
typedef struct tconv_cpu_pixel_job {
    const tconv_layer *layer;
    const tconv_cpu_pixel_plan *plan;
    const void *src;
    void *dst;
    const void *bias;     /* Real, [groups][vectors * lanes], zeros for none */
    const void *raw_bias; /* as the caller's, NULL for none */
    const tconv_cpu_packed_header *header;
    const tconv_cpu_pixel_tap *taps; /* each live tap, in the order of the weights */
    const void *weights;             /* Real */
    bool direct;                     /* microkernels may store to dst: whole vectors of its type */
    bool stage;                      /* go by way of the stage where pixels come first */
    bool stream;                     /* stores go past the caches, direct or from the stage */
} tconv_cpu_pixel_job;

/* One task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_pixel_task {
    const tconv_cpu_pixel_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *stage;
    int64_t *to;                                     /* where each pixel begins in dst, from the first of its phases */
    int32_t *at;                                     /* and in the strip */
    tconv_cpu_pixel_panel *panels;                   /* of a task that goes by pixels first */
    tconv_cpu_pixel_tap *inside;                     /* room for the taps of a pair that lie in the image */
    int64_t pixel_images, pixel_rows, pixel_columns; /* the extents that pixels were listed for */
} tconv_cpu_pixel_task;

/* Output channels [first, first + count) of all groups that a task writes. */
typedef struct tconv_cpu_channels {
    int64_t first, count;
} tconv_cpu_channels;

static inline tconv_cpu_channels tconv_cpu_task_channels(const tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    int64_t width = plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS, first = task->block * width;
    int64_t end = (task->block + task->blocks) * width;
    if (end > plan->group_out)
        end = plan->group_out;
    tconv_cpu_channels channels = {task->group * plan->group_out + first,
                                   (task->groups - 1) * plan->group_out + end - first};
    return channels;
}

/* The address of element index of an array of Real. */
static inline void *tconv_cpu_real_at(const tconv_cpu_pixel_plan *plan, const void *array, int64_t index)
{
    return (char *)(uintptr_t)array + index * plan->real_size;
}

#endif
