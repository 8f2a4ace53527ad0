/*
 * The kernels of cuda_wgrad. Each family has a list of tiles below, from which kernels.c makes what planning has to
 * know of them and the configs_*.cu make the kernels, in the same order.
 */
#ifndef TCONV_CUDA_WGRAD_KERNELS_H
#define TCONV_CUDA_WGRAD_KERNELS_H

#include "../gemm/shape.h"
#include "../numeric/numerics.h"
#include "parameters.h"
#include "strict.h"

/* mma.sync: warp tiles of HEIGHT fragments of 16 input channels by WIDTH fragments of 8 GEMM columns. */
#define WGRAD_MMA_TILES(tile)        tile(1, 8) tile(2, 8) tile(4, 8) tile(4, 6)
#define WGRAD_MMA_STRICT_TILES(tile) tile(1, 8) tile(2, 8) tile(2, 6)

/* wgmma: block tiles of M x 64 GEMM columns for each consumer warpgroup by N input channels. */
#define WGRAD_WGMMA_TILES(tile)        tile(1, 128) tile(2, 128) tile(2, 64) tile(3, 64) tile(4, 64)
#define WGRAD_WGMMA_STRICT_TILES(tile) tile(1, 64) tile(2, 64) tile(1, 128)

/* wgmma with both operands in shared memory as boxes: the same, for 16 bits. */
#define WGRAD_BOX_TILES(tile)                                                                                          \
    tile(1, 64) tile(2, 64) tile(3, 64) tile(1, 128) tile(2, 128) tile(3, 128) tile(2, 192) tile(1, 256)

/* The warps of a kernel by mma.sync for which a multiprocessor has registers: 255, 168 or 128 a thread. */
#define WGRAD_MMA_RESIDENT_WARPS(strict, height) ((strict) || (height) == 4 ? 8 : (height) == 2 ? 12 : 16)

/* The pixels of src of a K-tile that the producers of a kernel by wgmma hold in registers, for elements of `size`
 * bytes. */
#define WGRAD_HELD_PIXELS(channels, size) (HELD_SRC_BYTES / ((channels) * (size)))

TCONV_ROOM_BEGIN(tconv::wgrad)

typedef enum kernel_family { BY_MMA, BY_WGMMA, BY_BOXES } kernel_family;

enum { HELD_SRC_BYTES = WARPGROUP_PRODUCERS * 4 * VECTOR_BYTES }; /* each producer holds 4 vectors of src */

/* The kernels of a tile, by load mode; NULL where there is none. */
typedef struct kernel_functions {
    const void *at[LOAD_MODES];
} kernel_functions;

/* Return the kernels of a family's tile with a number. In a build without CUDA they are NULL. */
kernel_functions tconv_wgrad_mma_f32(numerics math, int number);
kernel_functions tconv_wgrad_mma_half(numerics math, int number);
kernel_functions tconv_wgrad_wgmma_tf32(int number);
kernel_functions tconv_wgrad_wgmma_strict(int number);
kernel_functions tconv_wgrad_wgmma_f16(int number);
kernel_functions tconv_wgrad_wgmma_bf16(int number);
kernel_functions tconv_wgrad_boxes_f16(int number);
kernel_functions tconv_wgrad_boxes_bf16(int number);

/* What planning knows of a kernel. A block of a kernel by mma.sync has any number of warp tiles; a block of the others
 * has one tile. */
typedef struct kernel_choice {
    kernel_family family;
    int channels;       /* input channels of the tile */
    int pairs;          /* GEMM columns of the tile: pairs of a tap and an output channel */
    int resident_warps; /* warps for which a multiprocessor has registers */
    int most_pixels;    /* of a K-tile */
} kernel_choice;

typedef struct kernel_list {
    const kernel_choice *kernels;
    int count;
} kernel_list;

/* Returns the kernels of a family for an arithmetic; there may be none. */
kernel_list tconv_wgrad_kernels(kernel_family family, numerics math);

/* Returns the kernel of one of these for a load mode; NULL in a build without CUDA. */
const void *tconv_wgrad_kernel(const kernel_choice *kernel, numerics math, load_mode load);

TCONV_ROOM_END

#endif
