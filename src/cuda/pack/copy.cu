/* The kernel that copies weights: by vectors where both addresses allow it, else by elements of 2 bytes. */
#include "copy.h"

#include <cuda_runtime_api.h>

#include "../ptx/dependent_launch.cuh"

namespace tconv
{

namespace
{

template <class Word> __device__ __forceinline__ void copy_words(void *to, const void *from, int64_t first, int64_t end)
{
    const int64_t all = gridDim.x * (int64_t)COPY_THREADS;
    for (int64_t i = first + blockIdx.x * (int64_t)COPY_THREADS + threadIdx.x; i < end; i += all)
        static_cast<Word *>(to)[i] = static_cast<const Word *>(from)[i];
}

__global__ void __launch_bounds__(COPY_THREADS) copy_kernel(void *to, const void *from, int64_t bytes)
{
    launch_dependents();
    const bool vectors = ((uintptr_t)to | (uintptr_t)from) % sizeof(uint4) == 0;
    const int64_t count = vectors ? bytes / (int64_t)sizeof(uint4) : 0;
    copy_words<uint4>(to, from, 0, count);
    copy_words<uint16_t>(to, from, count * (int64_t)(sizeof(uint4) / 2), bytes / 2);
}

} // namespace

extern "C" const void *tconv_copy_kernel(void)
{
    return (const void *)copy_kernel;
}

} // namespace tconv
