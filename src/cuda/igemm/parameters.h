/*
 * The parameters of the implicit GEMM's kernels, which the host's planner (plan.h) fills in.
 *
 * A operand = packed weights, B operand = pixels of src, C = output channels (M) x output pixels (N) of a phase, summed
 * over input channels and taps (K). The words that this implementation adds to the field's:
 *
 *   position     a pixel (q, r) of a phase's outputs (src/core/phases.h)
 *   M tile       64 rows of M (MMA_M): output channels of one phase
 *   MMA tile     one M tile by N positions that follow one another in the block tile, halos included: the accumulators
 *                of a wgmma; a warpgroup tile is one or two of them
 *   block tile   1, 2 or 4 M tiles by a box of positions (images x rows x columns), of which block_n are computed
 *   K-block      the input channels whose bytes are one row of a pixel in shared memory, at one tap
 *   A tile       the weights of a block tile for one K-block and tap; an A stage holds those of up to four taps
 *   cluster      thread blocks that share out the K-blocks of one block tile, if a block does not take them all
 *   B stage      a box of pixels of a K-block: the input of all taps, halo included, where a tap is an offset; or that
 *                of one tap. Where phases are those of src (tconv_layer) a tile sums over all of them, and a stage has
 *                pixels of one
 *   raw stage    channel planes of src in NCHW as TMA brings them, from which the loader warps make B stages
 */
#ifndef TCONV_CUDA_IGEMM_PARAMETERS_H
#define TCONV_CUDA_IGEMM_PARAMETERS_H

#include "../../core/impl.h"
#include "../epilogue/posts.h"
#include "../gemm/shape.h"
#include "../numeric/divisor.h"

TCONV_ROOM_BEGIN(tconv::igemm)

enum {
    MAX_MMA_TILES = 2,       /* of a warpgroup: two of 64 x 128 take 128 registers of a thread */
    MAX_M_TILES = 4,         /* of a block tile: all MMA tiles of both warpgroups */
    THREADS = 512,           /* of a thread block: consumers, and as many that load and find addresses */
    MAX_A_STAGE_TAPS = 4,    /* taps of an A stage: each is a commit group that is waited for by number */
    MAX_STAGING_BUFFERS = 4, /* of a warpgroup: one for each half of its MMA tiles */
    HALVES = 2,              /* parts of an MMA tile in staging buffers */
    QUARTERS = 4,            /* likewise, where that leaves room for a pipeline stage more */
    MAX_PHASES = 16,         /* of an axis: the tables of these parameters have room for as many */
    MAX_CLUSTER_BLOCKS = 8,  /* that all devices of Hopper's kind launch together */
    MAX_COORDINATES = 768    /* pixels of a B stage that there is a table of; a stage of NCHW has no more */
};

/* A warp stages 16 rows of M by half of an MMA tile's pixels at once: in NHWC a pixel after another, in NCHW a row of M
 * after another. Both are pitched so that neighbours do not meet in a bank and vectors of 16 bytes can be read. */
TCONV_ROOM_CONSTANT int staged_pixel_bytes(int element_size)
{
    return WARP_M * element_size + 16;
}
TCONV_ROOM_CONSTANT int staged_row_bytes(int N, int element_size)
{
    return (N / 2 + (element_size == 4 ? N / 2 % 32 == 8 || N / 2 % 32 == 24 ? 0 : 8 : 8)) * element_size;
}
TCONV_ROOM_CONSTANT int warp_staging_bytes(int N, int element_size)
{
    return N / 2 * staged_pixel_bytes(element_size) > WARP_M * staged_row_bytes(N, element_size)
               ? N / 2 * staged_pixel_bytes(element_size)
               : WARP_M * staged_row_bytes(N, element_size);
}

/* A staging buffer between a consumer warpgroup and the epilogue warps has a half of an MMA tile's pixels, or a
 * quarter, one after another, each with the M tile's rows; of a column pair a quarter of both MMA tiles' pixels, each
 * warp's rows one after another. */
TCONV_ROOM_CONSTANT int staging_buffer_bytes(int N, int element_size, bool pairs, int parts)
{
    return MMA_M * (pairs ? staged_row_bytes(N, element_size) : N / parts * element_size);
}

/* A phase of one axis. */
typedef struct axis_phase {
    int taps;
    int first_tap; /* taps of the phases before it */
    int first_shift;
    int residue;
    int outputs;
    int src_residue;  /* rows (columns) of src from its multiples of src_row_stride to the phase's first */
    int src_row;      /* of a column phase, where src has columns a stride apart as rows */
    int src_image;    /* of a row phase, where src has rows a stride apart as images */
    int first_kernel; /* kernel row (column) of its first tap */
} axis_phase;

/* A K-block of a tile, in the order of the main loop: its phase of src, and its number of that. */
typedef struct k_place {
    uint16_t phase, k_block;
} k_place;

/* NCHW: rows of M that follow one another and are neighbouring columns of one channel, see view.h. */
typedef struct column_runs {
    int rows;    /* of a run, a power of two; 1: rows of M are channels */
    int columns; /* that these are: as many, or fewer, and the rest zeros */
    int begin;   /* the first column of a row's first run that is an output */
    int end;     /* behind the last column of a row's last run that is one */
} column_runs;

typedef struct parameters {
    const void *src;
    const void *weights; /* packed, by A tiles */
    const void *bias;    /* or NULL */
    void *dst;
    tconv_strides from; /* strides of src, in elements */
    tconv_strides to;   /* strides of dst, in elements */

    bool by_tma;            /* TMA reads src; else the loader warps gather it */
    bool gathers_pairs;     /* of columns, the first of which is even: they lie in aligned pairs of src */
    bool per_tap;           /* a B stage has the input of one tap */
    bool im2col;            /* likewise, of positions that follow one another from row to row and image to image */
    bool src_transposed;    /* src is transposed to NHWC in the workspace, by the launch that packs the weights */
    bool src_channels_last; /* src as it is read: in NHWC, or transposed */
    bool weights_in_place;  /* TMA reads the weights where they lie, input channels inside: A tiles are swizzled */
    bool dst_channels_last;
    bool flat;   /* positions are seen as one row: they are pixels of src, or im2col */
    bool merged; /* all phases have one tap, the same: their M tiles are like those of more channels */

    /* NCHW: the MMA tiles of a warpgroup are neighbouring column phases of the same pixels. Not merged, these are the
     * layer's only two, seen as one: column phase 0, with the taps of the one that has more; M tiles alternate between
     * the two. */
    bool paired;
    bool uneven;                 /* one of a pair has more column taps than the other */
    bool cuts_pairs;             /* the first of a pair has an output more than the other */
    int mma_taps[MAX_MMA_TILES]; /* column taps of each of a pair */

    int images;          /* of dst, in a volume */
    int src_images;      /* as src is read, in a volume */
    int volumes;         /* tconv_image_volumes, or 1 */
    int64_t from_volume; /* elements from a volume of src to the next */
    int64_t to_volume;   /* likewise, of dst */
    int image_rows; /* where src has rows a stride apart as images: rows of such an image that are of one image; else 0 */
    int in_rows;    /* of src; flat: 1 */
    int in_columns;   /* of src; flat: the pixels of an image, or of all images */
    int flat_rows;    /* of an image of src as it is; im2col: of positions */
    int flat_columns; /* likewise */
    int group_in;     /* input channels of a channel group */
    int group_out;    /* output channels of a channel group */
    int k_block_channels;
    int k_blocks;    /* of a channel group's input channels */
    int pixel_bytes; /* of a pixel of a B stage, the swizzle's width: 128, 64 or 32 */
    int k_steps;     /* wgmmas along K of a K-block */

    int phase_m_tiles;   /* M tiles of a phase; merged: of all phases */
    int m_tiles;         /* M tiles of a block tile */
    int tiles_along_m;   /* block tiles that a phase's M tiles make; merged: all phases' */
    int channel_m_tiles; /* M tiles of a channel group's output channels */
    int image_tiles;     /* block tiles along the images of a volume */
    int row_tiles;       /* block tiles along the rows of positions */
    int column_tiles;    /* block tiles along the columns of positions */
    int tiles;           /* block tiles in all */
    int tile_images;     /* images of a block tile */
    int tile_rows;       /* rows of positions of a block tile */
    int tile_columns;    /* columns of positions of a block tile */
    int across;          /* narrow tiles: MMA tiles beside one another; 0: MMA tiles follow one another */
    int mma_rows;        /* narrow tiles: rows of eight pixels of an MMA tile */
    int pitch;           /* pixels of a B stage from a row to the next */
    int image_pixels;    /* pixels of a B stage from an image to the next */
    int stage_pixels;    /* pixels of a B stage */
    int box_columns;     /* columns of a TMA box; of a raw stage: pixels of a channel */
    int boxes;           /* TMA boxes of a B stage */
    int first_row;    /* of a B stage of all taps, from the tile's first position; im2col: of the first tap's input */
    int first_column; /* likewise */

    axis_phase rows[MAX_PHASES];
    axis_phase columns[MAX_PHASES];
    int row_phases;
    int column_phases;
    int src_phases;   /* that a tile sums over, where phases are those of src; else 1, its own */
    bool sums_phases; /* phases are those of src */
    /* Input channels are those of several planes (tconv_plane_taps): of each as many as this divides by, of which src has
     * so many; the first plane, and planes from a tap to the next. Else they are all of one. */
    fast_divisor by_plane_channels;
    int held_channels;
    int first_plane;
    int plane_step;
    int image_planes;   /* from an image to the next; else 1 */
    bool by_planes;     /* they are; those of all channel groups are counted together */
    int src_groups;     /* channel groups of src: where phases of src come in parts, each part has them again */
    int row_step;       /* rows of src from a tap to the next */
    int column_step;    /* columns of src from a tap to the next */
    int phase_rotation; /* rounds of tiles of all phases after which the phases' order is rotated by one */
    int row_stride;
    int column_stride;
    int src_row_stride; /* rows of src from a pixel of a B stage to the next */
    int src_column_stride;
    int column_taps; /* of all column phases */
    int kernel_columns;
    int kernel_row_step; /* kernel rows from a tap to the next */
    int kernel_column_step;
    fast_divisor by_tiles_along_m;
    fast_divisor by_phases;
    fast_divisor by_phase_rotation;
    fast_divisor by_column_phases;
    fast_divisor by_groups;
    fast_divisor by_src_groups;
    fast_divisor by_column_tiles;
    fast_divisor by_row_tiles;
    fast_divisor by_image_tiles;
    fast_divisor by_channel_m_tiles;
    fast_divisor by_columns; /* columns of what a tile's pixels lie in: an image of a B stage or flat_columns */
    fast_divisor by_rows;    /* rows likewise */
    int64_t group_a_tiles;   /* A tiles of a channel group */
    int groups;              /* channel groups of dst */
    int cluster_blocks;      /* blocks that share out the K-blocks of a tile; 1: none do */
    int cluster_pitch;       /* sums that a block stages: from a pixel to the next in NHWC, from a row of M in NCHW */
    k_place k_begins[MAX_CLUSTER_BLOCKS + 1]; /* where each of them begins; behind the last: the end */
    bool sums;                                /* dst is of parts, which the next kernel adds */
    bool begins; /* the kernel ahead, which may still run, is another call's or has to end */

    int mma_m_tile[WARPGROUPS][MAX_MMA_TILES];   /* the MMA tile's M tile in the block tile */
    int mma_pixel[WARPGROUPS][MAX_MMA_TILES];    /* its first position, in pixels of a B stage */
    int mma_position[WARPGROUPS][MAX_MMA_TILES]; /* its first position, in the table of offsets */

    int block_n;                   /* positions of a block tile: N of its MMA tiles, each position once */
    fast_divisor by_bias_outputs;  /* output channels that follow one another and are one of dst, with one bias */
    fast_divisor by_bias_channels; /* channels of dst, which begin anew after the last */
    column_runs runs;
    int run_vector;      /* columns of a run that can be stored at once */
    bool store_vectors;  /* NHWC: 16 bytes of channels can be stored at once; paired: two columns */
    int tables;          /* of offsets and records, each of a block tile */
    bool epilogue_warps; /* warps of their own store the accumulators, else the consumers do */
    int staging_buffers; /* of each warpgroup, for the epilogue warps */
    int a_stage_taps;    /* taps of an A stage, at most */
    int b_stages;
    int a_stages;
    int raw_stages; /* 0: no raw stages */
    uint32_t raw_stage_bytes;
    uint32_t b_stage_bytes;
    uint32_t plane_bytes; /* strict f32: from the plane of big parts of a B stage to that of small parts */
    uint32_t a_tile_bytes;

    shared_posts posts;     /* of outputs: consumers run those of sums, whoever stores a part runs the others */
    bool posts_of_sums;     /* there are some of sums */
    bool posts_of_staged;   /* there are others */
    bool addend_by_vectors; /* NHWC: with store_vectors, 16 bytes of its channels can be loaded at once */
} parameters;

TCONV_ROOM_END

#endif
