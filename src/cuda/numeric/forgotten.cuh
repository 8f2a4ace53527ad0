/* Numbers whose origin the compiler does not see. */
#ifndef TCONV_CUDA_NUMERIC_FORGOTTEN_CUH
#define TCONV_CUDA_NUMERIC_FORGOTTEN_CUH

namespace tconv
{

/* A number of which the compiler does not see that it is known: what is found from it is found again where it is needed, and takes no
 * register before. */
template <class Number> __device__ __forceinline__ Number forgotten(Number number)
{
    if constexpr (sizeof(Number) == 8)
        asm volatile("" : "+l"(number));
    else
        asm volatile("" : "+r"(number));
    return number;
}

} // namespace tconv

#endif
