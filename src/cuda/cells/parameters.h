/*
 * The interface between the host side of cuda_cells (C) and its kernels: their parameters, and the functions that name
 * and launch kernels.
 *
 * GEMM: M is positions of the input, K is input channels x taps, N is outputs. The A operand is pixels in registers,
 * the B operand is weights in shared memory, K-major.
 *
 * Words of this implementation:
 *   cell          the outputs (the N tile) that one position of M computes: rows x columns x channels, on N as
 *                 [column][row][channel]. Cells tile dst; the input of neighbouring cells is row_step rows or
 *                 column_step columns apart.
 *   shift         an offset of the input from a cell's own position.
 *   window        a run of N, in multiples of MMA_N, whose outputs all have a tap at one shift.
 *   tap schedule  the entries of a cell; each entry multiplies the pixels at one shift by the weights of one window.
 *   weight tile   the weights of some consecutive entries for one K-block, which are one stage of the weight pipeline.
 *   B row         the weights of one tap and one output channel: one n of the B operand.
 *   word          4 bytes of src: an f32, or a pair of neighbouring columns of 16 bits (words.c). A word straddles where its
 *                 columns are parts of two words in memory.
 *   segment       a part of a long sum of strict f32, of so few terms that the bound of its error holds.
 */
#ifndef TCONV_CUDA_CELLS_PARAMETERS_H
#define TCONV_CUDA_CELLS_PARAMETERS_H

#include "../../core/impl.h"
#include "../epilogue/affine.h"
#include "../gemm/shape.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"

/* A function that the host and the kernels call. */
#ifdef __CUDACC__
#define TCONV_CELLS_BOTH_SIDES static constexpr __host__ __device__
#else
#define TCONV_CELLS_BOTH_SIDES TCONV_ROOM_CONSTANT
#endif

TCONV_ROOM_BEGIN(tconv::cells)

enum {
    WARPGROUP_M = MMA_M,                         /* positions of a warpgroup tile */
    CONSUMER_WARPGROUPS = 2,                     /* warpgroups that multiply */
    BLOCK_M = CONSUMER_WARPGROUPS * WARPGROUP_M, /* positions of a block tile */
    MMA_K = 8,                                   /* input channels of one wgmma of TF32 (PTX ISA) */
    CLUSTER_BLOCKS = 2,                          /* blocks that share weights */
    STREAMING_THREADS = 384,                     /* consumers and one warpgroup of producers */
    COLUMN_ALIGNMENT = 4,                        /* columns: a TMA box begins at a multiple of 16 bytes */
    MAX_SCHEDULES = 8,                           /* one for each row phase where a cell has one row */
    MAX_WEIGHT_TILES = 64,                       /* of all schedules: room in the kernel's parameters */
    MAX_ENTRIES = 320,                           /* of all schedules: room in the kernel's parameters */
    MAX_TAPS = 320,                              /* of all weight tiles: room in the packing kernel's */
    MAX_ROW_PHASES = 16,                         /* of src */
    COPY_CHANNELS = 8,                           /* of a K-block, that a thread copies where TMA cannot */

    /* Outputs of a cell. In strict f32 a thread has as many accumulators again, for the entry that is being
     * multiplied. */
    BLOCK_N = 256,
    STRICT_BLOCK_N = 128,

    /* In strict f32 the accumulators of entries are added in f32. Sums of more than STRICT_ADDITIONS consist of
     * segments; each begins at zero, and the partial sums of those before it wait in shared memory
     * (tconv_cells_find_segments). */
    PARTIAL_SUM_BYTES = BLOCK_M * STRICT_BLOCK_N * 4, /* an f32 for each accumulator of a block tile */

    /* The weight-stationary kernel (kernel_stationary.cuh), TF32 only. */
    PINGPONG_PAIRS = 2,           /* pairs of consumer warpgroups that multiply and store in turn */
    PAIR_WARPGROUPS = 2,          /* warpgroups of a pair, and warpgroup tiles of a block tile */
    BOX_PITCH = 72,               /* floats from a channel of a box to the next: no two lanes share a bank */
    STATIONARY_BLOCK_N = 128,     /* outputs of a cell */
    MAX_STATIONARY_K_BLOCKS = 16, /* room for the barriers of the weights */
    STATIONARY_THREADS = 640,     /* consumers and one warpgroup of producers */

    /* Flags of an entry. */
    WEIGHT_TILE_ENDS = 1, /* it is the last of its weight tile */
    K_BLOCK_ENDS = 2,     /* it is the last of its schedule: the next entry has the next K-block */
    STAGE_ENDS = 4        /* it is the last that reads its stage of pixels */
};

TCONV_CELLS_BOTH_SIDES int block_n(bool strict)
{
    return strict ? STRICT_BLOCK_N : BLOCK_N;
}

/*
 * Returns the position, of a warp's WARP_M, that row `row` of M (0 to 7) holds and, where half is 1, row + 8; one
 * thread has both. Neighbours are stored by one vector. They are in order for the first four rows, the later one first
 * for the others, so that the eight positions of a half, which are loaded at once, lie in 8 of every 16 banks that no
 * other of four channels needs, 8 banks apart: 0 2 4 6 9 11 13 15.
 */
TCONV_CELLS_BOTH_SIDES int warp_position(bool neighbours, int row, int half)
{
    return neighbours ? 2 * row + (half ^ row >> 2) : row + 8 * half;
}

typedef struct schedule_entry {
    uint16_t pixel;  /* floats of a stage from a position to its pixel at the entry's shift */
    uint8_t window;  /* its first MMA tile (MMA_N outputs) * 16 + the number of its MMA tiles */
    uint8_t flags;   /* WEIGHT_TILE_ENDS, K_BLOCK_ENDS, STAGE_ENDS */
    uint16_t b_row;  /* where the window begins in the weight tile */
    uint16_t b_rows; /* B rows of the weight tile */
} schedule_entry;

typedef struct weight_tile {
    uint16_t b_rows;
    uint16_t first_b_row; /* of its schedule's B rows */
} weight_tile;

typedef struct tap_schedule {
    int first_weight_tile, end_weight_tile;
    int first_entry, end_entry;
    int first_b_row; /* of the B rows of all schedules */
    int b_rows;      /* of all its weight tiles */
    int residue;     /* output row of a cell's first row, less out_row_step for each cell */
} tap_schedule;

typedef struct parameters {
    const void *src;
    const void *weights; /* packed, by weight tiles */
    const void *bias;    /* or NULL */
    void *dst;
    tconv_strides src_strides, dst_strides; /* in elements */
    bool by_tma;                            /* TMA can read src; else producer warps load it */
    bool vector_stores;                     /* a vector store can hold a cell's columns */
    bool pair_stores; /* one can hold those of two neighbours, if the first begins at a multiple of it */
    bool neighbours;  /* a thread's two positions are neighbours (warp_position) */

    int groups, group_in, group_out; /* channel groups; channels of one */
    int block_k;                     /* input channels of a K-block */
    int k_blocks;                    /* of a channel group */
    int mma_steps;                   /* wgmmas along a K-block */
    int segment_k_blocks;            /* K-blocks of a segment; all of them but in long sums of strict f32 */
    int cell_channels;               /* output channels of a cell, a power of two */
    int cell_channels_log2;
    int channel_tiles; /* cells for all output channels of a group */
    int images;
    int in_rows, in_columns; /* of src; a flat image is one row */
    int out_rows, out_columns;
    int flat_columns; /* columns of a row of src where positions run on over the rows of an image; else 0 */
    int image_tiles, row_tiles, column_tiles;
    int m_tiles;                               /* block tiles of M: the product of the three */
    int tiles;                                 /* of clusters: CLUSTER_BLOCKS of M, one of N */
    int tile_images, tile_rows, tile_columns;  /* positions of a block tile */
    int cell_rows, cell_columns;               /* outputs of a cell */
    int row_step, column_step;                 /* rows and columns of a stage from a cell to the next */
    int row_phases;                            /* of src: a K-block has a stage of each; else 1 */
    int src_row_step;                          /* input rows from a row of a stage to the next */
    int out_row_step;                          /* output rows from a cell to the one below */
    int first_rows[MAX_ROW_PHASES];            /* of a stage's box, from the tile's first position */
    int first_column;                          /* likewise */
    int row_pitch, channel_pitch, image_pitch; /* floats of a stage from a row, channel, image to the next */

    /* Where TMA cannot read src, of a stage: columns and rows that are read; words of 4 bytes to a copy, 0 where not even
     * those are aligned, and copies, each of COPY_CHANNELS channels. */
    int used_columns, used_rows;
    bool copied; /* whether TMA can or not */
    int copy_words, copies;
    fast_divisor by_copy_columns, by_copy_rows, by_copy_channels;

    /* The weight-stationary kernel. A set of N tiles belongs to set_blocks blocks, 1 or 2. They take every
     * set_step-th set, and of its block tiles of M every tile_step-th. */
    bool stationary;
    bool multicast_pixels;     /* TMA brings a box to both blocks of a set */
    int n_tiles;               /* cells of all channel groups, channels and schedules */
    int n_tile_sets;           /* n_tiles / set_blocks */
    int set_blocks;            /* 2: a cluster's blocks share pixels; 1: they have nothing in common */
    int set_step, tile_step;   /* strides of the tile scheduler */
    int warpgroup_tiles;       /* of all images */
    int image_warpgroup_tiles; /* full ones of one image */
    int tail_columns;          /* positions of an image that are left after those */
    int tail_images;           /* images whose tails share a warpgroup tile */
    int tail_pitch;            /* floats from a channel of their box to the next */

    int schedule_count;
    int b_rows; /* of all schedules */
    tap_schedule schedules[MAX_SCHEDULES];
    int pixel_stages, weight_stages;
    uint32_t pixel_stage_bytes;
    uint32_t weight_stage_bytes; /* of the largest weight tile */
    uint32_t b_row_bytes;        /* of a K-block: big and, in strict f32, small parts */
    weight_tile weight_tiles[MAX_WEIGHT_TILES];
    schedule_entry entries[MAX_ENTRIES];
    affine_posts posts; /* in f32 alone */
} parameters;

/* Returns the floats from the beginning of a stage's channel to a tile's position. */
TCONV_CELLS_BOTH_SIDES int position_offset(const parameters *layer, int position)
{
    const int row = position / layer->tile_columns, image = row / layer->tile_rows;
    const int offset = image * layer->image_pitch + row % layer->tile_rows * layer->row_step * layer->row_pitch +
                       position % layer->tile_columns * layer->column_step;
    return image < layer->tile_images ? offset : 0;
}

/* Returns the weight-stationary kernel (configs_stationary.cu) for cells of 1, 2 or 4 columns. */
const void *tconv_cells_stationary_kernel(int cell_columns);

/* The packing kernel's parameters beside the layer's. Tap i of a weight tile has the B rows from i * cell_channels
 * on. */
typedef struct packing {
    tconv_weight_strides strides; /* of the weights to be packed, in elements */
    int64_t group_step;           /* elements from a channel group's weights to those of the next */
    int64_t core_rows;            /* core matrix rows (16 bytes) of the big parts */
    /* 16 bits: a tap is a word, whose first column is 2 * column + word_column of the kernel; there are weights from the
     * first of these columns on, to the end. */
    int word_column, first_column, end_column;
    struct {
        int16_t row, column; /* of the kernel */
    } taps[MAX_TAPS];
    uint16_t first_tap[MAX_WEIGHT_TILES];
} packing;

/* Packs the weights on the current device (pack.cu). */
tconv_status tconv_cells_pack(const parameters *layer, const packing *order, numerics mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue);

TCONV_ROOM_END

#endif
