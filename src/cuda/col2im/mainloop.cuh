/*
 * The main loop of the kernel for any device: one K-block (8 channels of f32, 16 of f16 and bf16) of a warp's 32 pixels
 * by all N tiles, for each kind of arithmetic. src lies in shared memory as [channel][pixel] (NCHW) or [pixel][channel]
 * (NHWC).
 *
 * Strict f32: each factor is split into big (rounded to TF32) and small (the rest), and small * big, big * small and
 * big * big are added. An infinite factor is its own big part without a small one, and is multiplied with no small
 * part, so that Inf stays Inf; one that would round up to Inf is rounded down. Such factors are rare: a K-block that
 * has none takes a shorter way.
 */
#ifndef TCONV_CUDA_COL2IM_MAINLOOP_CUH
#define TCONV_CUDA_COL2IM_MAINLOOP_CUH

#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "operand.cuh"
#include "parameters.h"

namespace tconv::col2im
{

constexpr int M_TILES = WARP_M / 16; /* of a warp; 16 is the M of mma.sync (PTX ISA) */

/* A pipeline stage of a warp. Its pitch leaves no bank conflicts, and rows at multiples of an access. */
template <class Element_, bool nhwc> struct stage_layout {
    using Element = Element_;
    static constexpr bool NHWC = nhwc;
    static constexpr int PIXELS = WARP_M, STAGES = col2im::STAGES;
    static constexpr int CHANNELS = MMA_K_BYTES / (int)sizeof(Element);
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int PITCH = nhwc ? CHANNELS + LENGTH : WARP_M + 8;
    static constexpr int ELEMENTS = PITCH * (nhwc ? WARP_M : CHANNELS);
    static constexpr int CHANNEL = nhwc ? 1 : PITCH, PIXEL = nhwc ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= STAGE_BYTES, "a stage");
};

/* Splits any factor. */
__device__ __forceinline__ parts split_any(float value)
{
    const uint32_t bits = __float_as_uint(value);
    if ((bits & EXPONENT) == EXPONENT)
        return {(bits & MAGNITUDE) == EXPONENT ? bits : QUIET_NAN, 0, 0};
    uint32_t big = (bits + HALF_LOW) & ~LOW_BITS;
    if ((big & EXPONENT) == EXPONENT)
        big = bits & ~LOW_BITS;
    return {big, __float_as_uint(value - __uint_as_float(big)), big};
}

/* The eight values that a lane takes of 8 channels by 32 pixels. */
template <bool nhwc> __device__ __forceinline__ void load_values(const float *x, int lane, float (&values)[M_TILES][4])
{
    using Stage = stage_layout<float, nhwc>;
    const float *from = x + lane % 4 * Stage::CHANNEL + lane / 4 * Stage::PIXEL;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            values[m][i] = from[i / 2 * 4 * Stage::CHANNEL + (m * 16 + i % 2 * 8) * Stage::PIXEL];
}

/* The lane's fragment of an N tile of weights. */
__device__ __forceinline__ fragment_b load_weights(const fragment_b *weights, int tile, int lane)
{
    return weights[tile * 32 + lane];
}

/* The kinds of arithmetic. SPLITS: factors are split; special: some weight is one that split cannot take. */
struct strict_arithmetic {
    using Element = float;
    static constexpr bool SPLITS = true;

    template <int N_TILES, bool nhwc, bool special>
    static __device__ __forceinline__ void step(const float *x, const fragment_b *weights, int lane,
                                                float (&sums)[M_TILES][N_TILES][4])
    {
        float values[M_TILES][4];
        load_values<nhwc>(x, lane, values);
        parts a[M_TILES][4];
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[m][i] = split(values[m][i]);
                zero = fmaf(__uint_as_float(a[m][i].small), 0.0f, zero);
            }
        }
        if (__any_sync(~0u, zero != 0)) {
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = split_any(values[m][i]);
        }
        fragment_a big[M_TILES], small[M_TILES], finite[M_TILES];
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                big[m].at[i] = a[m][i].big;
                small[m].at[i] = a[m][i].small;
                finite[m].at[i] = a[m][i].finite;
            }
        }
#pragma unroll
        for (int first = 0; first < N_TILES; first += INTERLEAVED)
            multiply_interleaved<N_TILES, special>(big, small, finite, weights, first, lane, sums);
    }

    /* N tiles that are interleaved, so that no mma.sync waits for the one before it. */
    static constexpr int INTERLEAVED = 3;

    template <int N_TILES, bool special>
    static __device__ __forceinline__ void
    multiply_interleaved(const fragment_a (&big)[M_TILES], const fragment_a (&small)[M_TILES],
                         const fragment_a (&finite)[M_TILES], const fragment_b *weights, int first, int lane,
                         float (&sums)[M_TILES][N_TILES][4])
    {
        fragment_b big_b[INTERLEAVED], small_b[INTERLEAVED], finite_b[INTERLEAVED];
#pragma unroll
        for (int g = 0; g < INTERLEAVED && first + g < N_TILES; g++) {
            const fragment_b both = load_weights(weights, first + g, lane);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float weight = __uint_as_float(both.at[i]);
                const parts parts = special ? split_any(weight) : split(weight);
                big_b[g].at[i] = parts.big;
                small_b[g].at[i] = parts.small;
                finite_b[g].at[i] = parts.finite;
            }
        }
#pragma unroll
        for (int term = 0; term < 3; term++)
#pragma unroll
            for (int g = 0; g < INTERLEAVED && first + g < N_TILES; g++)
#pragma unroll
                for (int m = 0; m < M_TILES; m++)
                    mma_tf32(sums[m][first + g],
                             term == 0   ? small[m]
                             : term == 1 ? finite[m]
                                         : big[m],
                             term == 0   ? finite_b[g]
                             : term == 1 ? small_b[g]
                                         : big_b[g]);
    }
};

struct tf32_arithmetic {
    using Element = float;
    static constexpr bool SPLITS = false;

    template <int N_TILES, bool nhwc, bool>
    static __device__ __forceinline__ void step(const float *x, const fragment_b *weights, int lane,
                                                float (&sums)[M_TILES][N_TILES][4])
    {
        float values[M_TILES][4];
        load_values<nhwc>(x, lane, values);
        fragment_a a[M_TILES];
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m].at[i] = round_tf32(values[m][i]);
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
            fragment_b b = load_weights(weights, n, lane);
            b.at[0] = round_tf32(__uint_as_float(b.at[0]));
            b.at[1] = round_tf32(__uint_as_float(b.at[1]));
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
                mma_tf32(sums[m][n], a[m], b);
        }
    }
};

template <class Element_> struct half_arithmetic {
    using Element = Element_;
    static constexpr bool SPLITS = false;

    template <int N_TILES, bool nhwc, bool>
    static __device__ __forceinline__ void step(const Element *x, const fragment_b *weights, int lane,
                                                float (&sums)[M_TILES][N_TILES][4])
    {
        using Stage = stage_layout<Element, nhwc>;
        const Element *from = x + matrix_row<Stage>(lane);
        fragment_a a[M_TILES];
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
            a[m] = load_matrices<!nhwc>(from + m * 16 * Stage::PIXEL);
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
            const fragment_b b = load_weights(weights, n, lane);
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
                mma_half(sums[m][n], a[m], b, Element());
        }
    }
};

} // namespace tconv::col2im

#endif
