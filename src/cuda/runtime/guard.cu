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

device_guard::device_guard(int device, tconv_issue *issue)
{
    status = check_cuda(cudaGetDevice(&previous), "cudaGetDevice", issue);
    if (status == TCONV_SUCCESS && previous != device) {
        status = check_cuda(cudaSetDevice(device), "cudaSetDevice", issue);
        switched = status == TCONV_SUCCESS;
    }
}

device_guard::~device_guard()
{
    restore(TCONV_SUCCESS, NULL);
}

tconv_status device_guard::restore(tconv_status outcome, tconv_issue *issue)
{
    if (!switched)
        return outcome;
    switched = false;
    const cudaError_t error = cudaSetDevice(previous);
    return outcome == TCONV_SUCCESS ? check_cuda(error, "cudaSetDevice", issue) : outcome;
}

void *driver_function(const char *name, unsigned int version)
{
    cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    const error_guard errors;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : NULL;
}

} // namespace tconv
