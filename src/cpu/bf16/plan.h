/*
 * The blocking of the matrix algorithm: how it cuts a layer into tiles and tasks, once with its plan. The words are those
 * of blocking.h and bf16/kernels.h; src and dst are those of a view (bf16/view.h). A strip lies
 * [part][phase][chunk][image][row][column][channel of the chunk]; its positions run on across rows and images, so that a
 * fragment begins anywhere, and the sums of those in a halo are not stored.
 */
#ifndef TCONV_CPU_BF16_PLAN_H
#define TCONV_CPU_BF16_PLAN_H

#include "../blocking/blocking.h"
#include "../kernels/kernels.h"
#include "../kernels/pixels_kernels.h"
#include "kernels.h"
#include "view.h"

/* Positions after the last that fragments may read: two less one, rounded up. */
enum { TCONV_CPU_BF16_SLACK = TCONV_CPU_BF16_FRAGMENTS * TCONV_CPU_FRAGMENT };

/* The most column phases that are loaded together. */
enum { TCONV_CPU_BF16_TOGETHER = 8 };

typedef struct tconv_cpu_bf16_plan {
    const tconv_cpu_bf16_kernels *matrix;
    const tconv_cpu_kernels *kernels;      /* of rows of planes */
    const tconv_cpu_pixel_kernels *pixels; /* of rows of pixels */
    tconv_cpu_bf16_view view;
    tconv_cpu_axis rows, columns;
    int parts;
    int64_t phase_taps;                /* the most live taps of a phase of dst */
    int64_t strip_phases;              /* of both axes */
    int64_t row_stride, column_stride; /* of what is read, from place to place of a phase */
    bool splits;                       /* NCHW: rows are split into column phases as they are loaded */
    bool copies;                       /* bf16, which is not converted; in NCHW it is loaded by pairs of channels */
    bool direct;                       /* numbers are taken from where they lie, else they are loaded before */
    int64_t column_phases;             /* that are loaded together, at most TCONV_CPU_BF16_TOGETHER */
    int64_t plane_positions;           /* of the planes that are loaded at a time */
    int64_t depth, chunks; /* input channels of a chunk, even; chunks of a group, the last padded with zeros */
    int64_t blocks;        /* of a group's output channels, the last padded with zeros */

    int64_t images, tile_rows, tile_columns; /* of a tile; the last tiles may have fewer */
    int64_t row_pitch, image_pitch,
        pitch; /* of the strip, in positions: from row to row, image to image, chunk to chunk and so phase to phase */
    bool by_rows; /* fragments begin anew with every row; else they run on across rows */

    /* Rows of sums that are summed before they are stored: NCHW, [column phase][output channel][position], of all column
     * phases where they are stored together, as one row, else of one; NHWC, of one, [position][output channel]. */
    bool together, stream;
    int64_t image_block, row_block, sums_pitch;

    int64_t task_blocks; /* blocks of a task */
    int64_t image_tiles, row_tiles, column_tiles, block_tasks, tasks;

    /* Scratch, in bytes: bias; then for each thread strip, planes (f32, before they are split), sums, levels, stage,
     * steps, fragments, ranges of rows, places of
     * columns in dst (NHWC). */
    int64_t bias_bytes, strip_bytes, planes_bytes, sums_bytes, levels_bytes, stage_bytes, steps_bytes, fragments_bytes;
    int64_t ranges_bytes, places_bytes, thread_bytes;
    int threads;

    /* Packed weights, in bytes: tconv_cpu_packed_header, the range of each block, weights. */
    int64_t weight_ranges_bytes, packed_bytes;
} tconv_cpu_bf16_plan;

/* Returns why the algorithm does not take the layer; NULL where it made the plan. named: it is taken even where another
 * is faster. */
const char *tconv_cpu_bf16_plan_init(tconv_cpu_bf16_plan *plan, const tconv_layer *layer, bool named);

/* Plans the memory; fails only where a size overflows. */
tconv_status tconv_cpu_bf16_plan_memory(tconv_cpu_bf16_plan *plan, tconv_issue *issue);

/* Elements of a part of the strip. */
static inline int64_t tconv_cpu_bf16_part(const tconv_cpu_bf16_plan *plan)
{
    return (plan->strip_phases * plan->chunks * plan->pitch + TCONV_CPU_BF16_SLACK) * plan->depth;
}

/* Elements of the packed weights of a tap and a chunk, in one block. */
static inline int64_t tconv_cpu_bf16_step(const tconv_cpu_bf16_plan *plan)
{
    return plan->parts * TCONV_CPU_FRAGMENT * plan->depth;
}

/* Elements of the packed weights of a block: [row phase][column phase][chunk][tap] steps. Taps are inside, so that what
 * they read lies close together. */
static inline int64_t tconv_cpu_bf16_block(const tconv_cpu_bf16_plan *plan)
{
    return tconv_cpu_bf16_step(plan) * plan->chunks * plan->rows.taps * plan->columns.taps;
}

#endif
