/* cuda_igemm whose outputs are sums in f32, whatever the dtype is: partial sums, which cuda_dgrad adds. */
#ifndef TCONV_CUDA_IGEMM_SUMS_H
#define TCONV_CUDA_IGEMM_SUMS_H

#include "../../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* It is in no list. The strides of dst are those of f32, and there is no bias. */
extern const tconv_implementation tconv_igemm_sums;

#ifdef __cplusplus
}
#endif

#endif
