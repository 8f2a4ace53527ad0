/* Groups of products of a warpgroup of the wgmma kernel, the operands that they read, and the buffers that they release. */
#ifndef TCONV_CUDA_WGMMA_MULTIPLY_CUH
#define TCONV_CUDA_WGMMA_MULTIPLY_CUH

#include "wgmma_tile.cuh"

namespace tconv_wgmma
{

/* The operands of a warpgroup's next products, as low words: see operand. */
struct factors {
    uint32_t weights[TCONV_WGMMA_UNITS], pixels[TCONV_WGMMA_UNITS];
    uint32_t weights_step, pixels_step;   /* to the next tap or step */
    uint32_t weights_small, pixels_small; /* to the plane of what rounding left */
};

/* count products of each of the first `units` units. */
template <class Mode, int N, int count, int units>
__device__ __forceinline__ void multiply(float (&sums)[UNITS][N / 2], factors &at, int accumulate)
{
    using Product = product<Mode::TYPE, N>;
    products_begin();
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int unit = 0; unit < units; unit++)
            Product::add(sums[unit], operand(at.weights[unit] + i * at.weights_step),
                         operand(at.pixels[unit] + i * at.pixels_step), i > 0 ? 1 : accumulate);
    products_commit();
    products_wait<1>();
}

/* The same in strict f32: small products first, from zero; then their sum joins the others. */
template <class Mode, int N, int count>
__device__ __forceinline__ void multiply_strict(float (&sums)[UNITS][N / 2], const factors &at, int unit,
                                                int accumulate)
{
    using Product = product<Mode::TYPE, N>;
    const uint32_t weights = at.weights[unit], pixels = at.pixels[unit];
    float partial[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        partial[i] = 0;
    products_begin();
#pragma unroll
    for (int i = 0; i < count; i++) {
        const uint32_t weight = weights + i * at.weights_step, pixel = pixels + i * at.pixels_step;
        Product::add(partial, operand(weight + at.weights_small), operand(pixel), i > 0);
        Product::add(partial, operand(weight), operand(pixel + at.pixels_small), 1);
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        Product::add(partial, operand(weights + i * at.weights_step), operand(pixels + i * at.pixels_step), 1);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sums[unit][i] = accumulate ? sums[unit][i] + partial[i] : partial[i];
}

/* The buffers that the products under way still read: told to be empty when those are done. 0: nothing to tell, as always
 * in threads that do not signal. */
struct pending_release {
    uint32_t slot, stage;
    __device__ __forceinline__ void release()
    {
        barrier_arrive_unless_0(slot);
        barrier_arrive_unless_0(stage);
        slot = stage = 0;
    }
};

/* Buffers, in units of 16 bytes, as those that multiply walk them. */
struct buffer_walk {
    uint32_t barrier, buffer, parity;
    uint32_t first_barrier, first_buffer, step, end;
    __device__ __forceinline__ buffer_walk(uint32_t barriers, uint32_t buffers, uint32_t bytes, int count)
        : barrier(barriers), buffer(operand_address(buffers)), parity(0), first_barrier(barriers),
          first_buffer(operand_address(buffers)), step(bytes >> 4), end(barriers + 8 * count)
    {
    }
    __device__ __forceinline__ void next()
    {
        const bool wraps = barrier + 8 == end;
        barrier = wraps ? first_barrier : barrier + 8;
        buffer = wraps ? first_buffer : buffer + step;
        parity ^= wraps;
    }
};

/* How the products of a slot follow one another: along the taps of a row, once for each step, or, where there is one tap,
 * along the steps. */
struct slot_order {
    int runs, count;
    bool odd; /* unit 0 has one tap more */
    uint32_t run_weights, run_pixels;
};

/* One group of products of the first `units` units, and on to the next. */
template <class Mode, int N, int count, int units>
__device__ __forceinline__ void multiply_stroke(float (&sums)[UNITS][N / 2], factors &at, int &accumulate,
                                                pending_release &pending)
{
    if (Mode::STRICT) {
#pragma unroll
        for (int unit = 0; unit < units; unit++)
            multiply_strict<Mode, N, count>(sums, at, unit, accumulate);
    } else {
        multiply<Mode, N, count, units>(sums, at, accumulate);
    }
#pragma unroll
    for (int unit = 0; unit < units; unit++) {
        at.weights[unit] += count * at.weights_step;
        at.pixels[unit] += count * at.pixels_step;
    }
    accumulate = 1;
    pending.release();
}

/* A run: TCONV_WGMMA_STROKE products at a time, then what is left of them, then the one that only unit 0 has. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_run(float (&sums)[UNITS][N / 2], factors &at, int count, bool odd,
                                             int &accumulate, pending_release &pending)
{
    static_assert(TCONV_WGMMA_STROKE == 4, "as here");
#pragma unroll 1
    for (; count >= 4; count -= 4)
        multiply_stroke<Mode, N, 4, UNITS>(sums, at, accumulate, pending);
    if (count == 3)
        multiply_stroke<Mode, N, 3, UNITS>(sums, at, accumulate, pending);
    else if (count == 2)
        multiply_stroke<Mode, N, 2, UNITS>(sums, at, accumulate, pending);
    else if (count == 1)
        multiply_stroke<Mode, N, 1, UNITS>(sums, at, accumulate, pending);
    if (odd)
        multiply_stroke<Mode, N, 1, 1>(sums, at, accumulate, pending);
}

} // namespace tconv_wgmma

#endif
