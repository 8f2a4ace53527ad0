/*
 * A warp's part of the tensor cores' work in Hopper's kernel of the products algorithm: its 16 pixels of a stage, as factors in
 * registers, times all products, whose weights lie in shared memory.
 *
 * Strict f32: small * big, big * small and big * big are summed by the tensor cores for a stage (their own additions lose bits:
 * of 8 steps of like terms up to 30 units), then added in f32. What is not finite is in the small part alone, see
 * tf32_device.cuh.
 */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_MAINLOOP_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_MAINLOOP_CUH

#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/wgmma.cuh"
#include "mainloop.cuh"

namespace tconv::col2im
{

constexpr int STEPS = TCONV_CUDA_PRODUCT_ROWS_STEPS;

/* src of a warp's pixels in shared memory; see products_copy.cuh. Pitches: no bank conflicts, rows at multiples of an access. */
template <class Element_, bool channels_inside, int stages> struct rows_shape {
    using Element = Element_;
    static constexpr bool INSIDE = channels_inside;
    static constexpr int PIXELS = TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS, STAGES = stages;
    static constexpr int STEP = TCONV_CUDA_PRODUCTS_STEP_BYTES / (int)sizeof(Element), CHANNELS = STEPS * STEP;
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int PITCH = channels_inside ? CHANNELS + 8 : PIXELS + (sizeof(Element) == 4 ? 4 : 8);
    static constexpr int ELEMENTS = PITCH * (channels_inside ? PIXELS : CHANNELS);
    static constexpr int CHANNEL = channels_inside ? 1 : PITCH, PIXEL = channels_inside ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES, "a stage");
};

/* The kinds of arithmetic. convert: from the values of f32 that a lane has of a step to its factors, by plane. */
struct rows_strict {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PLANES = 2;

    static __device__ __forceinline__ void convert(const float (&values)[4], uint32_t (&factors)[PLANES][4])
    {
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const parts parts = split(values[i]);
            factors[0][i] = parts.big;
            factors[1][i] = parts.small;
            zero = fmaf(__uint_as_float(parts.small), 0.0f, zero);
        }
        if (!__any_sync(~0u, zero != 0))
            return;
#pragma unroll
        for (int i = 0; i < 4; i++)
            split_to_tf32(__float_as_uint(values[i]), &factors[0][i], &factors[1][i]);
    }
};

/* rounded: the values are already. */
template <bool rounded> struct rows_tf32 {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PLANES = 1;

    static __device__ __forceinline__ void convert(const float (&values)[4], uint32_t (&factors)[PLANES][4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            factors[0][i] = rounded ? __float_as_uint(values[i]) : round_tf32(values[i]);
    }
};

template <class Element_, wgmma_type type> struct rows_half {
    using Element = Element_;
    static constexpr wgmma_type TYPE = type;
    static constexpr int PLANES = 1;
};

/* The factors that a lane has of a step. Of f32 it takes channels 2 * (lane % 4) and the next one, in the order in which weights
 * are packed. */
template <class Arithmetic, class Shape>
__device__ __forceinline__ void load_factors(const typename Shape::Element *x, int lane,
                                             uint32_t (&factors)[Arithmetic::PLANES][4])
{
    if constexpr (sizeof(typename Shape::Element) == sizeof(float)) {
        const float *from = x + lane % 4 * 2 * Shape::CHANNEL + lane / 4 * Shape::PIXEL;
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            values[i] = from[i / 2 * Shape::CHANNEL + i % 2 * 8 * Shape::PIXEL];
        Arithmetic::convert(values, factors);
    } else {
        const fragment_a loaded = load_matrices<!Shape::INSIDE>(x + matrix_row<Shape>(lane));
#pragma unroll
        for (int i = 0; i < 4; i++)
            factors[0][i] = loaded.at[i];
    }
}

/* Starts to add a step's products to sums. weights: the operand's low word for the step. */
template <class Arithmetic, int N>
__device__ __forceinline__ void multiply_step(float (&sums)[N / 2], const uint32_t (&factors)[Arithmetic::PLANES][4],
                                              uint32_t weights, int accumulate)
{
    using Product = wgmma_rs<Arithmetic::TYPE, N>;
    constexpr uint32_t PLANE = N * TCONV_CUDA_PRODUCTS_STEP_BYTES / 16;
    wgmma_fence();
    if constexpr (Arithmetic::PLANES == 2) {
        Product::add(sums, factors[1], descriptor(weights), accumulate);
        Product::add(sums, factors[0], descriptor(weights + PLANE), 1);
        Product::add(sums, factors[0], descriptor(weights), 1);
    } else {
        Product::add(sums, factors[0], descriptor(weights), accumulate);
    }
    wgmma_commit();
}

} // namespace tconv::col2im

#endif
