/* The parts of the phases algorithm share this while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_PHASES_TASK_H
#define TCONV_CPU_PHASES_TASK_H

#include "plan.h"

/* One call of execute, as all tasks see it. */
typedef struct tconv_cpu_job {
    const tconv_layer *layer;
    const tconv_cpu_plan *plan;
    const void *src;
    void *dst;
    const void *bias;     /* Real, [out_channels]; zeros where there is none */
    const void *raw_bias; /* the caller's; NULL: there is none */
    const tconv_cpu_packed_header *header;
    const int32_t *taps; /* halo: where each live tap reads, in the order of the passes */
    tconv_cpu_posts posts;
    const void *weights; /* Real, [group][block][pass][tap][input channel][phase of the pass][channel of the block] */
} tconv_cpu_job;

/* The most pieces that one microkernel call prefetches. It is chosen, not measured. */
enum { TCONV_CPU_MAX_PIECES = 16 };

/* The prefetch of the strip of the thread's next task while this one computes, or of weights (weights_ahead), in pieces of
 * cache lines at the same offsets. */
typedef struct tconv_cpu_prefetch {
    const char *piece;                       /* the next piece */
    int64_t inner, inner_count, inner_step;  /* pieces done, all pieces, and the bytes from one to the next */
    int64_t outer, outer_step;               /* rows of inner_count pieces that are left */
    int64_t lines, line;                     /* cache lines of a piece, and of this one those done */
    double rate, due;                        /* pieces for each segment, and those due now */
    int32_t line_offsets[TCONV_CPU_SEGMENT]; /* of the cache lines of a piece; the last is repeated */
    tconv_cpu_prefetch_piece pieces[TCONV_CPU_MAX_PIECES + 1];
} tconv_cpu_prefetch;

/* A task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_task {
    const tconv_cpu_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *stage;
    tconv_cpu_pass_call *calls; /* halo: too large for the stack of a thread */
    int32_t *vectors;           /* halo: where each vector of positions begins in the strip */
    int64_t vector_count, vector_images, vector_rows, vector_columns; /* their number, and the extents listed */
    tconv_cpu_prefetch prefetch;
} tconv_cpu_task;

#endif
