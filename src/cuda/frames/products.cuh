/* The products of an MMA's step of cuda_frames, by the kernel for few columns and the wide one alike. */
#ifndef TCONV_CUDA_FRAMES_PRODUCTS_CUH
#define TCONV_CUDA_FRAMES_PRODUCTS_CUH

#include "tile.cuh"

#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"

namespace tconv::frames
{

namespace
{

template <class Mode>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const fragment_a &a, const fragment_b &b)
{
    if constexpr (Mode::SIZE == 2)
        mma_half(sums, a, b, typename Mode::Element());
    else
        mma_tf32(sums, a, b);
}

/* Adds a step's products with a tile of columns. pixels: the lane's words of its column. */
template <class Mode>
__device__ __forceinline__ void multiply_step(const fragment_a (&a)[Mode::MMAS][2], const uint2 &pixels,
                                              float (&sums)[Mode::MMAS][4])
{
    fragment_b b[2] = {{{pixels.x, pixels.y}}, {{0, 0}}};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (Mode::STRICT)
            split_for_mma(b[0].at[i], &b[1].at[i]);
        else if (Mode::SIZE == 4)
            b[0].at[i] = round_for_mma(b[0].at[i]);
    }
    if constexpr (Mode::STRICT) {
        float step[Mode::MMAS][4] = {};
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][1], b[0]);
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][0], b[1]);
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(step[m], a[m][0], b[0]);
#pragma unroll
        for (int i = 0; i < Mode::MMAS * 4; i++)
            sums[i / 4][i % 4] += step[i / 4][i % 4];
    } else {
#pragma unroll
        for (int m = 0; m < Mode::MMAS; m++)
            multiply_add<Mode>(sums[m], a[m][0], b[0]);
    }
}

} // namespace

} // namespace tconv::frames

#endif
