/*
 * Device memory: finds out where an address lies, allocates in stream order and apart from streams, copies.
 *
 * The driver's library says where an address lies, and is asked only if the process has loaded it: a process that has
 * not can hold no device memory, and asking must neither load the driver nor make a context.
 *
 * A device without memory pools (some virtual GPUs) has no allocation in stream order. There memory is allocated and
 * freed apart from streams: usable at once all the same, and freed when the whole device gets there, which cudaFree
 * waits for.
 */
#include <cuda.h>
#include <dlfcn.h>

#include "../cuda_backend.h"
#include "guard.h"

using namespace tconv;

/* cuda.h declares cuPointerGetAttributes so; the library does not link libcuda. */
typedef CUresult (*get_attributes)(unsigned int count, CUpointer_attribute *attributes, void **values,
                                   CUdeviceptr address);

/* Finds the driver's function, NULL where the process has no driver. It looks each time, for the driver may come
 * later. */
static get_attributes find_get_attributes(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL)
        return NULL;
    get_attributes found = (get_attributes)dlsym(driver, "cuPointerGetAttributes");
    dlclose(driver); /* undoes this dlopen's count; whoever loaded the driver keeps it */
    return found;
}

tconv_location tconv_cuda_locate(const void *memory, int *device, bool *managed)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned int type = 0, is_managed = 0;
    int ordinal = -1;
    void *values[] = {&type, &is_managed, &ordinal};
    get_attributes driver = find_get_attributes();
    *device = -1;
    *managed = false;
    if (memory == NULL || driver == NULL || driver(3, attributes, values, (CUdeviceptr)memory) != CUDA_SUCCESS ||
        (type != CU_MEMORYTYPE_DEVICE && !is_managed))
        return TCONV_LOCATION_HOST;
    *device = ordinal;
    *managed = is_managed != 0;
    return TCONV_LOCATION_CUDA;
}

static bool has_memory_pools(int device)
{
    int supported = 0;
    return cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device) == cudaSuccess && supported != 0;
}

tconv_status tconv_cuda_allocate_async(int device, size_t size, void *stream, void **memory, tconv_issue *issue)
{
    device_guard guard;
    *memory = NULL;
    tconv_status status = enter_device(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (has_memory_pools(device))
        status = check_cuda(cudaMallocAsync(memory, size, (cudaStream_t)stream), "cudaMallocAsync", issue);
    else
        status = check_cuda(cudaMalloc(memory, size), "cudaMalloc", issue);
    leave_device(&guard);
    return status;
}

void tconv_cuda_release_async(int device, void *memory, void *stream)
{
    device_guard guard;
    tconv_issue ignored; /* a release cannot fail: the next call will say what is wrong with the device */
    if (memory == NULL || enter_device(&guard, device, &ignored) != TCONV_SUCCESS)
        return;
    if (has_memory_pools(device))
        cudaFreeAsync(memory, (cudaStream_t)stream);
    else
        cudaFree(memory);
    leave_device(&guard);
}

tconv_status tconv_cuda_allocate(int device, size_t size, void **memory, tconv_issue *issue)
{
    device_guard guard;
    *memory = NULL;
    tconv_status status = enter_device(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = check_cuda(cudaMalloc(memory, size), "cudaMalloc", issue);
    leave_device(&guard);
    return status;
}

void tconv_cuda_release(int device, void *memory)
{
    device_guard guard;
    tconv_issue ignored;
    if (memory == NULL || enter_device(&guard, device, &ignored) != TCONV_SUCCESS)
        return;
    cudaFree(memory);
    leave_device(&guard);
}

tconv_status tconv_cuda_copy(int device, void *to, const void *from, size_t size, void *stream, tconv_issue *issue)
{
    device_guard guard;
    tconv_status status = enter_device(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status =
        check_cuda(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, (cudaStream_t)stream), "cudaMemcpyAsync", issue);
    leave_device(&guard);
    return status;
}

tconv_status tconv_cuda_synchronize(int device, void *stream, tconv_issue *issue)
{
    device_guard guard;
    tconv_status status = enter_device(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = check_cuda(cudaStreamSynchronize((cudaStream_t)stream), "cudaStreamSynchronize", issue);
    leave_device(&guard);
    return status;
}
