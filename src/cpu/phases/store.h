/* Stores sums as outputs. */
#ifndef TCONV_CPU_PHASES_STORE_H
#define TCONV_CPU_PHASES_STORE_H

#include "task.h"

/* The sums of a block of channels for some rows of a tile. */
typedef struct tconv_cpu_sums {
    const void *sums; /* [held phase][channel][row][image][column] */
    int64_t pitch;    /* from channel to channel */
    int64_t row_pitch, image_pitch;
    int64_t channel, channels; /* the first, counted over all groups */
    int64_t row, rows;         /* of the tile */
} tconv_cpu_sums;

/* Stores the outputs of the pass's row phase and its column phases, or of all column phases where they are held
 * together. */
void tconv_cpu_store_sums(const tconv_cpu_task *task, const tconv_cpu_pass *pass, const tconv_cpu_sums *sums);

/* Writes or adds the bias to all outputs of a task that no phase has; whole_rows: those of rows that have a phase are
 * done already. */
void tconv_cpu_store_bias_only(const tconv_cpu_task *task, bool whole_rows);

#endif
