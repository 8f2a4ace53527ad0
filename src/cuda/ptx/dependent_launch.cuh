/*
 * Programmatic dependent launch (compute capability 9.0): a kernel begins while the one that packs its weights still
 * runs, so that its prologue and the time between the two kernels cost nothing.
 *
 * The packing kernel is launched as any other, after all that was on the stream before, so that the second may read src
 * and write dst at once; it reads packed weights after wait_for_weights. Some thread of each block waits even where the
 * block reads none, so that the end of the second kernel is the end of both.
 *
 * The second kernel's blocks start when all blocks of the first have called launch_dependents or ended: all of those
 * are on a multiprocessor then and end without needing room, so that blocks that wait cannot keep them from it, however
 * much shared memory or registers they take. A block of the second that finds no room waits for one of the first to
 * end.
 *
 * The passes of a gradient of weights (wgrad/sums.h) overlap in the same way: each waits for the kernel ahead before it reads
 * or overwrites anything of it, and with it for all that this one waited for.
 */
#ifndef TCONV_CUDA_PTX_DEPENDENT_LAUNCH_CUH
#define TCONV_CUDA_PTX_DEPENDENT_LAUNCH_CUH

namespace tconv
{

/* The kernel ahead calls it: first of all where it packs, where it leaves no room beside it towards its end. */
__device__ __forceinline__ void launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until the kernel ahead has ended, and with it all that it waited for; does nothing where the launch did not
 * overlap. */
__device__ __forceinline__ void wait_for_kernel_ahead()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Waits until the packing kernel has ended and its writes are visible, to TMA too. Weights must not be read as constant
 * (ld.global.nc), because they change while the kernel runs. */
__device__ __forceinline__ void wait_for_weights()
{
    wait_for_kernel_ahead();
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

} // namespace tconv

#endif
