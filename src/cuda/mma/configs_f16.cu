/* The tensor-core kernels for f16 in NHWC: up to 64 sums a thread, and as many partial ones. */
#include "kernel.cuh"

namespace tconv::mma
{

const tconv_cuda_mma_kernel tconv_cuda_mma_f16_kernels[] = {
    mma_kernel<TCONV_CUDA_MMA_F16, 1, 4, 4>, mma_kernel<TCONV_CUDA_MMA_F16, 1, 4, 2>,
    mma_kernel<TCONV_CUDA_MMA_F16, 1, 2, 8>, mma_kernel<TCONV_CUDA_MMA_F16, 1, 2, 4>,
    mma_kernel<TCONV_CUDA_MMA_F16, 1, 1, 8>, mma_kernel<TCONV_CUDA_MMA_F16, 2, 2, 4>,
    mma_kernel<TCONV_CUDA_MMA_F16, 2, 2, 2>, mma_kernel<TCONV_CUDA_MMA_F16, 2, 1, 8>,
    mma_kernel<TCONV_CUDA_MMA_F16, 2, 1, 4>, mma_kernel<TCONV_CUDA_MMA_F16, 3, 1, 4>,
    mma_kernel<TCONV_CUDA_MMA_F16, 3, 1, 2>, mma_kernel<TCONV_CUDA_MMA_F16, 4, 1, 4>,
    mma_kernel<TCONV_CUDA_MMA_F16, 4, 1, 2>, mma_kernel<TCONV_CUDA_MMA_F16, 5, 1, 2>,
    mma_kernel<TCONV_CUDA_MMA_F16, 6, 1, 2>, mma_kernel<TCONV_CUDA_MMA_F16, 7, 1, 2>,
    mma_kernel<TCONV_CUDA_MMA_F16, 8, 1, 2>, {}};

} // namespace tconv::mma
