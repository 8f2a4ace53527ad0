/* The tensor-core algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_MMA_H
#define TCONV_CUDA_MMA_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_mma": f32, f16 and bf16 with a fair number of channels per group, on any device with tensor cores. */
extern const tconv_implementation tconv_cuda_mma;

#ifdef __cplusplus
}
#endif

#endif
