/*
 * The host side of GEMM + col2im (col2im.c) and its kernels share this: what a kernel is told, and which kernels there
 * are.
 *
 * The GEMM of a group has the pixels of src along M, the weights of an input channel (output channel, kernel row,
 * kernel column) along N, and the input channels of the group along K. Its A operand, the pixels, comes to registers;
 * its B operand, the weights, stays in shared memory. Words of its own:
 *
 *     partial         an element of the GEMM's result: what one tap of one output takes from one pixel
 *     column buffer   the partials of a block tile in shared memory, [n][pixel], from which col2im gathers the outputs
 *     N tile          8 of N, padded with zeros: the N of one mma.sync, and of wgmma a multiple of it
 *     strip           the output rows of a block, which goes down the rows of src that they read
 *     quotient        padded output row / stride: the row of src whose first kernel row the output takes
 */
#ifndef TCONV_CUDA_COL2IM_PARAMETERS_H
#define TCONV_CUDA_COL2IM_PARAMETERS_H

#include "../epilogue/affine.h"
#include "../epilogue/layer_posts.h"
#include "../hardware.h"
#include "../maps/small_axis.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"

TCONV_ROOM_BEGIN(tconv::col2im)

enum {
    BLOCK_M = 128,     /* pixels of a block tile */
    TILE_N = 8,        /* of N */
    WORD_BYTES = 4,    /* of the copies of src that is not aligned to more */
    STAGE_BYTES = 1536 /* of src in shared memory, for each warp: the larger of both layouts' */
};

/*
 * The kernel for any device (kernel.cu). Weights are packed in the order in which the lanes of a warp take them:
 * [group][K step][N tile][lane][FRAGMENT_BYTES], behind a header that holds an int: whether some weight is Inf, NaN or
 * so large that it would round to Inf. A K-block is one step of an MMA instruction.
 */
enum {
    MMA_WARPS = 4,
    MMA_PITCH = BLOCK_M + 4, /* floats of the column buffer, from an n to the next: lanes store to other banks */
    MMA_STAGES = 3,          /* pipeline stages of src */
    FRAGMENT_BYTES = 8,      /* of weights, for each lane, K step and N tile (PTX ISA) */
    HEADER_BYTES = 256,      /* of the packed weights */
    MMA_KERNELS = 5,         /* that are compiled, by their N tiles (mma_n_tiles) */
    MAX_N_TILES = 11,        /* 9 x 9 taps of one channel; the accumulators are 88 registers */
    /* K-blocks that the tensor cores sum by themselves: their own additions lose bits, over 8 steps of like terms up to
     * 30 units. */
    SEGMENT = 4
};

/* Returns the N tiles of the kernel of that number, from 0 on. */
TCONV_ROOM_CONSTANT int mma_n_tiles(int number)
{
    const int n_tiles[MMA_KERNELS] = {2, 4, 6, 8, MAX_N_TILES};
    return n_tiles[number];
}

/* Returns the blocks of a multiprocessor that the registers of so many N tiles' accumulators allow. */
TCONV_ROOM_CONSTANT int mma_blocks(int n_tiles)
{
    return n_tiles >= 8 ? 2 : 3;
}

/* Gathering is unrolled for kernels of so many rows and columns by that stride, dilation 1; or it is for any. */
enum { GATHER_ANY, GATHER_3_BY_1, GATHER_3_BY_2, GATHER_4_BY_2, GATHER_9_BY_4 };

/*
 * Hopper's kernels (row_sums_*) multiply by wgmma and keep the sums of output rows in their accumulators. N has another
 * order there: kernel rows in bands of `stride`, each [kernel row of the band][output channel][kernel column], padded
 * to band_tiles N tiles; the last band is padded to the rest of n_tiles. A group of many output channels is cut into
 * blocks of them. Weights are packed as [group][output block][K step][part][half of K][n][16 bytes]. f32 is rounded to
 * TF32, and in strict math has two parts (tf32.cuh); the first half of K has the even channels of f32. The M of a warp's
 * part of wgmma (WARP_M) are its pixels.
 */
enum {
    ROW_SUMS_WARPS = 8, /* two warpgroups */
    K_STEPS = 2,        /* MMA instructions along a K-block */
    OUTPUT_BYTES = 16,  /* of shared memory, for an output row of a channel */
    NUMBERS_BYTES = 8,  /* of shared memory, for the same where post-ops are one round */
    COLUMN_BYTES = 4,   /* of shared memory, for an output column, where they are not gathered by runs */
    GUARD = 4,          /* zeros around the pixels of each of up to four images of a block tile */
    ROW_SUMS_PITCH = BLOCK_M + 5 * GUARD, /* floats of the column buffer, from an n to the next */

    /* Pipeline stages of src that come by TMA, for all pixels of a block tile, and their barriers. */
    TMA_STAGES = 6,
    TMA_STAGE_BYTES = BLOCK_M * K_STEPS * MMA_K_BYTES,
    TMA_BARRIER_BYTES = 8 * (2 * TMA_STAGES + 1), /* full and empty ones, and one for the weights */

    CONFIGS = 13, /* of Hopper's kernels (configs) */
    /* The most N tiles for which the registers of a multiprocessor are enough for two blocks. */
    MOST_TILES_OF_TWO = 15,
    MOST_STRICT_TILES_OF_TWO = 8
};

/* Returns the pipeline stages of src that come by cp.async. All of them are on their way while the first is multiplied,
 * so they are as many as leave room for two blocks of pix2pix's last layer (128 channels, 4 x 4 taps, 3 outputs). */
TCONV_ROOM_CONSTANT int cp_async_stages(bool strict, size_t element_size)
{
    return strict ? 4 : element_size == 4 ? 5 : 6;
}

/* The N of a kernel that is compiled. */
typedef struct kernel_config {
    int band_tiles; /* N tiles of a band */
    int n_tiles;    /* N tiles of all bands */
} kernel_config;

/* The configs. C++ uses their numbers in constant expressions. */
#ifdef __cplusplus
constexpr
#else
static const
#endif
    kernel_config configs[CONFIGS] = {{1, 3},  {2, 4},  {2, 6},  {3, 6},  {4, 8},  {8, 8}, {2, 10},
                                      {4, 12}, {5, 12}, {6, 12}, {5, 15}, {8, 18}, {3, 21}};

/* Returns the blocks of a multiprocessor for which registers are enough. */
TCONV_ROOM_CONSTANT int row_sums_blocks(int config, bool strict)
{
    return configs[config].n_tiles > (strict ? MOST_STRICT_TILES_OF_TWO : MOST_TILES_OF_TWO) ? 1 : 2;
}

/* Says whether there is a kernel of a config whose src comes by TMA: registers are not enough for the two parts of
 * strict f32 beside the sums of some. */
TCONV_ROOM_CONSTANT bool has_tma_kernel(int config, bool strict)
{
    return !strict || (configs[config].n_tiles != 8 && configs[config].n_tiles < 18);
}

/* Says whether a kernel of a config takes outputs through a round of post-ops as it gathers them: registers are not enough
 * in strict f32, and beside the sums of one config. */
TCONV_ROOM_CONSTANT bool runs_rounds(int config, bool strict)
{
    return !strict && !(configs[config].band_tiles == 5 && configs[config].n_tiles == 12);
}

/* Returns the N of so many kernel rows in a config, without the padding of the last band. row_n: N of one kernel
 * row. */
TCONV_ROOM_CONSTANT int64_t config_gemm_n(int config, int64_t rows, int64_t stride, int64_t row_n)
{
    const int64_t bands = (rows - 1) / stride;
    return bands * configs[config].band_tiles * TILE_N + (rows - bands * stride) * row_n;
}

/* Returns the config that a kernel of so many rows takes, the first that holds it; CONFIGS where none
 * does. */
TCONV_ROOM_CONSTANT int find_config(int64_t rows, int64_t stride, int64_t row_n)
{
    int config = 0;
    while (config < CONFIGS && (stride * row_n > configs[config].band_tiles * TILE_N ||
                                config_gemm_n(config, rows, stride, row_n) > configs[config].n_tiles * TILE_N))
        config++;
    return config;
}

enum {
    MAX_RUN = 4,        /* columns */
    MIN_TAPS = 2,       /* taps of a column that are unrolled */
    MAX_TAPS = 3,       /* taps of a column that are unrolled */
    GATHER_STRIDES = 4, /* from the gather codes of a stride to those of the next */
    FIRST_RUNS = 4,     /* gather codes from here on are of runs */
    MAX_RUN_OUT = 16,   /* output channels for which kernels have code for runs */
    MAX_SINGLE_OUT = 4  /* the same by stride 1, where a run is a single column */
};

/* Outputs are gathered by runs of `stride` columns with at most so many taps, or by single columns (stride 0) with so
 * many taps unrolled. Returns the code that says which, and the taps of a code. */
TCONV_ROOM_CONSTANT int gather_code(int stride, int taps)
{
    return stride * GATHER_STRIDES + taps;
}
TCONV_ROOM_CONSTANT int gather_taps(int code)
{
    return code % GATHER_STRIDES;
}

/* Says whether kernels of a config have code for such runs: where a square kernel and stride that has them, and at most
 * so many output channels, takes the config. All others are gathered by columns; code for all of them in each kernel
 * was half of all code. */
TCONV_ROOM_CONSTANT bool has_runs(int config, int stride, int taps)
{
    for (int kernel = taps == MIN_TAPS ? stride : (taps - 1) * stride + 1; kernel <= taps * stride; kernel++)
        for (int outputs = 1; outputs <= (stride > 1 ? MAX_RUN_OUT : MAX_SINGLE_OUT); outputs++)
            if (find_config(kernel, stride, outputs * kernel) == config)
                return true;
    return false;
}

/* What a kernel is told. */
typedef struct parameters {
    const void *src;
    const void *weights; /* packed */
    const void *bias;    /* or NULL */
    void *dst;
    small_axis rows, columns;
    tconv_strides src_strides, dst_strides;
    layer_posts posts; /* with them gather is GATHER_ANY, in the kernel for any device; none where has_round */
    int group_in, group_out, groups;
    int block_out;       /* output channels of a block, at most */
    int out_blocks;      /* of a group: they share src, and are neighbours in the order of blocks */
    int k_blocks;        /* of a row of src; each is a pipeline stage */
    int row_pixels_log2; /* columns of src in a block tile; its other pixels are more rows, or rows of more images */
    int column_tiles;
    int column_step; /* columns of src from a block tile to the next */
    int column_back; /* columns of src that outputs reach back over */
    int row_back;    /* rows of src that outputs reach back over */
    int strips;
    int strip_rows;   /* quotients of a strip */
    int sum_rows;     /* rows of outputs that are not yet complete, in shared memory */
    int sum_columns;  /* columns of outputs in shared memory */
    int tap_step;     /* floats of the column buffer from a tap of an output to its next in a row */
    int gather;       /* GATHER_ANY and the like; of Hopper's kernels a gather code */
    bool src_aligned; /* to accesses */
    bool src_words;   /* to 4 bytes */
    /* Hopper's kernels alone have the following. */
    fast_divisor run_length; /* of the columns of a run, `stride` */
    int run_pad;             /* runs that the padding before a row has, whole ones */
    int run_taps[MAX_RUN];   /* floats from a run's first pixel to each column's first tap */
    unsigned run_ends;       /* a bit for each column of a run that has as many taps as any */
    bool dst_runs;           /* stride columns from a multiple of it on are a vector of dst */
    int images;
    int steps;      /* of MMA instructions along K */
    int gemm_n;     /* of all kernel rows, with the padding between bands */
    int buffers;    /* column buffers that alternate: 1 or 2 */
    bool has_round; /* the post-ops are one round, through which outputs are taken as they are gathered */
    affine_round round;
    int boxes; /* TMA boxes that make a pipeline stage; 0 where src comes by cp.async */
} parameters;

/* Returns the kernel for any device with so many N tiles, which mma_n_tiles has. In a build without CUDA this and the next
 * two return NULL. */
const void *tconv_col2im_mma_kernel(numerics kind, bool nhwc, int n_tiles);

/* Returns Hopper's kernel of a config whose src comes by cp.async, or by TMA in NCHW; the latter is NULL where
 * has_tma_kernel is false. Without sm_90a code they are empty. */
const void *tconv_col2im_cp_async_kernel(numerics kind, bool nhwc, int config);
const void *tconv_col2im_tma_kernel(numerics kind, int config);

/* Launches the kernel that packs the weights for the kernel for any device. */
tconv_status tconv_col2im_pack_fragments(const tconv_problem *problem, int steps, int n_tiles, const void *weights,
                                         void *packed, void *stream, tconv_issue *issue);

/* Launches the kernel that packs the weights for Hopper's kernels of a config. split: f32 has two parts; params has the
 * steps and the blocks of output channels. */
tconv_status tconv_col2im_pack_row_sums(const tconv_problem *problem, bool split, const parameters *params, int config,
                                        const void *weights, void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
