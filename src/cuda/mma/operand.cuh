/* What the tensor-core kernel is made of: its element by mode, the matrix instruction, and stores of neighbouring outputs. */
#ifndef TCONV_CUDA_MMA_OPERAND_CUH
#define TCONV_CUDA_MMA_OPERAND_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "load.cuh"
#include "parameters.h"

namespace tconv::mma
{

constexpr int LANES = 32;
constexpr int WARP_GROUPS = 8; /* of 4 lanes: rows of a matrix operand, columns of the other */

/* sum (16 x 8) += weights (16 x step) * src (step x 8). */
template <tconv_cuda_mma_mode MODE>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint4 &weights, const uint32_t (&src)[2])
{
    if constexpr (MODE == TCONV_CUDA_MMA_F16 || MODE == TCONV_CUDA_MMA_F16_PLANES)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(src[0]), "r"(src[1]));
    else if constexpr (MODE == TCONV_CUDA_MMA_BF16 || MODE == TCONV_CUDA_MMA_BF16_PLANES)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(src[0]), "r"(src[1]));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(src[0]), "r"(src[1]));
}

/* COUNT neighbouring outputs, of which the first `valid` exist; their address is a multiple of `vector` elements. */
template <class Element, int COUNT>
__device__ __forceinline__ void store_run(Element *to, const float (&values)[COUNT], int valid, int vector)
{
    constexpr int WIDEST = 16 / (int)sizeof(Element);
    constexpr int WIDE = COUNT % WIDEST == 0 ? WIDEST : COUNT % 4 == 0 && WIDEST > 4 ? 4 : COUNT % 2 == 0 ? 2 : 1;
    struct alignas(16) {
        Element at[COUNT];
    } run;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        run.at[i] = from_compute<Element>(values[i]);
    if (valid >= COUNT && vector >= WIDE) {
#pragma unroll
        for (int i = 0; i < COUNT; i += WIDE)
            store_streaming<Element, WIDE>(to + i, &run.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (i < valid)
                store_streaming<Element, 1>(to + i, &run.at[i]);
    }
}

} // namespace tconv::mma

#endif
