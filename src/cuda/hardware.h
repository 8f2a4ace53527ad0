/* What NVIDIA's hardware and instructions fix, once for the host and the kernels. */
#ifndef TCONV_CUDA_HARDWARE_H
#define TCONV_CUDA_HARDWARE_H

#include "room.h"

TCONV_ROOM_BEGIN(tconv)

enum {
    WARP = 32,           /* lanes (PTX ISA) */
    WARPGROUP_WARPS = 4, /* PTX ISA */
    SECTOR_BYTES = 32,   /* bytes, of the memory and the second-level cache */
    VECTOR_BYTES = 16,   /* bytes that a thread loads, stores or copies at once */

    /* Hopper's wgmma. */
    MMA_M = 64,                       /* rows: M of every wgmma (PTX ISA) */
    MMA_K_BYTES = 32,                 /* bytes: K of every wgmma (PTX ISA) */
    MMA_A_BYTES = 64 * 32,            /* of the A operand of one wgmma, in one plane */
    CORE_ROWS = 8,                    /* rows of a core matrix (PTX ISA): pixels that are neighbours in any operand */
    CORE_ROW_BYTES = 16,              /* bytes of a row of a core matrix (PTX ISA): 4 channels of f32, 8 of 16 bits */
    WARP_M = 16,                      /* rows of M whose accumulators a warp has (PTX ISA) */
    HOPPER_SHARED_BYTES = 227 * 1024, /* of a thread block of compute capability 9.0, static and dynamic */
    DEPENDENT_LAUNCH_CAPABILITY = 90, /* major * 10 + minor, of programmatic dependent launch */

    /* TMA (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, cp.async.bulk.tensor). */
    MAX_TMA_BOX = 256,     /* elements of a box along each axis */
    BOX_ALIGNMENT = 16,    /* bytes, of the addresses and strides that TMA takes */
    BOX_DESTINATION = 128, /* bytes at whose multiples a box begins in shared memory */
    MAX_BOX_STEP = 8,      /* from an element that a box has to the next (elementStrides) */

    /* TMA's im2col mode: the pixels of a box, and how far its corners are from the tensor's, and pixels from where the map
     * has them (cuTensorMapEncodeIm2col, pixelBoxLowerCorner; PTX ISA, im2colOffsets). */
    MAX_IM2COL_PIXELS = 1024,
    MIN_IM2COL_CORNER = -128,
    MAX_IM2COL_CORNER = 127,
    MAX_IM2COL_OFFSET = 255
};

TCONV_ROOM_END

#endif
