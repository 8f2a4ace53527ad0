/*
 * The blocking of the pixels algorithm: how it cuts a layer into tiles and tasks, once with its plan. The words are
 * those of blocking.h; a strip lies pixel by pixel, and a block is up to TCONV_CPU_MAX_PIXEL_VECTORS vectors of a
 * group's output channels, the last vector padded with zeros. A phase is here a row phase with a column phase; a panel
 * (micro-panel) is the weights of one phase in one block, over a K-block.
 */
#ifndef TCONV_CPU_PIXELS_PLAN_H
#define TCONV_CPU_PIXELS_PLAN_H

#include "../blocking/blocking.h"
#include "../kernels/pixels_kernels.h"
#include "view.h"

/* The most panels (phases x groups x blocks) of a task whose loop over pixels is outside: their descriptions stay in
 * the first-level cache. It is chosen, not measured. */
enum { TCONV_CPU_MAX_PIXEL_PANELS = 128 };

typedef struct tconv_cpu_pixel_plan {
    const tconv_cpu_pixel_kernels *kernels;
    int real; /* index to kernels->real */
    int64_t real_size, lanes;
    tconv_cpu_axis rows, columns;

    /* Groups, and the channels of each. A depthwise layer counts as one group of all output channels, each of which has
     * one input channel of its own, in a lane of the same vector. */
    bool depthwise;
    int64_t all_groups, group_in, group_out;
    int64_t vectors, blocks; /* of a group's output channels */

    /* The strip: [image][row][column][group][channel]. Where not all channels of a group fit, it holds one K-block of
     * them after another, with partial sums in memory between them, and phases go in passes of pass_phases. */
    int64_t k_block;                             /* input channels of a group in a strip; depthwise: 1 */
    int64_t groups;                              /* in a strip, and of a task; 1 where there are K-blocks */
    int64_t pixel_pitch, row_pitch, image_pitch; /* of the strip */
    bool partial_sums;                           /* k_block < group_in */
    int64_t pass_phases;
    int64_t levels, sums_level; /* of the partial sums' cascade: their number, and from one to the next */

    /* The loop over pixels is outside, because all weights of a task stay in the cache; else that over weights is. */
    bool pixels_first;
    /* All residues of a few pixels, with all their channels, may be staged contiguously before they are stored. */
    bool can_stage;
    int64_t stage_pitch; /* from pixel to pixel */

    int64_t images, tile_rows, tile_columns; /* of a tile; the last tiles may have fewer */
    int64_t task_blocks;                     /* blocks of output channels of a task */
    int64_t image_tiles, row_tiles, column_tiles, group_tasks, block_tasks, tasks;

    /* Scratch, in bytes: bias; then for each thread strip, sums, levels of a microkernel's cascade, stage, to and at of
     * each pixel, panels, and the taps inside of one phase. */
    int64_t bias_bytes, strip_bytes, sums_bytes, levels_bytes, stage_bytes, to_bytes, at_bytes, panels_bytes;
    int64_t thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, taps, weights. */
    int64_t taps_bytes, packed_bytes;
} tconv_cpu_pixel_plan;

/* Says why the algorithm does not take the layer of a view; NULL where it does. */
const char *tconv_cpu_pixel_refusal(const tconv_layer *layer);

/* What planning a layer makes: the view, and the plan of its layer. */
typedef struct tconv_cpu_pixel_layer {
    tconv_cpu_pixel_view view;
    tconv_cpu_pixel_plan plan;
} tconv_cpu_pixel_layer;

/* Makes the plan for the layer of a view that is not refused; fails only where a size overflows. */
tconv_status tconv_cpu_pixel_plan_init(tconv_cpu_pixel_plan *plan, const tconv_layer *layer, tconv_issue *issue);

/* Returns the vectors of a block. */
static inline int64_t tconv_cpu_block_vectors(const tconv_cpu_pixel_plan *plan, int64_t block)
{
    int64_t rest = plan->vectors - block * TCONV_CPU_MAX_PIXEL_VECTORS;
    return rest < TCONV_CPU_MAX_PIXEL_VECTORS ? rest : TCONV_CPU_MAX_PIXEL_VECTORS;
}

/* Returns where the weights of a block of a group begin. They are [phase][K-block][tap][channel of the K-block][lane of
 * the block]. */
static inline int64_t tconv_cpu_block_weights(const tconv_cpu_pixel_plan *plan, int64_t group, int64_t block)
{
    int64_t vectors = group * plan->vectors + block * TCONV_CPU_MAX_PIXEL_VECTORS;
    return vectors * plan->lanes * plan->group_in * plan->rows.taps * plan->columns.taps;
}

/* The positions of a task at which a phase has outputs. */
typedef struct tconv_cpu_pixel_extent {
    int64_t rows, columns;
} tconv_cpu_pixel_extent;

/* A panel of weights, with what the microkernel needs to multiply pixels by it. */
typedef struct tconv_cpu_pixel_panel {
    tconv_cpu_phase phase;
    tconv_cpu_pixel_extent extent;
    int64_t vectors, outputs;                         /* of the block; outputs are its channels without padding */
    tconv_cpu_pixel_microkernel *const *microkernels; /* by their pixels */
    int64_t channel;                                  /* of all groups: the first output */
    char *dst;                                        /* the first pixel's */
    tconv_cpu_pixel_microtile microtile;
} tconv_cpu_pixel_panel;

#endif
