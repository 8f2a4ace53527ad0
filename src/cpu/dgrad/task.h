/* The parts of the correlation algorithm share this while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_DGRAD_TASK_H
#define TCONV_CPU_DGRAD_TASK_H

#include "plan.h"

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_dgrad_job {
    const tconv_layer *layer;
    const tconv_cpu_dgrad_plan *plan;
    const void *dst; /* its gradient, which is read */
    void *src;       /* its gradient, which is written */
    const tconv_cpu_packed_header *header;
    /* planes: int32_t, what each term of a period adds to a position's place; pixels: tconv_cpu_pixel_tap */
    const void *terms;
    const void *weights; /* Real: see tconv_cpu_dgrad_weight */
} tconv_cpu_dgrad_job;

/* The rows of dst that the next strip reads, of each of its channels, and the next row to be prefetched. */
typedef struct tconv_cpu_dgrad_ahead {
    const char *first;     /* of the first channel */
    int64_t *rows;         /* where each begins, in bytes */
    int64_t count, all;    /* rows of a channel, and of all channels */
    int64_t bytes, pitch;  /* bytes of a row, and from channel to channel */
    int64_t next, at_once; /* at_once: rows of a part */
} tconv_cpu_dgrad_ahead;

/* A task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_dgrad_task {
    const tconv_cpu_dgrad_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *stage;
    int64_t *to;                 /* pixels: where each position begins in src, from the task's first */
    int32_t *at;                 /* where each position (planes: each vector) begins in the strip */
    tconv_cpu_dgrad_run *runs;   /* of a line of the strip */
    tconv_cpu_split_run *splits; /* the same, for rows that are split */
    tconv_cpu_dgrad_lines *lines;
    tconv_cpu_dgrad_lines *lines_ahead;
    tconv_cpu_dgrad_ahead ahead;
} tconv_cpu_dgrad_task;

/* The header of weights that are packed as pairs: their range, if they are all finite. */
typedef struct tconv_cpu_dgrad_pair_header {
    tconv_cpu_packed_header header;
    tconv_cpu_pair_range range;
} tconv_cpu_dgrad_pair_header;

/* Input channels of a group that the task writes: [first, first + count). */
typedef struct tconv_cpu_dgrad_channels {
    int64_t first, count;
} tconv_cpu_dgrad_channels;

static inline tconv_cpu_dgrad_channels tconv_cpu_dgrad_task_channels(const tconv_cpu_dgrad_task *task)
{
    const tconv_cpu_dgrad_plan *plan = task->job->plan;
    const int64_t first = task->block * plan->block_width, end = (task->block + task->blocks) * plan->block_width;
    return (tconv_cpu_dgrad_channels){first, (end < plan->group_in ? end : plan->group_in) - first};
}

/* Packs the weights: an implementation's pack, of the layer that the plan is of. */
tconv_status tconv_cpu_pack_dgrad(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                  void *stream, tconv_issue *issue);

/* Loads the strip of a task: output channels [begin, begin + channels) of a group. */
void tconv_cpu_load_dgrad(const tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t channels);

/* Loads a line of dst, whose runs the task lists; row is -1 outside of the image. */
typedef void tconv_cpu_load_dgrad_line(void *loader, int64_t image, int64_t row, int64_t place);

/* Loads all lines of the strip of a task. */
void tconv_cpu_load_dgrad_lines(const tconv_cpu_dgrad_task *task, tconv_cpu_load_dgrad_line *load, void *loader);

/* Lists what a strip of planes reads, output channels [begin, ...) of a group for the task `following`, to be prefetched
 * while the task is summed; nothing where that is NULL. */
void tconv_cpu_look_ahead_dgrad(tconv_cpu_dgrad_task *task, const tconv_cpu_dgrad_task *following, int64_t group,
                                int64_t begin);

/* Prefetches the next part. */
void tconv_cpu_prefetch_dgrad(tconv_cpu_dgrad_ahead *ahead);

/* List where the task's positions begin; then sum output channels [begin, end) of a group, which the strip holds, and
 * store the sums where these are the last ones. */
void tconv_cpu_list_planes(tconv_cpu_dgrad_task *task);
void tconv_cpu_list_pixels(tconv_cpu_dgrad_task *task);
void tconv_cpu_sum_planes(tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t end);
void tconv_cpu_sum_pixels(const tconv_cpu_dgrad_task *task, int64_t group, int64_t begin, int64_t end);

/* Computes again those positions of a task of which some tap lies outside of dst; where the layer accumulates, which can
 * be done only once, computes all. */
void tconv_cpu_correlate_border(const tconv_cpu_dgrad_task *task);

#endif
