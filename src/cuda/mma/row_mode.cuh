/*
 * The arithmetic of the row kernel: what is done to 16 bytes of each of COPY_CHANNELS channels when they have come;
 * where a column then lies; how a lane loads its B operands of 8 positions by a step's channels, and multiplies them
 * with 16 output channels. Shared memory is [channel][column].
 */
#ifndef TCONV_CUDA_MMA_ROW_MODE_CUH
#define TCONV_CUDA_MMA_ROW_MODE_CUH

#include "../numeric/tf32.cuh"
#include "mode.cuh"
#include "row_parameters.h"

namespace tconv::mma
{

/* The B operand of an MMA; small is what 3xTF32 adds. */
struct operand_b {
    fragment_b big, small;
};

template <mode MODE, row_sums SUMS> struct row_mode {
    using Element = element_of<MODE>;
    static constexpr int COPY_CHANNELS = IS_HALF<MODE> ? 2 : 1;
    static constexpr bool PREPARES = MODE != STRICT; /* else f32 is split when it is loaded */

    /* f32 is rounded to TF32. Two 16-bit channels become words of both: of 8 columns, the first 4 take the place of the
     * first channel's. */
    static __device__ __forceinline__ void prepare(Element *columns, int pitch)
    {
        uint4 *first = reinterpret_cast<uint4 *>(columns);
        const uint4 a = *first;
        if constexpr (IS_HALF<MODE>) {
            constexpr unsigned int LOW = 0x5410, HIGH = 0x7632; /* halves of two words side by side */
            uint4 *second = reinterpret_cast<uint4 *>(columns + pitch);
            const uint4 b = *second;
            *first = {__byte_perm(a.x, b.x, LOW), __byte_perm(a.x, b.x, HIGH), __byte_perm(a.y, b.y, LOW),
                      __byte_perm(a.y, b.y, HIGH)};
            *second = {__byte_perm(a.z, b.z, LOW), __byte_perm(a.z, b.z, HIGH), __byte_perm(a.w, b.w, LOW),
                       __byte_perm(a.w, b.w, HIGH)};
        } else {
            *first = {round_to_tf32(a.x), round_to_tf32(a.y), round_to_tf32(a.z), round_to_tf32(a.w)};
        }
    }

    /* The place of a column in the step's word `word`, in elements. */
    static __device__ __forceinline__ int place(int column, int word, int pitch)
    {
        return IS_HALF<MODE> ? (2 * word + (column >> 2 & 1)) * pitch + (column & ~7) + 2 * (column & 3)
                             : word * pitch + column;
    }

    /* from: the place of the lane's column and word. */
    static __device__ __forceinline__ operand_b load(const Element *from, int pitch)
    {
        operand_b made;
        if constexpr (IS_HALF<MODE>) {
            made.big.at[0] = *reinterpret_cast<const uint32_t *>(from);
            made.big.at[1] = SUMS == NARROW ? 0 : *reinterpret_cast<const uint32_t *>(from + 8 * pitch);
        } else if constexpr (MODE == STRICT) {
            split_any(from[0], &made.big.at[0], &made.small.at[0]);
            split_any(from[4 * pitch], &made.big.at[1], &made.small.at[1]);
        } else {
            made.big = {{__float_as_uint(from[0]), __float_as_uint(from[4 * pitch])}};
        }
        return made;
    }

    template <int MMAS_N>
    static __device__ __forceinline__ void add_products(float (&sums)[MMAS_N][4], const operand_a<MODE> &a,
                                                        const operand_b (&b)[MMAS_N])
    {
        if constexpr (MODE == STRICT) {
#pragma unroll
            for (int t = 0; t < MMAS_N; t++)
                multiply_add<MODE>(sums[t], a.small(), b[t].big);
#pragma unroll
            for (int t = 0; t < MMAS_N; t++)
                multiply_add<MODE>(sums[t], a.big(), b[t].small);
        }
#pragma unroll
        for (int t = 0; t < MMAS_N; t++)
            if constexpr (SUMS == NARROW)
                mma_half_k8(sums[t], a.big(), b[t].big, Element());
            else
                multiply_add<MODE>(sums[t], a.big(), b[t].big);
    }

    /* Where the tensor cores' own additions, which cut off bits of the whole sum, would lose too much, a step's
     * products are summed by themselves (the small ones first, where they lose nothing) and added in f32. */
    template <int MMAS_N>
    static __device__ __forceinline__ void multiply(float (&accumulators)[MMAS_N][4], const operand_a<MODE> &a,
                                                    const operand_b (&b)[MMAS_N])
    {
        if constexpr (SUMS != ADDED) {
            add_products(accumulators, a, b);
        } else {
            float parts[MMAS_N][4] = {};
            add_products(parts, a, b);
#pragma unroll
            for (int i = 0; i < MMAS_N * 4; i++)
                accumulators[i / 4][i % 4] += parts[i / 4][i % 4];
        }
    }
};

} // namespace tconv::mma

#endif
