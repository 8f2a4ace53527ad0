/*
 * The devices: says whether one can be used, and why not, and describes one to a plan and to people.
 *
 * Availability is looked up once and without making a context: a process that only asks, or that works on another
 * device, must not pay for one. Whether a device is served is therefore told from its compute capability and the list
 * of architectures that the build was for; tconv_cuda_resolve then asks the runtime, for the one device that will be
 * used.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

#include "../../core/status.h"
#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "../model/machine.h"
#include "guard.h"

#define TEXT_OF(value) #value
#define TEXT(value)    TEXT_OF(value)

/* The list of CMAKE_CUDA_ARCHITECTURES, with commas: "80-real,90-real,90-virtual", or a word like "native". */
#ifndef TCONV_CUDA_ARCHITECTURES
#define TCONV_CUDA_ARCHITECTURES "unknown"
#endif

#define UNAVAILABLE(issue, ...) tconv_fail(issue, TCONV_ERROR_UNAVAILABLE, "backend", "backend = cuda: " __VA_ARGS__)

static pthread_once_t looked_up = PTHREAD_ONCE_INIT;
static int device_count; /* 0 where availability is not a success */
static tconv_issue availability;

/* Threads of a block of the probe: elsewhere than in sm_90a code it may have fewer. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define PROBE_THREADS 1024
#else
#define PROBE_THREADS 512
#endif

/* It runs on every architecture that the build has code for: the runtime's answer about it tells whether a device is
 * served, and by sm_90a code. */
static __global__ void __launch_bounds__(PROBE_THREADS) architecture_probe()
{
}

/*
 * Says whether one entry of the list serves a compute capability (major * 10 + minor). "90-real" is machine code: it
 * runs on the same major version from this minor version on; "90-virtual" is PTX, for this version and all after it;
 * "90" is both. "90a" runs on 9.0 alone, "100f" on its own major version. An entry that is no number may mean anything.
 */
static bool entry_serves(const char *entry, int capability)
{
    char *suffix;
    long version = strtol(entry, &suffix, 10);
    if (suffix == entry)
        return true;
    if (*suffix == 'a')
        return capability == version;
    bool same_major = capability / 10 == version / 10, not_older = capability >= version;
    if (*suffix == 'f' || strncmp(suffix, "-real", 5) == 0)
        return same_major && not_older;
    return not_older;
}

static bool build_serves(int capability)
{
    for (const char *entry = TCONV_CUDA_ARCHITECTURES; entry != NULL; entry = strchr(entry, ','))
        if (entry_serves(entry += *entry == ',', capability))
            return true;
    return false;
}

/* Asks for major * 10 + minor. Makes no context. */
static tconv_status ask_capability(int device, int *capability, tconv_issue *issue)
{
    int major = 0, minor = 0;
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    *capability = major * 10 + minor;
    return tconv_cuda_check(error, "cudaDeviceGetAttribute", issue);
}

/* Says why there is no device, from the error that cudaGetDeviceCount gave. */
static void explain(cudaError_t error)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorNoDevice)
        UNAVAILABLE(&availability, "no CUDA device");
    else if (error == cudaErrorInsufficientDriver && driver == 0)
        UNAVAILABLE(&availability, "no CUDA driver");
    else if (error == cudaErrorInsufficientDriver)
        UNAVAILABLE(&availability, "the driver is for CUDA %d.%d, older than this build's %d.%d", driver / 1000,
                    driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        UNAVAILABLE(&availability, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

static void look_up(void)
{
    const int errors = tconv_errors_begin();
    int count = 0, served = 0, first = 0;
    tconv_issue silent; /* of a device that does not answer */
    cudaError_t error = cudaGetDeviceCount(&count);
    tconv_issue_clear(&availability);
    tconv_issue_clear(&silent);
    for (int device = 0; error == cudaSuccess && device < count; device++) {
        int capability = 0;
        if (ask_capability(device, &capability, &silent) == TCONV_SUCCESS)
            served += build_serves(capability);
        first = device == 0 ? capability : first;
    }
    if (error != cudaSuccess || count == 0)
        explain(error != cudaSuccess ? error : cudaErrorNoDevice);
    else if (served > 0)
        device_count = count;
    else if (silent.status != TCONV_SUCCESS)
        availability = silent;
    else
        UNAVAILABLE(&availability,
                    "no code for any device here; device 0 has compute capability %d.%d, the build is for %s",
                    first / 10, first % 10, TCONV_CUDA_ARCHITECTURES);
    tconv_errors_end(errors);
}

tconv_status tconv_cuda_available(tconv_issue *issue)
{
    pthread_once(&looked_up, look_up);
    if (availability.status != TCONV_SUCCESS)
        *issue = availability;
    return availability.status;
}

int tconv_cuda_device_count(void)
{
    pthread_once(&looked_up, look_up);
    return device_count;
}

static tconv_status check_ordinal(int device, tconv_issue *issue)
{
    if (device < 0 || device >= device_count)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "device",
                          "device = %d: must be -1 (the current one) or below %d, the number of CUDA devices", device,
                          device_count);
    return TCONV_SUCCESS;
}

/* Returns the multiprocessors that plans reckon with. */
static tconv_status count_multiprocessors(int device, int *count, tconv_issue *issue)
{
#ifdef TCONV_CUDA_MULTIPROCESSORS
    /* They are so few that small layers have many tiles for each: see "Tests" in CONTRIBUTING.md. */
    (void)device, (void)issue;
    *count = TCONV_CUDA_MULTIPROCESSORS;
    return TCONV_SUCCESS;
#else
    return tconv_cuda_check(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device),
                            "cudaDeviceGetAttribute", issue);
#endif
}

/* Fills in the target of the current device; fails where the build has no code for it. */
static tconv_status describe_target(int device, tconv_target *target, tconv_issue *issue)
{
    cudaFuncAttributes attributes;
    int capability, multiprocessors = 0, shared_bytes = 0;
    tconv_status status = ask_capability(device, &capability, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, architecture_probe);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return UNAVAILABLE(issue, "no code for device %d of compute capability %d.%d; the build is for %s", device,
                           capability / 10, capability % 10, TCONV_CUDA_ARCHITECTURES);
    if ((status = tconv_cuda_check(error, "cudaFuncGetAttributes", issue)) ||
        (status = count_multiprocessors(device, &multiprocessors, issue)) ||
        (status =
             tconv_cuda_check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                              "cudaDeviceGetAttribute", issue)))
        return status;
    tconv_cuda_target found;
    found.device = device;
    found.compute_capability = capability;
    found.multiprocessors = multiprocessors;
    found.shared_bytes = shared_bytes;
    found.has_sm90a = capability == 90 && attributes.maxThreadsPerBlock >= 1024;
    tconv_cuda_target_set(target, found);
    return TCONV_SUCCESS;
}

tconv_status tconv_cuda_resolve(int device, tconv_target *target, tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_cuda_available(issue);
    if (status == TCONV_SUCCESS && device == -1) {
        const int errors = tconv_errors_begin();
        status = tconv_cuda_check(cudaGetDevice(&device), "cudaGetDevice", issue);
        tconv_errors_end(errors);
    }
    if (status != TCONV_SUCCESS || (status = check_ordinal(device, issue)) != TCONV_SUCCESS ||
        (status = tconv_device_enter(&guard, device, issue)) != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, describe_target(device, target, issue), issue);
}

tconv_status tconv_cuda_describe_device(int device, tconv_cuda_device_info *info, tconv_issue *issue)
{
    struct cudaDeviceProp properties;
    tconv_status status = tconv_cuda_available(issue);
    if (status != TCONV_SUCCESS || (status = check_ordinal(device, issue)) != TCONV_SUCCESS)
        return status;
    const int errors = tconv_errors_begin();
    status = tconv_cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", issue);
    if (status == TCONV_SUCCESS) {
        memset(info, 0, sizeof *info);
        snprintf(info->name, sizeof info->name, "%.127s", properties.name);
        info->compute_capability = properties.major * 10 + properties.minor;
        info->multiprocessors = properties.multiProcessorCount;
        info->memory_bytes = properties.totalGlobalMem;
        info->l2_bytes = (size_t)properties.l2CacheSize;
    }
    tconv_errors_end(errors);
    return status;
}

const char *tconv_cuda_toolkit(void)
{
    return TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__);
}
