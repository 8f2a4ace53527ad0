/* The rows kernels for f16 and bf16. */
#include "../numeric/element.cuh"
#include "kernel.cuh"

namespace tconv::rows
{

namespace
{

template <class Element> kernel_function find_half(bool direct, bool narrow, int64_t column_stride)
{
    return !direct  ? find_kernel<half_mode<Element, false, false>>(column_stride)
           : narrow ? find_kernel<half_mode<Element, true, true>>(column_stride)
                    : find_kernel<half_mode<Element, true, false>>(column_stride);
}

} // namespace

kernel_function half_kernel(tconv_dtype dtype, bool direct, bool narrow, int64_t column_stride)
{
    return dtype == TCONV_F16 ? find_half<__half>(direct, narrow, column_stride)
                              : find_half<__nv_bfloat16>(direct, narrow, column_stride);
}

} // namespace tconv::rows
