/*
 * Between the host side (mma.c, plan.c) and the kernels (kernel.cuh): how a layer is tiled, and what a kernel is
 * told.
 *
 * The product is M x N x K: output channels of a group x positions x (taps x input channels). A position q is an
 * output's coordinate in its phase: output (row, column) = stride * q + residue. All outputs with one residue are a
 * phase; here those without a tap count as one too. Weights are the A operand, pixels of src the B operand.
 *
 * A word is 4 bytes of input channels: one of f32, two of f16 or bf16. A step is the K of one MMA, MMA_K_WORDS words at
 * one tap. A K-block is block_k_words words at all taps: what a pipeline stage holds.
 *
 * The block tile is a tile of positions (images x rows x columns) for some output channels and some row phases, at all
 * column phases. Its warps are m_warps x phase_warps x n_warps: a warp tile is warp_m channels at one row phase and all
 * column phases. The patch is the tile's piece of src, with the halo that the taps reach.
 *
 * Packed weights are one A tile for each group, M tile, set of row phases and K-block:
 *     [m warp][phase warp][row tap][column shift][step][column phase with a tap][MMA of M][fragment][lane][4 words]
 * A lane's 4 words are its part of an A fragment: rows g and g + 8 (g = lane / 4) of words t and t + 4 (t = lane % 4).
 * There is one fragment, or two for 3xTF32: the weights rounded to TF32 (big), and what that leaves (small).
 */
#ifndef TCONV_CUDA_MMA_PARAMETERS_H
#define TCONV_CUDA_MMA_PARAMETERS_H

#include "../../core/impl.h"
#include "../epilogue/posts.h"
#include "../hardware.h"
#include "../numeric/numerics.h"

TCONV_ROOM_BEGIN(tconv::mma)

enum {
    MMA_SYNC_M = 16,        /* output channels of one MMA (PTX ISA: mma.m16n8k8 and m16n8k16) */
    MMA_SYNC_N = 8,         /* positions of one MMA */
    MMA_K_WORDS = 8,        /* words of input channels of one MMA */
    FRAGMENT_WORDS = 128,   /* words of an A fragment: 4 of each lane */
    MAX_STRIDE_H = 16,      /* row phases: their table goes with a kernel's parameters */
    MAX_STRIDE_W = 8,       /* column phases: their accumulators are in a thread's registers together */
    MAX_COLUMN_SHIFTS = 32, /* different column shifts: their table goes with a kernel's parameters */
    MAX_WARPS = 8,          /* warps of a block; of the row kernel, twice as many take more time (measured) */
    MAX_STAGES = 4,         /* pipeline stages */
    MAX_TILE_EXTENT = 1023  /* rows or columns of a tile or patch: a position's are packed in 10 bits each */
};

/* The taps of a row phase; 0 where its outputs are only bias. Shifts count from the least of the layer. */
typedef struct row_phase {
    int taps, first_kernel, first_shift;
} row_phase;

/* The taps of all column phases that read at one shift. */
typedef struct column_shift {
    short shift;                /* columns from the least shift of the layer */
    short phases;               /* a bit for each column phase that has a tap here */
    short before;               /* taps at earlier shifts */
    short kernel[MAX_STRIDE_W]; /* kernel column, by column phase */
} column_shift;

typedef struct parameters {
    const void *src, *packed, *bias /* or NULL */;
    void *dst;
    tconv_strides src_strides, dst_strides; /* in elements */
    int nhwc;                               /* whether src and dst are NHWC */
    int batch, group_in, group_out, groups;
    int src_rows, src_columns, dst_rows, dst_columns;
    int stride_rows;
    int row_kernel_step, row_shift_step;
    int min_row_shift, min_column_shift;
    int row_phases;          /* min(stride_h, out_h) */
    int shifts, column_taps; /* column shifts, and taps of all column phases */
    row_phase rows[MAX_STRIDE_H];
    column_shift columns[MAX_COLUMN_SHIFTS];

    /* The tiling. */
    int warp_m;      /* output channels of a warp: MMA_M times MMAs of M */
    int m_warps;     /* warps of a block along the output channels */
    int phase_warps; /* warps of a block along the row phases */
    int n_warps;     /* warps of a block along the positions */
    int m_tiles, phase_sets;
    int tile_images, tile_rows, tile_columns; /* positions of a tile */
    int row_tiles, column_tiles;
    int flat_columns;              /* not 0: positions are all pixels of an image in one row, of rows of so many */
    unsigned int n_tiles;          /* tiles of positions, of all images */
    int patch_rows, patch_columns; /* pixels */
    int block_n;                   /* positions of a block's warps: at least those of a tile */
    int skew_mask;                 /* NCHW: elements of a 16-byte vector - 1 */
    int word_pitch, pixel_pitch;   /* patch elements from a channel word, or a pixel, to the next */
    int block_k_words, k_blocks;
    int steps;        /* of a row tap in a K-block */
    int stages;       /* pipeline stages */
    int stage_words;  /* of a stage: the patch, then the A tile */
    int weights_at;   /* words from the start of a stage to its A tile */
    int positions_at; /* word of shared memory where the table of positions begins, behind the stages */
    int offsets_at;   /* the same of the table of src offsets, */
    int schedule_at;  /* of the tap schedule, */
    int staging_at;   /* and of the epilogue's staging */
    int shared_bytes; /* of a block */
    int a_tile_words; /* of the packed weights of a block tile and K-block */
    int a_fragments;  /* 1, or 2 for 3xTF32 */
    int src_vector;   /* elements of src that are copied at once */
    int store_vector; /* elements of dst that are stored at once at most */
    int channel_run;  /* neighbouring output channels that a thread holds */
    int max_row_taps; /* of any row phase */
    bool patch_16bit; /* patch elements have 16 bits, else they are words */
    bool staged;      /* the epilogue stores runs of columns through shared memory */
    bool linear;      /* a warp's positions are neighbours in the patch */
    int flush_steps;  /* steps that the tensor cores accumulate before f32 adds take over */
    post_steps posts; /* affine ones */
} parameters;

/* The kernels are compiled for these warp tiles. A shape is three digits: the column stride, the MMAs of a warp along M,
 * and those along N for each column phase. A kernel's number is the place of its shape in the list. */
#define TCONV_MMA_TF32_SHAPES        148, 144, 128, 118, 228, 224, 218, 318, 314, 418, 414, 514, 612, 712, 814
#define TCONV_MMA_STRICT_SHAPES      144, 142, 124, 114, 224, 222, 214, 314, 312, 414, 412, 512, 612, 712, 812
#define TCONV_MMA_COMPENSATED_SHAPES 142, 124, 114, 224, 222, 214, 314, 412, 512
#define TCONV_MMA_HALF_SHAPES                                                                                          \
    144, 142, 128, 124, 118, 224, 222, 218, 214, 314, 312, 414, 412, 512, 612, 712, 812 /* f16 and bf16 */

/* Returns the warps that a multiprocessor holds, by a thread's registers for the accumulators of so many MMAs and what
 * goes with them: partial sums except in TF32, and half as many registers for what additions lost in compensated sums.
 * The registers that are left are enough for such warps. */
TCONV_ROOM_CONSTANT int resident_warps(numerics arithmetic, bool compensated, int mmas)
{
    const int registers = mmas * 2 * (arithmetic == NUMERICS_TF32 ? 2 : compensated ? 5 : 4);
    return registers >= 80 ? 8 : registers >= 48 ? 12 : 16;
}

/* Column strides whose runs of 2 * stride columns are no multiple of a vector of stores: in NCHW the epilogue stages
 * them in shared memory. */
TCONV_ROOM_CONSTANT bool is_staged_stride(int stride)
{
    return stride == 3 || stride == 5 || stride == 6;
}

/* Returns how many neighbouring channels a thread holds in NHWC: of the 2 * mmas_m that it has, as many as a 16-byte
 * store takes. */
TCONV_ROOM_CONSTANT int channel_run_of(int mmas_m, size_t element_size)
{
    return 2 * mmas_m < VECTOR_BYTES / (int)element_size ? 2 * mmas_m : VECTOR_BYTES / (int)element_size;
}

/* Return the kernel of a number (configs_*.cu); NULL in a build without CUDA. The kernels for 16-bit elements are compiled
 * for one layout. */
const void *tconv_mma_tf32_kernel(int number);
const void *tconv_mma_strict_kernel(bool compensated, int number);
const void *tconv_mma_f16_kernel(bool nhwc, int number);
const void *tconv_mma_bf16_kernel(bool nhwc, int number);

/* Launches the kernel that packs the weights (pack.cu). */
tconv_status tconv_mma_launch_packing(const tconv_layer *layer, const parameters *params, const void *weights,
                                      void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
