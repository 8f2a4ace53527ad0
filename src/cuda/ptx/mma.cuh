/* Matrix products of a warp (compute capability 8.0): PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions". A lane's
 * fragments and sums lie as the PTX ISA has them for each shape. */
#ifndef TCONV_CUDA_PTX_MMA_CUH
#define TCONV_CUDA_PTX_MMA_CUH

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tconv
{

struct fragment_a {
    uint32_t at[4];
};
struct alignas(8) fragment_b {
    uint32_t at[2];
};

__device__ __forceinline__ void mma_tf32(float (&sums)[4], const fragment_a &a, const fragment_b &b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

__device__ __forceinline__ void mma_half(float (&sums)[4], const fragment_a &a, const fragment_b &b, __half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

__device__ __forceinline__ void mma_half(float (&sums)[4], const fragment_a &a, const fragment_b &b, __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

} // namespace tconv

#endif
