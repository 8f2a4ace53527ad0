/* Barriers in shared memory (mbarrier): each function is one instruction of PTX ISA, "mbarrier". Addresses are 32-bit
 * ones in shared memory. They are for compute capability 9.0; mbarrier_init, _init_fence, _arrive, _test and _try_wait
 * also for 8.0. */
#ifndef TCONV_CUDA_PTX_MBARRIER_CUH
#define TCONV_CUDA_PTX_MBARRIER_CUH

#include <cstdint>

namespace tconv
{

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Follows the last init, and makes the barriers visible to TMA as well. */
__device__ __forceinline__ void mbarrier_init_fence()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, without a branch; does nothing where barrier is 0. */
__device__ __forceinline__ void mbarrier_arrive_unless_0(uint32_t barrier)
{
    asm volatile("{\n"
                 ".reg .pred is;\n"
                 "setp.ne.u32 is, %0, 0;\n"
                 "@is mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(barrier)
                 : "memory");
}

/* Arrives, and has the phase wait for so many bytes of copies as well. */
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Has the phase wait for so many bytes of copies as well. */
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* In a build for it, has a warp come late to one wait of eight, by its clock. A warp may always come late: what does not
 * end there, or is wrong, may hang or be wrong anywhere, if seldom. */
__device__ __forceinline__ void come_late()
{
#ifdef TCONV_CUDA_LATE_WARPS
    uint32_t clock;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
    if (clock * 0x9e3779b9u >> 29 == 0)
        __nanosleep(3000);
#endif
}

/* Says whether the phase of this parity is complete. */
__device__ __forceinline__ bool mbarrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t is;
    come_late();
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 complete, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, complete;\n"
                 "}"
                 : "=r"(is)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is != 0;
}

/* Waits for the phase of this parity as long as the hardware likes, before compute capability 9.0 not at all. Returns
 * whether it is complete. */
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
    uint32_t is;
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, complete;\n"
                 "}"
                 : "=r"(is)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is != 0;
#else
    return mbarrier_test(barrier, parity);
#endif
}

/* Waits until the phase of this parity is complete. */
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    come_late();
    asm volatile("{\n"
                 ".reg .pred complete;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1;\n"
                 "@complete bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Waits for the phases of both. */
__device__ __forceinline__ void mbarriers_wait(uint32_t one, uint32_t parity_of_one, uint32_t other,
                                               uint32_t parity_of_other)
{
    come_late();
    asm volatile("{\n"
                 ".reg .pred complete, other_complete;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 complete, [%0], %1;\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 other_complete, [%2], %3;\n"
                 "and.pred complete, complete, other_complete;\n"
                 "@complete bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"(one),
                 "r"(parity_of_one), "r"(other), "r"(parity_of_other)
                 : "memory");
}

/* Arrives at the barrier of the cluster's block `rank` that lies there as `barrier` does in this block. It makes no
 * writes visible there, which would cost a fence of all memory: it tells that something has been read. */
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier, int rank)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

} // namespace tconv

#endif
