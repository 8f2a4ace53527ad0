/* Bulk copies and boxes of tensors by the tensor memory accelerator (TMA, compute capability 9.0), and bulk stores: PTX
 * ISA, "cp.async.bulk". Addresses in shared memory are 32-bit ones. */
#ifndef TCONV_CUDA_PTX_TMA_CUH
#define TCONV_CUDA_PTX_TMA_CUH

#include <cstdint>
#include <cuda.h>

namespace tconv
{

/* Has a tensor map brought to where TMA reads it. The map may be of zeros, where it is not used. */
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Copies bytes (a multiple of 16, as both addresses) from global to shared memory; barrier counts them. */
__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Copies the tensor map's box that begins at the coordinates, innermost first; barrier counts its bytes. */
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
                 : "memory");
}

/* The same to the same place in every block of the mask, whose own barriers count the bytes. */
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w,
                                                   uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* tma_load by a tensor map of five axes. */
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w, int v,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
                 : "memory");
}

/* tma_load_multicast by a tensor map of five axes. */
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w,
                                                   int v, uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* Copies bytes (a multiple of 16, as both addresses) from shared to global memory, and lets the second-level cache
 * evict them first. A thread waits for commit groups of it, as below. */
__device__ __forceinline__ void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    constexpr uint64_t EVICT_FIRST = 0x12f0000000000000; /* the policy that createpolicy.fractional makes of 1.0 */
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to), "r"(from),
                 "r"(bytes), "l"(EVICT_FIRST)
                 : "memory");
}

__device__ __forceinline__ void bulk_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most so many commit groups of this thread still read shared memory. */
template <int under_way> __device__ __forceinline__ void bulk_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(under_way) : "memory");
}

__device__ __forceinline__ void bulk_store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* bulk_load to the same place in every block of the mask, whose own barriers count the bytes. */
__device__ __forceinline__ void bulk_load_multicast(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                                                    uint16_t blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

} // namespace tconv

#endif
