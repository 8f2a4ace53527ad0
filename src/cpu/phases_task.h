/* What the parts of the phases algorithm share while a layer is computed: a call of execute, and a task of it. */
#ifndef TCONV_CPU_PHASES_TASK_H
#define TCONV_CPU_PHASES_TASK_H

#include "phases_plan.h"

/* One call of execute: what all tasks share. */
typedef struct tconv_cpu_job {
    const tconv_layer *layer;
    const tconv_cpu_plan *plan;
    const void *src;
    void *dst;
    const void *bias;     /* Real, [out_channels], zeros for none */
    const void *raw_bias; /* as the caller's, NULL for none */
    const tconv_cpu_packed_header *header;
    const int32_t *taps; /* halo: where each live tap reads, in the order of the passes */
    const void *weights; /* Real, [group][block][pass][tap][input channel][phase of the pass][channel of the block] */
} tconv_cpu_job;

/* The most runs that one microkernel prefetches. */
enum { TCONV_CPU_MAX_PIECES = 16 };

/* Input that the thread's next task will want, in pieces of alike lines, asked for while this one is at work. */
typedef struct tconv_cpu_prefetch {
    const char *piece;                       /* the next one */
    int64_t inner, inner_count, inner_step;  /* done, all, and from one piece to the next in bytes */
    int64_t outer, outer_step;               /* outer rounds of inner_count that are left */
    int64_t lines, line;                    /* of a piece, and those asked for of this one */
    double rate, due;                        /* pieces with each segment, and now */
    int32_t line_offsets[TCONV_CPU_SEGMENT]; /* the lines of a piece, from it; the last one is repeated */
    tconv_cpu_prefetch_piece pieces[TCONV_CPU_MAX_PIECES + 1];
} tconv_cpu_prefetch;

/* One task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_task {
    const tconv_cpu_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *stage;
    tconv_cpu_pass_call *calls; /* halo: too large for the stack of a thread */
    int32_t *vectors;           /* halo: where each vector of positions begins in the strip, in rows of the tile */
    int64_t vector_count, vector_images, vector_rows, vector_columns; /* and what they are the vectors of */
    tconv_cpu_prefetch prefetch;
} tconv_cpu_task;

/* The address of element index of an array of Real. */
static inline void *tconv_cpu_at(const tconv_cpu_plan *plan, const void *array, int64_t index)
{
    return (char *)(uintptr_t)array + index * plan->real_size;
}

#endif
