/* Barriers in shared memory between the warps that copy and those that compute, and the bulk copies that complete on them
 * (compute capability 9.0). A barrier's phase ends when its count of arrivals, and the bytes that were expected, are in. */
#ifndef TCONV_CUDA_MMA_BARRIER_CUH
#define TCONV_CUDA_MMA_BARRIER_CUH

#include <cstdint>

#include "../ptx/memory.cuh"

namespace tconv::mma
{

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void make_barrier(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/* Once, after all barriers were made and before the threads meet. */
__device__ __forceinline__ void publish_barriers()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void arrive(uint64_t *barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives when all copies that this thread has started are done. */
__device__ __forceinline__ void arrive_after_copies(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Waits until the phase of the given parity has ended. */
__device__ __forceinline__ void wait_for(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
#endif
    } while (done == 0);
}

#if __CUDA_ARCH__ >= 900
/* One thread copies bytes (a multiple of 16) that complete on the barrier, and arrives there. */
__device__ __forceinline__ void copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
#endif

} // namespace tconv::mma

#endif
