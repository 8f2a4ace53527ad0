/* The products of one slot of the implicit matrix product. */
#ifndef TCONV_CUDA_IGEMM_MAINLOOP_CUH
#define TCONV_CUDA_IGEMM_MAINLOOP_CUH

#include "../numeric/compensated.cuh"
#include "../ptx/wgmma.cuh"
#include "tile.cuh"

namespace tconv::igemm
{

/* What differs among units and slots: low words of operands (see operand), and what all share. */
template <class Mode> struct factors {
    uint32_t weights[Mode::UNITS], pixels[Mode::UNITS];
    uint32_t pixels_high;                 /* of the operand: how rows of pixels lie */
    uint32_t weights_small, pixels_small; /* to the plane of what rounding left */
};

constexpr uint32_t PIXELS_STEP = TCONV_IGEMM_STEP / 16; /* from a product to the next along a pixel's channels */
template <class Mode> constexpr uint32_t WEIGHTS_STEP = Mode::PLANES *PRODUCT_BYTES / 16;

/* The high word of an operand whose rows are row_bytes of K, swizzled as the copy engine does: eight rows follow one
 * another, the next eight begin `pitch` rows on. Layout types: PTX ISA, "Matrix Descriptor Format". The swizzle is by bits of
 * the address, so that an operand and each eight rows of it may begin at any row. */
__device__ __forceinline__ uint32_t swizzled_high(int row_bytes, int pitch)
{
    const uint32_t type = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    return type << 30 | (uint32_t)(row_bytes * pitch) / 16;
}

__device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

/* steps products of each of these units: a group of their own. */
template <class Mode, int N, int first_unit, int end_unit, int steps>
__device__ __forceinline__ void multiply(float (&sums)[Mode::UNITS][N / 2], const factors<Mode> &at, int accumulate)
{
    using Product = wgmma_ss<Mode::TYPE, N>;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; i++)
#pragma unroll
        for (int unit = first_unit; unit < end_unit; unit++)
            Product::add(sums[unit], descriptor(at.weights[unit] + i * WEIGHTS_STEP<Mode>),
                         swizzled_descriptor(at.pixels[unit] + i * PIXELS_STEP, at.pixels_high),
                         i > 0 ? 1 : accumulate);
    wgmma_commit();
}

/* Waits for all but the last `taps` groups. */
__device__ __forceinline__ void wait_for_taps_before(int taps)
{
    static_assert(TCONV_IGEMM_SLOT_TAPS == 4, "one case for each");
    if (taps == 1)
        wgmma_wait<1>();
    else if (taps == 2)
        wgmma_wait<2>();
    else if (taps == 3)
        wgmma_wait<3>();
    else
        wgmma_wait<4>();
}

/* A thread's sums and, in strict f32, what they have lost. */
template <class Mode, int N> struct all_sums {
    float of[Mode::UNITS][N / 2];
    lost_parts<float, Mode::COMPENSATED ? N / 2 : 2> lost[Mode::COMPENSATED ? Mode::UNITS : 1];
};

/* The same in strict f32: small products first, from zero; then their sum joins the others. */
template <class Mode, int N, int steps>
__device__ __forceinline__ void multiply_strict(all_sums<Mode, N> &sums, const factors<Mode> &at, int unit,
                                                int accumulate)
{
    using Product = wgmma_ss<Mode::TYPE, N>;
    const uint32_t weights = at.weights[unit], pixels = at.pixels[unit];
    float partial[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        partial[i] = 0;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < steps; i++) {
        const uint32_t weight = weights + i * WEIGHTS_STEP<Mode>, pixel = pixels + i * PIXELS_STEP;
        Product::add(partial, descriptor(weight + at.weights_small), swizzled_descriptor(pixel, at.pixels_high), i > 0);
        Product::add(partial, descriptor(weight), swizzled_descriptor(pixel + at.pixels_small, at.pixels_high), 1);
    }
#pragma unroll
    for (int i = 0; i < steps; i++)
        Product::add(partial, descriptor(weights + i * WEIGHTS_STEP<Mode>),
                     swizzled_descriptor(pixels + i * PIXELS_STEP, at.pixels_high), 1);
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        float &sum = sums.of[unit][i], &next = sums.of[unit][i + 1];
        if constexpr (Mode::COMPENSATED) {
            if (i % 4 == 0 && !accumulate)
                sums.lost[unit].pairs[i / 2] = sums.lost[unit].pairs[i / 2 + 1] = 0;
            sum = accumulate ? sum : 0;
            next = accumulate ? next : 0;
            sums.lost[unit].add(i, sum, next, partial[i], partial[i + 1]);
        } else {
            sum = accumulate ? sum + partial[i] : partial[i];
            next = accumulate ? next + partial[i + 1] : partial[i + 1];
        }
    }
}

template <class Mode, int N, int first_unit, int end_unit, int steps>
__device__ __forceinline__ void multiply_steps(all_sums<Mode, N> &sums, const factors<Mode> &at, int accumulate)
{
    if constexpr (Mode::STRICT) {
#pragma unroll
        for (int unit = first_unit; unit < end_unit; unit++)
            multiply_strict<Mode, N, steps>(sums, at, unit, accumulate);
    } else {
        multiply<Mode, N, first_unit, end_unit, steps>(sums.of, at, accumulate);
    }
}

/* Of units first_unit to end_unit. Of f32 a slot is always of four steps. */
template <class Mode, int N, int first_unit, int end_unit>
__device__ __forceinline__ void multiply_slot(all_sums<Mode, N> &sums, const factors<Mode> &at, int steps,
                                              int accumulate)
{
    if (sizeof(typename Mode::Element) == 4 || steps == 4)
        multiply_steps<Mode, N, first_unit, end_unit, 4>(sums, at, accumulate);
    else
        multiply_steps<Mode, N, first_unit, end_unit, 2>(sums, at, accumulate);
}

/* Of the units that have the tap: a pair's may differ. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_tap(const tconv_igemm_parameters &layer, all_sums<Mode, N> &sums,
                                             const factors<Mode> &at, int column_tap, int accumulate)
{
    if (column_tap >= layer.unit_taps[1])
        multiply_slot<Mode, N, 0, 1>(sums, at, layer.steps, accumulate);
    else if (column_tap >= layer.unit_taps[0])
        multiply_slot<Mode, N, 1, 2>(sums, at, layer.steps, accumulate);
    else
        multiply_slot<Mode, N, 0, 2>(sums, at, layer.steps, accumulate);
}

} // namespace tconv::igemm

#endif
