/* The cells algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_CELLS_H
#define TCONV_CUDA_CELLS_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_cells": f32 layers of many channels in NCHW on Hopper, column strides 1, 2 and 4, in TF32 and in strict f32. */
extern const tconv_implementation tconv_cuda_cells;

#ifdef __cplusplus
}
#endif

#endif
