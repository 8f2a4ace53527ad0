/* What test kernels for Hopper share: they need sm_90a code, and are empty elsewhere. */
#ifndef TCONV_CHECK_CUDA_HOPPER_CUH
#define TCONV_CHECK_CUDA_HOPPER_CUH

#include <cstring>
#include <cuda.h>

#include "../../src/cuda/ptx/mbarrier.cuh"
#include "../../src/cuda/ptx/memory.cuh"
#include "../../src/cuda/ptx/sync.cuh"
#include "../../src/cuda/ptx/tma.cuh"
#include "../../src/cuda/runtime/tensor_map.h"
#include "check.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TCONV_CHECK_HOPPER       1
#define TCONV_CHECK_CLUSTER_OF_2 __cluster_dims__(2, 1, 1)
#else
#define TCONV_CHECK_CLUSTER_OF_2
#endif

namespace tconv::check
{

/* Allows a kernel so many bytes of dynamic shared memory. */
template <class Kernel> void allow_shared_bytes(Kernel kernel, size_t bytes)
{
    require_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "cudaFuncSetAttribute");
}

/* Makes the tensor map of a tensor at data as the library does. */
inline CUtensorMap tensor_map_of(const tensor_map_recipe &recipe, const void *data)
{
    static_assert(sizeof(tensor_map) == sizeof(CUtensorMap), "kernels take the one for the other");
    tensor_map encoded;
    CUtensorMap map;
    if (!tconv_encode_tensor_map(&recipe, data, &encoded))
        fail("there is no such tensor map");
    memcpy(&map, &encoded, sizeof map);
    return map;
}

/* The place of a byte in shared memory where TMA swizzles rows of so many bytes: 128, 64 or 32; or it stays (0). */
inline __host__ __device__ uint32_t swizzled(uint32_t address, int bytes)
{
    const uint32_t mask = bytes == 128 ? 7 : bytes == 64 ? 3 : bytes == 32 ? 1 : 0;
    return address ^ (address >> 7 & mask) << 4;
}

} // namespace tconv::check

#endif
