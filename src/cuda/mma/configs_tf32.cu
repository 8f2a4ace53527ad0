/* The tensor-core kernels for f32 rounded to TF32: up to 128 sums a thread. */
#include "kernel.cuh"

namespace tconv::mma
{

const tconv_cuda_mma_kernel tconv_cuda_mma_tf32_kernels[] = {
    mma_kernel<TCONV_CUDA_MMA_TF32, 1, 4, 8>, mma_kernel<TCONV_CUDA_MMA_TF32, 1, 4, 4>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 1, 2, 8>, mma_kernel<TCONV_CUDA_MMA_TF32, 1, 1, 8>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 2, 2, 8>, mma_kernel<TCONV_CUDA_MMA_TF32, 2, 2, 4>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 2, 1, 8>, mma_kernel<TCONV_CUDA_MMA_TF32, 3, 1, 8>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 3, 1, 4>, mma_kernel<TCONV_CUDA_MMA_TF32, 4, 1, 8>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 4, 1, 4>, mma_kernel<TCONV_CUDA_MMA_TF32, 5, 1, 4>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 6, 1, 2>, mma_kernel<TCONV_CUDA_MMA_TF32, 7, 1, 2>,
    mma_kernel<TCONV_CUDA_MMA_TF32, 8, 1, 4>, {}};

} // namespace tconv::mma
