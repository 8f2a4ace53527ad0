/* Pipelines through shared memory between producer and consumer warps: how each side walks the stages, and how a
 * consumer warpgroup releases those that it has read. Each stage has a pair of barriers, full and empty. */
#ifndef TCONV_CUDA_GEMM_PIPELINE_CUH
#define TCONV_CUDA_GEMM_PIPELINE_CUH

#include "../numeric/forgotten.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/sync.cuh"
#include "../ptx/wgmma.cuh"
#include "shape.h"

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
#ifdef TCONV_CUDA_FOR_RACECHECK
constexpr int WARP_ARRIVALS = 32;
#else
constexpr int WARP_ARRIVALS = 1;
#endif
__device__ __forceinline__ bool arrives_for_warp(int lane)
{
    return WARP_ARRIVALS > 1 || lane == 0;
}
__device__ __forceinline__ void signal_for_warp(uint32_t barrier, int lane)
{
    if (arrives_for_warp(lane))
        mbarrier_arrive(barrier);
}

/* The stages of a pipeline: the addresses of their barriers, full ones, then empty ones, and of their buffers, one
 * after another, each of so many bytes. */
constexpr uint32_t EMPTY = 8 * MAX_STAGES;     /* bytes: from a stage's full to its empty barrier */
constexpr int STAGE_BARRIERS = 2 * MAX_STAGES; /* of a pipeline */
struct stage_ring {
    uint32_t barriers, buffers, bytes;
    int count;
    __device__ __forceinline__ void init(int full_arrivals, int empty_arrivals) const
    {
        for (int i = 0; i < MAX_STAGES; i++) {
            mbarrier_init(barriers + 8 * i, full_arrivals);
            mbarrier_init(barriers + EMPTY + 8 * i, empty_arrivals);
        }
    }
    __device__ __forceinline__ uint32_t end() const
    {
        return buffers + count * bytes;
    }
};

/* The stages as warps walk them that fill them (parity 1), or read them otherwise than by wgmma (parity 0). */
struct stage_walk {
    const stage_ring &ring;
    pipeline_state state;
    __device__ __forceinline__ stage_walk(const stage_ring &ring_, uint32_t parity) : ring(ring_), state{0, parity}
    {
    }
    __device__ __forceinline__ uint32_t full() const
    {
        return ring.barriers + 8 * state.at;
    }
    __device__ __forceinline__ uint32_t empty() const
    {
        return full() + EMPTY;
    }
    __device__ __forceinline__ uint32_t buffer() const
    {
        return ring.buffers + state.at * ring.bytes;
    }
    __device__ __forceinline__ void wait_full() const
    {
        mbarrier_wait(full(), state.parity);
    }
    __device__ __forceinline__ void wait_empty() const
    {
        mbarrier_wait(empty(), state.parity);
    }
    /* Waits until the stage is empty, and has it wait for so many bytes of copies. */
    __device__ __forceinline__ void expect(uint32_t bytes) const
    {
        wait_empty();
        mbarrier_arrive_expect_tx(full(), bytes);
    }
    /* Tells that a warp has written its part of the stage, for wgmma to read. */
    __device__ __forceinline__ void signal_written(int lane) const
    {
        fence_proxy_async();
        __syncwarp();
        signal_for_warp(full(), lane);
    }
    __device__ __forceinline__ void next()
    {
        state.next(ring.count);
    }
};

/* Has TMA fill stages with the K-blocks of a thread block's tiles, each with so many bytes: load(tile, channel, to,
 * full) issues its boxes, from that channel on. The barriers from `full` on count them: the stages' own, or those that
 * tell the warps which rewrite them. */
template <class Parameters, class Load>
__device__ __forceinline__ void load_k_blocks(const Parameters &params, const stage_ring &ring, uint32_t full,
                                              uint32_t bytes, Load load)
{
    stage_walk stage(ring, 1);
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const auto tile = find_tile(params, number);
        int channel = tile.group * params.group_in;
#pragma unroll 1
        for (int k_block = 0; k_block < params.k_blocks; k_block++, channel += params.k_block_channels) {
            const uint32_t stage_full = full + 8 * stage.state.at;
            stage.wait_empty();
            mbarrier_arrive_expect_tx(stage_full, bytes);
            load(tile, channel, stage.buffer(), stage_full);
            stage.next();
        }
    }
}

/* The stages as wgmma's warpgroups walk them: barriers by address, buffers in units of 16 bytes
 * (descriptor_address). */
struct consumer_state {
    uint32_t barrier, buffer, parity;
    uint32_t first_barrier, first_buffer, step, end;
    __device__ __forceinline__ explicit consumer_state(const stage_ring &ring)
        : barrier(ring.barriers), buffer(descriptor_address(ring.buffers)), parity(0), first_barrier(barrier),
          first_buffer(buffer), step(ring.bytes >> 4), end(ring.barriers + 8 * ring.count)
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
 * done. 0 stands for none, as always in threads that do not signal. One thread signals for its warpgroup, whose warps
 * have all passed the stage's full barrier then, since wgmma has them meet: where none is multiplied, warpgroup_sync
 * has. A warp that came later would miss the stage's phase, and wait for ever. */
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

/* Waits likewise for two stages, of which `ready` says whether both were full. */
__device__ __forceinline__ void wait_for_stages(bool ready, const consumer_state &b, const consumer_state &a,
                                                pending_release &pending)
{
    if (__all_sync(~0u, ready))
        return;
    wgmma_wait<0>();
    pending.release();
    mbarriers_wait(b.barrier, b.parity, a.barrier, a.parity);
}

} // namespace tconv

#endif
