/*
 * The main loop of the kernel for any device: one K-block (8 channels of f32, 16 of f16 and bf16) of a warp's 32 pixels
 * by all N tiles, for each kind of arithmetic.
 *
 * Strict f32: each factor is split into big (rounded to TF32) and small (the rest), and small * big, big * small and
 * big * big are added. An infinite factor is its own big part without a small one, and is multiplied with no small
 * part, so that Inf stays Inf; one that would round up to Inf is rounded down. Such factors are rare: a K-block that
 * has none takes a shorter way.
 */
#ifndef TCONV_CUDA_COL2IM_MAINLOOP_CUH
#define TCONV_CUDA_COL2IM_MAINLOOP_CUH

#include "load.cuh"
#include "operand.cuh"

namespace tconv::col2im
{

constexpr int M_TILES = MMA_WARP_M / 16; /* of a warp; 16 is the M of mma.sync (PTX ISA) */

/* Splits any factor. */
__device__ __forceinline__ parts split_any(float value)
{
    constexpr uint32_t EXPONENT = 0x7f800000, MAGNITUDE = 0x7fffffff, QUIET_NAN = 0x7fc00000;
    constexpr uint32_t LOW_BITS = 0x1fff; /* which TF32 does not have */
    const uint32_t bits = __float_as_uint(value);
    if ((bits & EXPONENT) == EXPONENT)
        return {(bits & MAGNITUDE) == EXPONENT ? bits : QUIET_NAN, 0, 0};
    uint32_t big = round_plain_to_tf32(bits);
    if ((big & EXPONENT) == EXPONENT)
        big = bits & ~LOW_BITS;
    return {big, __float_as_uint(value - __uint_as_float(big)), big};
}

/*
 * The kinds of arithmetic. PARTS: of a factor. INTERLEAVED: N tiles that are interleaved, so that no mma.sync waits for
 * the one before it. convert: makes parts of the values of f32 that a lane has of the warp's pixels, or of a fragment
 * of weights; special: some weight is one that split cannot take.
 */
struct strict_arithmetic {
    using Element = float;
    static constexpr int PARTS = 3, INTERLEAVED = 3;
    enum { SMALL, FINITE, BIG };

    template <class Fragment>
    static __device__ __forceinline__ void put(const parts &parts, int i, Fragment (&to)[PARTS])
    {
        to[SMALL].at[i] = parts.small;
        to[FINITE].at[i] = parts.finite;
        to[BIG].at[i] = parts.big;
    }

    static __device__ __forceinline__ void convert(const float (&values)[M_TILES][4], fragment_a (&a)[M_TILES][PARTS])
    {
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int i = 0; i < M_TILES * 4; i++) {
            const parts parts = split(values[i / 4][i % 4]);
            put(parts, i % 4, a[i / 4]);
            zero = fmaf(__uint_as_float(parts.small), 0.0f, zero);
        }
        if (__any_sync(~0u, zero != 0)) {
#pragma unroll
            for (int i = 0; i < M_TILES * 4; i++)
                put(split_any(values[i / 4][i % 4]), i % 4, a[i / 4]);
        }
    }

    template <bool special>
    static __device__ __forceinline__ void convert(const fragment_b &weights, fragment_b (&b)[PARTS])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float weight = __uint_as_float(weights.at[i]);
            put(special ? split_any(weight) : split(weight), i, b);
        }
    }
};

struct tf32_arithmetic {
    using Element = float;
    static constexpr int PARTS = 1, INTERLEAVED = 1;

    static __device__ __forceinline__ void convert(const float (&values)[M_TILES][4], fragment_a (&a)[M_TILES][PARTS])
    {
#pragma unroll
        for (int i = 0; i < M_TILES * 4; i++)
            a[i / 4][0].at[i % 4] = round_tf32(values[i / 4][i % 4]);
    }

    template <bool> static __device__ __forceinline__ void convert(const fragment_b &weights, fragment_b (&b)[PARTS])
    {
        b[0] = {{round_tf32(__uint_as_float(weights.at[0])), round_tf32(__uint_as_float(weights.at[1]))}};
    }
};

template <class Element_> struct half_arithmetic {
    using Element = Element_;
    static constexpr int PARTS = 1, INTERLEAVED = 1;

    template <bool> static __device__ __forceinline__ void convert(const fragment_b &weights, fragment_b (&b)[PARTS])
    {
        b[0] = weights;
    }
};

/* Adds a K-block to sums. x: the warp's stage; weights: the K-block's, of which a lane has a fragment of each N
 * tile. */
template <class Arithmetic, class Stage, bool special, int N_TILES>
__device__ __forceinline__ void multiply(const typename Stage::Element *x, const fragment_b *weights, int lane,
                                         float (&sums)[M_TILES][N_TILES][4])
{
    constexpr int PARTS = Arithmetic::PARTS, INTERLEAVED = Arithmetic::INTERLEAVED;
    constexpr bool F32 = sizeof(typename Stage::Element) == sizeof(float);
    fragment_a a[M_TILES][PARTS];
    if constexpr (F32) {
        float values[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
            load_values<Stage>(x + m * 16 * Stage::PIXEL, lane, values[m]);
        Arithmetic::convert(values, a);
    } else {
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
            a[m][0] = load_fragment<Stage>(x + m * 16 * Stage::PIXEL, lane);
    }
#pragma unroll
    for (int first = 0; first < N_TILES; first += INTERLEAVED) {
        fragment_b b[INTERLEAVED][PARTS];
#pragma unroll
        for (int g = 0; g < INTERLEAVED && first + g < N_TILES; g++)
            Arithmetic::template convert<special>(weights[(first + g) * 32 + lane], b[g]);
            /* In strict f32 small * finite, then finite * small, then big * big. */
#pragma unroll
        for (int term = 0; term < PARTS; term++)
#pragma unroll
            for (int g = 0; g < INTERLEAVED && first + g < N_TILES; g++)
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    const fragment_b &factor = b[g][PARTS > 1 && term < 2 ? 1 - term : term];
                    if constexpr (F32)
                        mma_tf32(sums[m][first + g], a[m][term], factor);
                    else
                        mma_half(sums[m][first + g], a[m][term], factor, typename Stage::Element());
                }
    }
}

} // namespace tconv::col2im

#endif
