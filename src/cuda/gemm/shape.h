/* What Hopper's GEMMs have alike beside the hardware's numbers, for the host and the kernels. */
#ifndef TCONV_CUDA_GEMM_SHAPE_H
#define TCONV_CUDA_GEMM_SHAPE_H

#include "../hardware.h"

TCONV_ROOM_BEGIN(tconv)

enum {
    WARPGROUPS = 2, /* consumer warpgroups: those that multiply a block tile */
    MAX_STAGES = 8  /* of one pipeline: no more was of use */
};

TCONV_ROOM_END

#endif
