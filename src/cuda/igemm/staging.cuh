/* From a warp's accumulators in registers to staging in shared memory, with the bias and rounded, and the loads from
 * there. */
#ifndef TCONV_CUDA_IGEMM_STAGING_CUH
#define TCONV_CUDA_IGEMM_STAGING_CUH

#include "../numeric/element.cuh"
#include "../ptx/memory.cuh"
#include "parameters.h"

namespace tconv::igemm
{

template <class Element> constexpr int STAGED_PIXEL_BYTES = staged_pixel_bytes(sizeof(Element));
template <class Element, int N> constexpr int STAGED_ROW_BYTES = staged_row_bytes(N, sizeof(Element));
template <class Element, int N> constexpr int WARP_STAGING_BYTES = warp_staging_bytes(N, sizeof(Element));

template <class Half> __device__ __forceinline__ uint32_t pack_pair(float first, float second)
{
    element_vector<Half, 2> pair;
    pair.at[0] = from_compute<Half>(first);
    pair.at[1] = from_compute<Half>(second);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* Stores two matrices of 8 x 8 elements of 16 bits, transposed: lane i < 16 says where row i % 8 of matrix i / 8
 * goes. */
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t first, uint32_t second)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first),
                 "r"(second)
                 : "memory");
}

/* Stages half of an MMA tile's 16 rows of M of a warp, from accumulator `first` on, pixel by pixel. Of the four
 * accumulators for each 8 pixels, the first two are of row lane / 4 and of pixels lane % 4 * 2 and the next, the others
 * of 8 rows on; bias is of these two rows. */
template <int N, int first>
__device__ __forceinline__ void stage_by_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged,
                                                int lane, float)
{
    constexpr int PIXEL = STAGED_PIXEL_BYTES<float>;
    char *to = staged + lane % 4 * 2 * PIXEL + lane / 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *reinterpret_cast<float *>(to + (i / 4 * 8 + i % 2) * PIXEL + i / 2 % 2 * 32) =
            sums[first + i] + bias[i / 2 % 2];
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_by_pixels(const float (&sums)[N / 2], const float (&bias)[2], char *staged,
                                                int lane, Half)
{
    constexpr int PIXEL = STAGED_PIXEL_BYTES<Half>;
    const uint32_t to = shared_address(staged) + lane % 8 * PIXEL + lane / 8 % 2 * 16;
#pragma unroll
    for (int i = 0; i < N / 4; i += 4)
        store_transposed(to + i * 2 * PIXEL, pack_pair<Half>(sums[first + i] + bias[0], sums[first + i + 1] + bias[0]),
                         pack_pair<Half>(sums[first + i + 2] + bias[1], sums[first + i + 3] + bias[1]));
}

/* Stages the same, row of M by row. */
template <int N, int first>
__device__ __forceinline__ void stage_by_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged,
                                              int lane, float)
{
    constexpr int ROW = STAGED_ROW_BYTES<float, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<float2 *>(to + i / 4 * 32 + i / 2 % 2 * 8 * ROW) =
            make_float2(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_by_rows(const float (&sums)[N / 2], const float (&bias)[2], char *staged,
                                              int lane, Half)
{
    constexpr int ROW = STAGED_ROW_BYTES<Half, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < N / 4; i += 2)
        *reinterpret_cast<uint32_t *>(to + i / 4 * 16 + i / 2 % 2 * 8 * ROW) =
            pack_pair<Half>(sums[first + i] + bias[i / 2 % 2], sums[first + i + 1] + bias[i / 2 % 2]);
}

/* Stages a quarter of both MMA tiles of a pair, from accumulator `first` on: row of M by row, with the columns of the
 * two phases in turn. */
template <int N, int first>
__device__ __forceinline__ void stage_pairs(const float (&even)[N / 2], const float (&odd)[N / 2],
                                            const float (&bias)[2], char *staged, int lane, float)
{
    constexpr int ROW = STAGED_ROW_BYTES<float, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 16;
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        const float add = bias[i / 2 % 2];
        *reinterpret_cast<float4 *>(to + i / 4 * 64 + i / 2 % 2 * 8 * ROW) = make_float4(
            even[first + i] + add, odd[first + i] + add, even[first + i + 1] + add, odd[first + i + 1] + add);
    }
}
template <int N, int first, class Half>
__device__ __forceinline__ void stage_pairs(const float (&even)[N / 2], const float (&odd)[N / 2],
                                            const float (&bias)[2], char *staged, int lane, Half)
{
    constexpr int ROW = STAGED_ROW_BYTES<Half, N>;
    char *to = staged + lane / 4 * ROW + lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        const float add = bias[i / 2 % 2];
        *reinterpret_cast<uint2 *>(to + i / 4 * 32 + i / 2 % 2 * 8 * ROW) =
            make_uint2(pack_pair<Half>(even[first + i] + add, odd[first + i] + add),
                       pack_pair<Half>(even[first + i + 1] + add, odd[first + i + 1] + add));
    }
}

/* These loads of staged elements and of the table are volatile, so that several are under way before the first is
 * stored. */
__device__ __forceinline__ int64_t load_offset(uint32_t address)
{
    int64_t offset;
    asm volatile("ld.shared.s64 %0, [%1];" : "=l"(offset) : "r"(address) : "memory");
    return offset;
}

__device__ __forceinline__ void load_staged(uint32_t address, float &value)
{
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
}
template <class Half> __device__ __forceinline__ void load_staged(uint32_t address, Half &value)
{
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
    value = reinterpret_cast<const Half &>(bits);
}
__device__ __forceinline__ void load_staged(uint32_t address, uint32_t &value)
{
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_staged(uint32_t address, uint2 &value)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_staged(uint32_t address, uint4 &value)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
}

} // namespace tconv::igemm

#endif
