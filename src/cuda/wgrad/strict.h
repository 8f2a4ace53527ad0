/* The kernels of cuda_wgrad by wgmma in strict f32, whose products are three of TF32 (strict_kernel.cuh). */
#ifndef TCONV_CUDA_WGRAD_STRICT_H
#define TCONV_CUDA_WGRAD_STRICT_H

#include "../gemm/shape.h"

TCONV_ROOM_BEGIN(tconv::wgrad)

enum {
    RAW_BARRIER_BYTES = 8 * MAX_STAGES, /* behind the other barriers: for the boxes of src that are to be split */
    STRICT_PLANES = 2                   /* of src in a stage: big parts, and small parts behind them */
};

TCONV_ROOM_END

#endif
