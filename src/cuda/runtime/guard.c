/* Keeps the caller's current device and last error. Only returned error codes are looked at, never the last error,
 * which may be the caller's own. */
#include "guard.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <string.h>

#include "../../core/status.h"

tconv_status tconv_cuda_check(unsigned int error, const char *name, tconv_issue *issue)
{
    const cudaError_t failure = (cudaError_t)error;
    if (failure == cudaSuccess)
        return TCONV_SUCCESS;
    return tconv_fail(issue, failure == cudaErrorMemoryAllocation ? TCONV_ERROR_OUT_OF_MEMORY : TCONV_ERROR_CUDA,
                      "cuda", "%s: %s (%s)", name, cudaGetErrorString(failure), cudaGetErrorName(failure));
}

int tconv_errors_begin(void)
{
    return (int)cudaPeekAtLastError();
}

void tconv_errors_end(int before)
{
    if (before == cudaSuccess)
        (void)cudaGetLastError();
}

tconv_status tconv_device_enter(tconv_device_guard *guard, int device, tconv_issue *issue)
{
    guard->error = tconv_errors_begin();
    guard->switched = false;
    tconv_status status = tconv_cuda_check(cudaGetDevice(&guard->device), "cudaGetDevice", issue);
    if (status == TCONV_SUCCESS && guard->device != device) {
        status = tconv_cuda_check(cudaSetDevice(device), "cudaSetDevice", issue);
        guard->switched = status == TCONV_SUCCESS;
    }
    if (status != TCONV_SUCCESS)
        tconv_errors_end(guard->error);
    return status;
}

tconv_status tconv_device_leave(tconv_device_guard *guard, tconv_status outcome, tconv_issue *issue)
{
    const cudaError_t error = guard->switched ? cudaSetDevice(guard->device) : cudaSuccess;
    if (outcome == TCONV_SUCCESS)
        outcome = tconv_cuda_check(error, "cudaSetDevice", issue);
    tconv_errors_end(guard->error);
    return outcome;
}

void tconv_find_driver_function(const char *name, unsigned int version, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    const int errors = tconv_errors_begin();
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    tconv_errors_end(errors);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess)
        found = NULL;
    memcpy(function, &found, sizeof found);
}
