/*
 * Between the host side (mma.cu, plan.cu) and the kernels (kernel.cuh): how a layer is tiled, and what a kernel is
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

namespace tconv::mma
{

constexpr int LANES = 32;             /* threads of a warp */
constexpr int MMA_M = 16;             /* output channels of one MMA (PTX ISA: mma.m16n8k8 and m16n8k16) */
constexpr int MMA_N = 8;              /* positions of one MMA */
constexpr int MMA_K_WORDS = 8;        /* words of input channels of one MMA */
constexpr int FRAGMENT_WORDS = 128;   /* words of an A fragment: 4 of each lane */
constexpr int MAX_STRIDE_H = 16;      /* row phases: their table goes with a kernel's parameters */
constexpr int MAX_STRIDE_W = 8;       /* column phases: their accumulators are in a thread's registers together */
constexpr int MAX_COLUMN_SHIFTS = 32; /* different column shifts: their table goes with a kernel's parameters */
constexpr int MAX_WARPS = 8;          /* warps of a block; of the row kernel, twice as many take more time (measured) */
constexpr int MAX_STAGES = 4;         /* pipeline stages */
constexpr int MAX_TILE_EXTENT = 1023; /* rows or columns of a tile or patch: a position's are packed in 10 bits each */

/* The arithmetic of a kernel, and for f16 and bf16 the layout of src and dst. In shared memory a word holds two
 * channels of a pixel in NHWC, two columns of a channel in NCHW. */
enum mode {
    TF32,        /* f32 rounded to TF32, both layouts */
    STRICT,      /* f32 as 3xTF32, both layouts */
    COMPENSATED, /* the same for sums of any length: it also keeps what additions lost */
    F16_NHWC,
    BF16_NHWC,
    F16_NCHW,
    BF16_NCHW,
    MODES /* how many there are */
};

/* The taps of a row phase; 0 where its outputs are only bias. Shifts count from the least of the layer. */
struct row_phase {
    int taps, first_kernel, first_shift;
};

/* The taps of all column phases that read at one shift. */
struct column_shift {
    short shift;                /* columns from the least shift of the layer */
    short phases;               /* a bit for each column phase that has a tap here */
    short before;               /* taps at earlier shifts */
    short kernel[MAX_STRIDE_W]; /* kernel column, by column phase */
};

struct parameters {
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
};

/* A kernel, with the warp tile that it is compiled for: mmas_m x mmas_n MMAs for each of stride_w column phases. */
struct kernel_config {
    void (*function)(parameters);
    int stride_w, mmas_m, mmas_n;
    int warps; /* that fit on a multiprocessor by their registers */
};

/* The kernels of a mode, ending with one whose function is NULL. */
extern const kernel_config *const tf32_configs,
    *const strict_configs, *const compensated_configs, *const f16_nhwc_configs, *const bf16_nhwc_configs,
                                                                                    *const f16_nchw_configs,
                                                                                        *const bf16_nchw_configs;

/* Column strides whose runs of 2 * stride columns are no multiple of a vector of stores: in NCHW the epilogue stages
 * them in shared memory. */
constexpr bool is_staged_stride(int stride)
{
    return stride == 3 || stride == 5 || stride == 6;
}

/* How many neighbouring channels a thread holds in NHWC: of the 2 * mmas_m that it has, as many as a 16-byte store
 * takes. */
constexpr int channel_run_of(int mmas_m, size_t element_size)
{
    return 2 * mmas_m < 16 / (int)element_size ? 2 * mmas_m : 16 / (int)element_size;
}

/* Launches the kernel that packs the weights (pack.cu). */
tconv_status launch_packing(const tconv_layer *layer, const parameters *params, const void *weights, void *packed,
                            void *stream, tconv_issue *issue);

} // namespace tconv::mma

#endif
