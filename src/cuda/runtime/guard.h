/* Every function of the CUDA backend works on one device, leaves the caller's current device and last error as they
 * were, and turns errors of the CUDA runtime into issues: it does so by these. */
#ifndef TCONV_CUDA_RUNTIME_GUARD_H
#define TCONV_CUDA_RUNTIME_GUARD_H

#include <cuda_runtime_api.h>

#include "tconv/tconv.h"

namespace tconv
{

/* While it lives, errors may come; then the last error is cleared where the caller's was cudaSuccess. An error that the
 * caller has not yet seen stays, because the runtime can clear errors but not set them. */
class error_guard
{
  public:
    error_guard() : before(cudaPeekAtLastError())
    {
    }
    ~error_guard()
    {
        if (before == cudaSuccess)
            cudaGetLastError();
    }
    error_guard(const error_guard &) = delete;

  private:
    const cudaError_t before; /* the caller's last error */
};

/* While it lives, device is current; then the caller's device is so again. Where status is a failure nothing has
 * changed, and errors may come all the same. */
class device_guard
{
  public:
    device_guard(int device, tconv_issue *issue);
    ~device_guard();
    device_guard(const device_guard &) = delete;

    /* Makes the caller's device current now. Returns the outcome of the work that was done until then, or that this
     * failed after work that did not. */
    tconv_status restore(tconv_status outcome, tconv_issue *issue);

    tconv_status status;

  private:
    error_guard errors;
    int previous;          /* the caller's device */
    bool switched = false; /* device is another one */
};

/* Does work, which returns a status, with device current. Fails after the work, too, where the caller's device cannot be
 * made current again: a caller that heard of a success would go on with another device. */
template <class Work> tconv_status on_device(int device, tconv_issue *issue, Work work)
{
    device_guard guard(device, issue);
    return guard.status == TCONV_SUCCESS ? guard.restore(work(), issue) : guard.status;
}

/* Finds the driver's function of a name, as of a version of its API, or NULL: the library is not linked to the driver,
 * so that it loads where there is none. Leaves the last error alone, for it is called outside of guards too. */
void *driver_function(const char *name, unsigned int version);

/* Returns SUCCESS, or the failure of the runtime's function called name: OUT_OF_MEMORY where that is the error, else
 * CUDA. */
tconv_status check_cuda(cudaError_t error, const char *name, tconv_issue *issue);

} // namespace tconv

#endif
