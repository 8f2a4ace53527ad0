/* The tensor-core kernels for bf16 in NCHW: up to 64 sums a thread, and as many partial ones. */
#include "kernel.cuh"

namespace tconv::mma
{

const tconv_cuda_mma_kernel tconv_cuda_mma_bf16_planes_kernels[] = {
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 1, 4, 4>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 1, 4, 2>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 1, 2, 8>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 1, 2, 4>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 1, 1, 8>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 2, 2, 4>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 2, 2, 2>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 2, 1, 8>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 2, 1, 4>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 3, 1, 4>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 3, 1, 2>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 4, 1, 4>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 4, 1, 2>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 5, 1, 2>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 6, 1, 2>, mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 7, 1, 2>,
    mma_kernel<TCONV_CUDA_MMA_BF16_PLANES, 8, 1, 2>, {}};

} // namespace tconv::mma
