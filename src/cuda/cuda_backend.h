/*
 * The dispatcher and the system description see this of the CUDA backend. In a build without CUDA, cuda_none.c answers
 * each with UNAVAILABLE. Every function leaves the current device and the last error as it found them.
 */
#ifndef TCONV_CUDA_CUDA_BACKEND_H
#define TCONV_CUDA_CUDA_BACKEND_H

#include <stddef.h>

#include "../core/impl.h"
#include "../core/volume.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA implementations of forward, of which the least predicted time is taken, ending with NULL; and of the
 * gradients. */
extern const tconv_implementation *const tconv_cuda_implementations[];
extern const tconv_implementation *const tconv_cuda_backward_data[];
extern const tconv_implementation *const tconv_cuda_backward_weights[];

/* Returns SUCCESS where a device can be used; else UNAVAILABLE with field "backend" and why: not built, no driver, no
 * device, no code for any device here; or the failure of CUDA to say. It is looked up once. */
tconv_status tconv_cuda_available(tconv_issue *issue);

/* Resolves the CUDA part of a target: device (-1: the current one) and what a plan has to know of it. */
tconv_status tconv_cuda_resolve(int device, tconv_target *target, tconv_issue *issue);

/* The same of a machine that the cost model knows by this name (model/machines.c), in every build, whether the machine is here
 * or not, as with a build that has code for it; false where there is none. What is planned for it cannot be executed. */
bool tconv_cuda_resolve_named(const char *name, tconv_target *target);

/* Tells where memory lies. Never creates a context: a process that has not loaded the driver has only host memory.
 * *managed is true for memory that both sides may use (location is then CUDA). *device is the device's ordinal, -1 for
 * host. */
tconv_location tconv_cuda_locate(const void *memory, int *device, bool *managed);

/* Device memory, in stream order (usable on stream at once; freed when stream gets there). */
tconv_status tconv_cuda_allocate_async(int device, size_t size, void *stream, void **memory, tconv_issue *issue);
void tconv_cuda_release_async(int device, void *memory, void *stream);

/* Device memory for packed weights, not tied to a stream. */
tconv_status tconv_cuda_allocate(int device, size_t size, void **memory, tconv_issue *issue);
void tconv_cuda_release(int device, void *memory);

/* Copies size bytes in either direction on stream (kinds found from the addresses); synchronize waits for stream. */
tconv_status tconv_cuda_copy(int device, void *to, const void *from, size_t size, void *stream, tconv_issue *issue);
tconv_status tconv_cuda_synchronize(int device, void *stream, tconv_issue *issue);

/* Queues a kernel on stream that copies axes of a tensor in the device's memory. */
tconv_status tconv_cuda_copy_planes(int device, const tconv_plane_copy *copy, const void *from, void *to, void *stream,
                                    tconv_issue *issue);

/* Queues a kernel on stream that transposes matrices in the device's memory. */
tconv_status tconv_cuda_transpose(int device, const tconv_transposition *of, const void *from, void *to, void *stream,
                                  tconv_issue *issue);

/* Fails with UNAVAILABLE: what a build without CUDA answers. No other build has it. */
tconv_status tconv_cuda_not_built(tconv_issue *issue);

/* tconv_system_info shows these. */
typedef struct tconv_cuda_device_info {
    char name[128];
    int compute_capability;
    int multiprocessors;
    size_t memory_bytes, l2_bytes;
} tconv_cuda_device_info;

int tconv_cuda_device_count(void); /* 0 where CUDA is unavailable */
tconv_status tconv_cuda_describe_device(int device, tconv_cuda_device_info *info, tconv_issue *issue);

/* "13.0": the toolkit that this was built with; "" in a build without CUDA. */
const char *tconv_cuda_toolkit(void);

#ifdef __cplusplus
}
#endif

#endif
