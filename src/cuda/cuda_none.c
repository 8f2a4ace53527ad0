/* The CUDA backend of a build without CUDA: no implementations, no devices, and one answer to whoever asks for more. */
#include "cuda_backend.h"

#include "../core/status.h"

const tconv_implementation *const tconv_cuda_implementations[] = {NULL};
const tconv_implementation *const tconv_cuda_backward_data[] = {NULL};
const tconv_implementation *const tconv_cuda_backward_weights[] = {NULL};

static tconv_status not_built(tconv_issue *issue)
{
    return tconv_fail(issue, TCONV_ERROR_UNAVAILABLE, "backend", "backend = cuda: not built into this library");
}

tconv_status tconv_cuda_available(tconv_issue *issue)
{
    return not_built(issue);
}

tconv_status tconv_cuda_resolve(int device, tconv_target *target, tconv_issue *issue)
{
    (void)device, (void)target;
    return not_built(issue);
}

bool tconv_cuda_resolve_named(const char *name, tconv_target *target)
{
    (void)name, (void)target;
    return false;
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
    return not_built(issue);
}

void tconv_cuda_release_async(int device, void *memory, void *stream)
{
    (void)device, (void)memory, (void)stream;
}

tconv_status tconv_cuda_allocate(int device, size_t size, void **memory, tconv_issue *issue)
{
    (void)device, (void)size;
    *memory = NULL;
    return not_built(issue);
}

void tconv_cuda_release(int device, void *memory)
{
    (void)device, (void)memory;
}

tconv_status tconv_cuda_copy(int device, void *to, const void *from, size_t size, void *stream, tconv_issue *issue)
{
    (void)device, (void)to, (void)from, (void)size, (void)stream;
    return not_built(issue);
}

tconv_status tconv_cuda_synchronize(int device, void *stream, tconv_issue *issue)
{
    (void)device, (void)stream;
    return not_built(issue);
}

int tconv_cuda_device_count(void)
{
    return 0;
}

tconv_status tconv_cuda_describe_device(int device, tconv_cuda_device_info *info, tconv_issue *issue)
{
    (void)device, (void)info;
    return not_built(issue);
}

const char *tconv_cuda_toolkit(void)
{
    return "";
}
