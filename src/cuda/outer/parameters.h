/* What the kernel of cuda_outer is told, and which kernels there are. */
#ifndef TCONV_CUDA_OUTER_PARAMETERS_H
#define TCONV_CUDA_OUTER_PARAMETERS_H

#include "../../core/impl.h"
#include "tiles.h"

namespace tconv::outer
{

constexpr int MAX_TAPS = 32;   /* of an axis */
constexpr int MAX_SLOTS = 256; /* of an axis, all groups of taps together */
constexpr int MAX_WARPS = 8;   /* of a block */
constexpr int LANES = 32;
constexpr int STRICT_STEPS = 4; /* of K, whose sums in 3xTF32 are the tensor cores' */
constexpr int MAX_PIXELS = 64;  /* of a K-tile */

/* Factors of f32: rounded to TF32, or split in two (3xTF32); of 16 bits as they are. */
enum mode { MODE_TF32, MODE_STRICT, MODE_F16, MODE_BF16, MODES };

/*
 * An axis of a K-tile, which is a box of inputs. The outputs that its taps reach from neighbouring inputs are `stride`
 * apart; in shared memory those of a residue follow one another, in slots, so that the slot of a tap is that of the first
 * input, and one more for each next input.
 */
struct tile_axis {
    int in, out, stride;
    int tile_log2;                  /* inputs of a K-tile, a power of two */
    int tiles;                      /* K-tiles along it */
    int16_t first[MAX_TAPS + 1];    /* of a group of taps: its first slot among all; behind the last their number */
    int16_t tap_slot[MAX_TAPS];     /* by place in the order: the slot of the tap at input 0, in its group */
    int16_t slot_offset[MAX_SLOTS]; /* the slot's output, less stride times the K-tile's first input */
};

struct parameters {
    const void *src, *diff_dst;
    float *slices;
    tconv_strides src_strides, dst_strides;
    sum_tiles tiles;
    tile_axis rows, columns;
    int images, images_log2, image_tiles; /* images_log2: images of a K-tile */
    int k_tiles, splits;
    int warps_m;
    int k_pixels;             /* of a K-tile */
    int src_pitch, dst_pitch; /* bytes from a pixel (slot) to the next in shared memory */
    int src_bytes;            /* of a stage, in front of the slots */
    int table_bytes;          /* of shared memory, before the stages: the block's tables */
    int stage_bytes, stages;
    int flush_tiles; /* K-tiles after which sums are added to the slice */
};

struct kernel_choice {
    const void *functions[2]; /* for channels that are no vectors of 16 bytes in memory, and for those that are */
    int height, width;        /* of a warp tile, in fragments of 16 input channels and of 8 pairs */
    int resident_warps;       /* that a multiprocessor has registers for */
};

constexpr int KERNELS_F32 = 4, KERNELS_STRICT = 3, KERNELS_HALF = 4;
extern const kernel_choice kernels_tf32[KERNELS_F32], kernels_strict[KERNELS_STRICT];
extern const kernel_choice kernels_f16[KERNELS_HALF], kernels_bf16[KERNELS_HALF];

} // namespace tconv::outer

#endif
