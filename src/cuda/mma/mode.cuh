/* What follows from a kernel's mode: its element, its layout, how its patch and its fragments lie. */
#ifndef TCONV_CUDA_MMA_MODE_CUH
#define TCONV_CUDA_MMA_MODE_CUH

#include <type_traits>

#include "../numeric/element.cuh"
#include "parameters.h"

namespace tconv::mma
{

template <mode MODE> constexpr bool IS_F16 = MODE == F16_NHWC || MODE == F16_NCHW;
template <mode MODE> constexpr bool IS_BF16 = MODE == BF16_NHWC || MODE == BF16_NCHW;

template <mode MODE>
using element_of = std::conditional_t<IS_F16<MODE>, __half, std::conditional_t<IS_BF16<MODE>, __nv_bfloat16, float>>;

/* Whether src and dst are NHWC. Kernels of 16-bit elements are made for one layout, so that they hold no code for the
 * other. */
template <mode MODE> __device__ __forceinline__ bool is_nhwc(const parameters &params)
{
    if constexpr (IS_F16<MODE> || IS_BF16<MODE>)
        return MODE == F16_NHWC || MODE == BF16_NHWC;
    else
        return params.nhwc;
}

} // namespace tconv::mma

#endif
