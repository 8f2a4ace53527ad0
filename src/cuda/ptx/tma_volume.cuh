/* Boxes of tensors of five axes by TMA, beside tma.cuh: v is the coordinate of the outermost axis. */
#ifndef TCONV_CUDA_PTX_TMA_VOLUME_CUH
#define TCONV_CUDA_PTX_TMA_VOLUME_CUH

#include <cstdint>
#include <cuda.h>

namespace tconv
{

/* Copies the tensor map's box that begins at the coordinates, innermost first; barrier counts its bytes. */
__device__ __forceinline__ void tma_load_volume(uint32_t to, const CUtensorMap *map, int x, int y, int z, int w, int v,
                                                uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
                 : "memory");
}

/* The same to the same place in every block of the mask, whose own barriers count the bytes. */
__device__ __forceinline__ void tma_load_volume_multicast(uint32_t to, const CUtensorMap *map, int x, int y, int z,
                                                          int w, int v, uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier), "h"(blocks)
                 : "memory");
}

} // namespace tconv

#endif
