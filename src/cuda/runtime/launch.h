/* Launches of kernels, and the properties of a device that a launch depends on. */
#ifndef TCONV_CUDA_RUNTIME_LAUNCH_H
#define TCONV_CUDA_RUNTIME_LAUNCH_H

#include "../room.h"
#include "tconv/tconv.h"

TCONV_ROOM_BEGIN(tconv)

/* A kernel in blocks along one axis. */
typedef struct launch_grid {
    const void *kernel; /* NULL in a build without CUDA */
    int64_t blocks;
    int threads;
    int64_t shared_bytes; /* dynamic; above 48 KB allowed to the kernel before (tconv_allow_shared) */
    /* May begin before the kernel ahead of it on the stream has ended (dependent_launch.cuh): from compute capability
     * DEPENDENT_LAUNCH_CAPABILITY on. */
    bool overlaps;
    int cluster_blocks; /* of a cluster; 0: the kernel's own */
} launch_grid;

/* Allows kernel so many bytes of dynamic shared memory on the current device. They are always the same for a kernel, so
 * that threads that launch it do not lower each other's limit. */
tconv_status tconv_allow_shared(const void *kernel, int64_t bytes, tconv_issue *issue);

/* Finds how many blocks of a kernel share a multiprocessor of the current device. */
tconv_status tconv_resident_blocks(const void *kernel, int threads, int64_t shared_bytes, int *blocks,
                                   tconv_issue *issue);

/* Launches it on the current device. */
tconv_status tconv_launch_kernel(const launch_grid *grid, void **arguments, void *stream, tconv_issue *issue);

/* Launches once: blocks is cut to the most that a grid can hold. overlaps: as launch_grid's. */
tconv_status tconv_launch_blocks(const void *function, int64_t blocks, int threads, void **arguments, void *stream,
                                 tconv_issue *issue, bool overlaps);

/* The same with dynamic shared memory; above 48 KB it is always of the same size for a function, because all threads of
 * the process share its limit. */
tconv_status tconv_launch_blocks_shared(const void *function, int64_t blocks, int threads, int64_t shared_bytes,
                                        void **arguments, void *stream, tconv_issue *issue);

/* Launches a kernel on device. shared_bytes is always the same for a kernel (tconv_allow_shared). */
tconv_status tconv_launch_on_device(const launch_grid *grid, void **arguments, int device, void *stream,
                                    tconv_issue *issue);

TCONV_ROOM_END

#endif
