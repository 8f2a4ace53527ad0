/*
 * Device memory: finds out where an address lies, allocates in stream order and apart from streams, copies.
 *
 * The driver's library says where an address lies, and is asked only if the process has loaded it: a process that has
 * not can hold no device memory, and asking must neither load the driver nor make a context.
 *
 * A device without memory pools (some virtual GPUs) has no allocation in stream order. There memory is allocated and
 * freed apart from streams: usable at once all the same, and freed when the whole device gets there, which cudaFree
 * waits for.
 *
 * A release cannot say that it failed, so whether it frees does not depend on a query. Where its device cannot be made
 * current, the runtime finds the memory by its address all the same; the next call will say what is wrong with the
 * device.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "../cuda_backend.h"
#include "guard.h"

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
    void *symbol = dlsym(driver, "cuPointerGetAttributes");
    get_attributes found;
    memcpy(&found, &symbol, sizeof found); /* ISO C does not let a void * be converted to a pointer to a function */
    dlclose(driver);                       /* undoes this dlopen's count; whoever loaded the driver keeps it */
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

/* Devices with an entry in has_pools; one beyond them counts as a device without pools. */
enum { POOL_DEVICES = 64 };

/* Whether a device has memory pools, as its last allocation in stream order was told. */
static atomic_bool has_pools[POOL_DEVICES];

static tconv_status ask_for_pools(int device, tconv_issue *issue)
{
    int supported = 0;
    if (device >= POOL_DEVICES)
        return TCONV_SUCCESS;
    const tconv_status status = tconv_cuda_check(
        cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device), "cudaDeviceGetAttribute", issue);
    if (status == TCONV_SUCCESS)
        has_pools[device] = supported != 0;
    return status;
}

static bool uses_pools(int device)
{
    return device < POOL_DEVICES && has_pools[device];
}

/* A default stream is that of the current device; any other has a device of its own. */
static bool is_default(void *stream)
{
    return stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

static tconv_status allocate_in_order(int device, size_t size, void *stream, void **memory, tconv_issue *issue)
{
    const tconv_status status = ask_for_pools(device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (uses_pools(device))
        return tconv_cuda_check(cudaMallocAsync(memory, size, (cudaStream_t)stream), "cudaMallocAsync", issue);
    return tconv_cuda_check(cudaMalloc(memory, size), "cudaMalloc", issue);
}

tconv_status tconv_cuda_allocate_async(int device, size_t size, void *stream, void **memory, tconv_issue *issue)
{
    tconv_device_guard guard;
    *memory = NULL;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(&guard, allocate_in_order(device, size, stream, memory, issue), issue);
    if (status != TCONV_SUCCESS && *memory != NULL) {
        tconv_cuda_release_async(device, *memory, stream);
        *memory = NULL;
    }
    return status;
}

void tconv_cuda_release_async(int device, void *memory, void *stream)
{
    tconv_device_guard guard;
    if (memory == NULL)
        return;
    const int errors = tconv_errors_begin();
    const bool entered = tconv_device_enter(&guard, device, NULL) == TCONV_SUCCESS;
    if (!uses_pools(device))
        cudaFree(memory);
    else if (entered || !is_default(stream))
        cudaFreeAsync(memory, (cudaStream_t)stream); /* else it stays: another device's order could free it too early */
    if (entered)
        tconv_device_leave(&guard, TCONV_SUCCESS, NULL);
    tconv_errors_end(errors);
}

tconv_status tconv_cuda_allocate(int device, size_t size, void **memory, tconv_issue *issue)
{
    tconv_device_guard guard;
    *memory = NULL;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_device_leave(&guard, tconv_cuda_check(cudaMalloc(memory, size), "cudaMalloc", issue), issue);
    if (status != TCONV_SUCCESS && *memory != NULL) {
        tconv_cuda_release(device, *memory);
        *memory = NULL;
    }
    return status;
}

void tconv_cuda_release(int device, void *memory)
{
    tconv_device_guard guard;
    if (memory == NULL)
        return;
    const int errors = tconv_errors_begin();
    const bool entered = tconv_device_enter(&guard, device, NULL) == TCONV_SUCCESS;
    cudaFree(memory);
    if (entered)
        tconv_device_leave(&guard, TCONV_SUCCESS, NULL);
    tconv_errors_end(errors);
}

tconv_status tconv_cuda_copy(int device, void *to, const void *from, size_t size, void *stream, tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cuda_check(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, (cudaStream_t)stream),
                              "cudaMemcpyAsync", issue);
    return tconv_device_leave(&guard, status, issue);
}

tconv_status tconv_cuda_synchronize(int device, void *stream, tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "cudaStreamSynchronize", issue);
    return tconv_device_leave(&guard, status, issue);
}
