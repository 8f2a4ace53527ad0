/*
 * How the pixels algorithm cuts a layer up: made once with its plan. The words are those of blocking.h; a strip goes pixel by pixel, and
 * a block is up to TCONV_CPU_MAX_PIXEL_VECTORS vectors of a group's output channels, the last one padded with zeros.
 */
#ifndef TCONV_CPU_PIXELS_PLAN_H
#define TCONV_CPU_PIXELS_PLAN_H

#include "blocking.h"
#include "pixels_kernels.h"
#include "pixels_view.h"

/* Pairs of phases x groups x blocks of a task that goes by pixels; what they need to know stays in the first-level cache. */
enum { TCONV_CPU_MAX_PIXEL_PANELS = 128 };

typedef struct tconv_cpu_pixel_plan {
    const tconv_cpu_pixel_kernels *kernels;
    int real; /* index to kernels->real */
    int64_t real_size, lanes;
    tconv_cpu_axis rows, columns;

    /* Groups, and channels of each. Depthwise layers count as one group of all output channels, each of which has one
     * input channel of its own: a lane of the same vector. */
    bool depthwise;
    int64_t all_groups, group_in, group_out;
    int64_t vectors, blocks; /* of a group's output channels */

    /* The strip: [image][row][column][group][channel]. Where not all channels of a group fit, chunks of them follow each
     * other and sums wait in between, pairs of phases in passes of pass_phases. */
    int64_t k_block;                             /* input channels of a group in a strip; depthwise: 1 */
    int64_t groups;                              /* in a strip, and of a task; 1 where there are chunks */
    int64_t pixel_pitch, row_pitch, image_pitch; /* of the strip */
    bool partial_sums;                           /* chunk < group_in */
    int64_t pass_phases;
    int64_t levels, sums_level; /* of the sums that wait for chunks: how many, and from one to the next */

    /* All that a few pixels need of weights stays in the cache: go by pixels first, else by weights. */
    bool pixels_first;
    /* All residues of a few pixels, with all their channels, may be put side by side before they are stored. */
    bool can_stage;
    int64_t stage_pitch; /* from pixel to pixel */

    int64_t images, tile_rows, tile_columns; /* of a tile, but for the last ones */
    int64_t task_blocks;                     /* blocks of a task */
    int64_t image_tiles, row_tiles, column_tiles, group_tasks, block_tasks, tasks;

    /* Scratch, in bytes: bias, then for each thread strip, sums, levels of a microkernel's cascade, stage, to and at of each
     * pixel, works, and taps of one. */
    int64_t bias_bytes, strip_bytes, sums_bytes, levels_bytes, stage_bytes, to_bytes, at_bytes, panels_bytes;
    int64_t thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, taps, weights. */
    int64_t taps_bytes, packed_bytes;
} tconv_cpu_pixel_plan;

/* A row phase and a column phase, with their live taps. */
typedef struct tconv_cpu_pixel_phase {
    const tconv_phase *row, *column;
    tconv_cpu_taps row_taps, column_taps;
    int64_t offset; /* of its first tap among all taps of a block */
} tconv_cpu_pixel_phase;

static inline int64_t tconv_cpu_pixel_phase_taps(const tconv_cpu_pixel_phase *phase)
{
    return phase->row_taps.count * phase->column_taps.count;
}

/* Walks all pairs, rows outside, with their offsets: pair->row must be NULL at first. False at the end. */
bool tconv_cpu_next_pixel_phase(const tconv_layer *layer, tconv_cpu_pixel_phase *phase);

/* Why the algorithm does not take the layer of a view; NULL where it does. */
const char *tconv_cpu_pixel_refusal(const tconv_layer *layer);

/* What is decided once for a layer: the view, and the plan of its layer. */
typedef struct tconv_cpu_pixel_decisions {
    tconv_cpu_pixel_view view;
    tconv_cpu_pixel_plan plan;
} tconv_cpu_pixel_decisions;

/* For the layer of a view that is not refused; fails only where a size overflows. */
tconv_status tconv_cpu_pixel_plan_init(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, tconv_issue *issue);

/* Vectors of a block, and of all blocks before it. */
static inline int64_t tconv_cpu_block_vectors(const tconv_cpu_pixel_plan *plan, int64_t block)
{
    int64_t rest = plan->vectors - block * TCONV_CPU_MAX_PIXEL_VECTORS;
    return rest < TCONV_CPU_MAX_PIXEL_VECTORS ? rest : TCONV_CPU_MAX_PIXEL_VECTORS;
}

/* Where the weights of a block of a group begin. In them: [pair of phases][chunk][tap][channel of the chunk][lane of the
 * block]. */
static inline int64_t tconv_cpu_block_weights(const tconv_cpu_pixel_plan *plan, int64_t group, int64_t block)
{
    int64_t vectors = group * plan->vectors + block * TCONV_CPU_MAX_PIXEL_VECTORS;
    return vectors * plan->lanes * plan->group_in * plan->rows.taps * plan->columns.taps;
}

/* The positions of a task that a pair of phases has outputs of. */
typedef struct tconv_cpu_pixel_extent {
    int64_t rows, columns;
} tconv_cpu_pixel_extent;

/* What one pair of phases does in one block of channels of a group. */
typedef struct tconv_cpu_pixel_panel {
    tconv_cpu_pixel_phase phase;
    tconv_cpu_pixel_extent extent;
    int64_t vectors, outputs;                /* of the block; outputs are channels without padding */
    tconv_cpu_pixel_microkernel *const *sum; /* by pixels */
    char *dst;                               /* the first pixel's */
    tconv_cpu_pixel_microtile microtile;
} tconv_cpu_pixel_panel;

#endif
