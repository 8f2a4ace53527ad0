/* The rows algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_ROWS_H
#define TCONV_CUDA_ROWS_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_rows": strided NCHW layers with few channels per group, whose time is that of writing dst, on tensor cores. */
extern const tconv_implementation tconv_cuda_rows;

#ifdef __cplusplus
}
#endif

#endif
