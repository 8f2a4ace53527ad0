/* The simulated machine, and the record of calls. */
#include "state.h"

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* As NVIDIA's data sheets and cudaDeviceGetAttribute give them. */
const standin_device standin_h200 = {"NVIDIA H200 (stand-in)", 9,   0, 132, 232448, 233472, 62914560,
                                     (size_t)139 << 30,        true};
const standin_device standin_a100 = {"NVIDIA A100 (stand-in)", 8,   0, 108, 166912, 167936, 41943040,
                                     (size_t)79 << 30,         true};

static standin_device devices[STANDIN_MAX_DEVICES];
static int device_count = -1; /* -1: nobody has said; one H200 */
static cudaError_t count_error = cudaErrorNoDevice;
static int driver_version = CUDART_VERSION;

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

bool standin_is_quick;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool recording = true;
static standin_call *calls;
static size_t call_count, call_capacity;

static int64_t fail_at, counted; /* fail_at 0: no call fails */
static cudaError_t fail_error;
static int fail_driver_error;
static const char *failed;
static int failed_value;
static bool failed_now;

void standin_set_devices(const standin_device *described, int count, cudaError_t error)
{
    for (int i = 0; i < count && i < STANDIN_MAX_DEVICES; i++)
        devices[i] = described[i];
    device_count = count < STANDIN_MAX_DEVICES ? count : STANDIN_MAX_DEVICES;
    count_error = error;
}

void standin_set_driver_version(int version)
{
    driver_version = version;
}

static int count_devices(void)
{
    return device_count < 0 ? 1 : device_count;
}

const standin_device *standin_describe(int device)
{
    if (device < 0 || device >= count_devices())
        return NULL;
    return device_count < 0 ? &standin_h200 : &devices[device];
}

int standin_current(void)
{
    return current_device;
}

uint64_t standin_digest(const void *bytes, size_t count, uint64_t seed)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}

void standin_quick(bool on)
{
    standin_is_quick = on;
}

/* --------------------------------------------------------------------------------------------------------- painting */

#define PAINTED 65536 /* bytes of stack: more than plan and execute take */

static int paint = -1;

void standin_paint(int byte)
{
    paint = byte;
}

__attribute__((noinline)) void standin_paint_now(void)
{
    volatile unsigned char below[PAINTED];
    if (paint >= 0)
        memset((void *)(uintptr_t)below, paint, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory"); /* else nothing has to be written */
}

/* -------------------------------------------------------------------------------------------------------- recording */

void standin_record(bool on)
{
    recording = on;
}

void standin_forget_calls(void)
{
    for (size_t i = 0; i < call_count; i++)
        free(calls[i].parameters);
    call_count = 0;
}

size_t standin_call_count(void)
{
    return call_count;
}

const standin_call *standin_call_at(size_t index)
{
    return &calls[index];
}

bool standin_is_launch(const standin_call *call)
{
    return call->grid[0] != 0 || strstr(call->name, "LaunchKernel") != NULL;
}

static void keep(const standin_call *call)
{
    pthread_mutex_lock(&mutex);
    if (recording && call_count == call_capacity) {
        const size_t capacity = call_capacity == 0 ? 256 : 2 * call_capacity;
        standin_call *grown = realloc(calls, capacity * sizeof *grown);
        if (grown == NULL)
            abort(); /* a test without its record shows nothing */
        calls = grown;
        call_capacity = capacity;
    }
    if (recording)
        calls[call_count++] = *call;
    else
        free(call->parameters);
    pthread_mutex_unlock(&mutex);
}

int64_t standin_fail(int64_t nth, cudaError_t error, int driver_error)
{
    const int64_t before = counted;
    counted = 0;
    fail_at = nth;
    fail_error = error;
    fail_driver_error = driver_error;
    failed = NULL;
    return before;
}

const char *standin_failed(void)
{
    return failed;
}

bool standin_failed_setting(int device)
{
    return failed != NULL && strcmp(failed, "cudaSetDevice") == 0 && failed_value == device;
}

static bool is_failing(const char *name)
{
    if (++counted != fail_at)
        return false;
    failed = name;
    failed_now = true;
    return true;
}

cudaError_t standin_begin(standin_call *call, const char *name)
{
    if (paint >= 0)
        standin_paint_now();
    memset(call, 0, sizeof *call);
    call->name = name;
    call->device = current_device;
    return is_failing(name) ? fail_error : cudaSuccess;
}

int standin_begin_driver(standin_call *call, const char *name)
{
    return standin_begin(call, name) == cudaSuccess ? CUDA_SUCCESS : fail_driver_error;
}

static void end(standin_call *call, int result)
{
    if (failed_now)
        failed_value = call->value;
    failed_now = false;
    call->result = result;
    call->arguments = NULL;
    keep(call);
}

cudaError_t standin_end(standin_call *call, cudaError_t error)
{
    end(call, (int)error);
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

int standin_end_driver(standin_call *call, int result)
{
    end(call, result);
    return result;
}

cudaError_t standin_refuse(standin_call *call, cudaError_t error, const char *why)
{
    call->why = why;
    return error;
}

void standin_print_call(FILE *file, const standin_call *call)
{
    fprintf(file, "%s", call->name);
    if (call->kernel != NULL) {
        const uint64_t code = standin_kernel_code(call->kernel);
        if (code != 0)
            fprintf(file, " kernel=%016llx", (unsigned long long)code);
        else
            fprintf(file, " kernel=%s", standin_kernel_name(call->kernel));
    }
    if (standin_is_launch(call)) {
        fprintf(file, " grid=%ux%ux%u block=%ux%ux%u", call->grid[0], call->grid[1], call->grid[2], call->block[0],
                call->block[1], call->block[2]);
        if (call->cluster[0] != 0)
            fprintf(file, " cluster=%ux%ux%u", call->cluster[0], call->cluster[1], call->cluster[2]);
        if (call->overlaps)
            fprintf(file, " overlaps");
        if (call->parameters != NULL)
            fprintf(file, " parameters=%zu:%016llx", call->parameter_bytes,
                    (unsigned long long)standin_digest(call->parameters, call->parameter_bytes, STANDIN_DIGEST_SEED));
    }
    if (call->bytes != 0)
        fprintf(file, " bytes=%zu", call->bytes);
    if (call->value != 0)
        fprintf(file, " value=%d", call->value);
    if (call->memory != NULL)
        fprintf(file, " memory=%p", call->memory);
    if (call->source != NULL)
        fprintf(file, " source=%p", call->source);
    if (call->digest != 0)
        fprintf(file, " digest=%016llx", (unsigned long long)call->digest);
    if (call->result != 0)
        fprintf(file, " result=%d%s%s", call->result, call->why != NULL ? " " : "", call->why != NULL ? call->why : "");
}

/* ------------------------------------------------------------------------------------------------- devices and
 * errors */

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

/* The names of those that the tests play; the texts are ours. */
static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice", "no kernel image is available"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

static size_t find_error(cudaError_t error)
{
    size_t at = 0;
    while (at + 1 < sizeof errors / sizeof errors[0] && errors[at].error != error)
        at++;
    return at;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return errors[find_error(error)].name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return errors[find_error(error)].text;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaGetDeviceCount");
    *count = 0;
    if (error == cudaSuccess && count_devices() == 0)
        error = count_error;
    else if (error == cudaSuccess)
        *count = count_devices();
    return standin_end(&call, error);
}

cudaError_t cudaGetDevice(int *device)
{
    standin_call call;
    if (standin_is_quick) {
        *device = current_device;
        return cudaSuccess;
    }
    cudaError_t error = standin_begin(&call, "cudaGetDevice");
    if (error == cudaSuccess)
        *device = current_device;
    return standin_end(&call, error);
}

cudaError_t cudaSetDevice(int device)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaSetDevice");
    call.value = device;
    if (error == cudaSuccess && standin_describe(device) == NULL)
        error = standin_refuse(&call, cudaErrorInvalidDevice, "there is no such device");
    if (error == cudaSuccess)
        current_device = device;
    return standin_end(&call, error);
}

/* Returns false where the attribute is not simulated. */
static bool find_attribute(const standin_device *device, enum cudaDeviceAttr attribute, int *value)
{
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = device->major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device->minor; break;
    case cudaDevAttrMultiProcessorCount: *value = device->multiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = STANDIN_PLAIN_SHARED; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = device->block_shared; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = device->multiprocessor_shared; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = device->multiprocessor_shared - device->block_shared; break;
    case cudaDevAttrL2CacheSize: *value = device->l2_bytes; break;
    case cudaDevAttrMemoryPoolsSupported: *value = device->memory_pools; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = STANDIN_MAX_THREADS; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: return false;
    }
    return true;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    standin_call call;
    if (standin_is_quick && find_attribute(standin_describe(device), attribute, value))
        return cudaSuccess;
    cudaError_t error = standin_begin(&call, "cudaDeviceGetAttribute");
    const standin_device *described = standin_describe(device);
    call.value = (int)attribute;
    if (error == cudaSuccess && described == NULL)
        error = standin_refuse(&call, cudaErrorInvalidDevice, "there is no such device");
    else if (error == cudaSuccess && !find_attribute(described, attribute, value))
        error = standin_refuse(&call, cudaErrorInvalidValue, "the stand-in does not know this attribute");
    return standin_end(&call, error);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaGetDeviceProperties");
    const standin_device *described = standin_describe(device);
    if (error == cudaSuccess && described == NULL)
        error = standin_refuse(&call, cudaErrorInvalidDevice, "there is no such device");
    if (error == cudaSuccess) {
        memset(properties, 0, sizeof *properties);
        strncpy(properties->name, described->name, sizeof properties->name - 1);
        properties->major = described->major;
        properties->minor = described->minor;
        properties->multiProcessorCount = described->multiprocessors;
        properties->totalGlobalMem = described->memory_bytes;
        properties->l2CacheSize = described->l2_bytes;
        properties->sharedMemPerBlockOptin = (size_t)described->block_shared;
        properties->sharedMemPerMultiprocessor = (size_t)described->multiprocessor_shared;
        properties->warpSize = 32;
    }
    return standin_end(&call, error);
}

int standin_driver_version(void)
{
    return count_error == cudaErrorInsufficientDriver && count_devices() == 0 ? 0 : driver_version;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaDriverGetVersion");
    if (error == cudaSuccess)
        *version = standin_driver_version();
    return standin_end(&call, error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaRuntimeGetVersion");
    if (error == cudaSuccess)
        *version = CUDART_VERSION;
    return standin_end(&call, error);
}
