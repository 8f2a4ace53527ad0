/* The products algorithm as the list of implementations sees it. */
#ifndef TCONV_CUDA_PRODUCTS_H
#define TCONV_CUDA_PRODUCTS_H

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda_products": few output channels from many input channels, on tensor cores. */
extern const tconv_implementation tconv_cuda_products;

#ifdef __cplusplus
}
#endif

#endif
