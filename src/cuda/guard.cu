/* The current device and the last error, kept for the caller, and launches. Only returned error codes are looked at, never the
 * last error, which may be the caller's own. */
#include "guard.h"

#include <cuda.h>
#include <pthread.h>

#include "../core/status.h"

tconv_status tconv_cuda_check(cudaError_t error, const char *name, tconv_issue *issue)
{
    if (error == cudaSuccess)
        return TCONV_SUCCESS;
    return tconv_fail(issue, error == cudaErrorMemoryAllocation ? TCONV_ERROR_OUT_OF_MEMORY : TCONV_ERROR_CUDA, "cuda",
                      "%s: %s (%s)", name, cudaGetErrorString(error), cudaGetErrorName(error));
}

static void forget_own_error(const tconv_cuda_guard *guard)
{
    if (guard->before == cudaSuccess)
        cudaGetLastError();
}

tconv_status tconv_cuda_enter(tconv_cuda_guard *guard, int device, tconv_issue *issue)
{
    guard->before = cudaPeekAtLastError();
    tconv_status status = tconv_cuda_check(cudaGetDevice(&guard->previous), "cudaGetDevice", issue);
    if (status == TCONV_SUCCESS) {
        guard->switched = guard->previous != device;
        if (guard->switched)
            status = tconv_cuda_check(cudaSetDevice(device), "cudaSetDevice", issue);
    }
    if (status != TCONV_SUCCESS)
        forget_own_error(guard);
    return status;
}

void tconv_cuda_leave(const tconv_cuda_guard *guard)
{
    if (guard->switched)
        cudaSetDevice(guard->previous);
    forget_own_error(guard);
}

void *tconv_cuda_driver_function(const char *name, unsigned int version)
{
    cudaDriverEntryPointQueryResult result;
    void *found = NULL;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- launches */

typedef CUresult set_attribute_function(CUfunction, CUfunction_attribute, int);

static pthread_once_t set_attribute_looked_up = PTHREAD_ONCE_INIT;
static set_attribute_function *set_attribute; /* NULL where the driver has none */

static void look_up_set_attribute(void)
{
    constexpr unsigned int FIRST_VERSION = 9000; /* of the driver's that has it */
    set_attribute = (set_attribute_function *)tconv_cuda_driver_function("cuFuncSetAttribute", FIRST_VERSION);
}

/* By the driver, of whose calls the runtime's last error knows nothing. What the driver was told in this way, the runtime's own
 * function does not change any more: a kernel's limit has to be the same always. */
static bool allow_shared_quietly(const void *kernel, int bytes)
{
    cudaFunction_t function;
    pthread_once(&set_attribute_looked_up, look_up_set_attribute);
    return set_attribute != NULL && cudaGetFuncBySymbol(&function, kernel) == cudaSuccess &&
           set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) == CUDA_SUCCESS;
}

tconv_status tconv_cuda_allow_shared(const void *kernel, int64_t bytes, tconv_issue *issue)
{
    /* cudaFuncSetAttribute clears the last error also where it succeeds. */
    if (cudaPeekAtLastError() != cudaSuccess && allow_shared_quietly(kernel, (int)bytes))
        return TCONV_SUCCESS;
    return tconv_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                            "cudaFuncSetAttribute", issue);
}

/* From CUDA 12.3 on a captured launch keeps the attribute as an edge of the graph. */
static constexpr int FIRST_OVERLAPPING = 12030;

static pthread_once_t overlap_looked_up = PTHREAD_ONCE_INIT;
static bool driver_overlaps;

static void look_up_overlap(void)
{
    int version = 0;
    driver_overlaps = cudaDriverGetVersion(&version) == cudaSuccess && version >= FIRST_OVERLAPPING;
}

static cudaError_t launch(const tconv_cuda_grid *grid, void **arguments, cudaStream_t stream)
{
    const dim3 blocks((unsigned int)grid->blocks), threads((unsigned int)grid->threads);
#if CUDART_VERSION >= 12030
    int device = 0, major = 0;
    pthread_once(&overlap_looked_up, look_up_overlap);
    if (grid->overlaps && driver_overlaps && cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9) {
        cudaLaunchAttribute overlap = {};
        overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t configuration = {};
        configuration.gridDim = blocks;
        configuration.blockDim = threads;
        configuration.dynamicSmemBytes = (size_t)grid->shared_bytes;
        configuration.stream = stream;
        configuration.attrs = &overlap;
        configuration.numAttrs = 1;
        return cudaLaunchKernelExC(&configuration, grid->kernel, arguments);
    }
#endif
    return cudaLaunchKernel(grid->kernel, blocks, threads, arguments, (size_t)grid->shared_bytes, stream);
}

tconv_status tconv_cuda_launch_grid(const tconv_cuda_grid *grid, void **arguments, void *stream, tconv_issue *issue)
{
    return tconv_cuda_check(launch(grid, arguments, (cudaStream_t)stream), "cudaLaunchKernel", issue);
}

int tconv_cuda_multiprocessors(int device)
{
#ifdef TCONV_CUDA_MULTIPROCESSORS /* so few that small layers have many tiles for each: see "Tests" in CONTRIBUTING.md */
    (void)device;
    return TCONV_CUDA_MULTIPROCESSORS;
#else
    int count = 0;
    if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || count < 1)
        return 1;
    return count;
#endif
}
