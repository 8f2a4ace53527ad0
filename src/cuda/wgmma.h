/* The wgmma algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_WGMMA_H
#define TCONV_CUDA_WGMMA_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_wgmma": NCHW layers of many channels on Hopper, strides 1 and 2. */
extern const tconv_implementation tconv_cuda_wgmma;

#ifdef __cplusplus
}
#endif

#endif
