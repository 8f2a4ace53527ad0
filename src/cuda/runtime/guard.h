/*
 * Every function of the CUDA backend works on one device, leaves the caller's current device and last error as they
 * were, and turns errors of the CUDA runtime into issues: it does so by these.
 *
 *     tconv_device_guard guard;
 *     tconv_status status = tconv_device_enter(&guard, device, issue);
 *     if (status == TCONV_SUCCESS)
 *         status = tconv_device_leave(&guard, work(...), issue);
 */
#ifndef TCONV_CUDA_RUNTIME_GUARD_H
#define TCONV_CUDA_RUNTIME_GUARD_H

#include <stdbool.h>

#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's last error and, between enter and leave, the caller's device. */
typedef struct tconv_device_guard {
    int error; /* a cudaError_t */
    int device;
    bool switched; /* the work's device is another one */
} tconv_device_guard;

/* Makes device current. A failure has changed nothing, and leave is not called then. */
tconv_status tconv_device_enter(tconv_device_guard *guard, int device, tconv_issue *issue);

/* Makes the caller's device current again, and clears the last error where the caller's was cudaSuccess. Returns the
 * outcome of the work; or that the caller's device cannot be made current after work that succeeded: a caller that heard
 * of a success would go on with another device. */
tconv_status tconv_device_leave(tconv_device_guard *guard, tconv_status outcome, tconv_issue *issue);

/* Between these errors may come; then the last error is cleared where the caller's was cudaSuccess. An error that the
 * caller has not yet seen stays, because the runtime can clear errors but not set them. */
int tconv_errors_begin(void);
void tconv_errors_end(int before);

/* Finds the driver's function of a name, as of a version of its API: the library is not linked to the driver, so that it
 * loads where there is none. function is the address of a pointer to the function, because ISO C does not let a void * be
 * converted to such a pointer; the pointer becomes NULL where the driver has no such function. Leaves the last error
 * alone, for it is called outside of guards too. */
void tconv_find_driver_function(const char *name, unsigned int version, void *function);

/* Returns SUCCESS, or the failure (a cudaError_t) of the runtime's function called name: OUT_OF_MEMORY where that is the
 * error, else CUDA. */
tconv_status tconv_cuda_check(unsigned int error, const char *name, tconv_issue *issue);

#ifdef __cplusplus
}
#endif

#endif
