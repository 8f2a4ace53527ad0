/* The frame of a kernel for Hopper: launch bounds, and which warp and lane a thread is. */
#ifndef TCONV_CUDA_GEMM_KERNEL_CUH
#define TCONV_CUDA_GEMM_KERNEL_CUH

#include "shape.h"

/* The kernels need sm_90a. Elsewhere they are empty and never launched. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCONV_HOPPER_BOUNDS(threads)          __launch_bounds__(threads, 1)
#define TCONV_CLUSTER_BOUNDS(blocks, threads) __cluster_dims__(blocks) __launch_bounds__(threads, 1)
#else
#define TCONV_HOPPER_BOUNDS(threads)          __launch_bounds__(32)
#define TCONV_CLUSTER_BOUNDS(blocks, threads) __launch_bounds__(32)
#endif

namespace tconv
{

/* The shuffle tells the compiler that it is one number for the warp. */
__device__ __forceinline__ int warp_of_block()
{
    return __shfl_sync(~0u, (int)threadIdx.x / WARP, 0);
}

/* A role that finds its lane anew by this keeps no register for it beside other roles'. */
__device__ __forceinline__ int lane_of_warp()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

} // namespace tconv

#endif
