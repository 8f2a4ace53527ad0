/* The tensor-core kernels for f32 as 3xTF32: up to 64 sums a thread, and as many partial ones. Those for sums of any length
 * also keep what additions lost, in half as many registers: the shapes that the registers hold. */
#include "kernel.cuh"

namespace tconv::mma
{

const tconv_cuda_mma_kernel tconv_cuda_mma_strict_kernels[] = {mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 4, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 4, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 2, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 1, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 2, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 2, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 1, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 3, 1, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 3, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 4, 1, 4>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 4, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 5, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 6, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 7, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 8, 1, 2>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 4, 2, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 2, 4, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 1, 1, 4, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 2, 4, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 2, 2, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 2, 1, 4, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 3, 1, 4, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 4, 1, 2, true>,
                                                               mma_kernel<TCONV_CUDA_MMA_STRICT, 5, 1, 2, true>,
                                                               {}};

} // namespace tconv::mma
