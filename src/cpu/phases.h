/*
 * The parts of the phases algorithm among themselves: phases.c drives, phases_strip.c loads input, phases_store.c
 * stores output, phases_pack.c packs weights, phases_border.c mends borders, phases_plan.c decides.
 */
#ifndef TCONV_CPU_PHASES_H
#define TCONV_CPU_PHASES_H

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
enum { TCONV_CPU_MAX_RUNS = 16 };

/* Input that the thread's next task will want, in pieces of alike lines, asked for while this one is at work. */
typedef struct tconv_cpu_prefetch {
    const char *piece;                      /* the next one */
    int64_t inner, inner_count, inner_step; /* done, all, and from one piece to the next in bytes */
    int64_t outer, outer_step;              /* outer rounds of inner_count that are left */
    int64_t lines, line;                    /* of a piece, and those asked for of this one */
    double rate, due;                       /* pieces with each segment, and now */
    int32_t ahead[TCONV_CPU_SEGMENT];       /* the lines of a piece, from it; the last one is repeated */
    tconv_cpu_run runs[TCONV_CPU_MAX_RUNS + 1];
} tconv_cpu_prefetch;

/* One task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_task {
    const tconv_cpu_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums, *levels, *line;
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

/* ------------------------------------------------------------------------------------------------ phases_strip.c */

/* Loads the halo strip of a task. */
void tconv_cpu_load_halo(const tconv_cpu_task *task);

/* Begins to ask for the strip of the task that follows, spread over the microkernels of this one; next NULL: there is none. */
void tconv_cpu_begin_prefetch(tconv_cpu_task *task, const tconv_cpu_task *next);

/* Makes a microkernel of so many segments ask for its share. */
void tconv_cpu_prefetch_with(tconv_cpu_prefetch *prefetch, int64_t segments, tconv_cpu_tile *tile);

/* The same where there is no microkernel: lines that are left to ask for, and asking for so many. */
int64_t tconv_cpu_count_lines(const tconv_cpu_prefetch *prefetch);
void tconv_cpu_prefetch_lines(tconv_cpu_prefetch *prefetch, int64_t lines);

/* Loads terms [begin, end) of a pass (which is one pair of phases) for group: term = tap * group_in + input channel. */
void tconv_cpu_load_gathered(const tconv_cpu_task *task, int64_t group, const tconv_cpu_pass *pass, int64_t begin,
                             int64_t end);

/* ------------------------------------------------------------------------------------------------ phases_store.c */

/* Sums of a block of channels for some rows of a tile. */
typedef struct tconv_cpu_sums {
    const void *sums; /* [phase that waits][channel][row][image][column] */
    int64_t pitch;    /* from channel to channel */
    int64_t row_pitch, image_pitch;
    int64_t channel, channels; /* the first, over all groups */
    int64_t row, rows;         /* of the tile */
} tconv_cpu_sums;

/* Stores the outputs of the pass's row phase and its column phases, or of all of them where they wait for each other. */
void tconv_cpu_store_sums(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_sums *sums);

/* Writes the bias to all outputs of a task that no phase stores. */
void tconv_cpu_store_bias(const tconv_cpu_task *task);

/* ---------------------------------------------------------------------------------------------- phases_stencil.c */

/* Runs a task of a plan with stencil, but for outputs without taps. next as in tconv_cpu_begin_prefetch. */
void tconv_cpu_run_stencil(tconv_cpu_task *task, const tconv_cpu_task *next);

/* ------------------------------------------------------------------------------------------------- phases_pack.c */

tconv_status tconv_cpu_pack_phases(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                   tconv_issue *issue);

/* ----------------------------------------------------------------------------------------------- phases_border.c */

/* Computes anew those outputs of a task of which some live taps lie outside the image. */
void tconv_cpu_compute_border(const tconv_cpu_task *task);

#endif
