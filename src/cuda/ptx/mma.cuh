/* Matrix products of a warp (compute capability 8.0): PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
 * Each adds a product a (16 x K) * b (K x 8) to the accumulators (16 x 8). A lane's fragments and accumulators lie as
 * the PTX ISA has them for each shape. */
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

/* Loads four 8 x 8 matrices of 2-byte elements of shared memory; lane l points at row l % 8 of matrix l / 8. */
template <bool transposed> __device__ __forceinline__ fragment_a load_matrices(uint32_t from)
{
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

/* A lane's part of an A fragment from 16 bytes of memory. */
__device__ __forceinline__ fragment_a load_fragment_a(const uint4 *from)
{
    const uint4 words = *from;
    return {{words.x, words.y, words.z, words.w}};
}

#define TCONV_MMA(shape_and_types)                                                                                     \
    asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"          \
                 : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])          \
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]))

/* K is 8, of f32, of which the low 13 bits are ignored. */
__device__ __forceinline__ void mma_tf32(float (&accumulators)[4], const fragment_a &a, const fragment_b &b)
{
    TCONV_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}

/* K is 16; the last argument only says the type. */
__device__ __forceinline__ void mma_half(float (&accumulators)[4], const fragment_a &a, const fragment_b &b, __half)
{
    TCONV_MMA("m16n8k16.row.col.f32.f16.f16.f32");
}

__device__ __forceinline__ void mma_half(float (&accumulators)[4], const fragment_a &a, const fragment_b &b,
                                         __nv_bfloat16)
{
    TCONV_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}

#undef TCONV_MMA
#define TCONV_MMA_K8(shape_and_types)                                                                                  \
    asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"                   \
                 : "+f"(accumulators[0]), "+f"(accumulators[1]), "+f"(accumulators[2]), "+f"(accumulators[3])          \
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(b.at[0]))

/* The first half of mma_half: K is 8. */
__device__ __forceinline__ void mma_half_k8(float (&accumulators)[4], const fragment_a &a, const fragment_b &b, __half)
{
    TCONV_MMA_K8("m16n8k8.row.col.f32.f16.f16.f32");
}

__device__ __forceinline__ void mma_half_k8(float (&accumulators)[4], const fragment_a &a, const fragment_b &b,
                                            __nv_bfloat16)
{
    TCONV_MMA_K8("m16n8k8.row.col.f32.bf16.bf16.f32");
}

#undef TCONV_MMA_K8

} // namespace tconv

#endif
