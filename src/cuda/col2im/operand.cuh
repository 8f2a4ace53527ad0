/*
 * Both kernels load their A operand, the pixels, by these: f32 is rounded or split here, and 2-byte elements come by
 * ldmatrix.
 */
#ifndef TCONV_CUDA_COL2IM_OPERAND_CUH
#define TCONV_CUDA_COL2IM_OPERAND_CUH

#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "parameters.h"

namespace tconv::col2im
{

__device__ __forceinline__ uint32_t round_tf32(float value)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

/* A factor's parts. */
struct parts {
    uint32_t big, small;
    uint32_t finite; /* the factor of small parts: big where that is finite, else 0 */
};

/* Splits finite factors that do not round up to Inf; of others, small is not finite. */
__device__ __forceinline__ parts split(float value)
{
    const uint32_t big = round_plain_to_tf32(__float_as_uint(value));
    return {big, __float_as_uint(value - __uint_as_float(big)), big};
}

/* Loads a lane's part of a stage's 16 pixels by 16 channels of 2-byte elements: matrices 0 and 1 are pixels 0 and 8 of
 * channels 0, 2 and 3 those of channels 8. */
template <class Stage> __device__ __forceinline__ fragment_a load_fragment(const typename Stage::Element *x, int lane)
{
    const int row = lane % 8, pixel = lane / 8 % 2 * 8 + (Stage::NHWC ? row : 0);
    const int channel = lane / 16 * 8 + (Stage::NHWC ? 0 : row);
    return load_matrices<!Stage::NHWC>(shared_address(x + channel * Stage::CHANNEL + pixel * Stage::PIXEL));
}

/* Loads the four values that a lane takes of a stage's 16 pixels by 8 channels of f32. */
template <class Stage> __device__ __forceinline__ void load_values(const float *x, int lane, float (&values)[4])
{
    constexpr int FIRST = Stage::HOPPER ? 2 : 1, SECOND = Stage::HOPPER ? 1 : 4;
    const float *from = x + lane % 4 * FIRST * Stage::CHANNEL + lane / 4 * Stage::PIXEL;
#pragma unroll
    for (int i = 0; i < 4; i++)
        values[i] = from[i / 2 * SECOND * Stage::CHANNEL + i % 2 * 8 * Stage::PIXEL];
}

/* Returns what find returns for an arithmetic, an object of one of these types. */
template <class Strict, class Tf32, class F16, class Bf16, class Find>
const void *find_by_numerics(numerics kind, Find find)
{
    switch (kind) {
    case NUMERICS_F16: return find(F16());
    case NUMERICS_BF16: return find(Bf16());
    case NUMERICS_TF32: return find(Tf32());
    default: return find(Strict());
    }
}

} // namespace tconv::col2im

#endif
