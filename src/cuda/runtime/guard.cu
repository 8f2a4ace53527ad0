/* Keeps the caller's current device and last error. Only returned error codes are looked at, never the last error,
 * which may be the caller's own. */
#include "guard.h"

#include "../../core/status.h"

namespace tconv
{

tconv_status check_cuda(cudaError_t error, const char *name, tconv_issue *issue)
{
    if (error == cudaSuccess)
        return TCONV_SUCCESS;
    return tconv_fail(issue, error == cudaErrorMemoryAllocation ? TCONV_ERROR_OUT_OF_MEMORY : TCONV_ERROR_CUDA, "cuda",
                      "%s: %s (%s)", name, cudaGetErrorString(error), cudaGetErrorName(error));
}

/* before: the caller's last error */
static void forget_own_error(cudaError_t before)
{
    if (before == cudaSuccess)
        cudaGetLastError();
}

tconv_status enter_device(device_guard *guard, int device, tconv_issue *issue)
{
    guard->before = cudaPeekAtLastError();
    guard->switched = false;
    tconv_status status = check_cuda(cudaGetDevice(&guard->previous), "cudaGetDevice", issue);
    if (status == TCONV_SUCCESS && guard->previous != device) {
        status = check_cuda(cudaSetDevice(device), "cudaSetDevice", issue);
        guard->switched = status == TCONV_SUCCESS;
    }
    if (status != TCONV_SUCCESS)
        forget_own_error(guard->before);
    return status;
}

void leave_device(const device_guard *guard)
{
    if (guard->switched)
        cudaSetDevice(guard->previous);
    forget_own_error(guard->before);
}

void *driver_function(const char *name, unsigned int version)
{
    cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    const cudaError_t before = cudaPeekAtLastError();
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    forget_own_error(before);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : NULL;
}

} // namespace tconv
