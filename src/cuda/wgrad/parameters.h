/* The parameters of cuda_wgrad's kernels. */
#ifndef TCONV_CUDA_WGRAD_PARAMETERS_H
#define TCONV_CUDA_WGRAD_PARAMETERS_H

#include "../../core/impl.h"
#include "../hardware.h"
#include "../numeric/divisor.h"
#include "tiles.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

enum {
    MAX_TAPS = 32,                 /* taps of an axis */
    MAX_SLOTS = 256,               /* slots of an axis, for one group of taps */
    SLOT_BLOCK = 8,                /* the slots of each two residues begin at a multiple: 128 bytes, where TMA writes */
    MAX_WARPS = 8,                 /* warps of a block by mma.sync */
    LINE_BYTES = 16,               /* lines begin at multiples of these bytes of a row */
    MAX_LINE_CHANNELS = 256,       /* channels of whose lines a block sums the bias: one for each thread */
    BOX_TABLE_BYTES = 16,          /* bytes of a block's table entry for a box of every K-tile (tile_box.cuh) */
    MOST_SRC_BOXES = 2,            /* boxes of src of a K-tile by LINES: each has 128 bytes of columns */
    STRICT_STEPS = 4,              /* steps of K that the tensor cores add in 3xTF32 before f32 instructions add */
    MAX_PIXELS = 64,               /* pixels of a K-tile */
    PIXELS_BEHIND = 4,             /* entries behind the last pixel's in its table, which is read a step ahead */
    STAGE_ALIGNMENT = 1024,        /* bytes, of the stages of a kernel by wgmma */
    BARRIER_BYTES = 128,           /* bytes of the barriers of a kernel by wgmma */
    WARPGROUP_BLOCK_THREADS = 512, /* threads of a kernel by wgmma: two consumer warpgroups and eight producer warps */
    WARPGROUP_PRODUCERS = 256,     /* the producers among them */
    BOX_BLOCK_THREADS = 384,       /* threads of a kernel by boxes: two consumer warpgroups and one of producers */
    BOX_CHANNELS = 64,             /* channels of a box: rows of 128 bytes */
    BOX_PIXELS = 64,               /* pixels of a K-tile of boxes */
    ONES_BYTES = 256               /* of the operand by which a kernel by boxes sums the bias: 16 rows of 8 channels */
};

/*
 * One axis of a K-tile, which is a box of inputs. The outputs that a tap reaches from neighbouring inputs are `stride`
 * apart. Taps whose outputs have the same residue share these outputs: in shared memory the outputs of a residue follow
 * one another, in rows that are called slots. The slot of a tap is the slot that it has at the first input, and one
 * more for each next input.
 */
typedef struct tile_axis {
    int in, out, stride;
    int tile_log2; /* a K-tile has 2^tile_log2 inputs */
    int tiles;     /* K-tiles along the axis */
    int extent;    /* slots of a residue: one for each input, and one for each input that a tap reaches further */
    int16_t first[MAX_TAPS + 1]; /* by group of taps: the number of its first residue; the last entry counts residues */
    int16_t least[MAX_TAPS]; /* by residue: the output of its first slot, less stride times the K-tile's first input */
    int16_t tap_residue[MAX_TAPS]; /* by place of a tap in the order: its residue, counted in its group */
    int16_t tap_slot[MAX_TAPS];    /* by place of a tap in the order: its slot at input 0, counted in its residue */
} tile_axis;

/* How a K-tile of the gradient of dst lies in shared memory in load mode LINES. A line is a shared-memory row that
 * holds all columns of an output row, for all taps of a group of kernel columns. There is one line for each channel, or
 * one for all channels; residues are those of the rows alone. The last members are about src in this load mode. */
typedef struct line_layout {
    int channels;        /* of a line: 1, or all channels of the layer where they are neighbours in memory */
    int length;          /* elements of a line, with its padding */
    int unit;            /* elements that one copy brings where TMA brings no lines */
    int residue_bytes;   /* bytes from a residue to the next */
    int twins;           /* neighbouring rows of M that are taps of neighbouring kernel columns */
    int src_box_pixels;  /* columns of a box of src; 0: TMA brings no src */
    int src_boxes;       /* boxes of src of a K-tile */
    int src_box_bytes;   /* bytes of a box of src */
    int src_row_columns; /* columns of a row of src where a box takes several rows as one; 0: it does not */
    bool src_vectors;    /* src is read by vectors of channels */
} line_layout;

/* The images of K-tiles are those of the layer, or of a layer with depth the planes of a volume of src; then K-tiles go through
 * volume after volume. With kernel plane t, image i meets image step * i + first + tap * t of the gradient of dst, where there
 * is one. In a layer of two axes that is image i. */
typedef struct image_axis {
    int in, out;     /* images of src, and of the gradient of dst */
    int tile_log2;   /* a K-tile has 2^tile_log2 images */
    int tiles;       /* K-tiles along the axis */
    int step;        /* 1 in a layer of two axes, where nothing below is used, and volumes is 1 */
    bool are_planes; /* the layer has depth */
    int first, tap, volumes;
    fast_divisor by_tiles, by_plane_tiles,
        by_planes;                  /* K-tiles along the axis; blocks of a kernel plane; kernel planes */
    int64_t src_beyond, dst_beyond; /* elements from the end of a volume's K-tiles to the next volume */
    int64_t dst_image;              /* elements from an image of the gradient of dst to the next */
} image_axis;

/* How a block that has all terms of its sums writes them to the gradient of the weights. */
typedef struct weight_store {
    void *at; /* the gradient of the weights; NULL: blocks write slices */
    tconv_weight_strides strides;
    bool outputs_inner; /* output channels are neighbours among the weights, not taps */
    bool accumulates;   /* the block adds to what the gradient holds */
    int pitch;          /* sums from an input channel's to the next's in shared memory */
} weight_store;

/* The taps of an axis in the order of wgrad_tap_order, for place_of and tap_at. */
typedef struct tap_divisors {
    int whole, longer; /* taps of each residue, and the residues that have one more */
    fast_divisor step, whole_taps, more_taps;
} tap_divisors;

/* A block divides by these numbers to find its tile and its taps, before it loads anything. The compiler's division would take five times
 * as long. */
typedef struct block_divisors {
    fast_divisor tiles, shared_tiles; /* of a slice, and of those as many as a cluster does not share */
    fast_divisor column_groups, row_groups, chunks, m_tiles, groups;
    fast_divisor splits;
    fast_divisor column_k_tiles, row_k_tiles;
    fast_divisor taps, column_taps, chunk; /* of a group of taps, and channels */
    fast_divisor residue_slots, row_slots, column_slots;
    tap_divisors rows, columns;
} block_divisors;

/* When the next kernel of the call begins. */
typedef enum dependents_time {
    AS_LOADS_END,  /* what adds slices: not before, or it would crowd where no block is */
    AS_BLOCKS_END, /* likewise, of a kernel by boxes: its last products take less time than another's, and what sums the bias would crowd */
    AS_BLOCKS_BEGIN /* what sums the bias of a large gradient of dst, beside the products */
} dependents_time;

typedef struct parameters {
    const void *src, *diff_dst; /* src: NULL to a kernel by boxes where the gradient of the bias alone is wanted */
    float *slices;
    void *bias_parts; /* partial sums of the gradient of the bias (double2), that blocks write; NULL: they do not */
    /* BOXES: taps that together have each output of the first so many rows and columns once, by place in the order. */
    uint32_t counting_rows, counting_columns;
    int counted_rows, counted_columns;
    tconv_strides src_strides,
        dst_strides; /* n: from an image of src to the next; from the image that it meets to the next's */
    sum_tiles tiles;
    block_divisors by;
    tile_axis rows, columns;
    image_axis images;
    int k_tiles, splits;
    int sharers; /* blocks of a multicast cluster, whose tiles are neighbours along the input channels; 1: no cluster */
    int warps_m; /* mma.sync: warps along the input channels */
    int k_pixels;      /* pixels of a K-tile */
    int src_pitch;     /* bytes in shared memory from a pixel of src to the next */
    int dst_pitch;     /* bytes in shared memory from a slot to the next; LINES: from a channel to the next */
    int row_pitch;     /* bytes in shared memory from a row of slots to the next */
    int column_pitch;  /* bytes in shared memory from the slot of an input to that of its neighbour along the columns */
    int src_unit;      /* LINES: neighbouring pixels of src that one load reads, 1, 2, 4 or 8 */
    int src_bytes;     /* bytes of src in a stage; the slots lie behind */
    int residue_slots; /* slots of a residue of rows and a residue of columns, with padding */
    int box_bytes;     /* bytes of a box of the gradient of dst, without padding; 0: TMA brings no such box */
    int box_columns; /* columns of a map of the gradient of dst from an input to the next: a stride, or 1 (plan_boxes.c) */
    line_layout lines; /* in load mode LINES */
    weight_store weights;
    int table_bytes; /* bytes of a block's tables in shared memory, before the stages (wgmma: behind them) */
    int stage_bytes, stages;
    dependents_time dependents;
    bool adds;       /* blocks add to what the slices hold */
    int flush_tiles; /* K-tiles after which a block adds its accumulators to the slice */
} parameters;

/* How a kernel loads src and the gradient of dst from memory. */
typedef enum load_mode {
    ELEMENTS,     /* element by element */
    LINES,        /* the gradient of dst by lines of output columns */
    CHANNELS,     /* both by vectors of channels */
    SRC_CHANNELS, /* src by vectors of channels, in 16 bits; the gradient of dst by elements */
    BOXES,        /* both by boxes of 64 channels */
    LOAD_MODES
} load_mode;

/* Returns whether the producers of a kernel by wgmma can sum the gradient of the bias from what they load, of 16 bits (half) or
 * not (slot_bias.cuh). */
TCONV_ROOM_CONSTANT bool producers_sum_bias(load_mode load, bool half)
{
    return load == LINES || (load == CHANNELS && !half);
}

TCONV_ROOM_END

#endif
