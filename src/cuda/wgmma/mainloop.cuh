/* The main loop of a warpgroup: its commit groups, the operands that they read, and the stages that they release. */
#ifndef TCONV_CUDA_WGMMA_MAINLOOP_CUH
#define TCONV_CUDA_WGMMA_MAINLOOP_CUH

#include "../gemm/multiply.cuh"
#include "tile.cuh"

namespace tconv::wgmma
{

/* Keeps a schedule in registers: it would be read from constant memory again for each MMA. */
__device__ __forceinline__ mma_schedule in_registers(mma_schedule schedule)
{
    asm volatile(""
                 : "+r"(schedule.weights), "+r"(schedule.pixels), "+r"(schedule.pair_weights),
                   "+r"(schedule.pair_pixels));
    return schedule;
}

/* The high word of an MN-major descriptor: K are rows of 128 bytes of N, in TMA's swizzle of 128 bytes, and eight of
 * them after another are the stride; 64 pixels on it is as far as the low word says. PTX ISA, "Matrix Descriptor
 * Format". */
constexpr uint32_t MN_MAJOR_HIGH = 1u << 30 | 8 * 128 / 16;

/* The addresses of the operands of the MMA tiles' next MMAs, as the low words of descriptors. */
struct operands {
    uint32_t weights[MMA_TILES], pixels[MMA_TILES];
    uint32_t pixels_small; /* from a pixel's big part to its small part */
    /* Begins so much after the first weights and pixels. */
    __device__ __forceinline__ void begin(const uint32_t (&first_weights)[MMA_TILES], uint32_t weights_on,
                                          const uint32_t (&first_pixel)[MMA_TILES], uint32_t pixels_on)
    {
#pragma unroll
        for (int i = 0; i < MMA_TILES; i++) {
            weights[i] = first_weights[i] + weights_on;
            pixels[i] = first_pixel[i] + pixels_on;
        }
    }
    /* These return the descriptors of MMA i of a commit group, of big (plane 0) or small parts. */
    __device__ __forceinline__ uint64_t weights_descriptor(const mma_schedule &schedule, int mma_tile, int i,
                                                           int plane) const
    {
        return descriptor(weights[mma_tile] + i % 2 * schedule.weights + i / 2 * schedule.pair_weights) +
               plane * MMA_A_ROWS;
    }
    template <class Mode>
    __device__ __forceinline__ uint64_t pixels_descriptor(const mma_schedule &schedule, int mma_tile, int i,
                                                          int plane) const
    {
        const uint32_t low = pixels[mma_tile] + i % 2 * schedule.pixels + i / 2 * schedule.pair_pixels;
        return (Mode::MN_MAJOR ? (uint64_t)MN_MAJOR_HIGH << 32 | low : descriptor(low)) + plane * pixels_small;
    }
};

/* Multiplies one commit group of count MMAs into accumulators [first, end), which have the same schedule; moves the
 * operands on, and releases the stages of the commit group before. */
template <class Mode, int N, int count, int first, int end>
__device__ __forceinline__ void multiply_group(float (&accumulators)[MMA_TILES][N / 2], operands &at,
                                               const mma_schedule &schedule, int &accumulate, pending_release &pending)
{
    const auto a = [&](int mma_tile, int i, int plane) { return at.weights_descriptor(schedule, mma_tile, i, plane); };
    const auto b = [&](int mma_tile, int i, int plane) {
        return at.pixels_descriptor<Mode>(schedule, mma_tile, i, plane);
    };
    if constexpr (Mode::STRICT) {
#pragma unroll
        for (int mma_tile = first; mma_tile < end; mma_tile++) {
            float partial[N / 2];
            multiply_partial_sum<Mode, N, count>(partial, mma_tile, a, b);
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                accumulators[mma_tile][i] = accumulate ? accumulators[mma_tile][i] + partial[i] : partial[i];
        }
    } else {
        multiply_commit_group<Mode, N, count, first, end>(accumulators, a, b, accumulate);
        wgmma_wait<1>();
    }
#pragma unroll
    for (int mma_tile = first; mma_tile < end; mma_tile++) {
        at.weights[mma_tile] += count / 2 * schedule.pair_weights;
        at.pixels[mma_tile] += count / 2 * schedule.pair_pixels;
    }
    accumulate = 1;
    pending.release();
}

/* Multiplies an A stage for accumulators [first, end), which have the same schedule: COMMIT_GROUP_MMAS at a time, then
 * what is left of the inner loop. */
template <class Mode, int N, int first, int end>
__device__ __forceinline__ void multiply_a_stage(float (&accumulators)[MMA_TILES][N / 2], const operands &begin,
                                                 const mma_schedule &schedule, int &accumulate,
                                                 pending_release &pending)
{
    static_assert(COMMIT_GROUP_MMAS == 4, "the calls below have these counts");
#pragma unroll 1
    for (int round = 0; round < schedule.outer; round++) {
        operands at = begin;
#pragma unroll
        for (int mma_tile = first; mma_tile < end; mma_tile++) {
            at.weights[mma_tile] += round * schedule.outer_weights;
            at.pixels[mma_tile] += round * schedule.outer_pixels;
        }
        int count = schedule.inner;
#pragma unroll 1
        for (; count >= 4; count -= 4)
            multiply_group<Mode, N, 4, first, end>(accumulators, at, schedule, accumulate, pending);
        if (count == 3)
            multiply_group<Mode, N, 3, first, end>(accumulators, at, schedule, accumulate, pending);
        else if (count == 2)
            multiply_group<Mode, N, 2, first, end>(accumulators, at, schedule, accumulate, pending);
        else if (count == 1)
            multiply_group<Mode, N, 1, first, end>(accumulators, at, schedule, accumulate, pending);
    }
}

/* Multiplies an A stage for all MMA tiles. */
template <class Mode, int N>
__device__ __forceinline__ void multiply_mma_tiles(float (&accumulators)[MMA_TILES][N / 2], const parameters &params,
                                                   const operands &begin, const mma_schedule &schedule, int &accumulate,
                                                   pending_release &pending)
{
    if (params.same_schedule) {
        multiply_a_stage<Mode, N, 0, MMA_TILES>(accumulators, begin, schedule, accumulate, pending);
    } else {
        int accumulate_0 = accumulate;
        multiply_a_stage<Mode, N, 0, 1>(accumulators, begin, params.schedule[0], accumulate_0, pending);
        multiply_a_stage<Mode, N, 1, 2>(accumulators, begin, params.schedule[1], accumulate, pending);
    }
}

/* Tells whether raw stages are the B operand as they come; else they are transposed or realigned into B stages. */
template <class Mode> __device__ __forceinline__ bool b_is_raw_stages(const parameters &params)
{
    return Mode::MN_MAJOR && params.channel_alignment == 0;
}

} // namespace tconv::wgmma

#endif
