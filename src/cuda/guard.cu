/* The current device and the last error, kept for the caller. Only returned error codes are looked at, never the last
 * error, which may be the caller's own. */
#include "guard.h"

#include "../core/status.h"

tconv_status tconv_cuda_check(cudaError_t error, const char *name, tconv_issue *issue)
{
    if (error == cudaSuccess)
        return TCONV_SUCCESS;
    return tconv_fail(issue, error == cudaErrorMemoryAllocation ? TCONV_ERROR_OUT_OF_MEMORY : TCONV_ERROR_CUDA, "cuda",
                      "%s: %s (%s)", name, cudaGetErrorString(error), cudaGetErrorName(error));
}

static void forget_own_error(const tconv_cuda_guard *guard)
{
    if (guard->before == cudaSuccess)
        cudaGetLastError();
}

tconv_status tconv_cuda_enter(tconv_cuda_guard *guard, int device, tconv_issue *issue)
{
    guard->before = cudaPeekAtLastError();
    tconv_status status = tconv_cuda_check(cudaGetDevice(&guard->previous), "cudaGetDevice", issue);
    if (status == TCONV_SUCCESS) {
        guard->switched = guard->previous != device;
        if (guard->switched)
            status = tconv_cuda_check(cudaSetDevice(device), "cudaSetDevice", issue);
    }
    if (status != TCONV_SUCCESS)
        forget_own_error(guard);
    return status;
}

void tconv_cuda_leave(const tconv_cuda_guard *guard)
{
    if (guard->switched)
        cudaSetDevice(guard->previous);
    forget_own_error(guard);
}
