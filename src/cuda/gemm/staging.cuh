/* From a warp's accumulators in registers to staging in shared memory, rounded to elements. Of a thread's four
 * accumulators for each 8 pixels, the first two are of row lane / 4 of the warp's 16 and of pixels lane % 4 * 2 and the
 * next, the others of 8 rows on. */
#ifndef TCONV_CUDA_GEMM_STAGING_CUH
#define TCONV_CUDA_GEMM_STAGING_CUH

#include "../epilogue/finish.cuh"
#include "../ptx/memory.cuh"
#include "shape.h"

namespace tconv
{

/* Stores neighbouring elements: two, or two pairs. */
template <class Element> __device__ __forceinline__ void stage_pair(uint32_t to, float2 pair)
{
    if constexpr (sizeof(Element) == 4)
        store_shared(to, pair);
    else
        store_shared(to, to_output_pair<Element>(pair.x, pair.y));
}
template <class Element> __device__ __forceinline__ void stage_pairs(uint32_t to, float2 pair, float2 next)
{
    if constexpr (sizeof(Element) == 4)
        store_shared(to, make_float4(pair.x, pair.y, next.x, next.y));
    else
        store_shared(to, make_uint2(to_output_pair<Element>(pair.x, pair.y), to_output_pair<Element>(next.x, next.y)));
}

/* Stages a warp's rows of M row by row, pitch bytes apart: pair(i) are accumulators i and i + 1. */
template <class Element, int count, int pitch, class Pair>
__device__ __forceinline__ void stage_rows(uint32_t staged, int lane, Pair pair)
{
    constexpr int element = sizeof(Element);
    const uint32_t to = staged + lane / 4 * pitch + lane % 4 * 2 * element;
#pragma unroll
    for (int i = 0; i < count; i += 2)
        stage_pair<Element>(to + i / 4 * 8 * element + i / 2 % 2 * 8 * pitch, pair(i));
}

/* Stores two matrices of 8 x 8 elements of 16 bits, transposed: lane i < 16 says where row i % 8 of matrix i / 8
 * goes. */
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t first, uint32_t second)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first),
                 "r"(second)
                 : "memory");
}

/* Stages a warp's rows of M pixel by pixel: sum(i) is accumulator i. The vectors of 16 bytes of a pixel, of which the
 * warp's begin at `warp` times its own, are swizzled by the mask's bits of the pixel's number. */
template <class Element, int count, int pixel_bytes, int swizzle_mask, class Sum>
__device__ __forceinline__ void stage_pixels(uint32_t staged, int warp, int lane, Sum sum)
{
    constexpr int VECTORS = WARP_M * (int)sizeof(Element) / 16;
    if constexpr (sizeof(Element) == 4) {
        const int pixel = lane % 4 * 2;
        const uint32_t to = staged + pixel * pixel_bytes + lane / 4 % 4 * 4;
        const uint32_t vector = ((warp * VECTORS + lane / 16) ^ (pixel & swizzle_mask)) * 16;
#pragma unroll
        for (int i = 0; i < count; i++)
            asm volatile(
                "st.shared.f32 [%0], %1;" ::"r"(to + (vector ^ i / 2 % 2 * 32) + (i / 4 * 8 + i % 2) * pixel_bytes),
                "f"(sum(i))
                : "memory");
    } else {
        const int pixel = lane % 8;
        const uint32_t to =
            staged + pixel * pixel_bytes + ((warp * VECTORS + lane / 8 % 2) ^ (pixel & swizzle_mask)) * 16;
#pragma unroll
        for (int i = 0; i < count; i += 4)
            store_transposed(to + i * 2 * pixel_bytes, to_output_pair<Element>(sum(i), sum(i + 1)),
                             to_output_pair<Element>(sum(i + 2), sum(i + 3)));
    }
}

} // namespace tconv

#endif
