/*
 * Between the host side of the rows algorithm (rows.cu) and its kernels (rows_kernel.cuh): what a kernel is told, which
 * there are.
 *
 * Padded outputs are o + pad = stride * q + residue: q is a quotient. Kernel index k contributes to the residue
 * k * dilation mod stride, from the input k * dilation / stride before q: that is `back`.
 *
 * Packed weights, for each group and 16 of its output channels:
 *     [kernel row][column tap][step][plane][lane][4 words]
 * Column taps are in the order of how far back they read, then of residues, which is that of kernel columns.
 * A step is what one matrix instruction takes of the input channels: 8 of f32, 16 of f16 and bf16; past the channels of a
 * group are zeros. A lane's 4 words are its piece of the matrix operand: output channels g and g + 8 (g = lane / 4) of words
 * t and t + 4 (t = lane % 4). Planes are one, or two for 3xTF32: big and small parts.
 */
#ifndef TCONV_CUDA_ROWS_PARAMETERS_H
#define TCONV_CUDA_ROWS_PARAMETERS_H

#include "../maps/small_axis.h"

namespace tconv::rows
{

#define TCONV_CUDA_ROWS_CHANNELS     16 /* output channels of a block: the rows of a matrix instruction */
#define TCONV_CUDA_ROWS_WARPS        8 /* of a block at most, each with its own columns: twice as many take more time */
#define TCONV_CUDA_ROWS_BLOCKS       2 /* on a multiprocessor at least: while one multiplies, the other's rows go out */
#define TCONV_CUDA_ROWS_PHASES       8 /* the greatest column stride: the sums of all column phases stay in registers */
#define TCONV_CUDA_ROWS_BACKS        16  /* the most columns from the first that a position reads to the last */
#define TCONV_CUDA_ROWS_STEP_BYTES   32  /* of one pixel's channels in a step */
#define TCONV_CUDA_ROWS_TILE         8   /* positions of a matrix instruction */
#define TCONV_CUDA_ROWS_SECTOR_BYTES 32  /* of the second-level cache: dst is written in whole ones */
#define TCONV_CUDA_ROWS_PLANE_BYTES  512 /* of packed weights: 32 lanes of 16 bytes */

/* Tiles of positions of a warp, by column stride: 4 sums each for every phase, up to 48 registers. */
#define TCONV_CUDA_ROWS_TILES(stride) ((stride) <= 3 ? 4 : (stride) <= 6 ? 2 : 1)

/* Blocks on a multiprocessor that the kernels' registers are for: of half rows, a third one may have room. direct: see below. */
#define TCONV_CUDA_ROWS_MOST_BLOCKS(bytes, direct, stride)                                                             \
    ((bytes) == 2 && (stride)*TCONV_CUDA_ROWS_TILES(stride) <= 10 && ((direct) || (stride) <= 4)                       \
         ? TCONV_CUDA_ROWS_BLOCKS + 1                                                                                  \
         : TCONV_CUDA_ROWS_BLOCKS)

struct tconv_cuda_rows_parameters {
    const void *src, *weights /* packed */, *bias /* or NULL */;
    void *dst;
    int64_t src_image, src_channel, dst_image, dst_channel; /* strides in elements */
    int in_rows, in_columns, out_rows, out_columns;
    int group_in, group_out;
    int row_stride, row_pad, column_pad;

    /* Taps, by residue; of columns by how far back they read: the residues that have one there, a bit each, and its kernel
     * column. */
    int row_taps[SMALL_AXIS_STRIDE], row_kernel[SMALL_AXIS_STRIDE], row_back[SMALL_AXIS_STRIDE];
    int row_blanks[SMALL_AXIS_STRIDE]; /* rows without taps that follow, and are written with it */
    int row_kernel_step, row_back_step, most_row_back, most_column_back;
    int column_residues[TCONV_CUDA_ROWS_BACKS];
    int column_quads[TCONV_CUDA_ROWS_BACKS]; /* packed weights of a kernel row before those */
    short kernel_column[TCONV_CUDA_ROWS_BACKS][TCONV_CUDA_ROWS_PHASES];
    int column_taps, steps;
    int kernel_row_quads; /* of packed weights */
    int weight_quads;     /* 16-byte pieces of a block's packed weights */

    /* The cut: block = (((image * groups + group) * strips + strip) * column_tiles + tile) * channel_blocks + channels. */
    int groups, strips, column_tiles, channel_blocks;
    int first_row, end_row, strip_rows;    /* quotients */
    int first_column, end_column, columns; /* quotients; columns of a tile */

    /* Shared memory: weights, a ring of slots of one src row each, 16 rows of dst, what is kept of each, zeros. */
    int blank_rows; /* behind each of the 16 rows */
    int slots, src_pitch /* from channel to channel, in elements */, src_loaded /* elements of a row */;
    int slot_channels, slot_size, staged_pitch /* as dst_channel, modulo a sector */;
    int zeros; /* that bulk copies write to rows without taps, in pieces where a row has more */
    int unit_warps, unit_step,
        piece_step;   /* warps that share a unit of channels to copy; from one unit, or piece, to the next */
    bool joins_rows;  /* a tile has whole rows, of at least two sectors */
    bool stage_pairs; /* all channels' rows begin alike, so that pairs of elements are staged at once */
    bool src_aligned; /* all pieces at multiples of 16 bytes */
};

typedef void (*tconv_cuda_rows_kernel)(tconv_cuda_rows_parameters);

/* The most steps whose sums f16 and bf16 leave to the tensor cores, whose own additions lose bits, of 8 steps of like terms
 * about 10 units; with more, steps are added in f32. */
#define TCONV_CUDA_ROWS_DIRECT_STEPS 8

/* Kernels for column strides 1 to 6 and 8; NULL for others. direct: of at most so many steps. narrow, which is direct: groups
 * of at most 8 channels, the first half of a step. */
#define TCONV_CUDA_ROWS_NARROW_CHANNELS 8
tconv_cuda_rows_kernel tconv_cuda_rows_f32(bool tf32, int64_t column_stride);
tconv_cuda_rows_kernel tconv_cuda_rows_half(tconv_dtype dtype, bool direct, bool narrow, int64_t column_stride);

/* Launches what packs the weights as said above. */
tconv_status tconv_cuda_pack_rows(const tconv_layer *layer, const tconv_cuda_rows_parameters *parameters,
                                  const void *weights, void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::rows

#endif
