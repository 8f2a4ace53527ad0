/*
 * The main loop of Hopper's kernels: a warp's 16 pixels, as fragments in registers, are the A operand of wgmma, and all
 * weights of the group, in shared memory, the B operand.
 *
 * An Operand brings fragments: Arithmetic, NEIGHBOURS (see store_partials), fragments[K_STEPS][PARTS][4] and
 * load_step<step>, which loads the fragments of a K step of the present stage, and where step is 0 of the next one.
 *
 * Strict f32: the tensor cores sum small * big, big * small and big * big of a K-block (their own additions lose bits:
 * over 8 steps of like terms up to 30 units), and the sums are added in f32. A factor that is not finite is in the
 * small part alone, see tf32.cuh.
 */
#ifndef TCONV_CUDA_COL2IM_ROW_SUMS_MAINLOOP_CUH
#define TCONV_CUDA_COL2IM_ROW_SUMS_MAINLOOP_CUH

#include "../numeric/tf32.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/wgmma.cuh"
#include "operand.cuh"
#include "parameters.h"

namespace tconv::col2im::row_sums
{

/* A pipeline stage of a warp, which load.cuh fills. Its pitch leaves no bank conflicts, and rows at multiples of an
 * access. */
template <class Element_, bool nhwc, int stages> struct stage_layout {
    using Element = Element_;
    static constexpr bool NHWC = nhwc;
    static constexpr int PIXELS = WARP_M, STAGES = stages;
    static constexpr int STEP = MMA_K_BYTES / (int)sizeof(Element), CHANNELS = K_STEPS * STEP;
    static constexpr int LENGTH = access_length<Element>;
    static constexpr int PITCH = nhwc ? CHANNELS + 8 : PIXELS + (sizeof(Element) == 4 ? 4 : 8);
    static constexpr int ELEMENTS = PITCH * (nhwc ? PIXELS : CHANNELS);
    static constexpr int CHANNEL = nhwc ? 1 : PITCH, PIXEL = nhwc ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= STAGE_BYTES, "a stage");
};

/* The kinds of arithmetic. convert: makes fragments, by part, from the values of f32 that a lane has of a K step. */
struct strict_arithmetic {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PARTS = 2;

    static __device__ __forceinline__ void convert(const float (&values)[4], uint32_t (&fragments)[PARTS][4])
    {
        float zero = 0; /* NaN after a value that split cannot take, whose small part is not finite */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const parts parts = split(values[i]);
            fragments[0][i] = parts.big;
            fragments[1][i] = parts.small;
            zero = fmaf(__uint_as_float(parts.small), 0.0f, zero);
        }
        if (!__any_sync(~0u, zero != 0))
            return;
#pragma unroll
        for (int i = 0; i < 4; i++)
            split_to_tf32(__float_as_uint(values[i]), &fragments[0][i], &fragments[1][i]);
    }
};

/* rounded: the values already are. */
template <bool rounded> struct tf32_arithmetic {
    using Element = float;
    static constexpr wgmma_type TYPE = WGMMA_TF32;
    static constexpr int PARTS = 1;

    static __device__ __forceinline__ void convert(const float (&values)[4], uint32_t (&fragments)[PARTS][4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            fragments[0][i] = rounded ? __float_as_uint(values[i]) : round_tf32(values[i]);
    }
};

template <class Element_, wgmma_type type> struct half_arithmetic {
    using Element = Element_;
    static constexpr wgmma_type TYPE = type;
    static constexpr int PARTS = 1;
};

/* Loads the fragments that a lane has of a K step. Of f32 it takes channels 2 * (lane % 4) and the next one, in the
 * order in which weights are packed. */
template <class Arithmetic, class Stage>
__device__ __forceinline__ void load_fragments(const typename Stage::Element *x, int lane,
                                               uint32_t (&fragments)[Arithmetic::PARTS][4])
{
    if constexpr (sizeof(typename Stage::Element) == sizeof(float)) {
        const float *from = x + lane % 4 * 2 * Stage::CHANNEL + lane / 4 * Stage::PIXEL;
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            values[i] = from[i / 2 * Stage::CHANNEL + i % 2 * 8 * Stage::PIXEL];
        Arithmetic::convert(values, fragments);
    } else {
        const fragment_a loaded = load_matrices<!Stage::NHWC>(x + matrix_row<Stage>(lane));
#pragma unroll
        for (int i = 0; i < 4; i++)
            fragments[0][i] = loaded.at[i];
    }
}

/* Starts to add a K step to sums, as one commit group. weights: the descriptor's low word for the K step. */
template <class Arithmetic, int N>
__device__ __forceinline__ void multiply_step(float (&sums)[N / 2], const uint32_t (&fragments)[Arithmetic::PARTS][4],
                                              uint32_t weights, int accumulate)
{
    using Mma = wgmma_rs<Arithmetic::TYPE, N>;
    constexpr uint32_t PART = N * MMA_K_BYTES / 16;
    wgmma_fence();
    if constexpr (Arithmetic::PARTS == 2) {
        Mma::add(sums, fragments[1], descriptor(weights), accumulate);
        Mma::add(sums, fragments[0], descriptor(weights + PART), 1);
        Mma::add(sums, fragments[0], descriptor(weights), 1);
    } else {
        Mma::add(sums, fragments[0], descriptor(weights), accumulate);
    }
    wgmma_commit();
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Adds a K-block of `count` K steps to sums, and goes on to the next stage. */
template <int N, int count, class Operand>
__device__ __forceinline__ void multiply_block(const parameters &layer, Operand &operand, uint32_t weights,
                                               float (&sums)[N / 2], int accumulate)
{
    using Arithmetic = typename Operand::Arithmetic;
    constexpr uint32_t STEP = Arithmetic::PARTS * N * MMA_K_BYTES / 16;
    static_assert(K_STEPS == 2, "as here");
    multiply_step<Arithmetic, N>(sums, operand.fragments[0], weights, accumulate);
    if constexpr (count == 2) {
        operand.template load_step<1>(layer);
        wgmma_wait<0>();
        multiply_step<Arithmetic, N>(sums, operand.fragments[1], weights + STEP, 1);
        operand.template load_step<0>(layer);
        wgmma_wait<0>();
    } else {
        wgmma_wait<0>();
        operand.template load_step<0>(layer);
    }
}

/* The same, through sums of the K-block's own in strict f32. */
template <int N, int count, class Operand>
__device__ __forceinline__ void add_block(const parameters &layer, Operand &operand, uint32_t weights,
                                          float (&sums)[N / 2])
{
    if constexpr (Operand::Arithmetic::PARTS == 2) {
        float block[N / 2];
        multiply_block<N, count>(layer, operand, weights, block, 0);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[i] += block[i];
    } else {
        multiply_block<N, count>(layer, operand, weights, sums, 1);
    }
}

/* Multiplies a row of src, which exists, and adds it to sums. */
template <int N_TILES, class Operand>
__device__ __forceinline__ void multiply_row(const parameters &layer, Operand &operand, uint32_t weights,
                                             float (&sums)[N_TILES * 4])
{
    constexpr int N = N_TILES * TILE_N;
    constexpr uint32_t STEP = Operand::Arithmetic::PARTS * N * MMA_K_BYTES / 16;
    int step = 0;
#pragma unroll 1
    for (; step + K_STEPS <= layer.steps; step += K_STEPS)
        add_block<N, K_STEPS>(layer, operand, weights + step * STEP, sums);
    if (step < layer.steps)
        add_block<N, 1>(layer, operand, weights + step * STEP, sums);
}

#endif

} // namespace tconv::col2im::row_sums

#endif
