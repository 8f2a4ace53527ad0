/* The parts of the pixels algorithm share this while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_PIXELS_TASK_H
#define TCONV_CPU_PIXELS_TASK_H

#include "plan.h"

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_pixel_job {
    const tconv_layer *layer;
    const tconv_cpu_pixel_plan *plan;
    const void *src;
    void *dst;
    const void *bias;     /* Real, [groups][vectors * lanes]; zeros where there is none */
    const void *raw_bias; /* the caller's; NULL: there is none */
    bool posts_fit;       /* sums go through the post-ops where they are written: tconv_cpu_posts_fit_sums */
    const tconv_cpu_packed_header *header;
    tconv_cpu_posts posts;
    const tconv_cpu_pixel_tap *taps; /* each live tap, in the order of the weights */
    const void *weights;             /* Real */
    bool direct;                     /* microkernels may store to dst: it takes whole vectors of Real, as they are */
    bool stage;                      /* outputs are staged where the loop over pixels is outside */
    bool stream;                     /* streaming stores, from microkernels or from the stage */
} tconv_cpu_pixel_job;

/* A task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_pixel_task {
    const tconv_cpu_pixel_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *stage;
    int64_t *to;                                     /* where each pixel begins in dst, from its phase's first */
    int32_t *at;                                     /* where each pixel begins in the strip */
    tconv_cpu_pixel_panel *panels;                   /* of a task whose loop over pixels is outside */
    tconv_cpu_pixel_tap *inside;                     /* room for the taps of a phase that lie in the image */
    int64_t pixel_images, pixel_rows, pixel_columns; /* the extents listed */
} tconv_cpu_pixel_task;

/* The output channels of each of its groups that a task writes: [first, first + count). */
typedef struct tconv_cpu_channels {
    int64_t first, count;
} tconv_cpu_channels;

static inline tconv_cpu_channels tconv_cpu_task_channels(const tconv_cpu_pixel_task *task)
{
    const tconv_cpu_pixel_plan *plan = task->job->plan;
    const int64_t width = plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS, first = task->block * width;
    const int64_t end = (task->block + task->blocks) * width;
    return (tconv_cpu_channels){first, (end < plan->group_out ? end : plan->group_out) - first};
}

#endif
