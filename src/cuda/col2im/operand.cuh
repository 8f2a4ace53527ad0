/*
 * Both kernels load their A operand, the pixels, by these: f32 is rounded or split here, and 2-byte elements come by
 * ldmatrix.
 */
#ifndef TCONV_CUDA_COL2IM_OPERAND_CUH
#define TCONV_CUDA_COL2IM_OPERAND_CUH

#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"

namespace tconv::col2im
{

__device__ __forceinline__ uint32_t round_tf32(float value)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

/* Bits of a float. */
constexpr uint32_t LOW_BITS = 0x1fff; /* 13, which TF32 does not have */
constexpr uint32_t HALF_LOW = 0x1000; /* half a unit of TF32's last place */
constexpr uint32_t EXPONENT = 0x7f800000;
constexpr uint32_t MAGNITUDE = 0x7fffffff;
constexpr uint32_t QUIET_NAN = 0x7fc00000;

/* A factor's parts. */
struct parts {
    uint32_t big, small;
    uint32_t finite; /* the factor of small parts: big where that is finite */
};

/* Splits finite factors that do not round up to Inf; of others, small is not finite. */
__device__ __forceinline__ parts split(float value)
{
    const uint32_t big = (__float_as_uint(value) + HALF_LOW) & ~LOW_BITS;
    return {big, __float_as_uint(value - __uint_as_float(big)), big};
}

/* Loads four 8 x 8 matrices of 2-byte elements; lane l points at row l % 8 of matrix l / 8. */
template <bool transposed> __device__ __forceinline__ fragment_a load_matrices(const void *shared)
{
    const uint32_t from = (uint32_t)__cvta_generic_to_shared(shared);
    fragment_a a;
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
                     : "r"(from)
                     : "memory");
    return a;
}

/* The element that a lane points at for the four matrices of 16 pixels by 16 channels: matrices 0 and 1 are pixels 0
 * and 8 of channels 0, 2 and 3 those of channels 8. */
template <class Stage> __device__ __forceinline__ int matrix_row(int lane)
{
    const int row = lane % 8, pixel = lane / 8 % 2 * 8 + (Stage::NHWC ? row : 0);
    const int channel = lane / 16 * 8 + (Stage::NHWC ? 0 : row);
    return channel * Stage::CHANNEL + pixel * Stage::PIXEL;
}

} // namespace tconv::col2im

#endif
