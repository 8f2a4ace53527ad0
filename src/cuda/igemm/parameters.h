/*
 * Between the host side of the implicit matrix product (igemm.cu, igemm_plan.cu) and its kernels: what a kernel is told, and
 * which there are.
 *
 * Words. A position is a pixel (q, r) of a phase's outputs (../core/phases.h). A block is 64 rows of M: output channels of one
 * phase. A tile is 1, 2 or 4 blocks by a box of positions (images x rows x columns). A unit is one block by N positions that
 * follow one another in the tile, borders included. A chunk is the input channels whose bytes are one row of a pixel in shared
 * memory; a stage is a box of pixels of a chunk: of all taps (the positions' input, borders included) or of one tap. A slot is
 * the weights of the tile's blocks for one tap and chunk; a buffer may hold those of several taps.
 */
#ifndef TCONV_CUDA_IGEMM_PARAMETERS_H
#define TCONV_CUDA_IGEMM_PARAMETERS_H

#include <cuda.h>

#include "../../core/impl.h"
#include "../numeric/divisor.h"

namespace tconv::igemm
{

#define TCONV_IGEMM_M          64
#define TCONV_IGEMM_GROUPS     2   /* warpgroups that multiply */
#define TCONV_IGEMM_UNITS      2   /* of each, at most */
#define TCONV_IGEMM_SLOT_TAPS  4   /* of a buffer of slots, at most */
#define TCONV_IGEMM_BLOCKS     4   /* of a tile, at most */
#define TCONV_IGEMM_ROW        8   /* pixels that lie side by side in any case in an operand */
#define TCONV_IGEMM_THREADS    512 /* with those that load, convert and find outputs */
#define TCONV_IGEMM_STAGES     8   /* the most buffers of one kind */
#define TCONV_IGEMM_QUAD       16  /* bytes of K that lie side by side in an operand: 4 channels of f32, 8 of f16 */
#define TCONV_IGEMM_STEP       32  /* bytes of K of one product */
#define TCONV_IGEMM_PHASES     16  /* the most of an axis */
#define TCONV_IGEMM_MAX_PIXELS 512 /* that a tile covers */
#define TCONV_IGEMM_PLACES     768 /* pixels of a stage that there is a table of; of NCHW the most */
#define TCONV_IGEMM_STAGED     16  /* rows of M that a warp stages at once */
#define TCONV_IGEMM_HALVES     4   /* of units that a warpgroup hands over, at most */

/* What a warp stages at once: 16 rows of M by half of a unit's pixels. Of NHWC a pixel after another, of NCHW a row of M
 * after another; in both, pitched so that neighbours do not meet in a bank and vectors of 16 bytes can be read. */
constexpr int tconv_igemm_staged_pixel(int element_size)
{
    return TCONV_IGEMM_STAGED * element_size + 16;
}
constexpr int tconv_igemm_staged_row(int N, int element_size)
{
    return (N / 2 + (element_size == 4 ? N / 2 % 32 == 8 || N / 2 % 32 == 24 ? 0 : 8 : 8)) * element_size;
}
constexpr int tconv_igemm_staged_bytes(int N, int element_size)
{
    return N / 2 * tconv_igemm_staged_pixel(element_size) > TCONV_IGEMM_STAGED * tconv_igemm_staged_row(N, element_size)
               ? N / 2 * tconv_igemm_staged_pixel(element_size)
               : TCONV_IGEMM_STAGED * tconv_igemm_staged_row(N, element_size);
}

/* What a warpgroup hands over at once to the warps that store: half of a unit's pixels, one after another, each with the
 * block's rows of M; of a pair a quarter of both units' pixels, what each warp would stage, one after another. */
constexpr int tconv_igemm_half_bytes(int N, int element_size, bool pairs)
{
    return TCONV_IGEMM_M * (pairs ? tconv_igemm_staged_row(N, element_size) : N / 2 * element_size);
}

struct tconv_igemm_phase {
    int taps, first_tap /* taps of the phases before it */, first_shift, residue, outputs;
};

struct tconv_igemm_parameters {
    const void *src, *weights /* packed, by slots */, *bias /* or NULL */;
    void *dst;
    tconv_strides from, to; /* of src and dst, in elements */
    bool by_boxes;          /* whether the copy engine can read src; else the loading warps read it */
    bool per_tap;           /* a stage is of one tap */
    bool turned;            /* src, from NCHW to NHWC in the workspace, by the launch that packs the weights */
    bool src_channels_last; /* as it is read: in NHWC, or turned */
    bool dst_channels_last;
    bool flat;   /* positions are pixels of src, whose rows are seen as one */
    bool merged; /* all phases have one tap, the same: they are blocks like those of more channels */

    /* NCHW: the units of a warpgroup are neighbouring column phases of the same pixels. Not merged, these are the layer's only
     * two, seen as one: column phase 0, with the taps of the one that has more; blocks are of the two in turn. */
    bool paired;
    bool uneven;                      /* one has more column taps than the other */
    int unit_taps[TCONV_IGEMM_UNITS]; /* column taps of each */

    int images, in_rows, in_columns; /* of src; flat: one row of an image, or one image of one row */
    int flat_rows, flat_columns;     /* of an image of src as it is */
    int group_in, group_out, chunk_channels, chunks;
    int row_bytes, steps; /* of a pixel of a stage: 128, 64 or 32; products along them */
    int blocks, tile_blocks, block_tiles,
        channel_blocks; /* blocks and tiles of blocks of a phase (merged: of all); of channels */
    int image_tiles, row_tiles, column_tiles, tiles; /* tiles: all */
    int tile_images, tile_rows, tile_columns;
    int across;                     /* narrow: units side by side; 0: units follow one another */
    int unit_rows;                  /* narrow: of a unit */
    int pitch, image_pixels, patch; /* pixels of a stage: from a row to the next, an image to the next, all */
    int box_columns, boxes;         /* columns of a box; boxes of a stage */
    int first_row, first_column;    /* of a stage of all taps, from the tile's first position */

    tconv_igemm_phase rows[TCONV_IGEMM_PHASES], columns[TCONV_IGEMM_PHASES];
    int row_phases, column_phases, row_step, column_step; /* step: shift from a tap to the next */
    int phase_turn; /* tiles of all phases after which their order is turned by one */
    int row_stride, column_stride, column_taps /* of all phases */;
    fast_divisor by_block_tiles, by_phases, by_phase_turn, by_column_phases, by_groups, by_column_tiles, by_row_tiles,
        by_channel_blocks;
    fast_divisor by_columns, by_rows; /* of what a tile's pixels lie in: an image of a stage or, flat, of src */
    int64_t group_slots;              /* of one group of channels */
    int groups;

    int unit_block[TCONV_IGEMM_GROUPS][TCONV_IGEMM_UNITS];  /* of the tile's */
    int unit_pixel[TCONV_IGEMM_GROUPS][TCONV_IGEMM_UNITS];  /* first position, as pixels of a stage */
    int unit_output[TCONV_IGEMM_GROUPS][TCONV_IGEMM_UNITS]; /* the same in the table of outputs */

    int covered;        /* pixels that the units have, each once */
    int bias_outputs;   /* output channels that follow one another and share an element of bias */
    int together;       /* NCHW: neighbouring rows of M that are columns of a channel */
    bool store_vectors; /* NHWC: whether 16 bytes of channels can be stored at once; paired, together: columns */
    int tables;         /* of outputs, each of what is covered */
    bool hands_over;    /* warps of their own store the sums, else those that multiply do */
    int halves;         /* buffers of each warpgroup for that */
    int slot_taps;      /* of a buffer, at most */
    int stages, slots,
        plane_boxes; /* buffers; plane_boxes: of NCHW as it is, from which the loading warps fill stages */
    uint32_t plane_box_bytes;
    uint32_t stage_bytes, plane_bytes /* strict: from the big to the small plane */, slot_bytes;
};

typedef void tconv_igemm_kernel(tconv_igemm_parameters layer, CUtensorMap map);

enum tconv_igemm_mode { TCONV_IGEMM_TF32, TCONV_IGEMM_STRICT, TCONV_IGEMM_F16, TCONV_IGEMM_BF16 };

/* In strict f32 the sums of slots are added in f32, which may be off by a quarter of their number (where they are alike):
 * within the bound of 16 for so many. */
#define TCONV_IGEMM_MAX_SLOTS 48

#define TCONV_IGEMM_SHAPES 4
struct tconv_igemm_shape {
    int N, units;   /* pixels of a unit, units of a warpgroup; 0: no such shape */
    bool long_sums; /* strict f32: of any number of slots, else of TCONV_IGEMM_MAX_SLOTS */
    tconv_igemm_kernel *kernel;
};
extern const tconv_igemm_shape tconv_igemm_tf32_shapes[TCONV_IGEMM_SHAPES];
extern const tconv_igemm_shape tconv_igemm_strict_shapes[TCONV_IGEMM_SHAPES];
extern const tconv_igemm_shape tconv_igemm_f16_shapes[TCONV_IGEMM_SHAPES];
extern const tconv_igemm_shape tconv_igemm_bf16_shapes[TCONV_IGEMM_SHAPES];

/* How the weights lie: what the packing kernel is told beside the layer. */
struct tconv_igemm_packing {
    tconv_weight_strides from;
    int kernel_rows, kernel_columns;
    int64_t first_kernel[2][TCONV_IGEMM_PHASES];
    int kernel_step[2];
    int column_taps[TCONV_IGEMM_PHASES]; /* of each column phase, before any two are seen as one */
    int64_t outputs, out_columns;        /* see tconv_igemm_view */
    bool one_pixel;
    int lone_in, lone_out; /* channels of a group of the layer, where several are one of the view; else 0 */
    int64_t output_rows_step, output_columns_step; /* of weights, from an output's to the next's */
};

/* How src in NCHW is turned: what the packing kernel is told beside its weights. No blocks: it is not. */
struct tconv_igemm_turning {
    const void *src;
    void *to;
    tconv_strides from; /* of src, in elements */
    int pixels, channels;
    int pixel_quads;                                     /* from a pixel turned to the next, in quads */
    int channel_tiles, blocks;                           /* of channels; all tiles, of so many pixels, one to a block */
    bool vectors;                                        /* whether pixels follow one another in 16 bytes of src */
    fast_divisor by_image, by_columns, by_channel_tiles; /* pixels of an image, of a row */
};

/* Packs the weights (NULL: does not) and turns src, in one launch. */
tconv_status tconv_igemm_pack(const tconv_igemm_parameters *layer, const tconv_igemm_packing *packing,
                              const tconv_igemm_turning *turning, tconv_igemm_mode mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue);

/* Elements from a pixel to the next of src once turned, and all its bytes; how to turn it. */
int64_t tconv_igemm_turned_pixel(const tconv_problem *problem);
int64_t tconv_igemm_turned_bytes(const tconv_problem *problem);
tconv_igemm_turning tconv_igemm_turning_of(const tconv_problem *problem, const void *src, void *to);

} // namespace tconv::igemm

#endif
