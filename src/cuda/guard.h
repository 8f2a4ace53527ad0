/* What every function of the CUDA backend does around its calls of the CUDA runtime: work on one device, leave the
 * caller's current device and last error as they were, and turn errors into issues. */
#ifndef TCONV_CUDA_GUARD_H
#define TCONV_CUDA_GUARD_H

#include <cuda_runtime_api.h>

#include "tconv/tconv.h"

typedef struct tconv_cuda_guard {
    int previous;       /* the caller's device */
    bool switched;      /* whether the device in between is another one */
    cudaError_t before; /* the caller's last error */
} tconv_cuda_guard;

/* Makes device current. On failure nothing has changed, and leave must not be called. */
tconv_status tconv_cuda_enter(tconv_cuda_guard *guard, int device, tconv_issue *issue);

/* Makes the caller's device current again. The last error is cleared where the caller's was cudaSuccess; an error that
 * the caller has not yet seen stays, because the runtime can clear errors but not set them. */
void tconv_cuda_leave(const tconv_cuda_guard *guard);

/* Does work, which returns a status, with device current. */
template <class Work> tconv_status tconv_cuda_on_device(int device, tconv_issue *issue, Work work)
{
    tconv_cuda_guard guard;
    tconv_status status = tconv_cuda_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = work();
    tconv_cuda_leave(&guard);
    return status;
}

/* A kernel in blocks along one axis. */
typedef struct tconv_cuda_grid {
    const void *kernel;
    int64_t blocks;
    int threads;
    int64_t shared_bytes; /* dynamic; above 48 KB allowed to the kernel before (tconv_cuda_allow_shared) */
    bool overlaps;        /* may begin before the kernel ahead of it on the stream has ended (overlap.cuh) */
} tconv_cuda_grid;

/* Allows kernel so many bytes of dynamic shared memory on the current device: always the same for a kernel, so that threads that
 * launch it do not lower each other's limit. */
tconv_status tconv_cuda_allow_shared(const void *kernel, int64_t bytes, tconv_issue *issue);

/* Launches it on the current device. */
tconv_status tconv_cuda_launch_grid(const tconv_cuda_grid *grid, void **arguments, void *stream, tconv_issue *issue);

/* The driver's function of a name, as of a version of its API, or NULL: the library is not linked to the driver, so that it loads
 * where there is none. */
void *tconv_cuda_driver_function(const char *name, unsigned int version);

int tconv_cuda_multiprocessors(int device);

/* SUCCESS, or the failure of the runtime's function called name: OUT_OF_MEMORY where that is the error, else CUDA. */
tconv_status tconv_cuda_check(cudaError_t error, const char *name, tconv_issue *issue);

#endif
