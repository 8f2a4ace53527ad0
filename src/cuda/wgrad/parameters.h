/* What the kernel of cuda_wgrad is told, and which kernels there are. */
#ifndef TCONV_CUDA_WGRAD_PARAMETERS_H
#define TCONV_CUDA_WGRAD_PARAMETERS_H

#include <cuda.h>

#include "../../core/impl.h"
#include "tiles.h"

namespace tconv::wgrad
{

constexpr int MAX_TAPS = 32;   /* of an axis */
constexpr int MAX_SLOTS = 256; /* of an axis, of a group of taps */
constexpr int SLOT_BLOCK = 8;  /* slots of two residues begin at multiples of it: of 128 bytes, where TMA writes */
constexpr int MAX_WARPS = 8;   /* of a block */
constexpr int LANES = 32;
constexpr int LINE_BYTES = 16;                             /* at whose multiples lines begin */
constexpr int MAX_LINE_CHANNELS = 256;                     /* of whose lines a block sums the bias: one a thread */
constexpr int BOX_TABLE_BYTES = 16;                        /* of what a block knows of a box of every K-tile */
constexpr int MOST_SRC_BOXES = 2;                          /* LINES: of 128 bytes of columns */
constexpr int STRICT_STEPS = 4;                            /* of K, whose sums in 3xTF32 are the tensor cores' */
constexpr int MAX_PIXELS = 64;                             /* of a K-tile */
constexpr int PIXELS_BEHIND = 4;                           /* the last in their table, which is read a step ahead */
constexpr int STAGE_ALIGNMENT = 1024, BARRIER_BYTES = 128; /* of a kernel by wgmma, as this: */
constexpr int WARPGROUP_BLOCK_THREADS =
    512; /* of a kernel by wgmma: two warpgroups that multiply, eight warps that copy */

constexpr int BOX_BLOCK_THREADS = 384; /* of a kernel by boxes: two warpgroups that multiply, one that copies */
constexpr int BOX_CHANNELS = 64;       /* of a box, in rows of 128 bytes */
constexpr int BOX_PIXELS = 64;         /* of a K-tile of boxes */

/* Factors of f32: rounded to TF32, or split in two (3xTF32); of 16 bits as they are. */
enum mode { MODE_TF32, MODE_STRICT, MODE_F16, MODE_BF16, MODES };

/*
 * An axis of a K-tile, which is a box of inputs. The outputs that a tap reaches from neighbouring inputs are `stride` apart;
 * taps whose outputs are of the same residue share them. In shared memory those of a residue follow one another, in slots,
 * so that the slot of a tap is that of the first input, and one more for each next input.
 */
struct tile_axis {
    int in, out, stride;
    int tile_log2; /* inputs of a K-tile, a power of two */
    int tiles;     /* K-tiles along it */
    int extent;    /* slots of a residue: one for each input, and as many as the taps of any reach further */
    int16_t first[MAX_TAPS + 1]; /* of a group of taps: its first residue among all; behind the last their number */
    int16_t least[MAX_TAPS];     /* of a residue: its first slot's output, less stride times the K-tile's first input */
    int16_t tap_residue[MAX_TAPS]; /* by place in the order: the tap's, in its group */
    int16_t tap_slot[MAX_TAPS];    /* the slot of the tap at input 0, of its residue's */
};

/* Slots as lines of outputs: a line has all columns of a row, for all taps of a group of columns. Where K-tiles lie in shared
 * memory line by line, for each channel one, residues are those of rows alone. */
struct line_slots {
    int channels;                 /* of a line: 1, or all of the layer, whose outputs lie beside each other */
    int length;                   /* elements of a line, what pads it included */
    int unit;                     /* elements of lines that are copied at once, where TMA brings none */
    int residue_bytes;            /* from a residue to the next */
    int twins;                    /* rows of M that follow one another and are taps of neighbouring columns */
    int src_box_pixels;           /* TMA brings src so many columns at a time; 0: it brings none */
    int src_boxes, src_box_bytes; /* of a K-tile; of each */
    int src_row_columns;          /* of src's rows, of which TMA takes several as one; 0: it does not */
    bool src_vectors;             /* 16 bytes of channels of src are read at once */
};

/* The gradient of weights, where a block writes its sums to it. */
/* Of the tables beside a block's sums (store_weights.cuh), of so many pairs. */
constexpr int64_t weight_table_bytes(int64_t pairs)
{
    return pairs * (int64_t)(sizeof(int) + sizeof(int64_t)) + (int64_t)sizeof(int);
}

struct weights_of_block {
    void *at; /* NULL: blocks write slices */
    tconv_weight_strides strides;
    bool outputs_inner; /* output channels are neighbours among them, not taps */
    bool accumulates;   /* to what it holds */
    int pitch;          /* sums from an input channel's to the next's in shared memory */
};

struct parameters {
    const void *src, *diff_dst;
    float *slices;
    /* A block's sums of the gradient of the bias and what is lost of them; NULL: they have none. */
    double2 *bias_parts;
    tconv_strides src_strides, dst_strides;
    sum_tiles tiles;
    tile_axis rows, columns;
    int images, images_log2, image_tiles; /* images_log2: images of a K-tile */
    int k_tiles, splits;
    int sharers; /* blocks of a cluster, which are neighbours along the input channels: TMA brings them the gradient of dst
                    at once; 1: there is no cluster */
    int warps_m;
    int k_pixels;             /* of a K-tile */
    int src_pitch, dst_pitch; /* bytes from a pixel (slot; LINES: channel) to the next in shared memory */
    int row_pitch;            /* bytes from a row of slots to the next */
    int column_pitch;         /* from the slot of an input to that of its neighbour */
    int src_unit;             /* LINES: neighbouring pixels of src that are read at once, 1, 2, 4 or 8 */
    int src_bytes;            /* of a stage, in front of the slots */
    int residue_slots;        /* slots of a residue of rows and one of columns, what fills them up included */
    int box_bytes;            /* of these without that: what TMA brings; 0: it brings none */
    line_slots lines;         /* LINES: */
    weights_of_block weights;
    int table_bytes; /* of shared memory, before the stages: the block's tables */
    int stage_bytes, stages;
    bool adds;       /* to what the slice holds */
    int flush_tiles; /* K-tiles after which sums are added to the slice */
};

/* How src and the gradient of dst are read: by elements, or by several at once that are neighbours in memory: lines of outputs,
 * 16 bytes of channels of both, or of src alone in 16 bits, or boxes of 64 channels of both. */
enum reading { ELEMENTS, LINES, CHANNELS, SRC_CHANNELS, BOXES, READINGS };

/* Whether blocks of a kernel sum the gradient of the bias of what they read so, of 16 bits or not: those of 16 bits that read
 * channels read them by boxes where there are many. */
TCONV_BOTH constexpr bool sums_bias(reading way, bool half)
{
    return way == LINES || way == BOXES || (way == CHANNELS && !half);
}

/* The tensor maps of the gradient of dst, and of src for LINES and BOXES. */
struct tensor_maps {
    CUtensorMap dst, src;
};

/* A kernel by mma.sync, whose warp tiles may be any number, or by wgmma, with one tile of the block; one by boxes has both
 * operands in shared memory. */
struct kernel_choice {
    const void *functions[READINGS];
    int channels, pairs; /* of the tile */
    int resident_warps;  /* that a multiprocessor has registers for */
    int most_pixels;     /* of a K-tile */
    bool by_warpgroups, by_boxes;
};

constexpr int KERNELS_F32 = 4, KERNELS_STRICT = 3, KERNELS_HALF = 4;
extern const kernel_choice kernels_tf32[KERNELS_F32], kernels_strict[KERNELS_STRICT];
extern const kernel_choice kernels_f16[KERNELS_HALF], kernels_bf16[KERNELS_HALF];
constexpr int WARPGROUP_KERNELS = 5;
extern const kernel_choice warpgroup_kernels_tf32[WARPGROUP_KERNELS];
extern const kernel_choice warpgroup_kernels_f16[WARPGROUP_KERNELS], warpgroup_kernels_bf16[WARPGROUP_KERNELS];

constexpr int BOX_KERNELS = 8;
extern const kernel_choice box_kernels_f16[BOX_KERNELS], box_kernels_bf16[BOX_KERNELS];

} // namespace tconv::wgrad

#endif
