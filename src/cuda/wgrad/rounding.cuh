/* The types of a mode's factors, and how f32 is rounded for the tensor cores. */
#ifndef TCONV_CUDA_WGRAD_ROUNDING_CUH
#define TCONV_CUDA_WGRAD_ROUNDING_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "../numeric/tf32.cuh"
#include "parameters.h"

namespace tconv::wgrad
{

template <numerics MODE>
using element_of =
    std::conditional_t<MODE == NUMERICS_F16, __half, std::conditional_t<MODE == NUMERICS_BF16, __nv_bfloat16, float>>;

template <numerics MODE> constexpr bool IS_HALF = MODE == NUMERICS_F16 || MODE == NUMERICS_BF16;

/* Rounds a factor to TF32, to nearest; in 3xTF32 small gets the exact rest. */
template <bool strict> __device__ __forceinline__ void round_factor(uint32_t &bits, uint32_t *small)
{
#if __CUDA_ARCH__ >= 900
    uint32_t big;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(big) : "f"(__uint_as_float(bits)));
    if (strict)
        *small = __float_as_uint(__uint_as_float(bits) - __uint_as_float(big));
    bits = big;
#else
    if (strict)
        split_for_mma(bits, small);
    else
        bits = round_for_mma(bits);
#endif
}

} // namespace tconv::wgrad

#endif
