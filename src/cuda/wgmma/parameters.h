/*
 * This is what the host tells the kernels of cuda_wgmma, and which kernels there are. A operand = packed weights, B
 * operand = pixels of src. The words that this implementation adds to the field's:
 *
 *   position        a column q of an output row's phase (src/core/phases.h) or, on the other axis, a row
 *   MMA tile        MMA_M rows of M (output channels of one phase) by N positions: the accumulators of one wgmma; a
 *                   warpgroup has two
 *   tile            a block tile: the MMA tiles of both warpgroups
 *   stack           output rows that share the M of an MMA tile where output channels are few
 *   patch           the part of src that a tile reads, halo included: rows of `pitch` pixels, one after another
 *   K-block         the input channels of a patch that are in shared memory at a time, for all taps
 *   raw stage       channel planes of a K-block as TMA brings them from src
 *   B stage         the same K-block as the B operand; a tap is an offset into it
 *   A stage         the weights of a K-block for one row of taps or, where those of a stack overlap, for one column of
 *                   taps or for all
 *   K step          the K of one MMA: 32 bytes of channels
 *   core            16 bytes of channels (CORE_ROW_BYTES, half of a K step) of all pixels of the patch, or of 64 rows
 *                   of M: core matrices, one after another
 *   flat            said of a layer that reads each pixel at its own position alone: all rows of an image are as one
 *   space-to-depth  (along W) two columns of dst are one position, whose M are 32 output channels of either, and so are
 *                   two columns of src: a row of the patch has its even columns first, then its odd ones, each of which
 *                   is a K step of its own. Column 2 j + b of dst takes column 2 i + a of src by the tap
 *                   2 (j - i) + b - a, but for the padding: one tap more than half of the kernel's
 */
#ifndef TCONV_CUDA_WGMMA_PARAMETERS_H
#define TCONV_CUDA_WGMMA_PARAMETERS_H

#include "../epilogue/posts.h"
#include "../gemm/shape.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"

TCONV_ROOM_BEGIN(tconv::wgmma)

enum {
    SWIZZLE_PIXELS = 64,   /* pixels in a row of a swizzled box: 128 bytes of a 16-bit type */
    MMA_TILES = 2,         /* of a warpgroup: two of 64 x 128 take 128 registers of a thread */
    COMMIT_GROUP_MMAS = 4, /* K steps of an MMA tile in a commit group, which strict f32 sums from zero */

    /* After space-to-depth, a warp has both columns of dst of so many channels: half of its 16 rows of M. */
    SPACE_TO_DEPTH_CHANNELS = 8,

    CONFIGS = 4,         /* the most kernels of an arithmetic */
    MN_MAJOR_CONFIGS = 2 /* of those, in 16 bits, the first so many take planes of src as an MN-major B operand too */
};

/* Returns the bytes from one staged row of N elements to the next, or half of that where two phases are interleaved:
 * neighbouring rows never meet in a bank, and each may begin at a multiple of 16, in 16-bit types as far past it as a
 * row of dst. */
TCONV_ROOM_CONSTANT int staged_pitch(int N, int element_size)
{
    return element_size == 4 ? (N % 32 == 8 || N % 32 == 24 ? N : N + 8) * 4 : (N / 2 % 8 == 4 ? N + 16 : N + 8) * 2;
}

/* Returns the bytes that a warp stages at once: half of its MMA tiles, and room to begin where a row of dst does,
 * modulo 16 bytes. */
TCONV_ROOM_CONSTANT int staged_bytes(int N, int element_size)
{
    return 8 * MMA_TILES * staged_pitch(N, element_size) + 128;
}

/* Returns the most columns of a row that a warp transposes in place: its registers hold all of them. */
TCONV_ROOM_CONSTANT int max_transposed_columns(int element_size, bool space_to_depth)
{
    return space_to_depth ? 224 : element_size == 4 ? 128 : 192;
}

/* An MMA tile's MMAs of an A stage follow one another in two nested loops, of which the inner one goes
 * from a tap to the next or, where there is but one, from a K step to the next; where there are two taps, the inner
 * loop goes through pairs of them from a K step to the next. Offsets are in 16 bytes of weights and of pixels. */
typedef struct mma_schedule {
    int outer, inner;                     /* rounds of the outer loop; MMAs in each */
    uint32_t outer_weights, outer_pixels; /* from a round of the outer loop to the next */
    uint32_t weights, pixels;             /* from the first MMA of a pair to the second */
    uint32_t pair_weights, pair_pixels;   /* from a pair to the next */
} mma_schedule;

typedef struct parameters {
    const void *src;
    const void *weights; /* packed, by A stages */
    const void *bias;    /* or NULL */
    void *dst;
    int64_t src_image, src_channel, dst_image, dst_channel; /* strides in elements */
    bool by_tma; /* whether TMA can read src; else the transpose warps gather it themselves */

    /* Input channels are those of several planes (tconv_plane_taps): of each as many as this divides by, of which src has
     * so many; the first plane, and the distance of planes. Else they are all of one. */
    fast_divisor by_plane_channels;
    int held_channels, first_plane, plane_step;
    int src_images;

    fast_divisor by_m_blocks, by_group_m_blocks, by_column_tiles, by_row_tiles, by_flat_columns;
    fast_divisor by_row;      /* elements of a row of dst that a tile stores */
    fast_divisor by_last_row; /* the same of the last tile of a row */

    int in_rows, in_columns, out_rows, out_columns; /* of src and dst; flat, of the one row that they are */
    int group_out;                                  /* output channels of a group */
    int m_blocks, group_m_blocks;                   /* blocks of tile_channels output channels: of all groups, of one */
    int column_tiles, row_tiles;                    /* of an image */
    int tiles;                                      /* of the layer */
    int tile_rows, tile_columns;                    /* positions */

    int first_row, first_column; /* of the patch, from the tile's first position; may be negative */
    int pitch, patch;            /* pixels: of a row of the patch, of all its rows */
    int column_alignment;        /* boxes begin at a multiple of so many columns */
    int stage_alignment;         /* so do B stages; 1 where they are tight */
    bool tight; /* the patch has no columns beside those that taps read, as boxes have: transposing leaves them out */
    bool in_place; /* there are no raw stages: TMA fills B stages, whose rows of planes are transposed there */
    int box_pitch, box_patch; /* pixels as TMA brings them: as pitch and patch */
    int transpose_step;       /* from a lane's pixel to its next: pixels of the box */
    int transpose_columns;    /* the same, of its row */
    int transpose_pixels;     /* the same, of the patch */
    int group_in;             /* input channels of a group */
    int k_block_channels;     /* BLOCK_K: input channels of a K-block */
    int k_blocks;             /* of a tile */
    int k_steps;              /* of a K-block */

    int stack;              /* output rows that share an MMA tile's M */
    int mma_tile_channels;  /* output channels that do */
    int warpgroup_channels; /* from a warpgroup's first output channel to the next's; 0: they have the same channels */
    int tile_channels;      /* output channels of a tile */
    int mma_tile_rows;      /* rows of the patch that an MMA tile covers */
    int mma_tile_first_row[WARPGROUPS][MMA_TILES];    /* positions, from the tile's first row */
    int mma_tile_first_column[WARPGROUPS][MMA_TILES]; /* positions, from the tile's first column */
    int mma_tile_columns;                             /* positions */
    int flat_columns;                                 /* flat: positions of a row of the image; else 0 */
    int mma_tile_first_pixel[WARPGROUPS][MMA_TILES];  /* of the patch: where tap (0, 0) of the first position lies */
    int k_block_a_stages[WARPGROUPS];                 /* A stages of a K-block that a warpgroup multiplies */
    int max_k_block_a_stages;                         /* the most of these, which all warpgroups release */
    int a_stage_step;                                 /* pixels, back from an A stage's taps to the next's */
    int column_taps[MMA_TILES];                       /* MMA tile 0 has as many as MMA tile 1, or one more */
    int column_step;                                  /* pixels, back from a column of taps to the next */
    int warpgroup_weights, mma_tile_weights; /* 16 bytes: from one's weights to the next's; 0: they share them */
    int k_step_weights, k_step_pixels;       /* 16 bytes: from a K step to the next */
    uint32_t weights_leading_bytes;          /* from one core of the weights' K step to the other */
    uint32_t pixels_leading_bytes;           /* the same of pixels; MN-major, from a box to the next */
    mma_schedule schedule[MMA_TILES];
    bool same_schedule; /* of both MMA tiles, which then multiply together */

    int stride_h, row_residue[WARPGROUPS]; /* row_residue: of the phase of rows that a warpgroup computes */
    int column_phases;                     /* 1 or 2: the MMA tiles of a warpgroup are two column phases */
    int space_to_depth_log2;               /* 1: space-to-depth along W, else 0 */
    int position_columns;     /* columns of dst for each position: 2 with two column phases, or space-to-depth */
    int first_phase;          /* which MMA tile's column phase has residue 0 */
    bool bulk_store;          /* whether bulk copies write rows, but for their ends */
    int bulk_period;          /* channels after which rows of dst lie alike modulo 16 bytes */
    bool staged_misaligned;   /* whether rows of dst begin anywhere but at multiples of 16 bytes */
    int store_vector;         /* if not by bulk copies: elements that are stored at once */
    bool release_early;       /* a staging buffer that was read is released where there is no other to store */
    bool row_phases_together; /* flat: the same warps store both row phases, in the order of dst */

    int b_stages, raw_stages, a_stages; /* pipeline stages of each kind */
    int staging_buffers;                /* 1 or 2: buffers in which a warp stages its output */
    bool resident;   /* a tile's weights all stay in the A stages: a thread block's tiles have the same channels */
    int stage_boxes; /* TMA boxes that a raw stage is loaded by */

    /* MN-major, where planes have to be realigned. A K-block is loaded in parts of so many pixels, in rows of
     * `part_pitch` pixels, and a part by a TMA box for each of the channels that a row of the tensor map has: those
     * after which one begins at a multiple of 16 bytes again. */
    int box_parts, part_pixels, part_pitch, map_row_channels;
    uint32_t box_step_bytes; /* from one TMA box to the next in a raw stage */
    uint32_t expected_bytes; /* those that all TMA boxes of a K-block bring */
    int channel_alignment;   /* bytes at whose multiples all channels begin: 8, 4 or 2; 0 where nothing is realigned */
    int src_misalignment;    /* pixels by which src begins past a multiple of 16 bytes */
    uint32_t b_stage_bytes, raw_stage_bytes, a_stage_bytes;

    shared_posts posts; /* consumers run those of sums; in f32 epilogue warps run the others on what is staged */
} parameters;

/* Returns the N of a kernel; 0: the registers do not hold another. */
TCONV_ROOM_CONSTANT int config_N(numerics arithmetic, int config)
{
    const int N[][CONFIGS] = {{128, 104, 88, 64}, {88, 80, 64, 0}, {128, 104, 88, 64}, {128, 104, 88, 64}};
    return N[arithmetic][config];
}

/* Returns the threads of a block: those that multiply, load, transpose and store. In strict f32 the registers do not do
 * for more. */
TCONV_ROOM_CONSTANT int threads_of(numerics arithmetic)
{
    return arithmetic == NUMERICS_STRICT ? 512 : 640;
}

/* Returns how many epilogue warps store what a warpgroup stages. */
TCONV_ROOM_CONSTANT int epilogue_warps_of(numerics arithmetic)
{
    return arithmetic == NUMERICS_STRICT ? 1 : 2;
}

/* Name the kernels of f32, and of f16 and bf16; NULL in a build without CUDA. */
const void *tconv_wgmma_f32_kernel(numerics arithmetic, int config);
const void *tconv_wgmma_half_kernel(numerics arithmetic, bool mn_major, int config);

TCONV_ROOM_END

#endif
