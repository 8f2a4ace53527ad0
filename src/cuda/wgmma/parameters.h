/*
 * Between the host side of the wgmma algorithm (wgmma.cu, wgmma_plan.cu) and its kernels: what a kernel is told, and which there are.
 *
 * Words. A position is a column q of an output row's phase (../core/phases.h) or, on the other axis, a row. A unit is what
 * one accumulator holds: 64 rows of M (output channels of one phase, or `stack` output rows of fewer channels) by N pixels
 * of the patch, in one or more of its rows. A block of threads has two warpgroups of two units each. The patch is the
 * input under a tile, borders included, of a chunk of channels: rows of `pitch` pixels, one after another. A slot is the
 * weights of one row of taps and one chunk or, where weights of a stack overlap, of one column of taps or of all taps.
 *
 * Folded, a position is a pair of columns of dst, and so is a pixel of src: M are 32 output channels of both columns, and a row
 * of planes has its even columns first, then its odd ones, each of which is a step of products. A column 2 j + b of dst takes
 * column 2 i + a of src by the tap 2 (j - i) + b - a, but for the padding: one tap more than half of the kernel's.
 */
#ifndef TCONV_CUDA_WGMMA_PARAMETERS_H
#define TCONV_CUDA_WGMMA_PARAMETERS_H

#include <cuda.h>

#include "../../core/impl.h"
#include "../numeric/divisor.h"
#include "../ptx/tma.cuh"

namespace tconv::wgmma
{

#define TCONV_WGMMA_M      64
#define TCONV_WGMMA_GROUPS 2  /* warpgroups that multiply */
#define TCONV_WGMMA_UNITS  2  /* of each */
#define TCONV_WGMMA_STAGES 8  /* the most buffers of one kind */
#define TCONV_WGMMA_STROKE 4  /* products that are summed before anything else is done */
#define TCONV_WGMMA_QUAD   16 /* bytes of K that lie side by side: 4 channels of f32, 8 of f16 */
#define TCONV_WGMMA_BOX    64 /* pixels of a plane in a row of a swizzled box: 128 bytes of a 16-bit type */

/* Bytes from one staged row of N elements to the next, or half of that where two phases are interleaved: neighbouring rows
 * never meet in a bank, and each may begin at a multiple of 16, in 16-bit types as far past it as a row of dst. */
constexpr int tconv_wgmma_staged_pitch(int N, int element_size)
{
    return element_size == 4 ? (N % 32 == 8 || N % 32 == 24 ? N : N + 8) * 4 : (N / 2 % 8 == 4 ? N + 16 : N + 8) * 2;
}

/* What a warp stages at once: half of its sums, and room to begin where a row of dst does, modulo 16 bytes. */
constexpr int tconv_wgmma_staged_bytes(int N, int element_size)
{
    return 8 * TCONV_WGMMA_UNITS * tconv_wgmma_staged_pitch(N, element_size) + 128;
}

/* The most columns that a warp turns into pixels where they lie: its registers hold all of a row's. */
constexpr int tconv_wgmma_turned_columns(int element_size, bool folded)
{
    return folded ? 224 : element_size == 4 ? 128 : 192;
}

/* Channels of which a warp has both columns of dst where M is folded. */
#define TCONV_WGMMA_FOLD_CHANNELS 8

/* How a unit's products of a slot follow one another: runs of count products each, from a tap to the next or, where there is
 * one, from a step to the next; where there are two, in pairs from a step to the next. In units of 16 bytes and pixels. */
struct tconv_wgmma_order {
    int runs, count;
    uint32_t run_weights, run_pixels;   /* from a run to the next */
    uint32_t weights, pixels;           /* from the first product of a pair to the second */
    uint32_t pair_weights, pair_pixels; /* from a pair to the next */
};

struct tconv_wgmma_parameters {
    const void *src, *weights /* packed, by slots */, *bias /* or NULL */;
    void *dst;
    int64_t src_image, src_channel, dst_image, dst_channel; /* strides in elements */
    bool by_boxes; /* whether the copy engine can read src; else those that convert read it themselves */

    fast_divisor by_blocks, by_group_blocks, by_column_tiles, by_row_tiles, by_run_columns;
    fast_divisor by_row, by_last_row; /* elements of a row of dst that a tile stores, the last of a row */

    int in_rows, in_columns, out_rows, out_columns, group_out;
    int blocks, group_blocks, column_tiles, row_tiles, tiles; /* blocks of output channels: of all groups, of one */
    int tile_rows, tile_columns;                              /* positions */

    int first_row, first_column; /* of the patch, from the tile's first position; may be negative */
    int pitch, patch;            /* pixels: of a row, of all */
    int column_alignment;        /* boxes begin at a multiple of so many columns */
    int stage_alignment;         /* and converted patches; 1 where they are tight */
    bool tight; /* the patch has no columns beside those that taps read, as boxes have: they are left out on the way */
    bool in_place;            /* no boxes: the copy engine fills stages, in which rows of planes are turned */
    int box_pitch, box_patch; /* pixels as the copy engine brings them */
    int convert_step, convert_columns,
        convert_pixels;                          /* from a lane's pixel to its next: of the box, its row, the patch */
    int group_in, chunk_channels, chunks, steps; /* a step is one product's K: two quads */

    int stack, block_channels;         /* output rows, and channels, that share a unit's M */
    int group_channels, tile_channels; /* output channels from a warpgroup's to the next's, 0: the same; of a tile */
    int unit_rows;                     /* rows of the patch that a unit covers */
    int unit_row[TCONV_WGMMA_GROUPS][TCONV_WGMMA_UNITS];                  /* first position row, from the tile's */
    int unit_column[TCONV_WGMMA_GROUPS][TCONV_WGMMA_UNITS], unit_columns; /* first position column; how many */
    int run_columns; /* of a row, where positions run on over rows as if they were one; else 0 */
    int unit_pixel[TCONV_WGMMA_GROUPS][TCONV_WGMMA_UNITS]; /* of the patch: where tap (0, 0) of its first pixel lies */
    int chunk_slots[TCONV_WGMMA_GROUPS], max_chunk_slots, slot_step; /* pixels from a slot's taps to the next's */
    int column_taps[TCONV_WGMMA_UNITS], column_step;                 /* unit 0 has as many as unit 1, or one more */
    int group_weights, unit_weights; /* in 16 bytes: from the weights of a group, a unit to the next; 0: they share */
    int step_weights, step_pixels;   /* from a step to the next */
    uint32_t weights_leading;        /* bytes from a half of the weights' K to the other */
    uint32_t pixels_leading; /* bytes from a half of the pixels' K to the other; transposed, from a box to the next */
    tconv_wgmma_order order[TCONV_WGMMA_UNITS];
    bool same_order; /* of both units, which then multiply together */

    int stride_h, row_residue[TCONV_WGMMA_GROUPS];
    int column_phases;  /* 1 or 2: the units of a warpgroup are two column phases */
    int fold_log2;      /* 1: folded, else 0 */
    int row_pixels;     /* columns of dst for each position: 2 for column phases, and folded */
    int first_phase;    /* which of them has residue 0 */
    bool bulk_store;    /* whether the copy engine writes rows, but for their ends */
    int bulk_period;    /* channels after which rows of dst lie alike modulo 16 bytes */
    bool staged_shifts; /* whether rows of dst begin anywhere but at multiples of 16 bytes */
    int store_vector;   /* if not by bulk: elements that are stored at once */
    bool release_early; /* buffers of sums that were read are told to be empty where there is no other to store */
    bool rows_together; /* the same warps store both row phases of a run, in the order of dst */

    int stages, boxes, slots; /* buffers of converted patches, of patches as they lie in src, of weights */
    int staged_turns;         /* 1 or 2: buffers of sums that a warp has */
    bool resident;  /* all of a block's weights stay in the slots: its tiles are of the same output channels */
    int box_copies; /* boxes that a chunk is copied in */
    /* Where planes are operands, but have to be moved to their place. A chunk is copied in parts of so many pixels, in rows of
     * `pitch` pixels, and a part in a copy for each of the channels that a row of the map has: those after which one begins at a
     * multiple of 16 bytes again. */
    int box_parts, part_pixels, part_pitch, row_channels;
    uint32_t copy_bytes, copied_bytes; /* from one copy to the next in a box; what all of a chunk bring */
    int alignment; /* bytes at whose multiples all channels begin: 8, 4 or 2; 0 where nothing is moved */
    int src_shift; /* pixels by which src begins past a multiple of 16 bytes */
    uint32_t stage_bytes, box_bytes, slot_bytes;
};

typedef void tconv_wgmma_kernel(tconv_wgmma_parameters layer, CUtensorMap map);

enum tconv_wgmma_mode { TCONV_WGMMA_TF32, TCONV_WGMMA_STRICT, TCONV_WGMMA_F16, TCONV_WGMMA_BF16 };

/* With those that copy, convert and store; in strict f32 the registers do not do for more. */
constexpr int tconv_wgmma_threads(tconv_wgmma_mode mode)
{
    return mode == TCONV_WGMMA_STRICT ? 512 : 640;
}

/* Warps that store what a warpgroup stages. */
constexpr int tconv_wgmma_store_warps(tconv_wgmma_mode mode)
{
    return mode == TCONV_WGMMA_STRICT ? 1 : 2;
}

/* In strict f32 the sums of strokes are added in f32, which may be off by a quarter of their number (where they are alike):
 * within the bound of 16 for so many. */
#define TCONV_WGMMA_MAX_STROKES 48

/* The kernels of a mode, by N. Those that the registers do not hold are not there: N = 0. */
#define TCONV_WGMMA_SHAPES 4
struct tconv_wgmma_shape {
    int N;
    tconv_wgmma_kernel *kernel;
};
extern const tconv_wgmma_shape tconv_wgmma_tf32_shapes[TCONV_WGMMA_SHAPES];
extern const tconv_wgmma_shape tconv_wgmma_strict_shapes[TCONV_WGMMA_SHAPES];
extern const tconv_wgmma_shape tconv_wgmma_f16_shapes[TCONV_WGMMA_SHAPES];
extern const tconv_wgmma_shape tconv_wgmma_bf16_shapes[TCONV_WGMMA_SHAPES];

/* Of the 16-bit types, where planes of src are operands as they lie. */
#define TCONV_WGMMA_TRANSPOSED_SHAPES 2
extern const tconv_wgmma_shape tconv_wgmma_f16_transposed_shapes[TCONV_WGMMA_TRANSPOSED_SHAPES];
extern const tconv_wgmma_shape tconv_wgmma_bf16_transposed_shapes[TCONV_WGMMA_TRANSPOSED_SHAPES];

/* How the weights lie: what the packing kernel is told beside the layer. */
struct tconv_wgmma_packing {
    tconv_weight_strides from;
    int group_in, group_out, blocks, group_blocks, block_channels, group_channels, tile_channels, stack;
    int chunks, chunk_channels, steps, max_chunk_slots, groups, units; /* groups, units: 1 where they share weights */
    int slot_columns, quad_rows, slot_rows; /* where a stack's overlap: columns of taps, rows of 16 bytes; else 0 */
    int fold;                               /* 2: folded, else 1 */
    int row_taps[TCONV_WGMMA_GROUPS], first_kernel_row[TCONV_WGMMA_GROUPS], kernel_row_step;
    int column_taps[TCONV_WGMMA_UNITS], first_kernel_column[TCONV_WGMMA_UNITS], kernel_column_step;
    int kernel_rows, kernel_columns;
};

tconv_status tconv_wgmma_pack(const tconv_wgmma_packing *packing, tconv_wgmma_mode mode, const void *weights,
                              void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::wgmma

#endif
