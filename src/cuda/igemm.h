/* The implicit matrix product as the list of implementations sees it. */
#ifndef TCONV_CUDA_IGEMM_H
#define TCONV_CUDA_IGEMM_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_igemm": layers of many channels on Hopper, any stride and kernel, NHWC above all. */
extern const tconv_implementation tconv_cuda_igemm;

#ifdef __cplusplus
}
#endif

#endif
