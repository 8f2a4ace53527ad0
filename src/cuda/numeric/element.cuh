/* The types that elements of src, weights, bias and dst are stored as, and those in which they are multiplied and
 * summed (f32 for f16 and bf16, whose products are exact in it). Every store rounds once, to nearest even. */
#ifndef TCONV_CUDA_NUMERIC_ELEMENT_CUH
#define TCONV_CUDA_NUMERIC_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tconv/tconv.h"

namespace tconv
{

template <class Element> struct element_traits {
    using compute = float;
};
template <> struct element_traits<double> {
    using compute = double;
};
template <class Element> using compute_type = typename element_traits<Element>::compute;

/* Calls with an element of dtype, whose value means nothing: its type chooses a kernel. */
template <class With> auto with_element(tconv_dtype dtype, With with)
{
    return dtype == TCONV_F32   ? with(float())
           : dtype == TCONV_F64 ? with(double())
           : dtype == TCONV_F16 ? with(__half())
                                : with(__nv_bfloat16());
}

static __device__ __forceinline__ float to_compute(float value)
{
    return value;
}
static __device__ __forceinline__ double to_compute(double value)
{
    return value;
}
static __device__ __forceinline__ float to_compute(__half value)
{
    return __half2float(value);
}
static __device__ __forceinline__ float to_compute(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

template <class Element> __device__ __forceinline__ Element from_compute(compute_type<Element> value)
{
    return value;
}
template <> __device__ __forceinline__ __half from_compute<__half>(float value)
{
    return __float2half_rn(value);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_compute<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}

/* A vector of elements, which are loaded or stored at once; its address is a multiple of its size. */
template <class Element, int count>
struct alignas(sizeof(Element) * count > 16 ? 16 : sizeof(Element) * count) element_vector {
    Element at[count];
};

} // namespace tconv

#endif
