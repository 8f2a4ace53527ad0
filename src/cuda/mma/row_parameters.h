/*
 * Between the host side (rows.c, row_plan.c) and the row kernels (row_kernel.cuh): what one is told, and which there
 * are.
 *
 * Padded outputs are o + pad = stride * q + residue: q is the position, and all outputs of one residue are a phase.
 * Kernel index k contributes to the residue k * dilation mod stride, from the input k * dilation / stride before q:
 * that is `back`.
 *
 * Weights are the A operand, pixels of src the B operand. A step is the K of one MMA: 8 input channels of f32, 16 of
 * f16 and bf16. A strip is the row positions that a block computes, at BLOCK_M output channels and a tile of column
 * positions.
 *
 * Packed weights, for each group and BLOCK_M of its output channels:
 *     [kernel row][column tap][step][fragment][lane][4 words]
 * Column taps are in the order of how far back they read, then of phases, which is that of kernel columns. Past the
 * channels of a group there are zeros. A lane's 4 words are its part of an A fragment: output channels g and g + 8 (g =
 * lane / 4) of words t and t + 4 (t = lane % 4). There is one fragment, or two for 3xTF32: big and small.
 */
#ifndef TCONV_CUDA_MMA_ROW_PARAMETERS_H
#define TCONV_CUDA_MMA_ROW_PARAMETERS_H

#include "../maps/small_axis.h"
#include "parameters.h"

TCONV_ROOM_BEGIN(tconv::mma)

enum {
    BLOCK_M = MMA_SYNC_M, /* output channels of a block */
    MAX_BACKS = 16,       /* columns from the first that a position reads to the last */

    /* The tensor cores' own additions lose bits, of 8 steps of like terms about 10 units. */
    DIRECT_STEPS = 8,

    NARROW_CHANNELS = 8, /* of half a step of f16 and bf16 */

    /* Blocks on a multiprocessor: while one multiplies, the other's rows go out. The kernels' registers are for so many
     * at most: with 16-bit rows, a third one may have room. */
    MIN_BLOCKS = 2
};

/* How the steps of an output are summed. */
typedef enum row_sums {
    ADDED,  /* each step's products by themselves, which f32 adds take to the accumulators */
    DIRECT, /* by the tensor cores: TF32, and of f16 and bf16 at most DIRECT_STEPS steps */
    NARROW  /* so too, in f16 and bf16: one step, whose second half has no channels */
} row_sums;

/* Returns the MMAs along the positions of a warp: 4 accumulators each for every column phase, up to 48 registers. */
TCONV_ROOM_CONSTANT int row_mmas_n(int column_stride)
{
    return column_stride <= 3 ? 4 : column_stride <= 6 ? 2 : 1;
}

/* Returns the most blocks on a multiprocessor, which the kernels' registers are for. */
TCONV_ROOM_CONSTANT int row_max_blocks(size_t element_size, row_sums sums, int column_stride)
{
    const bool third =
        element_size == 2 && column_stride * row_mmas_n(column_stride) <= 10 && (sums != ADDED || column_stride <= 4);
    return third ? MIN_BLOCKS + 1 : MIN_BLOCKS;
}

typedef struct row_parameters {
    const void *src, *weights /* packed */, *bias /* or NULL */;
    void *dst;
    int64_t src_image, src_channel, dst_image, dst_channel; /* strides in elements */
    int in_rows, in_columns, out_rows, out_columns;
    int group_in, group_out;
    int row_stride, row_pad, column_pad;

    /* Taps of rows, by row phase. */
    int row_taps[SMALL_AXIS_STRIDE];
    int row_kernel[SMALL_AXIS_STRIDE];      /* kernel row of the first tap */
    int row_back[SMALL_AXIS_STRIDE];        /* rows back that the first tap reads */
    int bias_rows_after[SMALL_AXIS_STRIDE]; /* rows without taps that follow, and are stored with it */
    int row_kernel_step, row_back_step, max_row_back, max_column_back;

    /* Taps of columns, by how far back they read. */
    int column_phases[MAX_BACKS];                 /* a bit for each column phase that has a tap there */
    int column_vectors[MAX_BACKS];                /* 16-byte vectors of packed weights of a kernel row before those */
    short kernel_column[MAX_BACKS][MAX_STRIDE_W]; /* by column phase */
    int column_taps, steps;
    int kernel_row_vectors; /* 16-byte vectors of packed weights of a kernel row */
    int weight_vectors;     /* 16-byte vectors of a block's packed weights */

    /* The tiling: block = (((image * groups + group) * strips + strip) * column_tiles + column tile) * m_tiles + M
     * tile. */
    int groups, strips, column_tiles, m_tiles;
    int first_row, end_row, strip_rows;         /* row positions */
    int first_column, end_column, tile_columns; /* column positions */

    /* Shared memory: weights, pipeline stages of one src row each, the staging of BLOCK_M rows of dst, what is kept of
     * each, zeros. */
    int bias_rows;         /* rows without taps that have room behind each of the staged rows */
    int stages;            /* pipeline stages */
    int src_pitch;         /* elements from channel to channel */
    int src_loaded;        /* elements of a row */
    int stage_channels;    /* channels of a stage, those past the group's are zeros */
    int stage_elements;    /* elements of a stage */
    int staging_pitch;     /* elements from channel to channel: as dst_channel, modulo a sector */
    int zeros;             /* elements that bulk stores write to rows without taps, in pieces where a row has more */
    int copy_warps;        /* warps that share the channels that are copied together */
    int copy_channel_step; /* from channels that a warp copies to the next */
    int copy_column_step;  /* elements from a vector that a thread copies to the next */
    bool joins_rows;       /* a tile has whole rows, of at least two sectors */
    bool staging_pairs;    /* all channels' rows begin alike, so that pairs of elements are staged at once */
    bool src_aligned;      /* all vectors of src are at multiples of 16 bytes */
    post_steps posts;      /* affine ones */
} row_parameters;

/* Return the row kernel of a column stride, 1 to 6 or 8 (configs_*.cu); NULL in a build without CUDA. */
const void *tconv_mma_tf32_row_kernel(int64_t column_stride);
const void *tconv_mma_strict_row_kernel(int64_t column_stride);
const void *tconv_mma_f16_row_kernel(row_sums sums, int64_t column_stride);
const void *tconv_mma_bf16_row_kernel(row_sums sums, int64_t column_stride);

/* Launches the kernel that packs the weights of the row kernels (row_pack.cu). */
tconv_status tconv_mma_launch_row_packing(const tconv_layer *layer, const row_parameters *params, const void *weights,
                                          void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
