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
    const int32_t *taps; /* halo: where each live tap reads, in the order of the weights */
    const void *weights; /* Real, [group][block][row phase][column phase][tap][input channel][channel of the block] */
    int32_t residues[TCONV_CPU_MAX_INTERLEAVE]; /* interleave: the column phase of each, -1 for none */
} tconv_cpu_job;

/* One task and its thread's scratch. Positions and images count from the layer's first. */
typedef struct tconv_cpu_task {
    const tconv_cpu_job *job;
    int64_t image, images, row, rows, column, columns, group, groups, block, blocks;
    void *strip, *sums;
    int32_t *vectors; /* halo: where each vector of positions begins in the strip */
    int64_t vector_count, vector_images, vector_rows, vector_columns; /* and the tile that they are of */
} tconv_cpu_task;

/* A pair of phases: a row phase and a column phase, or NULL for all column phases together. */
typedef struct tconv_cpu_phase_pair {
    const tconv_phase *row, *column;
    tconv_cpu_taps row_taps, column_taps;
    int64_t offset; /* of its first tap among all taps of a block */
} tconv_cpu_phase_pair;

static inline int64_t tconv_cpu_pair_taps(const tconv_cpu_phase_pair *pair)
{
    return pair->row_taps.count * pair->column_taps.count;
}

/* Walks all pairs, rows outside, with their offsets: pair->row must be NULL at first. False at the end. */
bool tconv_cpu_next_pair(const tconv_layer *layer, tconv_cpu_phase_pair *pair);

/* The address of element index of an array of Real. */
static inline void *tconv_cpu_at(const tconv_cpu_plan *plan, const void *array, int64_t index)
{
    return (char *)(uintptr_t)array + index * plan->real_size;
}

/* ------------------------------------------------------------------------------------------------ phases_strip.c */

/* Loads the halo strip of a task. */
void tconv_cpu_load_halo(const tconv_cpu_task *task);

/* Loads terms [begin, end) of a pair for group: term = tap * group_in + input channel. */
void tconv_cpu_load_gathered(const tconv_cpu_task *task, int64_t group, const tconv_cpu_phase_pair *pair, int64_t begin,
                             int64_t end);

/* ------------------------------------------------------------------------------------------------ phases_store.c */

/* Sums of a block of channels at positions [position, position + count) of the strip (halo) or the tile (gather). */
typedef struct tconv_cpu_sums {
    const void *sums; /* [phase][channel][position] */
    int64_t phase_stride, channel_stride;
    int64_t channel, channels; /* the first, over all groups */
    int64_t position, count;
} tconv_cpu_sums;

/* Stores those positions that are outputs: all column phases interleaved, or those of pair->column alone. */
void tconv_cpu_store_sums(const tconv_cpu_task *task, const tconv_cpu_phase_pair *pair, const tconv_cpu_sums *sums);

/* Writes the bias to all outputs of a task that no phase stores. */
void tconv_cpu_store_bias(const tconv_cpu_task *task);

/* ------------------------------------------------------------------------------------------------- phases_pack.c */

tconv_status tconv_cpu_pack_phases(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                   tconv_issue *issue);

/* ----------------------------------------------------------------------------------------------- phases_border.c */

/* Computes anew those outputs of a task of which some live taps lie outside the image. */
void tconv_cpu_compute_border(const tconv_cpu_task *task);

#endif
