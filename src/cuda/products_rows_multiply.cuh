/*
 * A warp's part of the tensor cores' work in Hopper's kernel of the products algorithm: its 16 pixels of a stage, as factors in
 * registers, times all products, whose weights lie in shared memory.
 *
 * Strict f32: small * big, big * small and big * big are summed by the tensor cores for a stage (their own additions lose bits:
 * of 8 steps of like terms up to 30 units), then added in f32. What is not finite is in the small part alone, see
 * tf32_device.cuh.
 */
#ifndef TCONV_CUDA_PRODUCTS_ROWS_MULTIPLY_CUH
#define TCONV_CUDA_PRODUCTS_ROWS_MULTIPLY_CUH

#include "hopper_device.cuh"
#include "products_multiply.cuh"
#include "tf32_device.cuh"

namespace tconv_products
{

using hopper::product_type;

constexpr int STEPS = TCONV_CUDA_PRODUCT_ROWS_STEPS;

/* sums (64 x N over the warpgroup) = a * b, a being in registers; added to sums where accumulate is not 0. */
template <product_type type, int N> struct register_product;

#define TCONV_SUMS_16(i) TCONV_SUMS_12(i), TCONV_SUMS_4(i + 12)
#define TCONV_SUMS_24(i) TCONV_SUMS_12(i), TCONV_SUMS_12(i + 12)
#define TCONV_SUMS_48(i) TCONV_SUMS_24(i), TCONV_SUMS_24(i + 24)
#define TCONV_NAMES_12   "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define TCONV_NAMES_16   TCONV_NAMES_12 ", %12, %13, %14, %15"
#define TCONV_NAMES_48   TCONV_NAMES_44 ", %44, %45, %46, %47"

/* flags: for 16-bit types, that b is not transposed. */
#define TCONV_PRODUCT(type, shape, flags, N, count, a0, a1, a2, a3, b, accumulate_)                                    \
    template <> struct register_product<hopper::type, N> {                                                             \
        static __device__ __forceinline__ void add(float (&sums)[count], const uint32_t (&a)[4], uint64_t right,       \
                                                   int accumulate)                                                     \
        {                                                                                                              \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #accumulate_ ", 0;\n"                              \
                         "wgmma.mma_async.sync.aligned.m64n" #N shape " {" TCONV_NAMES_##count                         \
                         "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", adds, 1, 1" flags ";\n}"               \
                         : TCONV_SUMS_##count(0)                                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "r"(accumulate));                   \
        }                                                                                                              \
    };
#define TCONV_PRODUCTS(N, count, a0, a1, a2, a3, b, accumulate)                                                        \
    TCONV_PRODUCT(PRODUCT_TF32, "k8.f32.tf32.tf32", "", N, count, a0, a1, a2, a3, b, accumulate)                       \
    TCONV_PRODUCT(PRODUCT_F16, "k16.f32.f16.f16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)                      \
    TCONV_PRODUCT(PRODUCT_BF16, "k16.f32.bf16.bf16", ", 0", N, count, a0, a1, a2, a3, b, accumulate)
TCONV_PRODUCTS(24, 12, 12, 13, 14, 15, 16, 17)
TCONV_PRODUCTS(32, 16, 16, 17, 18, 19, 20, 21)
TCONV_PRODUCTS(48, 24, 24, 25, 26, 27, 28, 29)
TCONV_PRODUCTS(64, 32, 32, 33, 34, 35, 36, 37)
TCONV_PRODUCTS(96, 48, 48, 49, 50, 51, 52, 53)
#undef TCONV_PRODUCTS
#undef TCONV_PRODUCT

/* src of a warp's pixels in shared memory; see products_copy.cuh. Pitches: no bank conflicts, rows at multiples of an access. */
template <class Element_, bool channels_inside, int stages> struct rows_shape {
    using Element = Element_;
    static constexpr bool INSIDE = channels_inside;
    static constexpr int PIXELS = TCONV_CUDA_PRODUCT_ROWS_WARP_PIXELS, STAGES = stages;
    static constexpr int STEP = TCONV_CUDA_PRODUCTS_STEP_BYTES / (int)sizeof(Element), CHANNELS = STEPS * STEP;
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int PITCH = channels_inside ? CHANNELS + LENGTH : PIXELS + 8;
    static constexpr int ELEMENTS = PITCH * (channels_inside ? PIXELS : CHANNELS);
    static constexpr int CHANNEL = channels_inside ? 1 : PITCH, PIXEL = channels_inside ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= TCONV_CUDA_PRODUCT_ROWS_STAGE_BYTES, "a stage");
};

/* The values that a lane takes of a step of f32. */
template <class Shape> __device__ __forceinline__ void load_step(const float *x, int lane, float (&values)[4])
{
    const float *from = x + lane % 4 * Shape::CHANNEL + lane / 4 * Shape::PIXEL;
#pragma unroll
    for (int i = 0; i < 4; i++)
        values[i] = from[i / 2 * 4 * Shape::CHANNEL + i % 2 * 8 * Shape::PIXEL];
}

/* The kinds of arithmetic. load: the factors that a lane has of a step, by plane. */
struct rows_strict {
    using Element = float;
    static constexpr product_type TYPE = hopper::PRODUCT_TF32;
    static constexpr int PLANES = 2;

    template <class Shape>
    static __device__ __forceinline__ void load(const float *x, int lane, uint32_t (&factors)[PLANES][4])
    {
        float values[4], zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
        load_step<Shape>(x, lane, values);
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

struct rows_tf32 {
    using Element = float;
    static constexpr product_type TYPE = hopper::PRODUCT_TF32;
    static constexpr int PLANES = 1;

    template <class Shape>
    static __device__ __forceinline__ void load(const float *x, int lane, uint32_t (&factors)[PLANES][4])
    {
        float values[4];
        load_step<Shape>(x, lane, values);
#pragma unroll
        for (int i = 0; i < 4; i++)
            factors[0][i] = round_tf32(values[i]);
    }
};

template <class Element_, product_type type> struct rows_half {
    using Element = Element_;
    static constexpr product_type TYPE = type;
    static constexpr int PLANES = 1;

    template <class Shape>
    static __device__ __forceinline__ void load(const Element *x, int lane, uint32_t (&factors)[PLANES][4])
    {
        const fragment_a loaded = load_matrices<!Shape::INSIDE>(x + matrix_row<Shape>(lane));
#pragma unroll
        for (int i = 0; i < 4; i++)
            factors[0][i] = loaded.at[i];
    }
};

/* Starts to add a step's products to sums. weights: the operand's low word for the step. */
template <class Arithmetic, int N>
__device__ __forceinline__ void multiply_step(float (&sums)[N / 2], const uint32_t (&factors)[Arithmetic::PLANES][4],
                                              uint32_t weights, int accumulate)
{
    using Product = register_product<Arithmetic::TYPE, N>;
    constexpr uint32_t PLANE = N * TCONV_CUDA_PRODUCTS_STEP_BYTES / 16;
    hopper::products_begin();
    if constexpr (Arithmetic::PLANES == 2) {
        Product::add(sums, factors[1], hopper::operand(weights), accumulate);
        Product::add(sums, factors[0], hopper::operand(weights + PLANE), 1);
        Product::add(sums, factors[0], hopper::operand(weights), 1);
    } else {
        Product::add(sums, factors[0], hopper::operand(weights), accumulate);
    }
    hopper::products_commit();
}

} // namespace tconv_products

#endif
