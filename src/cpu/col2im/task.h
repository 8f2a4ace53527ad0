/* The parts of cpu_col2im share this while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_COL2IM_TASK_H
#define TCONV_CPU_COL2IM_TASK_H

#include "plan.h"

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_col2im_job {
    const tconv_layer *layer;
    const tconv_cpu_col2im_plan *plan;
    const char *src, *weights;
    char *dst;
    const void *bias, *nothing; /* Real, [out_channels]; [width] of -0, which adds nothing */
    tconv_cpu_posts posts;
} tconv_cpu_col2im_job;

/* A part of an axis, in inputs or outputs of the layer. */
typedef struct tconv_cpu_span {
    int64_t begin, count;
} tconv_cpu_span;

/* A task and its thread's scratch. */
typedef struct tconv_cpu_col2im_task {
    const tconv_cpu_col2im_job *job;
    int64_t tile, group, channel, channels; /* the channels of the group that it computes */
    tconv_cpu_span images;
    tconv_cpu_span src_rows, src_columns, dst_rows, dst_columns; /* the tile's inputs and outputs */
    int64_t pixels;                                              /* of all its images */
    int64_t tap, part_taps, columns;                             /* the part of the taps whose products it makes */
    int64_t loaded;                                              /* input channels that the strip holds of the tile */
    void *strip, *weights, *sums, *levels, *products, *outputs;
    int64_t run;             /* columns whose weights lie side by side: they come in runs of so many */
    int64_t *column_weights; /* where the weights of each column begin, from the block's first */
    int64_t *pixel_src;      /* where each pixel begins in src */
    int64_t *pixel_products; /* where each pixel begins in the products */
    int64_t *rows_dst;       /* where each row of outputs, or pixel of one, begins in dst */
    int32_t *pixel_strip;    /* where each pixel begins in the strip */
} tconv_cpu_col2im_task;

/* Makes the products of all pixels with the part's columns. */
void tconv_cpu_col2im_multiply(tconv_cpu_col2im_task *task);

/* Adds the products of the part to the outputs, task->outputs: NCHW [image][channel][row][column], NHWC [image][row]
 * [column][channel], of the tile and the block. */
void tconv_cpu_col2im_gather(const tconv_cpu_col2im_task *task);

#endif
