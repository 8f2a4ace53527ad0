/*
 * Between the host side of the tensor-core algorithm (mma.cu, mma_plan.cu) and its kernels (mma_device.cuh): how a layer
 * is cut, and what a kernel is told.
 *
 * A word is 4 bytes of input channels: one of f32, two of f16 or bf16. A step of the sums is STEP_WORDS words, what one
 * matrix instruction takes. A chunk is some steps: what lies in shared memory at a time.
 *
 * Positions q are those of phases: output (row, column) = stride * q + residue. A block computes a tile of positions
 * (images x rows x columns) for some output channels of a group and some row residues, at all column residues. Its warps
 * are parts x position_warps: a part is one row residue and 16 * UB channels, at all column residues.
 *
 * Packed weights, for each group, channel tile, set of row residues and chunk (a blob: what a stage of shared memory
 * holds):
 *     [part][row tap][column shift][step][column residue that has a tap there][UB][plane][lane][4 words]
 * A lane's 4 words are its piece of the matrix operand: rows g and g + 8 (g = lane / 4) of words t and t + 4 (t = lane %
 * 4). Planes are one, or two for 3xTF32: the weights rounded to TF32, and what that leaves.
 */
#ifndef TCONV_CUDA_MMA_PARAMETERS_H
#define TCONV_CUDA_MMA_PARAMETERS_H

#include "../../core/impl.h"

namespace tconv::mma
{

#define TCONV_CUDA_MMA_STEP_WORDS      8
#define TCONV_CUDA_MMA_ROW_RESIDUES    16   /* the most that stride_h may be: tables go by value */
#define TCONV_CUDA_MMA_COLUMN_RESIDUES 8    /* the most that stride_w may be: their sums stay in registers together */
#define TCONV_CUDA_MMA_SHIFTS          32   /* the most different column shifts */
#define TCONV_CUDA_MMA_WARPS           8    /* the most of a block */
#define TCONV_CUDA_MMA_STAGES          4    /* the most */
#define TCONV_CUDA_MMA_EXTENT          1023 /* the most of a tile in any direction: coordinates are packed in 10 bits */

/* In strict f32 the additions of what tensor cores have summed may be off by a quarter of their number (like terms): within
 * the bound of 16 for so many. */
#define TCONV_CUDA_MMA_MAX_ADDITIONS 48

/* How products are made. */
typedef enum tconv_cuda_mma_mode {
    TCONV_CUDA_MMA_TF32,   /* f32 rounded to TF32 */
    TCONV_CUDA_MMA_STRICT, /* f32 as 3xTF32 */
    TCONV_CUDA_MMA_F16,    /* words of shared memory hold two channels (NHWC), */
    TCONV_CUDA_MMA_BF16,
    TCONV_CUDA_MMA_F16_PLANES, /* or two columns of a channel (NCHW) */
    TCONV_CUDA_MMA_BF16_PLANES,
    TCONV_CUDA_MMA_MODES
} tconv_cuda_mma_mode;

/* The outputs of one residue of rows; taps is 0 where they are only bias. Shifts count from the least of the layer. */
struct tconv_cuda_mma_row {
    int taps, first_kernel, first_shift;
};

/* The taps of all column residues that read at one shift. */
struct tconv_cuda_mma_shift {
    short shift;                                  /* from the least of the layer */
    short residues;                               /* a bit for each residue that has a tap here */
    short before;                                 /* taps at earlier shifts */
    short kernel[TCONV_CUDA_MMA_COLUMN_RESIDUES]; /* kernel column, by residue */
};

struct tconv_cuda_mma_parameters {
    const void *src, *packed, *bias /* or NULL */;
    void *dst;
    tconv_strides src_strides, dst_strides;
    int nhwc;
    int batch, group_in, group_out, groups;
    int src_rows, src_columns, dst_rows, dst_columns;
    int stride_rows;
    int row_kernel_step, row_shift_step;
    int min_row_shift, min_column_shift;
    int row_residues; /* min(stride_h, out_h) */
    int shifts, column_taps;
    tconv_cuda_mma_row rows[TCONV_CUDA_MMA_ROW_RESIDUES];
    tconv_cuda_mma_shift columns[TCONV_CUDA_MMA_SHIFTS];

    /* The cut. */
    int part_channels;  /* 16 * UB */
    int channel_parts;  /* of a block: times part_channels */
    int residue_parts;  /* of a block */
    int position_warps; /* of a block */
    int channel_tiles, residue_sets;
    int tile_images, tile_rows, tile_columns;
    int row_tiles, column_tiles;
    int flat_columns;            /* not 0: positions are all pixels of an image in one row, of rows of so many */
    unsigned int position_tiles; /* of all images */
    int patch_rows, patch_columns;
    int positions; /* of a block's warps: at least those of a tile */
    int skew_mask; /* NCHW: elements of a 16-byte vector - 1 */
    /* Elements of shared memory (words, but halves of words where planes are of 16 bits) from a channel word, or a patch
     * cell, to the next. */
    int word_step, cell_step;
    int chunk_words, chunks;
    int steps;                                /* of a row tap in a chunk */
    int stages, stage_words, weights_at;      /* of a stage: src at word 0, weights at weights_at */
    int table_at, cells_at, steps_at, run_at; /* words of shared memory behind the stages */
    int shared_bytes;
    int blob_words, planes;
    int src_vector;   /* elements of src that are copied at once */
    int store_vector; /* elements of dst that are stored at once at most */
    int channel_run;  /* neighbouring output channels that a thread holds */
    int most_row_taps;
    bool halves;     /* cells of src are of 16 bits */
    bool staged;     /* runs of columns go out through shared memory */
    bool linear;     /* the positions of a warp are neighbours in the patch */
    int flush_steps; /* steps that the tensor cores sum before f32 adds take over */
};

/* A kernel: SW column residues (the stride), UB blocks of 16 output channels and NT times 8 positions a warp. */
struct tconv_cuda_mma_kernel {
    void (*function)(tconv_cuda_mma_parameters);
    int stride, channel_blocks, position_blocks;
    int warps;       /* that fit on a multiprocessor by their registers */
    bool any_length; /* strict f32: whether sums of any number of additions stay in bounds */
};

/* The kernels of a mode, ending with one whose function is NULL. */
const tconv_cuda_mma_kernel *tconv_cuda_mma_kernels(tconv_cuda_mma_mode mode);
extern const tconv_cuda_mma_kernel tconv_cuda_mma_tf32_kernels[], tconv_cuda_mma_strict_kernels[],
    tconv_cuda_mma_f16_kernels[], tconv_cuda_mma_bf16_kernels[], tconv_cuda_mma_f16_planes_kernels[],
    tconv_cuda_mma_bf16_planes_kernels[];

/* What a device has: shared_bytes are those that a block may ask for beside its barriers. */
typedef struct tconv_cuda_mma_limits {
    int multiprocessors, shared_bytes;
} tconv_cuda_mma_limits;

tconv_cuda_mma_limits tconv_cuda_mma_limits_of(int device);

/* Chooses how a layer is cut (mma_plan.cu): layer->choice is the number that stands for it. False with a reason where it cannot
 * be. */
bool tconv_cuda_mma_choose(tconv_layer *layer, char reason[TCONV_REASON_SIZE]);

/* What layer->choice stands for. Pointers are left NULL; vectors are those of pointers aligned as their addresses say (NULL:
 * to anything). */
void tconv_cuda_mma_chosen(const tconv_layer *layer, const tconv_arguments *arguments,
                           tconv_cuda_mma_parameters *parameters, const tconv_cuda_mma_kernel **kernel);

/* Launches what packs the weights (mma_pack.cu). */
tconv_status tconv_cuda_mma_pack(const tconv_layer *layer, const tconv_cuda_mma_parameters *parameters,
                                 const void *weights, void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::mma

#endif
