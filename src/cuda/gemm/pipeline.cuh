/* Pipelines through shared memory between producer and consumer warps: how each side walks the stages, and how a
 * consumer warpgroup releases those that it has read. Each stage has a pair of barriers, full and empty. */
#ifndef TCONV_CUDA_GEMM_PIPELINE_CUH
#define TCONV_CUDA_GEMM_PIPELINE_CUH

#include "../ptx/mbarrier.cuh"
#include "../ptx/wgmma.cuh"

namespace tconv
{

/* A stage and the parity of its barriers. Producers begin with parity 1: their first round need not wait. */
struct pipeline_state {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next(int count)
    {
        if (++at == count) {
            at = 0;
            parity ^= 1;
        }
    }
};

/*
 * A warp tells by one lane, after __syncwarp, what all of its lanes have read or written. The barriers that it arrives
 * at count WARP_ARRIVALS for each such warp. Racecheck credits the lane that arrives alone: in a build for it every
 * lane does.
 */
#ifdef TCONV_CUDA_EVERY_LANE_ARRIVES
constexpr int WARP_ARRIVALS = 32;
#else
constexpr int WARP_ARRIVALS = 1;
#endif
__device__ __forceinline__ bool arrives_for_warp(int lane)
{
    return WARP_ARRIVALS > 1 || lane == 0;
}

/* The stages as consumers walk them: barriers by address, buffers in units of 16 bytes (descriptor_address). */
struct consumer_state {
    uint32_t barrier, buffer, parity;
    uint32_t first_barrier, first_buffer, step, end;
    __device__ __forceinline__ consumer_state(uint32_t barriers, uint32_t buffers, uint32_t bytes, int count)
        : barrier(barriers), buffer(descriptor_address(buffers)), parity(0), first_barrier(barriers),
          first_buffer(descriptor_address(buffers)), step(bytes >> 4), end(barriers + 8 * count)
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

/* The empty barriers of the stages of A and B that the wgmmas under way still read: they are arrived at when those are
 * done. 0 stands for none, as always in threads that do not signal. */
struct pending_release {
    uint32_t a, b;
    __device__ __forceinline__ void release()
    {
        mbarrier_arrive_unless_0(a);
        mbarrier_arrive_unless_0(b);
        a = b = 0;
    }
};

/* Waits for a stage, but not while it keeps others: this one's producer may be waiting for them. Where `released`, they
 * have been released already. */
template <bool released>
__device__ __forceinline__ void wait_for_stage(uint32_t barrier, uint32_t parity, pending_release &pending)
{
    if (!released) {
        if (__all_sync(~0u, mbarrier_test(barrier, parity)))
            return;
        wgmma_wait<0>();
        pending.release();
    }
    mbarrier_wait(barrier, parity);
}

} // namespace tconv

#endif
