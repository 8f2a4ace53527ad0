/* Launches leave the caller's last error alone, also where a kernel needs more shared memory than 48 KB. */
#include "launch.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

#include "../../core/checked.h"
#include "guard.h"

enum {
    MAX_GRID = INT32_MAX,       /* blocks of a grid */
    FREE_SHARED = 48 * 1024,    /* bytes of shared memory that a kernel may have without asking */
    FIRST_SET_ATTRIBUTE = 9000, /* the first version of the driver's API that has cuFuncSetAttribute */
    FIRST_OVERLAPPING = 12030   /* from CUDA 12.3 on a captured launch keeps the attribute as an edge of the graph */
};

typedef CUresult set_attribute_function(CUfunction, CUfunction_attribute, int);

static pthread_once_t set_attribute_looked_up = PTHREAD_ONCE_INIT;
static set_attribute_function *set_attribute; /* NULL where the driver has none */

static void look_up_set_attribute(void)
{
    tconv_find_driver_function("cuFuncSetAttribute", FIRST_SET_ATTRIBUTE, &set_attribute);
}

/* The driver's call leaves the runtime's last error alone. A limit that was set in this way, the runtime's own function
 * does not change any more: a kernel's limit has to be the same always. */
static bool allow_shared_quietly(const void *kernel, int bytes)
{
    cudaFunction_t function;
    pthread_once(&set_attribute_looked_up, look_up_set_attribute);
    return set_attribute != NULL && cudaGetFuncBySymbol(&function, kernel) == cudaSuccess &&
           set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) == CUDA_SUCCESS;
}

tconv_status tconv_allow_shared(const void *kernel, int64_t bytes, tconv_issue *issue)
{
    /* cudaFuncSetAttribute clears the last error also where it succeeds. */
    if (cudaPeekAtLastError() != cudaSuccess && allow_shared_quietly(kernel, (int)bytes))
        return TCONV_SUCCESS;
    return tconv_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                            "cudaFuncSetAttribute", issue);
}

tconv_status tconv_resident_blocks(const void *kernel, int threads, int64_t shared_bytes, int *blocks,
                                   tconv_issue *issue)
{
    return tconv_cuda_check(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                                blocks, kernel, threads, (size_t)shared_bytes, cudaOccupancyDefault),
                            "cudaOccupancyMaxActiveBlocksPerMultiprocessor", issue);
}

static pthread_once_t overlap_looked_up = PTHREAD_ONCE_INIT;
static bool driver_overlaps;

static void look_up_overlap(void)
{
#ifdef TCONV_CUDA_FOR_RACECHECK /* which fails on kernels that overlap */
    driver_overlaps = false;
#else
    int version = 0;
    driver_overlaps = cudaDriverGetVersion(&version) == cudaSuccess && version >= FIRST_OVERLAPPING;
#endif
}

static cudaError_t launch_with(const launch_grid *grid, void **arguments, cudaStream_t stream,
                               cudaLaunchAttribute *attributes, unsigned count)
{
    cudaLaunchConfig_t configuration;
    memset(&configuration, 0, sizeof configuration);
    configuration.gridDim = (struct dim3){(unsigned)grid->blocks, 1, 1};
    configuration.blockDim = (struct dim3){(unsigned)grid->threads, 1, 1};
    configuration.dynamicSmemBytes = (size_t)grid->shared_bytes;
    configuration.stream = stream;
    configuration.attrs = attributes;
    configuration.numAttrs = count;
    return cudaLaunchKernelExC(&configuration, grid->kernel, arguments);
}

static cudaError_t launch(const launch_grid *grid, void **arguments, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[2];
    unsigned count = 0;
    memset(attributes, 0, sizeof attributes);
    if (grid->cluster_blocks > 0) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = (unsigned)grid->cluster_blocks;
        attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
        count++;
    }
#if CUDART_VERSION >= 12030
    pthread_once(&overlap_looked_up, look_up_overlap);
    if (grid->overlaps && driver_overlaps) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count].val.programmaticStreamSerializationAllowed = 1;
        count++;
    }
#endif
    if (count > 0)
        return launch_with(grid, arguments, stream, attributes, count);
    return cudaLaunchKernel(grid->kernel, (struct dim3){(unsigned)grid->blocks, 1, 1},
                            (struct dim3){(unsigned)grid->threads, 1, 1}, arguments, (size_t)grid->shared_bytes,
                            stream);
}

tconv_status tconv_launch_kernel(const launch_grid *grid, void **arguments, void *stream, tconv_issue *issue)
{
    return tconv_cuda_check(launch(grid, arguments, (cudaStream_t)stream), "cudaLaunchKernel", issue);
}

static tconv_status launch_once(launch_grid grid, void **arguments, void *stream, tconv_issue *issue)
{
    grid.blocks = tconv_min(grid.blocks, MAX_GRID);
    const tconv_status status =
        grid.shared_bytes > FREE_SHARED ? tconv_allow_shared(grid.kernel, grid.shared_bytes, issue) : TCONV_SUCCESS;
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, arguments, stream, issue) : status;
}

tconv_status tconv_launch_blocks(const void *function, int64_t blocks, int threads, void **arguments, void *stream,
                                 tconv_issue *issue, bool overlaps)
{
    return launch_once((launch_grid){function, blocks, threads, 0, overlaps, 0}, arguments, stream, issue);
}

tconv_status tconv_launch_blocks_shared(const void *function, int64_t blocks, int threads, int64_t shared_bytes,
                                        void **arguments, void *stream, tconv_issue *issue)
{
    return launch_once((launch_grid){function, blocks, threads, shared_bytes, false, 0}, arguments, stream, issue);
}

tconv_status tconv_launch_on_device(const launch_grid *grid, void **arguments, int device, void *stream,
                                    tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_allow_shared(grid->kernel, grid->shared_bytes, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_launch_kernel(grid, arguments, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}
