/*
 * What the kernels of cuda_frames are told. A product has a row for each output channel and tap of a group, as the weights
 * of an input channel lie, and a column for each pixel of src.
 *
 * A thread block has whole output channels with all their taps, and whole images, or a strip of columns of images of one row
 * with the columns before that its outputs reach back over, so that outputs are summed from its own products alone. Its warps
 * are SLICES, which share the input channels, and one or two parts of its columns; or, in the wide kernel, share its rows and columns.
 */
#ifndef TCONV_CUDA_FRAMES_PARAMETERS_H
#define TCONV_CUDA_FRAMES_PARAMETERS_H

#include "../epilogue/layer_posts.h"
#include "../hardware.h"
#include "../numeric/divisor.h"
#include "../numeric/numerics.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv::frames)

enum {
    SLICES = 8,      /* of the input channels of a group; a sum's order follows from it */
    STEP_WORDS = 8,  /* words of 4 bytes of a pixel's channels in a step, which is K of an MMA */
    LANE_BYTES = 16, /* of the weights of an input channel that a lane loads in a step: neighbouring rows */
    TILE_LANES = 8,  /* lanes that load the weights of an input channel in a step */
    TILE_N_LOG2 = 3,
    TILE_N = 1 << TILE_N_LOG2, /* columns of an MMA, */
    MMA_ROWS = 16,             /* and its rows */
    FEW_COLUMNS = 8,           /* of a kernel for few columns: one tile */
    PART_COLUMNS = 32,         /* of a kernel for many: four tiles */
    TILES_AT_ONCE = 2,         /* tiles whose loads are under way together */
    MAX_PARTS = 2,             /* of the columns of a block */
    STAGE_STEPS = 4,           /* of a stage of src, or a multiple: with STEP_WORDS more, pixels meet in no bank */
    FEW_AT_ONCE = 4,           /* words of src that a lane has under way, of the kernel for few columns */
    MANY_AT_ONCE = 8,
    MANY_HALF_AT_ONCE = 6,                                       /* of 16 bits: two loads a word */
    STAGE_WORDS = PART_COLUMNS * (STAGE_STEPS + 1) * STEP_WORDS, /* of a warp, at most */
    MAX_COLUMNS = PART_COLUMNS * MAX_PARTS,
    WIDE_WARPS = 16, /* of the wide kernel, and the products of its block, at most: */
    WIDE_ROWS = 128,
    WIDE_COLUMNS = 128,
    WIDE_OUTS = 4,      /* output channels that a thread stores at once */
    WIDE_CHANNELS = 32, /* of a stage of weights and src, */
    WIDE_BUFFERS = 3    /* of which so many are there at a time */
};

/* The kernels of an arithmetic, by the columns of a block: up to FEW_COLUMNS, up to MAX_COLUMNS in parts of PART_COLUMNS, and
 * up to WIDE_COLUMNS. */
typedef enum frames_kernel { FRAMES_FEW, FRAMES_MANY, FRAMES_WIDE } frames_kernel;

/* An axis. Output o sums, of each input i from the first on, the product of tap (o + pad - stride * i) / dilation, where
 * the division is exact and the kernel has that tap. */
typedef struct frames_axis {
    int in, out, pad;
    int span; /* from the first tap to the last: dilation * (kernel - 1) */
    fast_divisor stride, dilation;
} frames_axis;

/*
 * The carry of a stream of columns (tconv.h, A STREAM OF FRAMES). Of place j of a row of outputs, counted from the chunk's
 * first,
 *
 *     sum(j) = (j < tail ? carry[j] : 0) + products of input i by tap (j - stride * i) / dilation, by rising i
 *
 * is an output where the chunk has that many, and else carry[j - outputs]. A flush is a chunk of `tail` outputs without inputs.
 */
typedef struct frames_carry {
    void *sums;           /* [slots][channels][rows of outputs][tail]; NULL where there is no tail */
    int64_t slot_count;   /* 0: the layer is no stream */
    const int32_t *slots; /* these three as in tconv_step */
    const uint8_t *reset, *active;
    fast_divisor tail_places; /* tail, or 1 */
    int tail, channels;
    bool narrow; /* of the layer's 16 bits; else f32 */
} frames_carry;

typedef struct parameters {
    const void *src;
    const void *weights;
    const void *bias; /* or NULL */
    void *dst;
    layer_posts posts;
    tconv_strides src_strides, dst_strides;
    int64_t weight_pitch; /* elements from an input channel's weights to the next one's */
    frames_axis rows, columns;
    frames_carry carry;
    int kernel_columns, taps;
    int group_in, group_out;
    int block_out;   /* output channels of a block */
    int tile_images; /* images of a block */
    int images;
    int row_tiles;        /* of a block, one after another: TILE_LANES * LANE_BYTES of rows */
    int slice_steps;      /* of the input channels of a slice */
    int stage_steps;      /* that src is brought to shared memory for at a time */
    int stage_pitch;      /* words from a pixel of a stage to the next */
    int stage_words;      /* of a warp */
    int stage_lanes_log2; /* lanes that load neighbouring pixels; the others load other channels */
    int product_pitch;    /* products from a column to the next in shared memory */
    bool is_one_row;      /* src and outputs have one row, the kernel too, and columns no dilation: */
    int more_taps,
        last_tap_rest; /* taps beyond its first of output 0 of a stride; those up to this rest have so many */
    int together;      /* neighbouring pixels that the wide kernel copies at a time: 4 bytes, or one */
    int parts_log2;    /* of a block's output channels, which different threads store */
    fast_divisor out_tiles, image_tiles; /* of a group; of all images */
    fast_divisor strips;                 /* of an image; with more than one: */
    int strip_step;                      /* columns of src from a strip to the next */
    int strip_back;                      /* columns of src that outputs reach back over */
    fast_divisor row_outs, strip_outs;   /* rows of outputs; columns of outputs of a strip, at most, and of the tail */
    fast_divisor image_pixels, image_columns; /* of an image, or strip, of a block, and of its rows */
    fast_divisor block_channels;              /* block_out */
} parameters;

/* The rows of a tile. */
TCONV_ROOM_CONSTANT int tile_rows(int element_size)
{
    return TILE_LANES * LANE_BYTES / element_size;
}

/* Bytes from an input channel of a stage of the wide kernel to the next: its weights or its pixels, and 16 bytes by which
 * channels meet in no bank. */
TCONV_ROOM_CONSTANT int wide_pitch(int element_size)
{
    return WIDE_COLUMNS * element_size + LANE_BYTES;
}

/* Return a kernel of an arithmetic, f32 or 16-bit. by_vectors: LANE_BYTES of weights begin at multiples of that and are
 * loaded at once. In a build without CUDA NULL. */
const void *tconv_frames_f32_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors);
const void *tconv_frames_half_kernel(numerics arithmetic, frames_kernel kind, bool by_vectors);

TCONV_ROOM_END

#endif
