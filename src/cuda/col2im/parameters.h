/*
 * The host side of GEMM + col2im (col2im.cu) and its kernels share this: what a kernel is told, and which kernels there
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

#include "../maps/small_axis.h"

namespace tconv::col2im
{

constexpr int BLOCK_M = 128;      /* pixels of a block tile */
constexpr int TILE_N = 8;         /* of N */
constexpr int MMA_K_BYTES = 32;   /* of one pixel's channels in an MMA instruction (PTX ISA) */
constexpr int WORD_BYTES = 4;     /* of the copies of src that is not aligned to more */
constexpr int STAGE_BYTES = 1536; /* of src in shared memory, for each warp: the larger of both layouts' */

/*
 * The kernel for any device (kernel.cu). Weights are packed in the order in which the lanes of a warp take them:
 * [group][K step][N tile][lane][FRAGMENT_BYTES], behind a header that holds an int: whether some weight is Inf, NaN or
 * so large that it would round to Inf. A K-block is one step of an MMA instruction.
 */
constexpr int WARPS = 4;
constexpr int WARP_M = BLOCK_M / WARPS; /* pixels of a warp: two MMA tiles along M share each fragment of weights */
constexpr int PITCH = BLOCK_M + 4; /* floats of the column buffer, from an n to the next: lanes store to other banks */
constexpr int STAGES = 3;          /* pipeline stages of src */
constexpr int FRAGMENT_BYTES = 8;  /* of weights, for each lane, K step and N tile (PTX ISA) */
constexpr int HEADER_BYTES = 256;  /* of the packed weights */
constexpr int MAX_N_TILES = 11;    /* 9 x 9 taps of one channel; the accumulators are 88 registers */

/* K-blocks that the tensor cores sum by themselves: their own additions lose bits, over 8 steps of like terms up to 30
 * units. */
constexpr int SEGMENT = 4;

/* Blocks on a multiprocessor, as the registers of so many N tiles' accumulators allow. */
constexpr int blocks_of(int n_tiles)
{
    return n_tiles >= 8 ? 2 : 3;
}

/* Gathering is unrolled for kernels of so many rows and columns by that stride, dilation 1; or it is for any. */
enum { GATHER_ANY, GATHER_3_BY_1, GATHER_3_BY_2, GATHER_4_BY_2, GATHER_9_BY_4 };

/*
 * Hopper's kernel (row_sums_*) multiplies by wgmma and keeps the sums of output rows in its accumulators. N has another
 * order there: kernel rows in bands of `stride`, each [kernel row of the band][output channel][kernel column], padded
 * to band_tiles N tiles; the last band is padded to the rest of n_tiles. A group of many output channels is cut into
 * blocks of them. Weights are packed as [group][output block][K step][part][half of K][n][16 bytes]. f32 is rounded to
 * TF32, and in strict math has two parts (tf32.cuh); the first half of K has the even channels of f32.
 */
namespace row_sums
{

constexpr int WARPS = 8;                /* two warpgroups */
constexpr int WARP_M = BLOCK_M / WARPS; /* pixels of a warp: the M of a warp's part of wgmma */
constexpr int K_STEPS = 2;              /* MMA instructions along a K-block */
constexpr int OUTPUT_BYTES = 16;        /* of shared memory, for an output row of a channel */
constexpr int COLUMN_BYTES = 4; /* of shared memory, for an output column, where they are not gathered by runs */
constexpr int GUARD = 4;        /* zeros around the pixels of each of up to four images of a block tile */
constexpr int PITCH = BLOCK_M + 5 * GUARD; /* floats of the column buffer, from an n to the next */

/* Pipeline stages of src that come by cp.async. All of them are on their way while the first is multiplied, so they are
 * as many as leave room for two blocks of pix2pix's last layer (128 channels, 4 x 4 taps, 3 outputs). */
constexpr int cp_async_stages(bool strict, size_t element_size)
{
    return strict ? 4 : element_size == 4 ? 5 : 6;
}

/* Pipeline stages of src that come by TMA, for all pixels of a block tile, and their barriers. */
constexpr int TMA_STAGES = 6;
constexpr int TMA_STAGE_BYTES = BLOCK_M * K_STEPS * MMA_K_BYTES;
constexpr int TMA_BARRIER_BYTES = 8 * (2 * TMA_STAGES + 1); /* full and empty ones, and one for the weights */

/* The N of a kernel that is compiled. */
struct config {
    int band_tiles; /* N tiles of a band */
    int n_tiles;    /* N tiles of all bands */
};
constexpr int CONFIGS = 13;
constexpr config configs[CONFIGS] = {{1, 3},  {2, 4},  {2, 6},  {3, 6},  {4, 8},  {8, 8}, {2, 10},
                                     {4, 12}, {5, 12}, {6, 12}, {5, 15}, {8, 18}, {3, 21}};

/* Blocks on a multiprocessor for which registers are enough; the most N tiles that two of them have room for. */
constexpr int MOST_TILES_OF_TWO = 15;
constexpr int blocks_of(int config, bool strict)
{
    return configs[config].n_tiles > (strict ? 8 : MOST_TILES_OF_TWO) ? 1 : 2;
}

/* N of so many kernel rows in a config, without the padding of the last band. row_n: N of one kernel row. */
constexpr int64_t gemm_n_of(int config, int64_t rows, int64_t stride, int64_t row_n)
{
    const int64_t bands = (rows - 1) / stride;
    return bands * configs[config].band_tiles * TILE_N + (rows - bands * stride) * row_n;
}

/* The config that a kernel of so many rows takes, the first that holds it; CONFIGS where none does. */
constexpr int config_of(int64_t rows, int64_t stride, int64_t row_n)
{
    int config = 0;
    while (config < CONFIGS && (stride * row_n > configs[config].band_tiles * TILE_N ||
                                gemm_n_of(config, rows, stride, row_n) > configs[config].n_tiles * TILE_N))
        config++;
    return config;
}

constexpr int MAX_RUN = 4;  /* columns */
constexpr int MIN_TAPS = 2; /* taps of a column that are unrolled */
constexpr int MAX_TAPS = 3; /* taps of a column that are unrolled */

/* Outputs are gathered by runs of `stride` columns with at most so many taps, or by single columns (stride 0) with so
 * many taps unrolled. A number says which. */
constexpr int way_of(int stride, int taps)
{
    return stride * 4 + taps;
}
constexpr int taps_of(int way)
{
    return way % 4;
}
constexpr int FIRST_RUNS = way_of(1, 0); /* all numbers from here on are runs */

/* Says whether kernels of a config have code for such runs: where a square kernel and stride that has them, and at most
 * so many output channels, takes the config. All others are gathered by columns; code for all of them in each kernel
 * was half of all code. */
constexpr int MAX_RUN_OUT = 16;
constexpr int MAX_SINGLE_OUT = 4; /* by stride 1, where a run is a single column */
constexpr bool has_runs(int config, int stride, int taps)
{
    for (int kernel = taps == MIN_TAPS ? stride : (taps - 1) * stride + 1; kernel <= taps * stride; kernel++)
        for (int outputs = 1; outputs <= (stride > 1 ? MAX_RUN_OUT : MAX_SINGLE_OUT); outputs++)
            if (config_of(kernel, stride, outputs * kernel) == config)
                return true;
    return false;
}

} // namespace row_sums

struct parameters {
    const void *src;
    const void *weights; /* packed */
    const void *bias;    /* or NULL */
    void *dst;
    small_axis rows, columns;
    tconv_strides src_strides, dst_strides;
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
    int gather;       /* see above */
    bool src_aligned; /* to accesses */
    bool src_words;   /* to 4 bytes */
    /* Hopper's kernel alone has the following. */
    int run_taps[row_sums::MAX_RUN]; /* floats from a run's first pixel to each column's first tap */
    unsigned run_ends;               /* a bit for each column of a run that has as many taps as any */
    bool dst_runs;                   /* stride columns from a multiple of it on are a vector of dst */
    int images;
    int steps;   /* of MMA instructions along K */
    int gemm_n;  /* of all kernel rows, with the padding between bands */
    int buffers; /* column buffers that alternate: 1 or 2 */
    int boxes;   /* TMA boxes that make a pipeline stage; 0 where src comes by cp.async */
};

/* The kernel for any device, with 2, 4, 6, 8 or 11 N tiles. */
const void *mma_kernel(const tconv_layer *layer, int n_tiles);

/* Launches the kernel that packs the weights for it. */
tconv_status pack_fragments(const tconv_problem *problem, int steps, int n_tiles, const void *weights, void *packed,
                            void *stream, tconv_issue *issue);

namespace row_sums
{

/* Hopper's kernels, whose src comes by cp.async or by TMA; the latter is NULL for a config that has none. Without
 * sm_90a code they are empty. */
const void *cp_async_kernel(const tconv_layer *layer, int config);
const void *tma_kernel(const tconv_layer *layer, int config);

/* Launches the kernel that packs the weights for both. made: has the steps and the blocks of output channels. */
tconv_status pack_weights(const tconv_problem *problem, bool tf32, const parameters *made, const config *config,
                          const void *weights, void *packed, void *stream, tconv_issue *issue);

} // namespace row_sums

/* Returns what find returns for the layer's kind of arithmetic, an object of one of these types. f32: strict or
 * TF32. */
template <class Strict, class Tf32, class F16, class Bf16, class Find>
const void *find_by_arithmetic(const tconv_layer *layer, Find find)
{
    switch (layer->problem.dtype) {
    case TCONV_F16: return find(F16());
    case TCONV_BF16: return find(Bf16());
    default: return layer->target.math == TCONV_MATH_TF32 ? find(Tf32()) : find(Strict());
    }
}

} // namespace tconv::col2im

#endif
