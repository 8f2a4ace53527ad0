/* Rings of buffers in shared memory between warps with different roles: how each side walks them, and how a warpgroup that
 * multiplies says that it has read one. Each buffer has a pair of barriers, full and empty. */
#ifndef TCONV_CUDA_GEMM_PIPELINE_CUH
#define TCONV_CUDA_GEMM_PIPELINE_CUH

#include "../ptx/mbarrier.cuh"
#include "../ptx/wgmma.cuh"

namespace tconv
{

/* The side that fills begins with parity 1: its first round need not wait. */
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
 * A warp tells by one lane, after __syncwarp, what all of its lanes have read or written. The barriers that it arrives at count
 * WARP_ARRIVALS for each such warp. Racecheck credits the lane that arrives alone: in a build for it every lane does.
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

/* Buffers, in units of 16 bytes, as those that multiply walk them. */
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

/* The empty barriers of the buffers that the products under way still read: told when those are done. 0: nothing to tell,
 * as always in threads that do not signal. */
struct pending_release {
    uint32_t a, b;
    __device__ __forceinline__ void release()
    {
        mbarrier_arrive_unless_0(a);
        mbarrier_arrive_unless_0(b);
        a = b = 0;
    }
};

/* Waits for a buffer, but not while it keeps others: who fills this one may be waiting for them. Not where `released`:
 * there they have been released already. */
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
