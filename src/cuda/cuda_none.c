/* The CUDA backend of a build without CUDA: plans for devices that are elsewhere, no device, and one answer to whoever asks
 * for more. */
#include "cuda_backend.h"

#include "../core/status.h"
#include "runtime/guard.h"
#include "runtime/launch.h"
#include "runtime/tensor_map.h"

tconv_status tconv_cuda_not_built(tconv_issue *issue)
{
    return tconv_fail(issue, TCONV_ERROR_UNAVAILABLE, "backend", "backend = cuda: not built into this library");
}

tconv_status tconv_cuda_available(tconv_issue *issue)
{
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_cuda_resolve(int device, tconv_target *target, tconv_issue *issue)
{
    (void)device, (void)target;
    return tconv_cuda_not_built(issue);
}

tconv_location tconv_cuda_locate(const void *memory, int *device, bool *managed)
{
    (void)memory;
    *device = -1;
    *managed = false;
    return TCONV_LOCATION_HOST;
}

tconv_status tconv_cuda_allocate_async(int device, size_t size, void *stream, void **memory, tconv_issue *issue)
{
    (void)device, (void)size, (void)stream;
    *memory = NULL;
    return tconv_cuda_not_built(issue);
}

void tconv_cuda_release_async(int device, void *memory, void *stream)
{
    (void)device, (void)memory, (void)stream;
}

tconv_status tconv_cuda_allocate(int device, size_t size, void **memory, tconv_issue *issue)
{
    (void)device, (void)size;
    *memory = NULL;
    return tconv_cuda_not_built(issue);
}

void tconv_cuda_release(int device, void *memory)
{
    (void)device, (void)memory;
}

tconv_status tconv_cuda_copy(int device, void *to, const void *from, size_t size, void *stream, tconv_issue *issue)
{
    (void)device, (void)to, (void)from, (void)size, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_cuda_synchronize(int device, void *stream, tconv_issue *issue)
{
    (void)device, (void)stream;
    return tconv_cuda_not_built(issue);
}

int tconv_cuda_device_count(void)
{
    return 0;
}

tconv_status tconv_cuda_describe_device(int device, tconv_cuda_device_info *info, tconv_issue *issue)
{
    (void)device, (void)info;
    return tconv_cuda_not_built(issue);
}

const char *tconv_cuda_toolkit(void)
{
    return "";
}

/* ------------------------------------------------------------------------------------------- what implementations call */

tconv_status tconv_device_enter(tconv_device_guard *guard, int device, tconv_issue *issue)
{
    (void)guard, (void)device;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_device_leave(tconv_device_guard *guard, tconv_status outcome, tconv_issue *issue)
{
    (void)guard, (void)issue;
    return outcome;
}

tconv_status tconv_allow_shared(const void *kernel, int64_t bytes, tconv_issue *issue)
{
    (void)kernel, (void)bytes;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_resident_blocks(const void *kernel, int threads, int64_t shared_bytes, int *blocks,
                                   tconv_issue *issue)
{
    (void)kernel, (void)threads, (void)shared_bytes, (void)blocks;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_launch_kernel(const launch_grid *grid, void **arguments, void *stream, tconv_issue *issue)
{
    (void)grid, (void)arguments, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_launch_blocks(const void *function, int64_t blocks, int threads, void **arguments, void *stream,
                                 tconv_issue *issue, bool overlaps)
{
    (void)function, (void)blocks, (void)threads, (void)arguments, (void)stream, (void)overlaps;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_launch_blocks_shared(const void *function, int64_t blocks, int threads, int64_t shared_bytes,
                                        void **arguments, void *stream, tconv_issue *issue)
{
    (void)function, (void)blocks, (void)threads, (void)shared_bytes, (void)arguments, (void)stream;
    return tconv_cuda_not_built(issue);
}

tconv_status tconv_launch_on_device(const launch_grid *grid, void **arguments, int device, void *stream,
                                    tconv_issue *issue)
{
    (void)grid, (void)arguments, (void)device, (void)stream;
    return tconv_cuda_not_built(issue);
}

bool tconv_encode_tensor_map(const tensor_map_recipe *tensor, const void *data, tensor_map *map)
{
    (void)tensor, (void)data, (void)map;
    return false;
}
