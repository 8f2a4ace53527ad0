/* Groups of products of a warpgroup of the wgmma kernel, the operands that they read, and the buffers that they release. */
#ifndef TCONV_CUDA_WGMMA_MAINLOOP_CUH
#define TCONV_CUDA_WGMMA_MAINLOOP_CUH

#include "../gemm/pipeline.cuh"
#include "../ptx/wgmma.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

/* Keeps an order in registers: what lies in constant memory is else read again for each product. */
__device__ __forceinline__ tconv_wgmma_order in_registers(tconv_wgmma_order order)
{
    asm volatile("" : "+r"(order.weights), "+r"(order.pixels), "+r"(order.pair_weights), "+r"(order.pair_pixels));
    return order;
}

/* The high word of an operand whose K are rows of 128 bytes of N, swizzled as the copy engine does, eight of them after
 * another; 64 pixels on it is as far as the low word says. PTX ISA, "Matrix Descriptor Format". */
constexpr uint32_t TRANSPOSED_HIGH = 1u << 30 | 8 * 128 / 16;

/* The operands of the units' next products, as low words: see operand. */
struct factors {
    uint32_t weights[TCONV_WGMMA_UNITS], pixels[TCONV_WGMMA_UNITS];
    uint32_t pixels_small; /* to the plane of what rounding left */
    /* Of product i of a stroke. */
    __device__ __forceinline__ uint64_t weights_of(const tconv_wgmma_order &order, int unit, int i) const
    {
        return descriptor(weights[unit] + i % 2 * order.weights + i / 2 * order.pair_weights);
    }
    template <class Mode>
    __device__ __forceinline__ uint64_t pixels_of(const tconv_wgmma_order &order, int unit, int i) const
    {
        const uint32_t low = pixels[unit] + i % 2 * order.pixels + i / 2 * order.pair_pixels;
        return Mode::TRANSPOSED ? (uint64_t)TRANSPOSED_HIGH << 32 | low : descriptor(low);
    }
};

/* count products of each of `units` units. */
template <class Mode, int N, int count, int first, int units>
__device__ __forceinline__ void multiply(float (&sums)[UNITS][N / 2], const factors &at, const tconv_wgmma_order &order,
                                         int accumulate)
{
    using Product = wgmma_ss<Mode::TYPE, N>;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int unit = first; unit < first + units; unit++)
            Product::add(sums[unit], at.weights_of(order, unit, i), at.pixels_of<Mode>(order, unit, i),
                         i > 0 ? 1 : accumulate);
    wgmma_commit();
    wgmma_wait<1>();
}

/* The same of one unit in strict f32: small products first, from zero; then their sum joins the others. */
template <class Mode, int N, int count, int unit>
__device__ __forceinline__ void multiply_strict(float (&sums)[UNITS][N / 2], const factors &at,
                                                const tconv_wgmma_order &order, int accumulate)
{
    using Product = wgmma_ss<Mode::TYPE, N>;
    float partial[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        partial[i] = 0;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < count; i++) {
        const uint64_t weights = at.weights_of(order, unit, i), pixels = at.pixels_of<Mode>(order, unit, i);
        Product::add(partial, weights + PRODUCT_ROWS, pixels, i > 0);
        Product::add(partial, weights, pixels + at.pixels_small, 1);
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        Product::add(partial, at.weights_of(order, unit, i), at.pixels_of<Mode>(order, unit, i), 1);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sums[unit][i] = accumulate ? sums[unit][i] + partial[i] : partial[i];
}

/* One group of products of `units` units, and on to the next. */
template <class Mode, int N, int count, int first, int units>
__device__ __forceinline__ void multiply_stroke(float (&sums)[UNITS][N / 2], factors &at,
                                                const tconv_wgmma_order &order, int &accumulate,
                                                pending_release &pending)
{
    if (Mode::STRICT) {
        multiply_strict<Mode, N, count, first>(sums, at, order, accumulate);
        if (units == UNITS)
            multiply_strict<Mode, N, count, UNITS - 1>(sums, at, order, accumulate);
    } else {
        multiply<Mode, N, count, first, units>(sums, at, order, accumulate);
    }
#pragma unroll
    for (int unit = first; unit < first + units; unit++) {
        at.weights[unit] += count / 2 * order.pair_weights;
        at.pixels[unit] += count / 2 * order.pair_pixels;
    }
    accumulate = 1;
    pending.release();
}

/* A slot's products of `units` units that have the same order: TCONV_WGMMA_STROKE at a time, then what is left of a run. */
template <class Mode, int N, int first, int units>
__device__ __forceinline__ void multiply_slot(float (&sums)[UNITS][N / 2], const factors &begin,
                                              const tconv_wgmma_order &order, int &accumulate, pending_release &pending)
{
    static_assert(TCONV_WGMMA_STROKE == 4, "as here");
#pragma unroll 1
    for (int run = 0; run < order.runs; run++) {
        factors at = begin;
#pragma unroll
        for (int unit = first; unit < first + units; unit++) {
            at.weights[unit] += run * order.run_weights;
            at.pixels[unit] += run * order.run_pixels;
        }
        int count = order.count;
#pragma unroll 1
        for (; count >= 4; count -= 4)
            multiply_stroke<Mode, N, 4, first, units>(sums, at, order, accumulate, pending);
        if (count == 3)
            multiply_stroke<Mode, N, 3, first, units>(sums, at, order, accumulate, pending);
        else if (count == 2)
            multiply_stroke<Mode, N, 2, first, units>(sums, at, order, accumulate, pending);
        else if (count == 1)
            multiply_stroke<Mode, N, 1, first, units>(sums, at, order, accumulate, pending);
    }
}

} // namespace tconv::wgmma

#endif
