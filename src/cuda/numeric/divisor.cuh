/* The division of a kernel by a number that only the host knows. */
#ifndef TCONV_CUDA_NUMERIC_DIVISOR_CUH
#define TCONV_CUDA_NUMERIC_DIVISOR_CUH

#include "divisor.h"

namespace tconv
{

struct quotient {
    int whole, rest;
};

static __device__ __forceinline__ quotient divide(int number, const fast_divisor &by)
{
    const int whole = (int)((uint64_t)(uint32_t)number * by.factor >> by.shift);
    return {whole, number - whole * by.divisor};
}

/* Divides numbers that are not negative, in 32 bits where they fit: it takes a third of the time. */
static __device__ __forceinline__ int64_t divide(int64_t number, int64_t by)
{
    return number <= UINT32_MAX && by <= UINT32_MAX ? (int64_t)((uint32_t)number / (uint32_t)by)
                                                    : (int64_t)((uint64_t)number / (uint64_t)by);
}

} // namespace tconv

#endif
