/*
 * The blocking of cpu_wgrad: how it cuts a layer, once with its plan. A tile is images x rows x columns of inputs; a term
 * is a pixel of it, as the sums run over pixels. A block is input channels x output channels of a group with all taps: a
 * sum for each, in double. A part is the tiles that one task sums for a block. What lies in memory for a tile:
 *
 *     src strip  [panel][image][row][column][lane]: panels of one or two vectors of input channels
 *     dst strip  [output channel][row phase][column phase][image][row][column]: outputs of one residue modulo the
 *                stride are a plane (core/phases.h), so that the outputs which a tap reaches from neighbouring inputs are
 *                neighbours; with the halo that taps reach, and zeros outside the image
 *
 * Everything depends on the layer and the machine, nothing on threads, because the cut decides the order of sums.
 */
#ifndef TCONV_CPU_WGRAD_PLAN_H
#define TCONV_CPU_WGRAD_PLAN_H

#include "../../core/checked.h"
#include "../blocking/blocking.h"
#include "../kernels/kernels.h"
#include "../kernels/pair_kernels.h"
#include "../kernels/pixels_kernels.h"

/* One axis: its phases that have live taps, those taps, and the outputs of a plane beyond the inputs of a tile. */
typedef struct tconv_cpu_wgrad_axis {
    int64_t phases, taps, halo;
} tconv_cpu_wgrad_axis;

typedef struct tconv_cpu_wgrad_plan {
    const tconv_cpu_pixel_kernels *pixels;
    const tconv_cpu_kernels *kernels;
    const tconv_cpu_pair_kernels
        *pairs; /* terms are words of two columns, and the dst strip is of bf16; NULL: they are not */
    int real;   /* index to pixels->real */
    int64_t real_size, lanes, width; /* width: of a whole panel */
    tconv_cpu_wgrad_axis rows, columns;
    int64_t taps;       /* live, of both axes */
    bool has_dead_taps; /* some taps reach no output */
    bool narrow;        /* sums are those of the one tile, in float: nothing is added to them */
    bool transposes;    /* weights are stored by vectors of taps or output channels */
    bool
        taps_inside; /* with that, taps of an output channel follow one another in memory; else output channels of a tap */
    bool keeps_rest; /* sums keep what rounding loses */
    bool planes;     /* the vector runs along columns (wgrad/planes.c) */
    bool depthwise;  /* a block is groups side by side (wgrad/depthwise.c): [row][column][lane] in both strips */
    int64_t images, tile_rows, tile_columns, image_tiles, row_tiles, column_tiles, tiles;
    int64_t pitch, image_pitch, plane, channel_pitch; /* of the dst strip, in elements: from row to row and so on */
    int64_t block_in, block_out, in_blocks, out_blocks, blocks; /* blocks: of all groups */
    int64_t sums, parts;                                        /* sums of a block */

    /* Scratch, in bytes: phases and taps; sums of the parts, where there are several; those of the bias; then of each
     * thread. */
    int64_t phases_bytes, taps_bytes, parts_bytes, bias_bytes;
    int64_t src_bytes, dst_bytes, sums_bytes, levels_bytes, tile_bytes, at_bytes, terms_bytes, padded_bytes, runs_bytes;
    int64_t thread_bytes;
    int64_t bias_parts; /* parts of the images whose outputs are summed by themselves */
    int threads;
} tconv_cpu_wgrad_plan;

/* Columns of a term. */
static inline int64_t tconv_cpu_wgrad_word(const tconv_cpu_wgrad_plan *plan)
{
    return plan->pairs != NULL ? 2 : 1;
}

/* Terms of a row of so many columns. */
static inline int64_t tconv_cpu_wgrad_terms(const tconv_cpu_wgrad_plan *plan, int64_t columns)
{
    return tconv_ceil_div(columns, tconv_cpu_wgrad_word(plan));
}

/* The terms of a segment, where a sum has so many. */
static inline int64_t tconv_cpu_wgrad_segment(const tconv_cpu_wgrad_plan *plan, int64_t terms)
{
    return tconv_cpu_even_segment(terms, TCONV_CPU_SEGMENT / tconv_cpu_wgrad_word(plan));
}

/* Whether the layer of a plan can be summed by pairs too, and the processor makes more of them than multiply-adds. */
bool tconv_cpu_has_wgrad_pairs(const tconv_cpu_wgrad_plan *plan, const tconv_layer *layer);

/* Plans a layer, by pairs if asked for: only where tconv_cpu_has_wgrad_pairs. Returns why the algorithm does not take it,
 * else NULL. */
const char *tconv_cpu_wgrad_plan_init(tconv_cpu_wgrad_plan *plan, const tconv_layer *layer, bool pairs);

#endif
