/*
 * One step of the tensor cores for 32 pixels and 8 * TILES products, for each kind of arithmetic: a step is 8 channels of
 * f32, 16 of f16 and bf16. src lies in shared memory as [channel][pixel] (NCHW) or [pixel][channel] (NHWC).
 *
 * Strict f32: each factor is split into big (rounded to TF32) and small (the rest), and small * big, big * small and
 * big * big are added. An infinite factor is its own big part without a small one, and is left out of the products with
 * small parts, so that Inf stays Inf; one that would round up to Inf is rounded down. Such factors are rare: a step that
 * has none takes a shorter way.
 */
#ifndef TCONV_CUDA_COL2IM_MAINLOOP_CUH
#define TCONV_CUDA_COL2IM_MAINLOOP_CUH

#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "parameters.h"

namespace tconv::col2im
{

constexpr int ROW_TILES = TCONV_CUDA_PRODUCTS_WARP_PIXELS / 16;

/* Strides in elements of src in shared memory: no bank conflicts, and rows at multiples of an access. */
template <class Element_, bool channels_inside> struct stage_shape {
    using Element = Element_;
    static constexpr bool INSIDE = channels_inside;
    static constexpr int PIXELS = TCONV_CUDA_PRODUCTS_WARP_PIXELS, STAGES = TCONV_CUDA_PRODUCTS_STAGES;
    static constexpr int CHANNELS = TCONV_CUDA_PRODUCTS_STEP_BYTES / (int)sizeof(Element);
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int PITCH = channels_inside ? CHANNELS + LENGTH : TCONV_CUDA_PRODUCTS_WARP_PIXELS + 8;
    static constexpr int ELEMENTS = PITCH * (channels_inside ? TCONV_CUDA_PRODUCTS_WARP_PIXELS : CHANNELS);
    static constexpr int CHANNEL = channels_inside ? 1 : PITCH, PIXEL = channels_inside ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= TCONV_CUDA_PRODUCTS_STAGE_BYTES, "a stage");
};

__device__ __forceinline__ uint32_t round_tf32(float value)
{
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
    return rounded;
}

/* The 13 bits of a float that TF32 does not have. */
constexpr uint32_t LOW_BITS = 0x1fff, HALF_LOW = 0x1000, EXPONENT = 0x7f800000, MAGNITUDE = 0x7fffffff,
                   QUIET_NAN = 0x7fc00000;

/* A factor's parts. finite: what is multiplied with small parts, big where that is finite. */
struct parts {
    uint32_t big, small, finite;
};

/* Of finite factors that do not round up to Inf; of others, small is not finite. */
__device__ __forceinline__ parts split(float value)
{
    const uint32_t big = (__float_as_uint(value) + HALF_LOW) & ~LOW_BITS;
    return {big, __float_as_uint(value - __uint_as_float(big)), big};
}

/* Of any factor. */
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
template <bool channels_inside>
__device__ __forceinline__ void load_values(const float *x, int lane, float (&values)[ROW_TILES][4])
{
    using Shape = stage_shape<float, channels_inside>;
    const float *from = x + lane % 4 * Shape::CHANNEL + lane / 4 * Shape::PIXEL;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            values[m][i] = from[i / 2 * 4 * Shape::CHANNEL + (m * 16 + i % 2 * 8) * Shape::PIXEL];
}

/* The lane's fragments of all tiles of a step of weights. */
__device__ __forceinline__ fragment_b load_weights(const fragment_b *weights, int tile, int lane)
{
    return weights[tile * 32 + lane];
}

/* The kinds of arithmetic. SPLITS: whether factors are split; special: whether any weight is one that split cannot take. */
struct strict_arithmetic {
    using Element = float;
    static constexpr bool SPLITS = true;

    template <int TILES, bool channels_inside, bool special>
    static __device__ __forceinline__ void step(const float *x, const fragment_b *weights, int lane,
                                                float (&sums)[ROW_TILES][TILES][4])
    {
        float values[ROW_TILES][4];
        load_values<channels_inside>(x, lane, values);
        parts a[ROW_TILES][4];
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                a[m][i] = split(values[m][i]);
                zero = fmaf(__uint_as_float(a[m][i].small), 0.0f, zero);
            }
        }
        if (__any_sync(~0u, zero != 0)) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    a[m][i] = split_any(values[m][i]);
        }
        fragment_a big[ROW_TILES], small[ROW_TILES], finite[ROW_TILES];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                big[m].at[i] = a[m][i].big;
                small[m].at[i] = a[m][i].small;
                finite[m].at[i] = a[m][i].finite;
            }
        }
#pragma unroll
        for (int first = 0; first < TILES; first += GROUP)
            multiply_group<TILES, special>(big, small, finite, weights, first, lane, sums);
    }

    /* Tiles that are multiplied in turns, so that no product waits for the one before it. */
    static constexpr int GROUP = 3;

    template <int TILES, bool special>
    static __device__ __forceinline__ void
    multiply_group(const fragment_a (&big)[ROW_TILES], const fragment_a (&small)[ROW_TILES],
                   const fragment_a (&finite)[ROW_TILES], const fragment_b *weights, int first, int lane,
                   float (&sums)[ROW_TILES][TILES][4])
    {
        fragment_b big_b[GROUP], small_b[GROUP], finite_b[GROUP];
#pragma unroll
        for (int g = 0; g < GROUP && first + g < TILES; g++) {
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
        for (int turn = 0; turn < 3; turn++)
#pragma unroll
            for (int g = 0; g < GROUP && first + g < TILES; g++)
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++)
                    mma_tf32(sums[m][first + g],
                             turn == 0   ? small[m]
                             : turn == 1 ? finite[m]
                                         : big[m],
                             turn == 0   ? finite_b[g]
                             : turn == 1 ? small_b[g]
                                         : big_b[g]);
    }
};

struct tf32_arithmetic {
    using Element = float;
    static constexpr bool SPLITS = false;

    template <int TILES, bool channels_inside, bool>
    static __device__ __forceinline__ void step(const float *x, const fragment_b *weights, int lane,
                                                float (&sums)[ROW_TILES][TILES][4])
    {
        float values[ROW_TILES][4];
        load_values<channels_inside>(x, lane, values);
        fragment_a a[ROW_TILES];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m].at[i] = round_tf32(values[m][i]);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            fragment_b b = load_weights(weights, n, lane);
            b.at[0] = round_tf32(__uint_as_float(b.at[0]));
            b.at[1] = round_tf32(__uint_as_float(b.at[1]));
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
                mma_tf32(sums[m][n], a[m], b);
        }
    }
};

/* Four 8 x 8 matrices of 2-byte elements; lane l points at row l % 8 of matrix l / 8. */
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

/* Where a lane points for the four matrices of 16 pixels by 16 channels: matrices 0 and 1 are pixels 0 and 8 of channels 0, 2
 * and 3 those of channels 8. */
template <class Shape> __device__ __forceinline__ int matrix_row(int lane)
{
    const int row = lane % 8, pixel = lane / 8 % 2 * 8 + (Shape::INSIDE ? row : 0);
    const int channel = lane / 16 * 8 + (Shape::INSIDE ? 0 : row);
    return channel * Shape::CHANNEL + pixel * Shape::PIXEL;
}

template <class Element_> struct half_arithmetic {
    using Element = Element_;
    static constexpr bool SPLITS = false;

    template <int TILES, bool channels_inside, bool>
    static __device__ __forceinline__ void step(const Element *x, const fragment_b *weights, int lane,
                                                float (&sums)[ROW_TILES][TILES][4])
    {
        using Shape = stage_shape<Element, channels_inside>;
        const Element *from = x + matrix_row<Shape>(lane);
        fragment_a a[ROW_TILES];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
            a[m] = load_matrices<!channels_inside>(from + m * 16 * Shape::PIXEL);
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const fragment_b b = load_weights(weights, n, lane);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
                mma_half(sums[m][n], a[m], b, Element());
        }
    }
};

} // namespace tconv::col2im

#endif
