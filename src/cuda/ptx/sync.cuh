/* Named barriers, cluster barriers and fences order the threads of a block and of a cluster; setmaxnreg shares out
 * registers among warps (compute capability 9.0): PTX ISA, "bar", "barrier.cluster", "fence.proxy", "setmaxnreg". */
#ifndef TCONV_CUDA_PTX_SYNC_CUH
#define TCONV_CUDA_PTX_SYNC_CUH

#include <cstdint>

namespace tconv
{

/* Waits until so many threads of the block have called it, whole warps. */
template <int threads, int barrier = 1> __device__ __forceinline__ void named_barrier_sync()
{
    asm volatile("bar.sync %1, %0;" ::"n"(threads), "n"(barrier) : "memory");
}

/* Waits likewise, and tells whether all of them say yes. */
template <int threads, int barrier> __device__ __forceinline__ bool named_barrier_and(bool yes)
{
    uint32_t all;
    asm volatile("{\n"
                 ".reg .pred yes, all;\n"
                 "setp.ne.u32 yes, %1, 0;\n"
                 "bar.red.and.pred all, %3, %2, yes;\n"
                 "selp.u32 %0, 1, 0, all;\n"
                 "}"
                 : "=r"(all)
                 : "r"((uint32_t)yes), "n"(threads), "n"(barrier)
                 : "memory");
    return all != 0;
}

/* Hands what the thread has written in shared memory over to those that wait for it; so many threads, whole warps, hand over or wait. */
template <int threads> __device__ __forceinline__ void hand_over()
{
    asm volatile("bar.arrive 4, %0;" ::"n"(threads) : "memory");
}
template <int threads> __device__ __forceinline__ void wait_for_handover()
{
    asm volatile("bar.sync 4, %0;" ::"n"(threads) : "memory");
}

/* Waits for all warps of a warpgroup of the block's first two. */
__device__ __forceinline__ void warpgroup_sync(int warpgroup)
{
    asm volatile("bar.sync %0, 128;" ::"r"(2 + warpgroup) : "memory");
}

/* Waits for all threads of all blocks of the cluster. */
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* Tells one lane of a whole warp that it is the one. What it then does ptxas knows to be done by one lane: instructions that read
 * uniform registers, as TMA's do, need no loop over lanes. */
__device__ __forceinline__ bool elected()
{
    uint32_t is;
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, elected;\n"
                 "}"
                 : "=r"(is));
    return is != 0;
}

/* Makes a thread's own writes to shared memory visible to wgmma and TMA, before the thread tells others of them. */
__device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int count> __device__ __forceinline__ void setmaxnreg_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> __device__ __forceinline__ void setmaxnreg_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

} // namespace tconv

#endif
