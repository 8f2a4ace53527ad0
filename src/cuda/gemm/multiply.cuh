/* Commit groups of wgmma with both operands in shared memory. a(mma, i, plane) and b(mma, i, plane) are descriptors of
 * an MMA tile's operands: of number i of the group, of big (plane 0) or small parts. */
#ifndef TCONV_CUDA_GEMM_MULTIPLY_CUH
#define TCONV_CUDA_GEMM_MULTIPLY_CUH

#include "../ptx/wgmma.cuh"

namespace tconv
{

/* Issues `count` wgmmas for each of the MMA tiles [first, end), as one commit group. */
template <class Mode, int N, int count, int first, int end, int tiles, class A, class B>
__device__ __forceinline__ void multiply_commit_group(float (&sums)[tiles][N / 2], A a, B b, int accumulate)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int mma = first; mma < end; mma++)
            wgmma_ss<Mode::TYPE, N>::add(sums[mma], a(mma, i, 0), b(mma, i, 0), i > 0 ? 1 : accumulate);
    wgmma_commit();
}

/* Makes a partial sum of strict f32 for one MMA tile, and waits for it: it begins at zero, with the products of small
 * parts. */
template <class Mode, int N, int count, class A, class B>
__device__ __forceinline__ void multiply_partial_sum(float (&partial)[N / 2], int mma, A a, B b)
{
    using Mma = wgmma_ss<Mode::TYPE, N>;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        partial[i] = 0;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < count; i++) {
        Mma::add(partial, a(mma, i, 1), b(mma, i, 0), i > 0);
        Mma::add(partial, a(mma, i, 0), b(mma, i, 1), 1);
    }
#pragma unroll
    for (int i = 0; i < count; i++)
        Mma::add(partial, a(mma, i, 0), b(mma, i, 0), 1);
    wgmma_commit();
    wgmma_wait<0>();
}

} // namespace tconv

#endif
