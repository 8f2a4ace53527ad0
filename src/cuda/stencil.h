/* The stencil algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_STENCIL_H
#define TCONV_CUDA_STENCIL_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_stencil": one input channel per group (depthwise), on any device. */
extern const tconv_implementation tconv_cuda_stencil;

#ifdef __cplusplus
}
#endif

#endif
