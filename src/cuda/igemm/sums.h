/* cuda_igemm with sums in f32 for outputs, whatever the dtype: parts of sums that cuda_dgrad adds. */
#ifndef TCONV_CUDA_IGEMM_SUMS_H
#define TCONV_CUDA_IGEMM_SUMS_H

#include "../../core/impl.h"

namespace tconv::igemm
{

/* Not in a list: the strides of dst are those of f32, and there is no bias. */
extern const tconv_implementation sums;

} // namespace tconv::igemm

#endif
