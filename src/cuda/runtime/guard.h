/* Every function of the CUDA backend works on one device, leaves the caller's current device and last error as they
 * were, and turns errors of the CUDA runtime into issues: it does so by these. */
#ifndef TCONV_CUDA_RUNTIME_GUARD_H
#define TCONV_CUDA_RUNTIME_GUARD_H

#include <cuda_runtime_api.h>

#include "tconv/tconv.h"

namespace tconv
{

struct device_guard {
    int previous;       /* the caller's device */
    bool switched;      /* the device in between is another one */
    cudaError_t before; /* the caller's last error */
};

/* Makes device current. On failure nothing has changed; leave_device may be called all the same, where errors may have
 * come since. */
tconv_status enter_device(device_guard *guard, int device, tconv_issue *issue);

/* Makes the caller's device current again. The last error is cleared where the caller's was cudaSuccess; an error that
 * the caller has not yet seen stays, because the runtime can clear errors but not set them. */
void leave_device(const device_guard *guard);

/* Does work, which returns a status, with device current. */
template <class Work> tconv_status on_device(int device, tconv_issue *issue, Work work)
{
    device_guard guard;
    tconv_status status = enter_device(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = work();
    leave_device(&guard);
    return status;
}

/* Finds the driver's function of a name, as of a version of its API, or NULL: the library is not linked to the driver,
 * so that it loads where there is none. Leaves the last error alone, for it is called outside of guards too. */
void *driver_function(const char *name, unsigned int version);

/* Returns SUCCESS, or the failure of the runtime's function called name: OUT_OF_MEMORY where that is the error, else
 * CUDA. */
tconv_status check_cuda(cudaError_t error, const char *name, tconv_issue *issue);

} // namespace tconv

#endif
