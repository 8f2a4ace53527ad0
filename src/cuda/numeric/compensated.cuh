/*
 * Sums in f32 that stay exact for any number of terms: what each addition rounds off is kept, and given to the next one
 * (W. Kahan, "Further remarks on reducing truncation errors", 1965).
 *
 * A running sum of n like terms may be off by n / 4 + 1 / 2 units of 2^-24 of the sum, and 16 are allowed. So terms are
 * summed plainly only in segments, and the segments are added with compensation, which adds about one unit.
 */
#ifndef TCONV_CUDA_NUMERIC_COMPENSATED_CUH
#define TCONV_CUDA_NUMERIC_COMPENSATED_CUH

#include <cmath>
#include <cstdint>

#include "segment.h"

namespace tconv
{

/* Adds term to sum; lost is the excess of the sum. Where the sum is infinite, lost would not be finite: it is then
 * forgotten, so that infinity stays. */
__device__ __forceinline__ void add_compensated(float &sum, float &lost, float term)
{
    constexpr float LARGEST = 3.402823466e38f;
    const float corrected = term - lost, total = sum + corrected, rest = (total - sum) - corrected;
    lost = fabsf(rest) <= LARGEST ? rest : 0.0f;
    sum = total;
}

/* The lost parts of COUNT sums. f64 needs none of it: the error of its segments is far below its bound. */
template <class Compute, int COUNT> struct lost_parts {
    __device__ __forceinline__ void add(int, Compute &sum, Compute &next, Compute term, Compute next_term)
    {
        sum += term;
        next += next_term;
    }
};

/* In f32 they are kept as pairs of bf16, in half of the room: the error is 2^-9 of a number that is itself at most half
 * a unit in the last place. */
template <int COUNT> struct alignas(COUNT % 8 == 0 ? 16 : COUNT % 4 == 0 ? 8 : 4) lost_parts<float, COUNT> {
    static_assert(COUNT % 2 == 0, "pairs");
    uint32_t pairs[COUNT / 2];

    /* Adds to sums number i, which is even, and i + 1. */
    __device__ __forceinline__ void add(int i, float &sum, float &next, float term, float next_term)
    {
        float lost = __uint_as_float(pairs[i / 2] << 16), next_lost = __uint_as_float(pairs[i / 2] & 0xffff0000u);
        add_compensated(sum, lost, term);
        add_compensated(next, next_lost, next_term);
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[i / 2]) : "f"(next_lost), "f"(lost));
    }
};

/* A sum with what rounding lost of it (D. E. Knuth, The Art of Computer Programming 2, 4.2.2, theorem B). Beside infinity
 * nothing is lost. */
template <class Sum> struct lossless_sum {
    Sum sum, lost;

    __device__ __forceinline__ void add(Sum term)
    {
        const Sum total = sum + term, part = total - sum;
        const Sum rest = (sum - (total - part)) + (term - part);
        lost += rest - rest == 0 ? rest : Sum(0);
        sum = total;
    }
    __device__ __forceinline__ void add(const lossless_sum &other)
    {
        add(other.sum);
        lost += other.lost;
    }
    __device__ __forceinline__ double whole() const
    {
        return (double)sum + (double)lost;
    }
};

} // namespace tconv

#endif
