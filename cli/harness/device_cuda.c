/* The current CUDA device, by the runtime API. A failed call leaves its text for harness_device_error. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "device.h"

struct harness_event {
    cudaEvent_t event;
};

static _Thread_local cudaError_t last_error = cudaSuccess;

static bool succeeded(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
        (void)cudaGetLastError(); /* clears the error, so that nobody else reports it as theirs */
    }
    return error == cudaSuccess;
}

void *harness_device_allocate(size_t size)
{
    void *memory = NULL;
    return succeeded(cudaMalloc(&memory, size > 0 ? size : 1)) ? memory : NULL;
}

void harness_device_release(void *memory)
{
    if (memory != NULL)
        succeeded(cudaFree(memory));
}

bool harness_device_copy(void *to, const void *from, size_t size, void *stream)
{
    /* With pageable memory the runtime returns only when the host memory may be used again. */
    return succeeded(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, (cudaStream_t)stream));
}

bool harness_device_fill(void *memory, int byte, size_t size, void *stream)
{
    return succeeded(cudaMemsetAsync(memory, byte, size, (cudaStream_t)stream));
}

void *harness_stream_create(void)
{
    cudaStream_t stream = NULL;
    return succeeded(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) ? stream : NULL;
}

void harness_stream_destroy(void *stream)
{
    if (stream != NULL)
        succeeded(cudaStreamDestroy((cudaStream_t)stream));
}

bool harness_stream_synchronize(void *stream)
{
    return succeeded(cudaStreamSynchronize((cudaStream_t)stream));
}

harness_event *harness_event_create(void)
{
    harness_event *event = malloc(sizeof *event);
    if (event == NULL)
        return NULL;
    if (!succeeded(cudaEventCreate(&event->event))) {
        free(event);
        return NULL;
    }
    return event;
}

void harness_event_destroy(harness_event *event)
{
    if (event == NULL)
        return;
    succeeded(cudaEventDestroy(event->event));
    free(event);
}

bool harness_event_record(harness_event *event, void *stream)
{
    return succeeded(cudaEventRecord(event->event, (cudaStream_t)stream));
}

double harness_event_elapsed(const harness_event *from, const harness_event *to)
{
    float milliseconds = 0;
    if (!succeeded(cudaEventSynchronize(to->event)) ||
        !succeeded(cudaEventElapsedTime(&milliseconds, from->event, to->event)))
        return -1;
    return (double)milliseconds;
}

bool harness_device_select(int device)
{
    return succeeded(cudaSetDevice(device));
}

size_t harness_device_l2_bytes(void)
{
    int device, bytes = 0;
    if (!succeeded(cudaGetDevice(&device)) ||
        !succeeded(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device)))
        return 0;
    return (size_t)bytes;
}

size_t harness_device_free_bytes(void)
{
    size_t available = 0, total;
    return succeeded(cudaMemGetInfo(&available, &total)) ? available : 0;
}

const char *harness_device_name(void)
{
    static _Thread_local struct cudaDeviceProp properties;
    int device;
    if (!succeeded(cudaGetDevice(&device)) || !succeeded(cudaGetDeviceProperties(&properties, device)))
        return "";
    return properties.name;
}

const char *harness_device_error(void)
{
    return last_error == cudaSuccess ? "" : cudaGetErrorString(last_error);
}
