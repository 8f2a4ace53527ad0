/* The types that elements of src, weights, bias and dst are stored as, and those in which they are multiplied and
 * summed (f32 for f16 and bf16, whose products are exact in it). Every store rounds once, to nearest even. */
#ifndef TCONV_CUDA_NUMERIC_ELEMENT_CUH
#define TCONV_CUDA_NUMERIC_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "tconv/tconv.h"

namespace tconv
{

template <class Element> using compute_type = std::conditional_t<std::is_same<Element, double>::value, double, float>;

/* Calls with an element of dtype, whose value means nothing: its type chooses a kernel. */
template <class With> auto with_element(tconv_dtype dtype, With with)
{
    return dtype == TCONV_F32   ? with(float())
           : dtype == TCONV_F64 ? with(double())
           : dtype == TCONV_F16 ? with(__half())
                                : with(__nv_bfloat16());
}

template <class Element> __device__ __forceinline__ compute_type<Element> to_compute(Element value)
{
    return static_cast<compute_type<Element>>(value);
}

template <class Element> __device__ __forceinline__ Element from_compute(compute_type<Element> value)
{
    return static_cast<Element>(value);
}

/* A vector of elements, which are loaded or stored at once; its address is a multiple of its size. */
template <class Element, int count>
struct alignas(sizeof(Element) * count > 16 ? 16 : sizeof(Element) * count) element_vector {
    Element at[count];
};

} // namespace tconv

#endif
